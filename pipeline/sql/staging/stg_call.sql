-- stg_call: one logical call from its event, its ledger row, or both.
-- Grain: call_id; call_number names the same call by a number, which is cheaper to join by.
-- Sources: stg_event, stg_row_call.
-- Meaning: source says what we have (event | row | both). The event is believed first; the row fills what the
--   event lacks, and its outcome wins where it ranks higher (a final record that was lost). Times of a row
--   cover its last attempt only, so our own started_us and duration_ms inside it are preferred; a failure's
--   equal start and end is no duration. A failed row that carries nothing of ours was refused before our hook
--   ran (authentication, budget): rejected, unless an event says otherwise.
--   The proxy's own health checks (its internal key, as text or as its SHA-256) are nobody's calls and left out;
--   audit health_check counts them.
WITH joined AS (
  SELECT
    COALESCE(e.record_number, -1 - r.record_number) AS call_number,
    COALESCE(e.event_id, r.call_id) AS call_id,
    CASE WHEN e.event_id IS NULL THEN 'row' WHEN r.call_id IS NULL THEN 'event' ELSE 'both' END AS source,
    CASE
      WHEN r.call_id IS NULL THEN NULL
      WHEN r.outcome IS NOT NULL THEN r.outcome
      WHEN r.status = 'success' THEN 'success'
      WHEN r.status = 'failure' AND r.has_object = 0 THEN 'rejected'
      WHEN r.status = 'failure' THEN 'failure'
    END AS row_outcome,
    e.outcome AS event_outcome,
    COALESCE(e.outcome_rank, -1) AS event_rank,
    COALESCE(
      e.started_us, r.started_us, DATE_DIFF('microsecond', TIMESTAMP '1970-01-01 00:00:00', r.start_time)
    ) AS started_us,
    COALESCE(
      CASE WHEN e.outcome IN ('success', 'failure', 'rejected') OR r.duration_ms IS NULL THEN e.duration_ms END,
      r.duration_ms,
      CASE
        WHEN e.ended_us > e.started_us THEN (e.ended_us - e.started_us) / 1000.0
        WHEN r.end_time > r.start_time THEN DATE_DIFF('microsecond', r.start_time, r.end_time) / 1000.0
      END
    ) AS duration_ms,
    COALESCE(e.ttft_ms, r.ttft_ms) AS ttft_ms,
    COALESCE(e.session_key, r.session_key) AS session_key,
    COALESCE(e.session_id, r.session_id) AS session_id,
    COALESCE(e.session_source, r.session_source) AS session_source,
    COALESCE(e.session_evidence, r.session_evidence, 'E5') AS session_evidence,
    COALESCE(e.agent_id, r.agent_id, 'main') AS agent_id,
    COALESCE(e.agent_kind, r.agent_kind, 'main') AS agent_kind,
    e.parent_agent_id AS parent_agent_id,
    COALESCE(e.turn_id, r.turn_id) AS turn_id,
    COALESCE(e.turn_index, r.turn_index) AS turn_index,
    COALESCE(e.call_index, r.call_index) AS call_index,
    COALESCE(e.turn_evidence, r.turn_evidence, 'E5') AS turn_evidence,
    COALESCE(e.initiator, r.initiator, 'unknown') AS initiator,
    COALESCE(e.compaction_hint, r.compaction_hint, 0) AS compaction_hint,
    COALESCE(e.client, r.client, 'unknown') AS client,
    COALESCE(e.client_version, r.client_version) AS client_version,
    COALESCE(e.user_hash, r.user_hash, r.row_user_hash) AS user_hash,
    COALESCE(e.user_source, r.user_source, 'none') AS user_source,
    COALESCE(e.service_key, 0) AS service_key,
    e.key_alias AS key_alias,
    r.key_hash AS key_hash,
    COALESCE(e.team_id, r.team_id) AS team_id,
    COALESCE(e.route, r.route) AS route,
    COALESCE(e.call_type, r.call_type) AS call_type,
    e.is_stream AS is_stream,
    COALESCE(e.model_group, r.model_group, r.model) AS model_group,
    COALESCE(e.model, r.model) AS model,
    COALESCE(e.deployment_id, r.model_id) AS deployment_id,
    COALESCE(e.provider, r.provider) AS provider,
    COALESCE(e.litellm_call_id, r.litellm_call_id) AS litellm_call_id,
    e.litellm_version AS litellm_version,
    e.plugin_version AS plugin_version,
    COALESCE(
      e.input_tokens, r.usage_input, CASE WHEN r.prompt_tokens > 0 THEN r.prompt_tokens END
    ) AS input_tokens,
    COALESCE(e.cached_tokens, r.cached_tokens, r.usage_cached) AS cached_tokens_told,
    COALESCE(e.cache_write_tokens, r.cache_write_tokens, r.usage_cache_write) AS cache_write_tokens,
    COALESCE(
      e.output_tokens, r.usage_output, CASE WHEN r.completion_tokens > 0 THEN r.completion_tokens END
    ) AS output_tokens,
    e.reasoning_tokens AS reasoning_tokens,
    COALESCE(e.usage_source, r.usage_source, CASE WHEN r.usage_input IS NOT NULL THEN 'provider' END, 'none')
      AS usage_source,
    COALESCE(e.tool_reads, r.tool_reads) AS tool_reads,
    COALESCE(e.tool_edits, r.tool_edits) AS tool_edits,
    COALESCE(e.tool_runs, r.tool_runs) AS tool_runs,
    COALESCE(e.tool_others, r.tool_others) AS tool_others,
    e.message_count AS message_count,
    COALESCE(e.prompt_bytes, r.prompt_bytes) AS prompt_bytes,
    COALESCE(e.shared_bytes, r.shared_bytes) AS shared_bytes,
    CASE WHEN e.prefix_steps IS NOT NULL THEN 1 ELSE 0 END AS has_steps,
    COALESCE(e.break_reason, r.break_reason, 'unknown') AS break_reason,
    COALESCE(e.idle_ms, r.idle_ms) AS idle_ms,
    COALESCE(e.tool_count, r.tool_count) AS tool_count,
    COALESCE(e.tools_bytes, r.tools_bytes) AS tools_bytes,
    COALESCE(e.state, r.state) AS state,
    e.truncated AS truncated,
    COALESCE(e.queue_ms, r.queue_ms) AS queue_ms,
    COALESCE(e.pre_call_ms, r.pre_call_ms) AS pre_call_ms,
    e.overhead_ms AS overhead_ms,
    e.plugin_ms AS plugin_ms,
    e.tool_ms AS tool_ms,
    e.count_ms AS count_ms,
    e.count_calls AS count_calls,
    e.count_catalogue_tokens AS count_catalogue_tokens,
    COALESCE(e.attempts, r.attempts, r.attempted_retries + 1) AS attempts,
    r.row_count AS row_count,
    r.call_spend AS spend,
    COALESCE(e.error_class, r.error_class) AS error_class,
    COALESCE(e.status_code, TRY_CAST(r.error_code AS BIGINT)) AS status_code,
    COALESCE(e.response_cache_hit, CASE WHEN r.cache_hit THEN 1 WHEN r.cache_hit IS NOT NULL THEN 0 END)
      AS response_cache_hit,
    COALESCE(e.degraded, 0) AS degraded,
    COALESCE(e.record_count, 0) AS record_count
  FROM stg_event AS e
  FULL OUTER JOIN stg_row_call AS r ON e.event_id = r.call_id
)
SELECT
  joined.*,
  CASE
    WHEN row_outcome IS NULL THEN COALESCE(event_outcome, 'open')
    WHEN event_outcome IS NULL THEN row_outcome
    WHEN CASE row_outcome
      WHEN 'success' THEN 4 WHEN 'failure' THEN 3 WHEN 'rejected' THEN 2 WHEN 'aborted' THEN 1 ELSE 0
    END > event_rank THEN row_outcome
    ELSE event_outcome
  END AS outcome
FROM joined
WHERE COALESCE(team_id, '') <> 'litellm-internal-health-check'
  AND COALESCE(key_alias, '') <> 'litellm-internal-health-check'
  AND COALESCE(key_hash, '') NOT IN (
    'litellm-internal-health-check', '2ee659761968def976c7905217d96fa6e765f300dfb066f6c73fd3c279b3435a'
  )
