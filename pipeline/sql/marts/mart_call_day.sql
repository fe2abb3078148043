-- mart_call_day: additive counts of calls, for shares and coverage.
-- Grain: (day, model_group, client, team_id, source, outcome, session_evidence, turn_evidence, initiator).
-- Sources: fct_call. Parameters: $window_start, $window_end (calls that start inside the half-open window).
-- Meaning: every count a figure's coverage is made of; days are UTC and add up.
SELECT
  start_date AS day,
  model_group,
  client,
  team_id,
  source,
  outcome,
  session_evidence,
  turn_evidence,
  initiator,
  COUNT(*) AS calls,
  SUM(is_engine) AS engine_calls,
  SUM(is_generation) AS generation_calls,
  SUM(CASE WHEN is_engine = 1 THEN COALESCE(attempts, 1) ELSE 0 END) AS engine_attempts,
  SUM(response_cache_hit) AS response_cache_hits,
  SUM(is_attended) AS attended_calls,
  SUM(CASE WHEN session_key IS NULL THEN 1 ELSE 0 END) AS calls_without_session,
  SUM(CASE WHEN is_engine = 1 AND input_tokens > 0 THEN 1 ELSE 0 END) AS calls_with_input,
  SUM(CASE WHEN is_engine = 1 AND input_tokens > 0 AND cached_tokens IS NOT NULL THEN 1 ELSE 0 END)
    AS calls_with_cached,
  SUM(CASE WHEN is_engine = 1 AND usage_source = 'estimated' THEN 1 ELSE 0 END) AS calls_with_estimated_usage,
  SUM(cached_invalid) AS calls_with_invalid_cached,
  SUM(CASE WHEN is_engine = 1 THEN input_tokens END) AS input_tokens,
  SUM(CASE WHEN is_engine = 1 THEN output_tokens END) AS output_tokens,
  SUM(spend) AS spend
FROM fct_call
WHERE start_at >= CAST($window_start AS TIMESTAMP) AND start_at < CAST($window_end AS TIMESTAMP)
GROUP BY start_date, model_group, client, team_id, source, outcome, session_evidence, turn_evidence, initiator
