-- mart_coverage: what is known of the calls of each route and LiteLLM version.
-- Grain: (day, business_day, route, litellm_version, client, source).
-- Sources: fct_call, prm_business_day. Parameters: $window_start, $window_end.
-- Meaning: how many calls carry what the figures need; an upgrade or a route on which the plugin sees less shows here
--   first. A call known from its ledger row alone has no version.
-- Additive: yes.
SELECT
  c.start_date AS day,
  d.business_day,
  COALESCE(c.route, 'unknown') AS route,
  COALESCE(c.litellm_version, 'unknown') AS litellm_version,
  c.client,
  c.source,
  COUNT(*) AS calls,
  SUM(is_engine) AS engine_calls,
  SUM(CASE WHEN session_evidence IN ('E1', 'E2', 'E3', 'E4') THEN 1 ELSE 0 END) AS session_calls,
  SUM(CASE WHEN turn_evidence IN ('E1', 'E2', 'E3', 'E4') THEN 1 ELSE 0 END) AS turn_calls,
  SUM(CASE WHEN user_hash IS NOT NULL THEN 1 ELSE 0 END) AS user_calls,
  SUM(CASE WHEN is_engine = 1 AND input_tokens > 0 THEN 1 ELSE 0 END) AS input_calls,
  SUM(CASE WHEN is_engine = 1 AND cached_tokens IS NOT NULL THEN 1 ELSE 0 END) AS cached_calls,
  SUM(CASE WHEN is_engine = 1 AND potential_inf_tokens IS NOT NULL THEN 1 ELSE 0 END) AS chain_calls,
  SUM(CASE WHEN is_engine = 1 AND ttft_ms >= 0 THEN 1 ELSE 0 END) AS ttft_calls,
  SUM(CASE WHEN c.end_at IS NOT NULL THEN 1 ELSE 0 END) AS ended_calls,
  SUM(CASE WHEN count_ms >= 0 THEN 1 ELSE 0 END) AS counted_calls,
  SUM(CASE WHEN state = 'late' THEN 1 ELSE 0 END) AS late_state_calls,
  SUM(CASE WHEN truncated = 1 THEN 1 ELSE 0 END) AS truncated_calls,
  SUM(degraded) AS degraded_calls,
  SUM(CASE WHEN outcome = 'open' THEN 1 ELSE 0 END) AS open_calls
FROM fct_call AS c
JOIN prm_business_day AS d ON c.start_at >= d.start_at AND c.start_at < d.end_at
WHERE c.start_at >= CAST($window_start AS TIMESTAMP) AND c.start_at < CAST($window_end AS TIMESTAMP)
GROUP BY
  c.start_date, d.business_day, COALESCE(c.route, 'unknown'), COALESCE(c.litellm_version, 'unknown'), c.client, c.source
