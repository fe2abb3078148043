-- mart_concurrency: mean calls in flight over the window, from a sweep over starts and ends.
-- Grain: one row a scope: attended main (main thread, not failed), attended, all.
-- Sources: fct_call. Parameters: $window_start, $window_end.
-- Meaning: the time integral of the number of open calls ÷ the window. It is computed from instants, not from
--   the calls' durations, so it checks D·ρ·A, which is.
WITH span AS (
  SELECT
    GREATEST(start_at, CAST($window_start AS TIMESTAMP)) AS start_at,
    LEAST(end_at, CAST($window_end AS TIMESTAMP)) AS end_at,
    is_attended,
    CASE WHEN agent_kind = 'main' AND outcome <> 'failure' THEN 1 ELSE 0 END AS is_main
  FROM fct_call
  WHERE end_at IS NOT NULL
    AND is_engine = 1
    AND end_at > CAST($window_start AS TIMESTAMP)
    AND start_at < CAST($window_end AS TIMESTAMP)
),
edge AS (
  SELECT start_at AS instant, 1 AS step, is_attended, is_main FROM span
  UNION ALL
  SELECT end_at AS instant, -1 AS step, is_attended, is_main FROM span
),
level AS (
  SELECT
    instant,
    SUM(SUM(step)) OVER (ORDER BY instant ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS n_all,
    SUM(SUM(step * is_attended)) OVER (ORDER BY instant ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
      AS n_attended,
    SUM(SUM(step * is_attended * is_main)) OVER (ORDER BY instant ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
      AS n_main,
    LEAD(instant) OVER (ORDER BY instant) AS next_instant
  FROM edge
  GROUP BY instant
)
SELECT
  COALESCE(SUM(n_all * DATE_DIFF('microsecond', instant, next_instant)), 0) / 3.6e9 AS all_hours,
  COALESCE(SUM(n_attended * DATE_DIFF('microsecond', instant, next_instant)), 0) / 3.6e9 AS attended_hours,
  COALESCE(SUM(n_main * DATE_DIFF('microsecond', instant, next_instant)), 0) / 3.6e9 AS attended_main_hours,
  MAX(n_all) AS peak_calls
FROM level
WHERE next_instant IS NOT NULL
