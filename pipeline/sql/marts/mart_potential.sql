-- mart_potential: additive sums behind the potential prefix hit.
-- Grain: (hour, retention, model_group, client, team_id, category, position, break_reason, idle_bin).
-- Sources: mart_hour_cell, fct_call, fct_potential. Parameters: $window_start, $window_end.
-- Meaning: potential hit = Σ potential_tokens ÷ Σ input_tokens over calls whose prefix chain is known. The
--   last two columns repeat it over the calls that also report cached tokens, so that potential and realised
--   can be compared on the same calls. The three usual retentions are columns of a call and need no join.
SELECT
  hour,
  'inf' AS retention,
  model_group,
  client,
  team_id,
  category,
  position,
  break_reason,
  idle_bin,
  chain_inf_calls AS calls,
  CAST(chain_inf_input_tokens AS DOUBLE) AS input_tokens,
  potential_inf_tokens AS potential_tokens,
  CAST(reporting_chain_inf_input_tokens AS DOUBLE) AS reporting_input_tokens,
  reporting_potential_inf_tokens AS reporting_potential_tokens
FROM mart_hour_cell
WHERE chain_inf_calls > 0
UNION ALL
SELECT
  hour,
  '3600' AS retention,
  model_group,
  client,
  team_id,
  category,
  position,
  break_reason,
  idle_bin,
  chain_3600_calls AS calls,
  CAST(chain_3600_input_tokens AS DOUBLE) AS input_tokens,
  potential_3600_tokens AS potential_tokens,
  CAST(reporting_chain_3600_input_tokens AS DOUBLE) AS reporting_input_tokens,
  reporting_potential_3600_tokens AS reporting_potential_tokens
FROM mart_hour_cell
WHERE chain_3600_calls > 0
UNION ALL
SELECT
  hour,
  '300' AS retention,
  model_group,
  client,
  team_id,
  category,
  position,
  break_reason,
  idle_bin,
  chain_300_calls AS calls,
  CAST(chain_300_input_tokens AS DOUBLE) AS input_tokens,
  potential_300_tokens AS potential_tokens,
  CAST(reporting_chain_300_input_tokens AS DOUBLE) AS reporting_input_tokens,
  reporting_potential_300_tokens AS reporting_potential_tokens
FROM mart_hour_cell
WHERE chain_300_calls > 0
UNION ALL
SELECT
  DATE_TRUNC('hour', c.start_at) AS hour,
  p.retention,
  c.model_group,
  c.client,
  c.team_id,
  c.category,
  c.position,
  c.break_reason,
  c.idle_bin,
  COUNT(*) AS calls,
  SUM(p.input_tokens) AS input_tokens,
  SUM(p.potential_tokens) AS potential_tokens,
  SUM(CASE WHEN c.cached_tokens IS NOT NULL THEN p.input_tokens END) AS reporting_input_tokens,
  SUM(CASE WHEN c.cached_tokens IS NOT NULL THEN p.potential_tokens END) AS reporting_potential_tokens
FROM fct_call AS c
JOIN fct_potential AS p ON p.call_id = c.call_id
WHERE p.retention NOT IN ('inf', '3600', '300')
  AND c.is_engine = 1
  AND c.start_at >= CAST($window_start AS TIMESTAMP) AND c.start_at < CAST($window_end AS TIMESTAMP)
GROUP BY
  DATE_TRUNC('hour', c.start_at), p.retention, c.model_group, c.client, c.team_id, c.category, c.position,
  c.break_reason, c.idle_bin
