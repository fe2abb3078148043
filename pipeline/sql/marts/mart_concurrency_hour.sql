-- mart_concurrency_hour: mean calls in flight by hour of the window.
-- Grain: one row an hour, hours without a call included.
-- Sources: mart_concurrency_level.
-- Meaning: the time that engine calls, retries and subagents included, were in flight in the hour ÷ the length of
--   the hour inside the window. Its quantiles by hour of the week are what a fleet is sized on.
-- Additive: no (a mean); Σ seconds × mean_calls is.
SELECT
  hour_start,
  SUM(seconds) AS seconds,
  SUM(calls_in_flight * seconds) / SUM(seconds) AS mean_calls
FROM mart_concurrency_level
GROUP BY hour_start
