-- mart_concurrency_level: for how long how many calls were in flight.
-- Grain: (hour_start, calls_in_flight).
-- Sources: fct_call, prm_hour. Parameters: $window_start, $window_end.
-- Meaning: seconds of the hour, inside the window, with so many engine calls in flight; retries and subagents
--   included, a call that is still open left out. Time-weighted quantiles of hours, days and hours of the week come
--   from adding up seconds of equal levels. Hours begin with points of their own in
--   the sweep, so that no level runs from one hour into the next.
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
point AS (
  SELECT start_at AS instant, 1 AS step FROM span
  UNION ALL
  SELECT end_at AS instant, -1 AS step FROM span
  UNION ALL
  SELECT start_at AS instant, 0 AS step FROM prm_hour
),
swept AS (
  SELECT
    instant,
    SUM(step) OVER (ORDER BY instant ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS calls_in_flight,
    COALESCE(LEAD(instant) OVER (ORDER BY instant), CAST($window_end AS TIMESTAMP)) AS next_instant
  FROM point
)
SELECT
  DATE_TRUNC('hour', instant) AS hour_start,
  CAST(calls_in_flight AS BIGINT) AS calls_in_flight,
  SUM(DATE_DIFF('microsecond', instant, next_instant)) / 1e6 AS seconds
FROM swept
GROUP BY DATE_TRUNC('hour', instant), calls_in_flight
HAVING SUM(DATE_DIFF('microsecond', instant, next_instant)) > 0
