-- mart_realised: additive sums behind the realised prefix hit.
-- Grain: (hour, model_group, client, team_id, category, position, break_reason, idle_bin).
-- Sources: mart_hour_cell.
-- Meaning: hit = Σ cached_tokens ÷ Σ reporting_input_tokens, over calls whose backend reported cached tokens;
--   coverage = Σ reporting_calls ÷ Σ calls. Response-cache hits and rejected calls reached no engine and are
--   left out; calls of a suspect cell count as not reporting.
SELECT
  hour,
  model_group,
  client,
  team_id,
  category,
  position,
  break_reason,
  idle_bin,
  calls,
  input_tokens,
  reporting_calls,
  reporting_input_tokens,
  cached_tokens,
  cache_write_tokens,
  suspect_calls
FROM mart_hour_cell
