-- mart_potential: additive sums behind the potential prefix hit.
-- Grain: (hour, retention, model_group, client, team_id, category, position, break_reason, idle_bin).
-- Sources: fct_call, fct_potential. Parameters: $window_start, $window_end.
-- Meaning: potential hit = Σ potential_tokens ÷ Σ input_tokens over calls whose prefix chain is known. The
--   last two columns repeat it over the calls that also report cached tokens, so that potential and realised
--   can be compared on the same calls. The three usual retentions are columns of a call and need no join.
WITH chosen AS (
  SELECT *
  FROM fct_call
  WHERE is_engine = 1
    AND start_at >= CAST($window_start AS TIMESTAMP) AND start_at < CAST($window_end AS TIMESTAMP)
),
told AS (
  SELECT
    start_at, 'inf' AS retention, model_group, client, team_id, category, position, break_reason, idle_bin,
    cached_tokens, CAST(input_tokens AS DOUBLE) AS input_tokens, potential_inf_tokens AS potential_tokens
  FROM chosen
  WHERE potential_inf_tokens IS NOT NULL
  UNION ALL
  SELECT
    start_at, '3600' AS retention, model_group, client, team_id, category, position, break_reason, idle_bin,
    cached_tokens, CAST(input_tokens AS DOUBLE) AS input_tokens, potential_3600_tokens AS potential_tokens
  FROM chosen
  WHERE potential_3600_tokens IS NOT NULL
  UNION ALL
  SELECT
    start_at, '300' AS retention, model_group, client, team_id, category, position, break_reason, idle_bin,
    cached_tokens, CAST(input_tokens AS DOUBLE) AS input_tokens, potential_300_tokens AS potential_tokens
  FROM chosen
  WHERE potential_300_tokens IS NOT NULL
  UNION ALL
  SELECT
    c.start_at, p.retention, c.model_group, c.client, c.team_id, c.category, c.position, c.break_reason, c.idle_bin,
    c.cached_tokens, p.input_tokens, p.potential_tokens
  FROM chosen AS c
  JOIN fct_potential AS p ON p.call_id = c.call_id
  WHERE p.retention NOT IN ('inf', '3600', '300')
)
SELECT
  DATE_TRUNC('hour', start_at) AS hour,
  retention,
  model_group,
  client,
  team_id,
  category,
  position,
  break_reason,
  idle_bin,
  COUNT(*) AS calls,
  SUM(input_tokens) AS input_tokens,
  SUM(potential_tokens) AS potential_tokens,
  SUM(CASE WHEN cached_tokens IS NOT NULL THEN input_tokens END) AS reporting_input_tokens,
  SUM(CASE WHEN cached_tokens IS NOT NULL THEN potential_tokens END) AS reporting_potential_tokens
FROM told
GROUP BY
  DATE_TRUNC('hour', start_at), retention, model_group, client, team_id, category, position, break_reason, idle_bin
