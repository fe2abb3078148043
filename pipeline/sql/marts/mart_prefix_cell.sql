-- mart_prefix_cell: sums behind the prefix hit of every regime, by day and who.
-- Grain: (day, business_day, team_id, key_alias, client, model_group, profile, category, position, break_reason,
--   idle_bin).
-- Sources: fct_call, mart_visit, mart_suspect_cell, prm_business_day. Parameters: $window_start, $window_end.
-- Meaning: engine calls. realised = Σ cached_tokens ÷ Σ cached_input_tokens; potential = Σ potential_…_tokens ÷ Σ the
--   input tokens of the same name. Profile is that of the visit, everything else the call's own.
-- Additive: yes.
SELECT
  c.start_date AS day,
  d.business_day,
  c.team_id,
  c.key_alias,
  c.client,
  c.model_group,
  CASE WHEN c.session_key IS NULL THEN 'unattributed' ELSE COALESCE(v.profile, 'unknown') END AS profile,
  c.category,
  c.position,
  c.break_reason,
  c.idle_bin,
  COUNT(*) AS engine_calls,
  SUM(CASE WHEN c.cached_tokens IS NOT NULL AND s.provider IS NULL AND c.input_tokens > 0 THEN 1 ELSE 0 END)
    AS cached_calls,
  SUM(CASE WHEN c.cached_tokens IS NOT NULL AND s.provider IS NULL THEN c.input_tokens END) AS cached_input_tokens,
  SUM(CASE WHEN s.provider IS NULL AND c.input_tokens > 0 THEN c.cached_tokens END) AS cached_tokens,
  SUM(CASE WHEN c.potential_inf_tokens IS NOT NULL THEN 1 ELSE 0 END) AS chain_calls,
  SUM(CASE WHEN c.potential_inf_tokens IS NOT NULL THEN c.input_tokens END) AS chain_input_tokens,
  SUM(c.potential_inf_tokens) AS potential_inf_tokens,
  SUM(CASE WHEN c.potential_3600_tokens IS NOT NULL THEN 1 ELSE 0 END) AS chain_3600_calls,
  SUM(CASE WHEN c.potential_3600_tokens IS NOT NULL THEN c.input_tokens END) AS chain_3600_input_tokens,
  SUM(c.potential_3600_tokens) AS potential_3600_tokens,
  SUM(CASE WHEN c.potential_300_tokens IS NOT NULL THEN 1 ELSE 0 END) AS chain_300_calls,
  SUM(CASE WHEN c.potential_300_tokens IS NOT NULL THEN c.input_tokens END) AS chain_300_input_tokens,
  SUM(c.potential_300_tokens) AS potential_300_tokens
FROM fct_call AS c
JOIN prm_business_day AS d ON c.start_at >= d.start_at AND c.start_at < d.end_at
LEFT JOIN mart_visit AS v
  ON v.session_key = c.session_key AND c.start_at >= v.start_at AND c.start_at <= v.end_at
LEFT JOIN mart_suspect_cell AS s ON s.provider = c.provider AND s.is_stream = c.is_stream
WHERE c.is_engine = 1
  AND c.start_at >= CAST($window_start AS TIMESTAMP) AND c.start_at < CAST($window_end AS TIMESTAMP)
GROUP BY
  c.start_date, d.business_day, c.team_id, c.key_alias, c.client, c.model_group,
  CASE WHEN c.session_key IS NULL THEN 'unattributed' ELSE COALESCE(v.profile, 'unknown') END,
  c.category, c.position, c.break_reason, c.idle_bin
