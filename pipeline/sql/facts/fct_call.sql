-- fct_call: one logical call, with its place in its turn and stream.
-- Grain: call_id (an event id; rows without one keep a name of their own and source = 'row').
-- Sources: stg_call, fct_place, fct_prefix, prm_service_key (value), prm_external_provider (provider),
--   prm_powered_group, prm_external_group (model_group).
-- Meaning:
--   stream    = (session_key, agent_id); auxiliary and rejected calls stand in lanes of their own, so that a
--               title call on a small model is no model switch of the work around it.
--   category  = first of stream · model switch · compaction · boundary · within, the first that applies;
--               auxiliary and rejected calls, and calls without a session, are named as such instead. A hint
--               that goes on after the call that followed a compaction (its summary stays in the history) names
--               no further compaction.
--   turn_key  = the plugin's turn id; where it is missing, a user-initiated call opens a turn of its own and
--               other calls join the turn before them ('lead' when there is none).
--   call_in_turn counts the turn's work calls that we saw, or what the request shows where that is more (we
--               missed some); after a compaction a request shows only the calls since.
--   number_in_turn and number_in_session count all calls that we saw, in whatever lane, in order of time.
--   previous_in_session_at, previous_in_turn_at: the latest end of earlier calls, of any agent of the session or
--               of the turn; what cuts visits, human time and tool gaps.
--   gap_ms    = since the latest end of earlier calls of the stream, 0 when they overlap; the plugin's own
--               idle time where the lake holds no earlier call.
--   cached_tokens is NULL when unknown: aborted calls, estimated usage, and values that cannot be.
WITH placed AS (
  SELECT
    c.*,
    MAKE_TIMESTAMP(c.started_us) AS start_at,
    CASE WHEN c.duration_ms IS NOT NULL AND c.duration_ms >= 0
      THEN MAKE_TIMESTAMP(c.started_us + CAST(ROUND(c.duration_ms * 1000) AS BIGINT)) END AS end_at,
    CASE
      WHEN c.route IN ('chat', 'messages', 'responses') THEN 1
      WHEN c.route IS NOT NULL THEN 0
      WHEN c.call_type IS NULL THEN 1
      WHEN c.call_type IN (
        'completion', 'acompletion', 'text_completion', 'atext_completion', 'anthropic_messages', 'responses',
        'aresponses'
      ) THEN 1
      ELSE 0
    END AS is_generation,
    CASE
      WHEN c.outcome = 'rejected' THEN 'rejected'
      WHEN c.initiator = 'auxiliary' THEN 'auxiliary'
      ELSE 'work'
    END AS lane,
    CASE
      WHEN c.service_key = 1
        OR c.key_alias IN (SELECT value FROM prm_service_key)
        OR c.key_hash IN (SELECT value FROM prm_service_key) THEN 1
      ELSE 0
    END AS is_service,
    CASE
      WHEN c.model_group IN (SELECT model_group FROM prm_external_group) THEN 1
      WHEN c.model_group IN (SELECT model_group FROM prm_powered_group) THEN 0
      WHEN c.provider IN (SELECT provider FROM prm_external_provider) THEN 1
      WHEN EXISTS (SELECT 1 FROM prm_powered_group) THEN 1
      ELSE 0
    END AS is_external,
    CASE
      WHEN c.outcome = 'aborted' THEN NULL
      WHEN c.usage_source = 'estimated' THEN NULL
      WHEN c.cached_tokens_told < 0 OR c.cached_tokens_told > c.input_tokens THEN NULL
      ELSE c.cached_tokens_told
    END AS cached_tokens,
    CASE WHEN c.cached_tokens_told < 0 OR c.cached_tokens_told > c.input_tokens THEN 1 ELSE 0 END AS cached_invalid,
    l.lane_number,
    l.turn_key,
    l.call_in_turn,
    l.number_in_turn,
    l.number_in_session,
    l.previous_in_session_us,
    l.previous_in_turn_us,
    l.previous_model_group,
    l.previous_compaction_hint,
    l.previous_is_compaction,
    l.previous_input_tokens,
    l.session_has_user,
    l.session_is_service,
    COALESCE(
      CASE
        WHEN l.previous_ended_us >= c.started_us THEN 0.0
        ELSE (c.started_us - l.previous_ended_us) / 1000.0
      END,
      CASE WHEN c.idle_ms >= 0 THEN c.idle_ms END
    ) AS gap_ms
  FROM stg_call AS c
  LEFT JOIN fct_place AS l ON l.call_number = c.call_number
)
SELECT
  p.call_id,
  p.source,
  p.outcome,
  p.record_count,
  p.row_count,
  CAST(p.start_at AS DATE) AS start_date,
  p.started_us,
  p.start_at,
  p.end_at,
  p.duration_ms,
  p.ttft_ms,
  CASE
    WHEN p.output_tokens >= 16 AND p.ttft_ms >= 0 AND p.duration_ms > p.ttft_ms
      THEN (p.output_tokens - 1) * 1000.0 / (p.duration_ms - p.ttft_ms)
  END AS tokens_per_s,
  p.session_key,
  p.session_id,
  p.session_source,
  p.session_evidence,
  p.agent_id,
  p.agent_kind,
  p.parent_agent_id,
  p.turn_key,
  CASE WHEN p.turn_key IS NULL THEN NULL WHEN p.turn_id IS NOT NULL AND p.turn_id <> '' THEN 'given' ELSE 'settled' END
    AS turn_source,
  p.turn_index,
  p.turn_evidence,
  p.call_in_turn,
  p.number_in_turn,
  p.number_in_session,
  MAKE_TIMESTAMP(p.previous_in_session_us) AS previous_in_session_at,
  MAKE_TIMESTAMP(p.previous_in_turn_us) AS previous_in_turn_at,
  CASE
    WHEN p.call_in_turn IS NULL THEN NULL
    WHEN p.call_in_turn = 1 THEN '1'
    WHEN p.call_in_turn = 2 THEN '2'
    ELSE '3+'
  END AS position,
  p.initiator,
  p.lane,
  CASE
    WHEN p.session_key IS NULL THEN 'unattributed'
    WHEN p.lane <> 'work' THEN p.lane
    WHEN p.lane_number = 1 THEN 'first_of_session'
    WHEN p.model_group <> p.previous_model_group THEN 'model_switch'
    WHEN p.compaction_hint = 1
      AND (
        p.initiator = 'compaction'
        OR p.previous_is_compaction = 1
        OR COALESCE(p.previous_compaction_hint, 0) = 0
      ) THEN 'compaction'
    WHEN p.previous_input_tokens > 10000 AND p.input_tokens < 0.7 * p.previous_input_tokens THEN 'compaction'
    WHEN p.initiator = 'user' THEN 'boundary'
    ELSE 'within'
  END AS category,
  p.break_reason,
  p.gap_ms,
  CASE
    WHEN p.gap_ms IS NULL THEN NULL
    WHEN p.gap_ms < 10000 THEN '<10 s'
    WHEN p.gap_ms < 60000 THEN '10–60 s'
    WHEN p.gap_ms < 300000 THEN '1–5 min'
    WHEN p.gap_ms < 600000 THEN '5–10 min'
    WHEN p.gap_ms < 3600000 THEN '10–60 min'
    ELSE '≥60 min'
  END AS idle_bin,
  p.idle_ms,
  p.compaction_hint,
  p.client,
  p.client_version,
  p.user_hash,
  p.user_source,
  p.is_service,
  CASE
    WHEN p.session_key IS NOT NULL AND p.session_has_user = 1 AND p.session_is_service = 0 THEN 1 ELSE 0
  END AS is_attended,
  p.key_alias,
  p.key_hash,
  p.team_id,
  p.route,
  p.call_type,
  p.is_stream,
  p.is_generation,
  CASE
    WHEN p.is_generation = 1 AND p.outcome <> 'rejected' AND COALESCE(p.response_cache_hit, 0) = 0 THEN 1 ELSE 0
  END AS is_engine,
  p.is_external,
  p.model_group,
  p.model,
  p.deployment_id,
  p.provider,
  p.litellm_call_id,
  p.litellm_version,
  p.plugin_version,
  p.input_tokens,
  p.cached_tokens,
  p.cached_invalid,
  p.input_tokens - p.cached_tokens AS new_tokens,
  p.cache_write_tokens,
  p.output_tokens,
  p.reasoning_tokens,
  p.usage_source,
  p.tool_reads,
  p.tool_edits,
  p.tool_runs,
  p.tool_others,
  p.message_count,
  p.prompt_bytes,
  p.shared_bytes,
  q.potential_inf_tokens,
  q.potential_3600_tokens,
  q.potential_300_tokens,
  p.tool_count,
  p.tools_bytes,
  p.state,
  p.truncated,
  p.queue_ms,
  p.pre_call_ms,
  p.overhead_ms,
  p.plugin_ms,
  p.tool_ms,
  p.count_ms,
  p.count_calls,
  p.count_catalogue_tokens,
  p.attempts,
  p.spend,
  p.error_class,
  p.status_code,
  COALESCE(p.response_cache_hit, 0) AS response_cache_hit,
  p.degraded
FROM placed AS p
LEFT JOIN fct_prefix AS q ON q.call_number = p.call_number
