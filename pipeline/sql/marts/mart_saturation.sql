-- mart_saturation: whether the engine was ever near its limit in the window.
-- Grain: one row.
-- Sources: raw_metric. Parameters: $window_start, $window_end.
-- Meaning: a served ratio of a window without waiting requests and with spare KV cache is a lower bound of
--   what the hardware can carry.
SELECT
  MAX(CASE WHEN name IN ('vllm:kv_cache_usage_perc', 'vllm:gpu_cache_usage_perc') THEN value END) AS kv_usage_max,
  MAX(CASE WHEN name = 'vllm:num_requests_waiting' THEN value END) AS waiting_max,
  SUM(CASE WHEN name = 'vllm:num_requests_waiting' AND value > 0 THEN 1 ELSE 0 END) AS waiting_samples,
  SUM(CASE WHEN name = 'vllm:num_requests_waiting' THEN 1 ELSE 0 END) AS samples
FROM raw_metric
WHERE ts >= CAST($window_start AS TIMESTAMP) AND ts <= CAST($window_end AS TIMESTAMP)
