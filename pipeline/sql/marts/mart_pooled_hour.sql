-- mart_pooled_hour: the pooled rule: percentiles over all calls of an hour, whatever their turn.
-- Grain: (hour_start, tier).
-- Sources: fct_call, prm_slo_tier, prm_hour.
-- Meaning: an hour passes when the 95th percentile of time to first token and the 25th of speed, over the
--   calls that started in it and have one, keep the tier. The rule of a published benchmark, for comparison.
SELECT
  h.hour_start,
  t.tier,
  COUNT(*) AS calls,
  COUNT(c.ttft_ms) AS calls_with_ttft,
  COUNT(c.tokens_per_s) AS calls_with_speed,
  QUANTILE_CONT(c.ttft_ms, 0.95) AS ttft_ms_p95,
  QUANTILE_CONT(c.tokens_per_s, 0.25) AS tokens_per_s_p25,
  CASE
    WHEN QUANTILE_CONT(c.ttft_ms, 0.95) <= MAX(t.ttft_s) * 1000
      AND QUANTILE_CONT(c.tokens_per_s, 0.25) >= MAX(t.speed_tok_s) THEN 1
    ELSE 0
  END AS passes
FROM prm_hour AS h
JOIN fct_call AS c ON c.start_at >= h.start_at AND c.start_at < h.end_at
CROSS JOIN prm_slo_tier AS t
WHERE c.is_engine = 1 AND c.is_external = 0
GROUP BY h.hour_start, t.tier
