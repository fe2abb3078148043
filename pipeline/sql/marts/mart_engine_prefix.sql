-- mart_engine_prefix: prefix-cache hit as the engine's own counters tell it.
-- Grain: (hour, target).
-- Sources: raw_metric. Parameters: $window_start, $window_end.
-- Meaning: hits ÷ queries, both in tokens, from per-series deltas. A counter that falls was restarted: the
--   delta is then the new value. Names changed over the years; where a target has several, the newest counts
--   and they are never added. overcounted: queries grew more than 1.05 times as much as prompt tokens
--   (re-queued requests are looked up again). preemptions are shown because recomputation counts as hits.
WITH named AS (
  SELECT
    ts, target, labels, value,
    CASE name
      WHEN 'vllm:prefix_cache_hits_total' THEN 'hits'
      WHEN 'vllm:prefix_cache_hits' THEN 'hits'
      WHEN 'vllm:gpu_prefix_cache_hits_total' THEN 'hits'
      WHEN 'vllm:gpu_prefix_cache_hits' THEN 'hits'
      WHEN 'vllm:prefix_cache_queries_total' THEN 'queries'
      WHEN 'vllm:prefix_cache_queries' THEN 'queries'
      WHEN 'vllm:gpu_prefix_cache_queries_total' THEN 'queries'
      WHEN 'vllm:gpu_prefix_cache_queries' THEN 'queries'
      WHEN 'vllm:prompt_tokens_total' THEN 'prompt'
      WHEN 'vllm:num_preemptions_total' THEN 'preemptions'
    END AS quantity,
    CASE name
      WHEN 'vllm:prefix_cache_hits_total' THEN 1
      WHEN 'vllm:prefix_cache_queries_total' THEN 1
      WHEN 'vllm:prompt_tokens_total' THEN 1
      WHEN 'vllm:num_preemptions_total' THEN 1
      WHEN 'vllm:prefix_cache_hits' THEN 2
      WHEN 'vllm:prefix_cache_queries' THEN 2
      WHEN 'vllm:gpu_prefix_cache_hits_total' THEN 3
      WHEN 'vllm:gpu_prefix_cache_queries_total' THEN 3
      ELSE 4
    END AS preference
  FROM raw_metric
  WHERE ts >= CAST($window_start AS TIMESTAMP) - INTERVAL 1 HOUR
    AND ts <= CAST($window_end AS TIMESTAMP)
    AND name LIKE 'vllm:%'
    AND value >= 0
),
preferred AS (
  SELECT target, quantity, MIN(preference) AS preference
  FROM named
  WHERE quantity IS NOT NULL
  GROUP BY target, quantity
),
series AS (
  SELECT
    n.ts, n.target, n.labels, n.quantity, n.value,
    LAG(n.value) OVER (PARTITION BY n.target, n.labels, n.quantity ORDER BY n.ts) AS previous_value
  FROM (
    SELECT ts, target, labels, quantity, preference, MAX(value) AS value
    FROM named
    WHERE quantity IS NOT NULL
    GROUP BY ts, target, labels, quantity, preference
  ) AS n
  JOIN preferred AS p ON p.target = n.target AND p.quantity = n.quantity AND p.preference = n.preference
),
delta AS (
  SELECT
    DATE_TRUNC('hour', ts) AS hour,
    target,
    quantity,
    CASE WHEN value >= previous_value THEN value - previous_value ELSE value END AS delta,
    CASE WHEN value < previous_value THEN 1 ELSE 0 END AS is_reset
  FROM series
  WHERE previous_value IS NOT NULL AND ts >= CAST($window_start AS TIMESTAMP)
)
SELECT
  hour,
  target,
  SUM(CASE WHEN quantity = 'hits' THEN delta END) AS hit_tokens,
  SUM(CASE WHEN quantity = 'queries' THEN delta END) AS query_tokens,
  SUM(CASE WHEN quantity = 'prompt' THEN delta END) AS prompt_tokens,
  SUM(CASE WHEN quantity = 'preemptions' THEN delta END) AS preemptions,
  SUM(is_reset) AS resets
FROM delta
GROUP BY hour, target
