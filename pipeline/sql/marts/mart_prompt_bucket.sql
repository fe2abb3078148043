-- mart_prompt_bucket: histogram of prompt lengths in logarithmic buckets.
-- Grain: (day, model_group, client, team_id, bucket).
-- Sources: fct_call. Parameters: $window_start, $window_end.
-- Meaning: bucket i holds prompts of (1.02^(i-1), 1.02^i] tokens, so counts of days, teams and models add up
--   and a percentile read from them is off by at most 1 %. Calls an engine answered whose input is known.
SELECT
  start_date AS day,
  model_group,
  client,
  team_id,
  CAST(CEIL(LN(CAST(input_tokens AS DOUBLE)) / LN(1.02)) AS INTEGER) AS bucket,
  COUNT(*) AS calls,
  SUM(input_tokens) AS input_tokens
FROM fct_call
WHERE is_engine = 1
  AND input_tokens > 0
  AND start_at >= CAST($window_start AS TIMESTAMP) AND start_at < CAST($window_end AS TIMESTAMP)
GROUP BY start_date, model_group, client, team_id, CAST(CEIL(LN(CAST(input_tokens AS DOUBLE)) / LN(1.02)) AS INTEGER)
