-- mart_energy_island: stretches of the window in which every device of a boundary was measured.
-- Grain: (scope, start_at).
-- Sources: mart_energy_segment, prm_power_device (scope, devices = how many devices were seen at all).
--   Parameters: $window_start, $window_end.
-- Meaning: only these seconds count, in the numerator (agents) as in the denominator (energy); a device that
--   is silent for a while takes that while out for all.
WITH edge AS (
  SELECT scope, GREATEST(start_at, CAST($window_start AS TIMESTAMP)) AS instant, 1 AS step
  FROM mart_energy_segment
  WHERE is_chosen = 1
  UNION ALL
  SELECT scope, LEAST(end_at, CAST($window_end AS TIMESTAMP)) AS instant, -1 AS step
  FROM mart_energy_segment
  WHERE is_chosen = 1
),
level AS (
  SELECT
    scope,
    instant,
    SUM(SUM(step)) OVER (PARTITION BY scope ORDER BY instant ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
      AS measured,
    LEAD(instant) OVER (PARTITION BY scope ORDER BY instant) AS next_instant
  FROM edge
  GROUP BY scope, instant
),
full_cover AS (
  SELECT
    l.scope,
    l.instant,
    l.next_instant,
    CASE
      WHEN LAG(l.next_instant) OVER (PARTITION BY l.scope ORDER BY l.instant) = l.instant THEN 0 ELSE 1
    END AS opens
  FROM level AS l
  JOIN prm_power_device AS d ON d.scope = l.scope
  WHERE l.measured >= d.devices AND l.next_instant IS NOT NULL
),
numbered AS (
  SELECT
    scope,
    instant,
    next_instant,
    SUM(opens) OVER (PARTITION BY scope ORDER BY instant ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS island
  FROM full_cover
)
SELECT scope, island, MIN(instant) AS start_at, MAX(next_instant) AS end_at
FROM numbered
GROUP BY scope, island
