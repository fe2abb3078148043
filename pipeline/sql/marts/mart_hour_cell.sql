-- mart_hour_cell: sums behind the realised and the potential prefix hit.
-- Grain: (hour, model_group, client, team_id, category, position, break_reason, idle_bin). Built for other marts, not
--   published.
-- Sources: fct_call, mart_suspect_cell. Parameters: $window_start, $window_end.
-- Meaning: engine calls, read once for both hits. chain_…: calls whose potential prefix within that retention is known;
--   reporting_…: those that also report cached tokens. suspect cells: see mart_suspect_cell.
-- Additive: yes.
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
  SUM(CASE WHEN s.provider IS NOT NULL THEN 1 ELSE 0 END) AS suspect_calls,
  COUNT(c.potential_inf_tokens) AS chain_inf_calls,
  SUM(CASE WHEN c.potential_inf_tokens IS NOT NULL THEN c.input_tokens END) AS chain_inf_input_tokens,
  SUM(c.potential_inf_tokens) AS potential_inf_tokens,
  SUM(CASE WHEN c.cached_tokens IS NOT NULL AND c.potential_inf_tokens IS NOT NULL THEN c.input_tokens END)
    AS reporting_chain_inf_input_tokens,
  SUM(CASE WHEN c.cached_tokens IS NOT NULL THEN c.potential_inf_tokens END) AS reporting_potential_inf_tokens,
  COUNT(c.potential_3600_tokens) AS chain_3600_calls,
  SUM(CASE WHEN c.potential_3600_tokens IS NOT NULL THEN c.input_tokens END) AS chain_3600_input_tokens,
  SUM(c.potential_3600_tokens) AS potential_3600_tokens,
  SUM(CASE WHEN c.cached_tokens IS NOT NULL AND c.potential_3600_tokens IS NOT NULL THEN c.input_tokens END)
    AS reporting_chain_3600_input_tokens,
  SUM(CASE WHEN c.cached_tokens IS NOT NULL THEN c.potential_3600_tokens END) AS reporting_potential_3600_tokens,
  COUNT(c.potential_300_tokens) AS chain_300_calls,
  SUM(CASE WHEN c.potential_300_tokens IS NOT NULL THEN c.input_tokens END) AS chain_300_input_tokens,
  SUM(c.potential_300_tokens) AS potential_300_tokens,
  SUM(CASE WHEN c.cached_tokens IS NOT NULL AND c.potential_300_tokens IS NOT NULL THEN c.input_tokens END)
    AS reporting_chain_300_input_tokens,
  SUM(CASE WHEN c.cached_tokens IS NOT NULL THEN c.potential_300_tokens END) AS reporting_potential_300_tokens
FROM fct_call AS c
LEFT JOIN mart_suspect_cell AS s ON s.provider = c.provider AND s.is_stream = c.is_stream
WHERE c.is_engine = 1
  AND c.start_at >= CAST($window_start AS TIMESTAMP) AND c.start_at < CAST($window_end AS TIMESTAMP)
GROUP BY
  DATE_TRUNC('hour', c.start_at), c.model_group, c.client, c.team_id, c.category, c.position, c.break_reason,
  c.idle_bin
