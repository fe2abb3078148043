-- mart_ttft_bucket: histogram of times to first token by prompt size, in logarithmic buckets.
-- Grain: (day, model_group, prompt_bucket, bucket).
-- Sources: fct_call, prm_prompt_size (label, above, up_to). Parameters: $window_start, $window_end.
-- Meaning: bucket i holds calls of (1.02^(i-1), 1.02^i] ms, so that counts of days and models add up and a percentile
--   read from them is off by at most 1 %. Successful engine calls that streamed and whose prompt length is known.
-- Additive: yes.
SELECT
  c.start_date AS day,
  c.model_group,
  p.label AS prompt_bucket,
  CAST(CEIL(LN(GREATEST(CAST(c.ttft_ms AS DOUBLE), 1.0)) / LN(1.02)) AS INTEGER) AS bucket,
  COUNT(*) AS calls,
  SUM(c.ttft_ms) AS ttft_ms
FROM fct_call AS c
JOIN prm_prompt_size AS p ON c.input_tokens > p.above AND c.input_tokens <= p.up_to
WHERE c.is_engine = 1
  AND c.outcome = 'success'
  AND c.ttft_ms >= 0
  AND c.start_at >= CAST($window_start AS TIMESTAMP) AND c.start_at < CAST($window_end AS TIMESTAMP)
GROUP BY
  c.start_date, c.model_group, p.label,
  CAST(CEIL(LN(GREATEST(CAST(c.ttft_ms AS DOUBLE), 1.0)) / LN(1.02)) AS INTEGER)
