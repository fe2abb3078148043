-- mart_realised: additive sums behind the realised prefix hit.
-- Grain: (hour, model_group, client, team_id, category, position, break_reason, idle_bin).
-- Sources: fct_call, mart_suspect_cell. Parameters: $window_start, $window_end.
-- Meaning: hit = Σ cached_tokens ÷ Σ reporting_input_tokens, over calls whose backend reported cached tokens;
--   coverage = Σ reporting_calls ÷ Σ calls. Response-cache hits and rejected calls reached no engine and are
--   left out; calls of a suspect cell count as not reporting.
SELECT
  DATE_TRUNC('hour', c.start_at) AS hour,
  c.model_group,
  c.client,
  c.team_id,
  c.category,
  c.position,
  c.break_reason,
  c.idle_bin,
  COUNT(*) AS calls,
  SUM(c.input_tokens) AS input_tokens,
  SUM(CASE WHEN c.cached_tokens IS NOT NULL AND s.provider IS NULL THEN 1 ELSE 0 END) AS reporting_calls,
  SUM(CASE WHEN c.cached_tokens IS NOT NULL AND s.provider IS NULL THEN c.input_tokens END)
    AS reporting_input_tokens,
  SUM(CASE WHEN s.provider IS NULL THEN c.cached_tokens END) AS cached_tokens,
  SUM(CASE WHEN c.cached_tokens IS NOT NULL AND s.provider IS NULL THEN c.cache_write_tokens END)
    AS cache_write_tokens,
  SUM(CASE WHEN s.provider IS NOT NULL THEN 1 ELSE 0 END) AS suspect_calls
FROM fct_call AS c
LEFT JOIN mart_suspect_cell AS s ON s.provider = c.provider AND s.is_stream = c.is_stream
WHERE c.is_engine = 1
  AND c.start_at >= CAST($window_start AS TIMESTAMP) AND c.start_at < CAST($window_end AS TIMESTAMP)
GROUP BY
  DATE_TRUNC('hour', c.start_at), c.model_group, c.client, c.team_id, c.category, c.position, c.break_reason,
  c.idle_bin
