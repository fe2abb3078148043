-- mart_count_cost: what LiteLLM's token counter costs, by size of the prompt and of the tool catalogue.
-- Grain: (day, prompt_bucket, catalogue_bucket, bucket).
-- Sources: fct_call, prm_prompt_size, prm_catalogue_size (label, above, up_to). Parameters: $window_start, $window_end.
-- Meaning: calls whose counting was measured and whose prompt length is known. bucket i holds calls of
--   (1.02^(i-1), 1.02^i] ms in the counter (0 holds those of at most 1 ms), so that days add up.
-- Additive: yes.
SELECT
  c.start_date AS day,
  p.label AS prompt_bucket,
  t.label AS catalogue_bucket,
  CAST(CEIL(LN(GREATEST(CAST(c.count_ms AS DOUBLE), 1.0)) / LN(1.02)) AS INTEGER) AS bucket,
  COUNT(*) AS calls,
  SUM(c.count_ms) AS count_ms,
  SUM(c.count_calls) AS count_calls
FROM fct_call AS c
JOIN prm_prompt_size AS p ON c.input_tokens > p.above AND c.input_tokens <= p.up_to
JOIN prm_catalogue_size AS t ON COALESCE(c.tools_bytes, 0) > t.above AND COALESCE(c.tools_bytes, 0) <= t.up_to
WHERE c.count_ms >= 0
  AND c.start_at >= CAST($window_start AS TIMESTAMP) AND c.start_at < CAST($window_end AS TIMESTAMP)
GROUP BY
  c.start_date, p.label, t.label,
  CAST(CEIL(LN(GREATEST(CAST(c.count_ms AS DOUBLE), 1.0)) / LN(1.02)) AS INTEGER)
