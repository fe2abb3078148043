-- mart_energy_island: stretches of the window in which every device of a pool was measured.
-- Grain: (scope, pool, start_at); pool '*' is all pools together.
-- Sources: mart_energy_segment, prm_power_place (scope, pool, device, start_at, end_at: when a device serves a
--   pool, cut at the window).
-- Meaning: only these seconds count, in the numerator (agents) as in the denominator (energy); a device that
--   is silent for a while takes that while out for all. A device that serves from Tuesday on is not expected
--   before.
WITH edge AS (
  SELECT scope, pool, start_at AS instant, 1 AS expected_step, 0 AS measured_step FROM prm_power_place
  UNION ALL
  SELECT scope, pool, end_at AS instant, -1 AS expected_step, 0 AS measured_step FROM prm_power_place
  UNION ALL
  SELECT p.scope, p.pool, GREATEST(s.start_at, p.start_at) AS instant, 0 AS expected_step, 1 AS measured_step
  FROM mart_energy_segment AS s
  JOIN prm_power_place AS p ON p.scope = s.scope AND p.device = s.device
  WHERE s.is_chosen = 1 AND s.start_at < p.end_at AND s.end_at > p.start_at
  UNION ALL
  SELECT p.scope, p.pool, LEAST(s.end_at, p.end_at) AS instant, 0 AS expected_step, -1 AS measured_step
  FROM mart_energy_segment AS s
  JOIN prm_power_place AS p ON p.scope = s.scope AND p.device = s.device
  WHERE s.is_chosen = 1 AND s.start_at < p.end_at AND s.end_at > p.start_at
),
level AS (
  SELECT
    scope,
    pool,
    instant,
    SUM(SUM(expected_step)) OVER (
      PARTITION BY scope, pool ORDER BY instant ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS expected,
    SUM(SUM(measured_step)) OVER (
      PARTITION BY scope, pool ORDER BY instant ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS measured,
    LEAD(instant) OVER (PARTITION BY scope, pool ORDER BY instant) AS next_instant
  FROM edge
  GROUP BY scope, pool, instant
),
full_cover AS (
  SELECT
    scope,
    pool,
    instant,
    next_instant,
    CASE
      WHEN LAG(next_instant) OVER (PARTITION BY scope, pool ORDER BY instant) = instant THEN 0 ELSE 1
    END AS opens
  FROM level
  WHERE expected > 0 AND measured >= expected AND next_instant IS NOT NULL
),
numbered AS (
  SELECT
    scope,
    pool,
    instant,
    next_instant,
    SUM(opens) OVER (PARTITION BY scope, pool ORDER BY instant ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
      AS island
  FROM full_cover
)
SELECT scope, pool, island, MIN(instant) AS start_at, MAX(next_instant) AS end_at
FROM numbered
GROUP BY scope, pool, island
