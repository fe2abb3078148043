-- stg_event: one record per event id out of the raw open and final records.
-- Grain: event_id.
-- Sources: raw_event (every record as it was collected, duplicates included).
-- Meaning: what a call was and how it ended comes from its highest-ranked record (success > failure >
--   rejected > aborted > open; a final record before an open one, then the last collected). Who sent it may
--   come from any of its records, the highest-ranked that knows it.
WITH ranked AS (
  SELECT
    r.*,
    CASE r.outcome
      WHEN 'success' THEN 4 WHEN 'failure' THEN 3 WHEN 'rejected' THEN 2 WHEN 'aborted' THEN 1 ELSE 0
    END AS outcome_rank,
    ROW_NUMBER() OVER (
      PARTITION BY r.event_id
      ORDER BY
        CASE r.outcome
          WHEN 'success' THEN 4 WHEN 'failure' THEN 3 WHEN 'rejected' THEN 2 WHEN 'aborted' THEN 1 ELSE 0
        END,
        CASE r.stage WHEN 'final' THEN 1 ELSE 0 END,
        r.collected_at,
        r.stream_id
    ) AS seniority,
    COUNT(*) OVER (PARTITION BY r.event_id) AS record_count
  FROM raw_event AS r
  WHERE r.event_id IS NOT NULL AND r.started_us IS NOT NULL
)
SELECT
  event_id,
  MAX(record_count) AS record_count,
  MAX(outcome_rank) AS outcome_rank,
  MIN(started_us) AS started_us,
  MAX(CASE WHEN seniority = record_count THEN outcome END) AS outcome,
  MAX(CASE WHEN seniority = record_count THEN ended_us END) AS ended_us,
  MAX(CASE WHEN seniority = record_count THEN duration_ms END) AS duration_ms,
  MAX(CASE WHEN seniority = record_count THEN ttft_ms END) AS ttft_ms,
  MAX(CASE WHEN seniority = record_count THEN input_tokens END) AS input_tokens,
  MAX(CASE WHEN seniority = record_count THEN cached_tokens END) AS cached_tokens,
  MAX(CASE WHEN seniority = record_count THEN cache_write_tokens END) AS cache_write_tokens,
  MAX(CASE WHEN seniority = record_count THEN output_tokens END) AS output_tokens,
  MAX(CASE WHEN seniority = record_count THEN reasoning_tokens END) AS reasoning_tokens,
  MAX(CASE WHEN seniority = record_count THEN usage_source END) AS usage_source,
  MAX(CASE WHEN seniority = record_count THEN error_class END) AS error_class,
  MAX(CASE WHEN seniority = record_count THEN status_code END) AS status_code,
  MAX(CASE WHEN seniority = record_count THEN attempts END) AS attempts,
  MAX(CASE WHEN seniority = record_count AND response_cache_hit THEN 1
           WHEN seniority = record_count AND response_cache_hit IS NOT NULL THEN 0 END) AS response_cache_hit,
  MAX(CASE WHEN degraded THEN 1 ELSE 0 END) AS degraded,
  MAX(CASE WHEN service_key THEN 1 WHEN service_key IS NOT NULL THEN 0 END) AS service_key,
  ARG_MAX(session_key, seniority) AS session_key,
  ARG_MAX(session_id, seniority) AS session_id,
  ARG_MAX(session_source, seniority) AS session_source,
  ARG_MAX(session_evidence, seniority) AS session_evidence,
  ARG_MAX(agent_id, seniority) AS agent_id,
  ARG_MAX(agent_kind, seniority) AS agent_kind,
  ARG_MAX(parent_agent_id, seniority) AS parent_agent_id,
  ARG_MAX(turn_id, seniority) AS turn_id,
  ARG_MAX(turn_index, seniority) AS turn_index,
  ARG_MAX(call_index, seniority) AS call_index,
  ARG_MAX(turn_evidence, seniority) AS turn_evidence,
  ARG_MAX(initiator, seniority) AS initiator,
  MAX(CASE WHEN compaction_hint THEN 1 WHEN compaction_hint IS NOT NULL THEN 0 END) AS compaction_hint,
  ARG_MAX(client, seniority) AS client,
  ARG_MAX(client_version, seniority) AS client_version,
  ARG_MAX(user_hash, seniority) AS user_hash,
  ARG_MAX(user_source, seniority) AS user_source,
  ARG_MAX(key_alias, seniority) AS key_alias,
  ARG_MAX(team_id, seniority) AS team_id,
  ARG_MAX(route, seniority) AS route,
  ARG_MAX(call_type, seniority) AS call_type,
  MAX(CASE WHEN stream THEN 1 WHEN stream IS NOT NULL THEN 0 END) AS is_stream,
  ARG_MAX(model_group, seniority) AS model_group,
  ARG_MAX(model, seniority) AS model,
  ARG_MAX(deployment_id, seniority) AS deployment_id,
  ARG_MAX(provider, seniority) AS provider,
  ARG_MAX(litellm_call_id, seniority) AS litellm_call_id,
  ARG_MAX(litellm_version, seniority) AS litellm_version,
  ARG_MAX(plugin_version, seniority) AS plugin_version,
  ARG_MAX(message_count, seniority) AS message_count,
  ARG_MAX(prompt_bytes, seniority) AS prompt_bytes,
  ARG_MAX(shared_bytes, seniority) AS shared_bytes,
  ARG_MAX(prefix_steps, seniority) AS prefix_steps,
  ARG_MAX(break_reason, seniority) AS break_reason,
  ARG_MAX(idle_ms, seniority) AS idle_ms,
  ARG_MAX(previous_event_id, seniority) AS previous_event_id,
  ARG_MAX(tool_count, seniority) AS tool_count,
  ARG_MAX(tools_bytes, seniority) AS tools_bytes,
  ARG_MAX(state, seniority) AS state,
  MAX(CASE WHEN truncated THEN 1 WHEN truncated IS NOT NULL THEN 0 END) AS truncated,
  ARG_MAX(queue_ms, seniority) AS queue_ms,
  ARG_MAX(pre_call_ms, seniority) AS pre_call_ms,
  ARG_MAX(overhead_ms, seniority) AS overhead_ms,
  ARG_MAX(plugin_ms, seniority) AS plugin_ms,
  ARG_MAX(tool_ms, seniority) AS tool_ms,
  ARG_MAX(count_ms, seniority) AS count_ms,
  ARG_MAX(count_calls, seniority) AS count_calls,
  ARG_MAX(count_catalogue_tokens, seniority) AS count_catalogue_tokens
FROM ranked
GROUP BY event_id
