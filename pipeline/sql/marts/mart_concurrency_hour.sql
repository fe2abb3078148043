-- mart_concurrency_hour: mean calls in flight by hour of the window.
-- Grain: one row an hour, hours without a call included.
-- Sources: fct_call, prm_hour.
-- Meaning: the time that engine calls, retries and subagents included, were in flight in the hour ÷ the length of
--   the hour inside the window. Its quantiles by hour of the week are what a fleet is sized on.
SELECT
  h.hour_start,
  CAST(DATE_DIFF('microsecond', h.start_at, h.end_at) AS DOUBLE) / 1e6 AS seconds,
  COALESCE(
    SUM(CAST(DATE_DIFF('microsecond', GREATEST(c.start_at, h.start_at), LEAST(c.end_at, h.end_at)) AS DOUBLE)), 0
  ) / CAST(DATE_DIFF('microsecond', h.start_at, h.end_at) AS DOUBLE) AS mean_calls
FROM prm_hour AS h
LEFT JOIN fct_call AS c
  ON c.is_engine = 1
  AND c.start_at < h.end_at
  AND c.end_at > h.start_at
WHERE h.end_at > h.start_at
GROUP BY h.hour_start, h.start_at, h.end_at
