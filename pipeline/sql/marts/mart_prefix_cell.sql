-- mart_prefix_cell: sums behind the prefix hit of every regime, by day and who.
-- Grain: (day, business_day, team_id, key_alias, client, model_group, profile, category, position, break_reason,
--   idle_bin).
-- Sources: mart_placed_call. Parameters: $window_start, $window_end.
-- Meaning: engine calls. realised = Σ cached_tokens ÷ Σ cached_input_tokens; potential = Σ potential_…_tokens ÷ Σ the
--   input tokens of the same name. Profile is that of the visit, everything else the call's own.
-- Additive: yes.
SELECT
  start_date AS day,
  business_day,
  team_id,
  key_alias,
  client,
  model_group,
  profile,
  category,
  position,
  break_reason,
  idle_bin,
  COUNT(*) AS engine_calls,
  SUM(CASE WHEN hit_tokens IS NOT NULL AND input_tokens > 0 THEN 1 ELSE 0 END)
    AS cached_calls,
  SUM(CASE WHEN hit_tokens IS NOT NULL THEN input_tokens END) AS cached_input_tokens,
  SUM(CASE WHEN input_tokens > 0 THEN hit_tokens END) AS cached_tokens,
  SUM(CASE WHEN potential_inf_tokens IS NOT NULL THEN 1 ELSE 0 END) AS chain_calls,
  SUM(CASE WHEN potential_inf_tokens IS NOT NULL THEN input_tokens END) AS chain_input_tokens,
  SUM(potential_inf_tokens) AS potential_inf_tokens,
  SUM(CASE WHEN potential_3600_tokens IS NOT NULL THEN 1 ELSE 0 END) AS chain_3600_calls,
  SUM(CASE WHEN potential_3600_tokens IS NOT NULL THEN input_tokens END) AS chain_3600_input_tokens,
  SUM(potential_3600_tokens) AS potential_3600_tokens,
  SUM(CASE WHEN potential_300_tokens IS NOT NULL THEN 1 ELSE 0 END) AS chain_300_calls,
  SUM(CASE WHEN potential_300_tokens IS NOT NULL THEN input_tokens END) AS chain_300_input_tokens,
  SUM(potential_300_tokens) AS potential_300_tokens
FROM mart_placed_call
WHERE is_engine = 1
  AND start_at >= CAST($window_start AS TIMESTAMP) AND start_at < CAST($window_end AS TIMESTAMP)
GROUP BY
  start_date, business_day, team_id, key_alias, client, model_group, profile, category, position, break_reason,
  idle_bin
