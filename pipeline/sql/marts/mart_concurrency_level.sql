-- mart_concurrency_level: for how long how many calls were in flight.
-- Grain: (hour_start, calls_in_flight).
-- Sources: fct_call, prm_hour. Parameters: $window_start, $window_end.
-- Meaning: seconds of the hour, inside the window, with so many engine calls in flight; retries and subagents
--   included, a call that is still open left out. Time-weighted quantiles of hours, days and hours of the week come
--   from adding up seconds of equal levels. Each hour is swept by itself from the level it begins with.
-- Additive: yes.
WITH span AS (
  SELECT
    GREATEST(start_at, CAST($window_start AS TIMESTAMP)) AS start_at,
    LEAST(end_at, CAST($window_end AS TIMESTAMP)) AS end_at
  FROM fct_call
  WHERE is_engine = 1
    AND end_at > start_at
    AND end_at > CAST($window_start AS TIMESTAMP)
    AND start_at < CAST($window_end AS TIMESTAMP)
),
edge AS (
  SELECT DATE_TRUNC('hour', start_at) AS hour_start, start_at AS instant, 1 AS step FROM span
  UNION ALL
  SELECT DATE_TRUNC('hour', end_at) AS hour_start, end_at AS instant, -1 AS step FROM span
),
net AS (
  SELECT hour_start, SUM(step) AS step FROM edge GROUP BY hour_start
),
opening AS (
  SELECT
    h.hour_start,
    h.start_at,
    h.end_at,
    COALESCE(
      SUM(n.step) OVER (ORDER BY h.hour_start ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0
    ) AS calls_in_flight
  FROM prm_hour AS h
  LEFT JOIN net AS n ON n.hour_start = h.hour_start
),
point AS (
  SELECT hour_start, start_at AS instant, calls_in_flight AS step FROM opening
  UNION ALL
  SELECT e.hour_start, e.instant, e.step FROM edge AS e
),
swept AS (
  SELECT
    hour_start,
    instant,
    SUM(step) OVER (PARTITION BY hour_start ORDER BY instant ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
      AS calls_in_flight,
    LEAD(instant) OVER (PARTITION BY hour_start ORDER BY instant) AS next_instant
  FROM point
)
SELECT
  s.hour_start,
  CAST(s.calls_in_flight AS BIGINT) AS calls_in_flight,
  SUM(DATE_DIFF('microsecond', s.instant, COALESCE(s.next_instant, o.end_at))) / 1e6 AS seconds
FROM swept AS s
JOIN opening AS o ON o.hour_start = s.hour_start
GROUP BY s.hour_start, s.calls_in_flight
HAVING SUM(DATE_DIFF('microsecond', s.instant, COALESCE(s.next_instant, o.end_at))) > 0
