-- stg_record: the records of events that have more than one, in order of seniority.
-- Grain: record_number (of raw_event; most events have an open and a final record, duplicates included).
-- Sources: raw_event.
-- Meaning: what a call was and how it ended comes from its highest-ranked record (success > failure >
--   rejected > aborted > open; a final record before an open one, then the last collected): the one whose
--   seniority is record_count. Flags hold where any record holds them. needs_more: another record knows a
--   column that the highest-ranked one lacks (known has a bit for each such column).
WITH several AS (
  SELECT event_id
  FROM raw_event
  WHERE event_id IS NOT NULL AND started_us IS NOT NULL
  GROUP BY event_id
  HAVING COUNT(*) > 1
),
ranked AS (
  SELECT
    r.record_number,
    r.event_id,
    ROW_NUMBER() OVER (
      PARTITION BY r.event_id
      ORDER BY
        CASE r.outcome
          WHEN 'success' THEN 4 WHEN 'failure' THEN 3 WHEN 'rejected' THEN 2 WHEN 'aborted' THEN 1 ELSE 0
        END,
        CASE r.stage WHEN 'final' THEN 1 ELSE 0 END,
        r.collected_at,
        r.stream_id,
        r.record_number
    ) AS seniority,
    COUNT(*) OVER (PARTITION BY r.event_id) AS record_count,
    MIN(r.started_us) OVER (PARTITION BY r.event_id) AS started_us,
    MAX(CASE WHEN r.degraded THEN 1 ELSE 0 END) OVER (PARTITION BY r.event_id) AS degraded,
    MAX(CASE WHEN r.service_key THEN 1 WHEN r.service_key IS NOT NULL THEN 0 END)
      OVER (PARTITION BY r.event_id) AS service_key,
    MAX(CASE WHEN r.compaction_hint THEN 1 WHEN r.compaction_hint IS NOT NULL THEN 0 END)
      OVER (PARTITION BY r.event_id) AS compaction_hint,
    MAX(CASE WHEN r.stream THEN 1 WHEN r.stream IS NOT NULL THEN 0 END) OVER (PARTITION BY r.event_id) AS is_stream,
    MAX(CASE WHEN r.truncated THEN 1 WHEN r.truncated IS NOT NULL THEN 0 END)
      OVER (PARTITION BY r.event_id) AS truncated,
    CAST(
      CASE WHEN r.session_key IS NULL THEN 0 ELSE 1 END + CASE WHEN r.session_id IS NULL THEN 0 ELSE 2 END
      + CASE WHEN r.session_source IS NULL THEN 0 ELSE 4 END
      + CASE WHEN r.session_evidence IS NULL THEN 0 ELSE 8 END
      + CASE WHEN r.agent_id IS NULL THEN 0 ELSE 16 END + CASE WHEN r.agent_kind IS NULL THEN 0 ELSE 32 END
      + CASE WHEN r.parent_agent_id IS NULL THEN 0 ELSE 64 END
      + CASE WHEN r.turn_id IS NULL THEN 0 ELSE 128 END + CASE WHEN r.turn_index IS NULL THEN 0 ELSE 256 END
      + CASE WHEN r.call_index IS NULL THEN 0 ELSE 512 END
      + CASE WHEN r.turn_evidence IS NULL THEN 0 ELSE 1024 END
      + CASE WHEN r.initiator IS NULL THEN 0 ELSE 2048 END + CASE WHEN r.client IS NULL THEN 0 ELSE 4096 END
      + CASE WHEN r.client_version IS NULL THEN 0 ELSE 8192 END
      + CASE WHEN r.user_hash IS NULL THEN 0 ELSE 16384 END
      + CASE WHEN r.user_source IS NULL THEN 0 ELSE 32768 END
      + CASE WHEN r.key_alias IS NULL THEN 0 ELSE 65536 END
      + CASE WHEN r.team_id IS NULL THEN 0 ELSE 131072 END + CASE WHEN r.route IS NULL THEN 0 ELSE 262144 END
      + CASE WHEN r.call_type IS NULL THEN 0 ELSE 524288 END
      + CASE WHEN r.model_group IS NULL THEN 0 ELSE 1048576 END
      + CASE WHEN r.model IS NULL THEN 0 ELSE 2097152 END
      + CASE WHEN r.deployment_id IS NULL THEN 0 ELSE 4194304 END
      + CASE WHEN r.provider IS NULL THEN 0 ELSE 8388608 END
      + CASE WHEN r.litellm_call_id IS NULL THEN 0 ELSE 16777216 END
      + CASE WHEN r.litellm_version IS NULL THEN 0 ELSE 33554432 END
      + CASE WHEN r.plugin_version IS NULL THEN 0 ELSE 67108864 END
      + CASE WHEN r.message_count IS NULL THEN 0 ELSE 134217728 END
      + CASE WHEN r.prompt_bytes IS NULL THEN 0 ELSE 268435456 END
      + CASE WHEN r.shared_bytes IS NULL THEN 0 ELSE 536870912 END
      + CASE WHEN r.prefix_steps IS NULL THEN 0 ELSE 1073741824 END
      + CASE WHEN r.break_reason IS NULL THEN 0 ELSE 2147483648 END
      + CASE WHEN r.idle_ms IS NULL THEN 0 ELSE 4294967296 END
      + CASE WHEN r.tool_count IS NULL THEN 0 ELSE 8589934592 END
      + CASE WHEN r.tools_bytes IS NULL THEN 0 ELSE 17179869184 END
      + CASE WHEN r.state IS NULL THEN 0 ELSE 34359738368 END
      + CASE WHEN r.queue_ms IS NULL THEN 0 ELSE 68719476736 END
      + CASE WHEN r.pre_call_ms IS NULL THEN 0 ELSE 137438953472 END
      + CASE WHEN r.overhead_ms IS NULL THEN 0 ELSE 274877906944 END
      + CASE WHEN r.plugin_ms IS NULL THEN 0 ELSE 549755813888 END
      + CASE WHEN r.tool_ms IS NULL THEN 0 ELSE 1099511627776 END
      + CASE WHEN r.count_ms IS NULL THEN 0 ELSE 2199023255552 END
      + CASE WHEN r.count_calls IS NULL THEN 0 ELSE 4398046511104 END
      + CASE WHEN r.count_catalogue_tokens IS NULL THEN 0 ELSE 8796093022208 END
    AS BIGINT) AS known
  FROM raw_event AS r
  JOIN several AS s ON s.event_id = r.event_id
  WHERE r.started_us IS NOT NULL
),
compared AS (
  SELECT
    ranked.*,
    MAX(CASE WHEN seniority = record_count THEN known END) OVER (PARTITION BY event_id) AS best_known
  FROM ranked
)
SELECT
  record_number,
  event_id,
  seniority,
  record_count,
  started_us,
  degraded,
  service_key,
  compaction_hint,
  is_stream,
  truncated,
  MAX(CASE WHEN (known & best_known) <> known THEN 1 ELSE 0 END) OVER (PARTITION BY event_id) AS needs_more
FROM compared
