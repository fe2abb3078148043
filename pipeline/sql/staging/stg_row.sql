-- stg_row: one ledger row per attempt that LiteLLM wrote, with the plugin's object taken apart.
-- Grain: (request_id, litellm_call_id, start_time); the copy extracted last wins.
-- Sources: raw_spend_log.
-- Meaning: a row is an attempt, not a call. An object that is not JSON, or not an object, leaves the row
--   without identity and is counted by audit bad_row_object; an object stored as a JSON string is opened.
--   request_id alone is never a key (rows of other calls may carry the same id).
WITH ranked AS (
  SELECT
    r.*,
    ROW_NUMBER() OVER (
      PARTITION BY r.request_id, r.litellm_call_id, r.start_time
      ORDER BY r.extracted_at DESC, r.status DESC
    ) AS copy_number
  FROM raw_spend_log AS r
),
outer_json AS (
  SELECT ranked.*, TRY_CAST(aw AS JSON) AS aw_outer
  FROM ranked
  WHERE copy_number = 1
),
opened AS (
  SELECT
    outer_json.*,
    CASE JSON_TYPE(aw_outer)
      WHEN 'OBJECT' THEN aw_outer
      WHEN 'VARCHAR' THEN TRY_CAST(aw_outer ->> '$' AS JSON)
    END AS obj
  FROM outer_json
)
SELECT
  record_number,
  request_id,
  litellm_call_id,
  call_type,
  key_hash,
  CAST(spend AS DOUBLE) AS spend,
  prompt_tokens,
  completion_tokens,
  start_time,
  end_time,
  completion_start_time,
  model,
  model_id,
  model_group,
  provider,
  user_hash AS row_user_hash,
  team_id,
  status,
  cache_hit,
  usage_input,
  usage_cached,
  usage_cache_write,
  usage_output,
  attempted_retries,
  error_class,
  error_code,
  CASE WHEN aw IS NULL OR aw = '' OR aw = 'null' THEN 0 ELSE 1 END AS has_object,
  CASE
    WHEN aw IS NULL OR aw = '' OR aw = 'null' THEN 0
    WHEN obj IS NULL OR JSON_TYPE(obj) <> 'OBJECT' THEN 1
    ELSE 0
  END AS bad_object,
  obj ->> '$.event_id' AS event_id,
  obj ->> '$.outcome' AS outcome,
  TRY_CAST(obj ->> '$.started_us' AS BIGINT) AS started_us,
  TRY_CAST(obj ->> '$.duration_ms' AS DOUBLE) AS duration_ms,
  TRY_CAST(obj ->> '$.ttft_ms' AS DOUBLE) AS ttft_ms,
  obj ->> '$.session_key' AS session_key,
  obj ->> '$.session_id' AS session_id,
  obj ->> '$.session_source' AS session_source,
  obj ->> '$.session_evidence' AS session_evidence,
  obj ->> '$.agent_id' AS agent_id,
  obj ->> '$.agent_kind' AS agent_kind,
  obj ->> '$.turn_id' AS turn_id,
  TRY_CAST(obj ->> '$.turn_index' AS BIGINT) AS turn_index,
  TRY_CAST(obj ->> '$.call_index' AS BIGINT) AS call_index,
  obj ->> '$.turn_evidence' AS turn_evidence,
  obj ->> '$.initiator' AS initiator,
  CASE obj ->> '$.compaction_hint' WHEN 'true' THEN 1 WHEN 'false' THEN 0 END AS compaction_hint,
  obj ->> '$.client' AS client,
  obj ->> '$.client_version' AS client_version,
  obj ->> '$.user_hash' AS user_hash,
  obj ->> '$.user_source' AS user_source,
  obj ->> '$.route' AS route,
  TRY_CAST(obj ->> '$.cached_tokens' AS BIGINT) AS cached_tokens,
  TRY_CAST(obj ->> '$.cache_write_tokens' AS BIGINT) AS cache_write_tokens,
  obj ->> '$.usage_source' AS usage_source,
  TRY_CAST(obj ->> '$.tool_reads' AS BIGINT) AS tool_reads,
  TRY_CAST(obj ->> '$.tool_edits' AS BIGINT) AS tool_edits,
  TRY_CAST(obj ->> '$.tool_runs' AS BIGINT) AS tool_runs,
  TRY_CAST(obj ->> '$.tool_others' AS BIGINT) AS tool_others,
  TRY_CAST(obj ->> '$.prompt_bytes' AS BIGINT) AS prompt_bytes,
  TRY_CAST(obj ->> '$.shared_bytes' AS BIGINT) AS shared_bytes,
  obj ->> '$.break_reason' AS break_reason,
  TRY_CAST(obj ->> '$.idle_ms' AS DOUBLE) AS idle_ms,
  TRY_CAST(obj ->> '$.tool_count' AS BIGINT) AS tool_count,
  TRY_CAST(obj ->> '$.tools_bytes' AS BIGINT) AS tools_bytes,
  obj ->> '$.state' AS state,
  TRY_CAST(obj ->> '$.queue_ms' AS DOUBLE) AS queue_ms,
  TRY_CAST(obj ->> '$.pre_call_ms' AS DOUBLE) AS pre_call_ms,
  TRY_CAST(obj ->> '$.attempts' AS BIGINT) AS attempts
FROM opened
