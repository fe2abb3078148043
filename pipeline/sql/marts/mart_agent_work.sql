-- mart_agent_work: sessions, turns, calls and tokens that began in measured seconds.
-- Grain: (scope, pool).
-- Sources: fct_call, mart_energy_island, prm_group_place.
-- Meaning: what the energy of those seconds is divided by. An allocation of shared hardware, never a
--   measurement of one request. Engine calls of ours; tokens of calls that report them, with the input of the
--   reporting calls beside the input of all.
SELECT
  i.scope,
  i.pool,
  COUNT(DISTINCT c.session_key) AS sessions,
  COUNT(DISTINCT CASE WHEN c.agent_kind = 'main' AND c.turn_key IS NOT NULL
    THEN c.session_key || ' ' || c.agent_id || ' ' || c.turn_key END) AS turns,
  COUNT(*) AS calls,
  SUM(c.input_tokens) AS input_tokens,
  SUM(CASE WHEN c.cached_tokens IS NOT NULL THEN c.input_tokens END) AS reporting_input_tokens,
  SUM(c.new_tokens) AS new_tokens,
  SUM(c.output_tokens) AS output_tokens,
  COUNT(c.output_tokens) AS calls_with_output
FROM fct_call AS c
JOIN prm_group_place AS g
  ON (g.model_group IS NULL OR g.model_group = c.model_group)
  AND c.start_at >= g.start_at AND c.start_at < g.end_at
JOIN mart_energy_island AS i ON i.pool = g.pool AND c.start_at >= i.start_at AND c.start_at < i.end_at
WHERE c.is_engine = 1 AND c.is_external = 0
GROUP BY i.scope, i.pool
