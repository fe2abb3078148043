-- mart_placed_call: calls beside the business day that they start in and the visit that they belong to.
-- Grain: call. Built for other marts, not published.
-- Sources: fct_call, mart_visit, mart_suspect_cell, prm_business_day.
-- Meaning: what several sums over calls need is looked up once. Profile, its evidence and visit_… are those of the
--   call's visit, everything else the call's own. hit_tokens are the cached tokens that can be believed.
--   catalogue_tokens are the gateway's own count, else input tokens × tool bytes ÷ prompt bytes. flight_us: of
--   engine calls, else 0.
SELECT
  c.start_date,
  c.start_at,
  c.end_at,
  c.previous_in_turn_at,
  d.business_day,
  c.team_id,
  c.key_alias,
  c.client,
  c.model_group,
  CASE WHEN c.session_key IS NULL THEN 'unattributed' ELSE COALESCE(v.profile, 'unknown') END AS profile,
  CASE WHEN c.session_key IS NULL THEN 'none' ELSE COALESCE(v.profile_evidence, 'none') END AS profile_evidence,
  v.team_id AS visit_team_id,
  v.key_alias AS visit_key_alias,
  v.client AS visit_client,
  v.model_group AS visit_model_group,
  v.profile AS visit_profile,
  c.category,
  c.position,
  c.break_reason,
  c.idle_bin,
  c.source,
  c.outcome,
  c.initiator,
  c.agent_kind,
  c.session_evidence,
  c.turn_evidence,
  c.usage_source,
  CASE WHEN c.session_key IS NULL THEN 0 ELSE 1 END AS has_session,
  CASE WHEN c.user_hash IS NULL THEN 0 ELSE 1 END AS has_user,
  c.is_attended,
  c.is_engine,
  c.response_cache_hit,
  c.attempts,
  CASE
    WHEN c.end_at IS NULL OR c.is_engine = 0 THEN 0
    ELSE CAST(DATE_DIFF('microsecond', c.start_at, c.end_at) AS BIGINT)
  END AS flight_us,
  c.input_tokens,
  c.output_tokens,
  CASE WHEN s.provider IS NULL THEN c.cached_tokens END AS hit_tokens,
  c.cache_write_tokens,
  c.potential_inf_tokens,
  c.potential_3600_tokens,
  c.potential_300_tokens,
  c.count_catalogue_tokens,
  CASE
    WHEN c.count_catalogue_tokens IS NOT NULL THEN CAST(c.count_catalogue_tokens AS DOUBLE)
    WHEN c.tool_count = 0 THEN 0.0
    WHEN c.input_tokens > 0 AND c.prompt_bytes > 0 AND c.tools_bytes <= c.prompt_bytes
      THEN CAST(c.input_tokens AS DOUBLE) * c.tools_bytes / c.prompt_bytes
  END AS catalogue_tokens,
  c.tool_count,
  c.tool_reads,
  c.tool_edits,
  c.tool_runs,
  c.tool_others,
  c.ttft_ms,
  c.duration_ms,
  c.overhead_ms,
  c.queue_ms,
  c.pre_call_ms,
  c.plugin_ms,
  c.count_ms
FROM fct_call AS c
JOIN prm_business_day AS d ON c.start_at >= d.start_at AND c.start_at < d.end_at
LEFT JOIN mart_suspect_cell AS s ON s.provider = c.provider AND s.is_stream = c.is_stream
LEFT JOIN mart_visit AS v
  ON v.session_key = c.session_key AND c.start_at >= v.start_at AND c.start_at <= v.end_at
