-- mart_potential: additive sums behind the potential prefix hit.
-- Grain: (hour, retention, model_group, client, team_id, category, position, break_reason, idle_bin).
-- Sources: fct_call, fct_potential. Parameters: $window_start, $window_end.
-- Meaning: potential hit = Σ potential_tokens ÷ Σ input_tokens over calls whose prefix chain is known. The
--   last two columns repeat it over the calls that also report cached tokens, so that potential and realised
--   can be compared on the same calls.
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
WHERE c.is_engine = 1
  AND c.start_at >= CAST($window_start AS TIMESTAMP) AND c.start_at < CAST($window_end AS TIMESTAMP)
GROUP BY
  DATE_TRUNC('hour', c.start_at), p.retention, c.model_group, c.client, c.team_id, c.category, c.position,
  c.break_reason, c.idle_bin
