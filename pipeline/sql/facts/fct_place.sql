-- fct_place: where a call stands in its stream and turn.
-- Grain: call_number (of stg_call); only calls of a session.
-- Sources: stg_call, prm_service_key (value).
-- Meaning: a stream is (session_key, agent_id), in order of started_us and call_id; auxiliary and rejected calls
--   stand in lanes of their own. previous_…: of the call before it in its lane, previous_input_tokens of the
--   last one before it that has any; previous_end_at: the latest end of earlier calls of the stream in any
--   lane; previous_in_session_us and previous_in_turn_us: of earlier calls of the session or turn, whatever their
--   agent or lane. turn_key is the plugin's turn id; where it is missing, a user-initiated call opens a turn of its own
--   and other calls join the turn before them ('lead' when there is none). Few columns, because every window
--   sorts all of them.
WITH typed AS (
  SELECT
    c.call_number,
    c.call_id,
    c.session_key,
    c.agent_id,
    CASE
      WHEN c.outcome = 'rejected' THEN 'rejected'
      WHEN c.initiator = 'auxiliary' THEN 'auxiliary'
      ELSE 'work'
    END AS lane,
    c.started_us,
    c.started_us
      + CASE WHEN c.duration_ms >= 0 THEN CAST(ROUND(c.duration_ms * 1000) AS BIGINT) ELSE 0 END AS ended_us,
    c.initiator,
    c.model_group,
    c.compaction_hint,
    CASE WHEN c.input_tokens > 0 THEN c.input_tokens END AS input_tokens,
    CASE
      WHEN c.turn_id IS NOT NULL AND c.turn_id <> '' THEN c.turn_id
      WHEN c.initiator = 'user' THEN 'call:' || c.call_id
    END AS turn_anchor,
    c.call_index,
    CASE
      WHEN c.service_key = 1
        OR c.key_alias IN (SELECT value FROM prm_service_key)
        OR c.key_hash IN (SELECT value FROM prm_service_key) THEN 1
      ELSE 0
    END AS is_service
  FROM stg_call AS c
  WHERE c.session_key IS NOT NULL
),
session AS (
  SELECT
    session_key,
    MAX(CASE WHEN initiator = 'user' THEN 1 ELSE 0 END) AS session_has_user,
    MAX(is_service) AS session_is_service
  FROM typed
  GROUP BY session_key
),
streamed AS (
  SELECT
    typed.*,
    COALESCE(
      LAST_VALUE(turn_anchor IGNORE NULLS) OVER (
        PARTITION BY session_key, agent_id ORDER BY started_us, call_id
        ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
      ),
      'lead'
    ) AS turn_key,
    MAX(ended_us) OVER (
      PARTITION BY session_key, agent_id ORDER BY started_us, call_id
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS previous_ended_us
  FROM typed
),
laned AS (
  SELECT
    streamed.*,
    ROW_NUMBER() OVER (PARTITION BY session_key, agent_id, lane ORDER BY started_us, call_id) AS lane_number,
    LAG(model_group) OVER (PARTITION BY session_key, agent_id, lane ORDER BY started_us, call_id)
      AS previous_model_group,
    LAG(compaction_hint) OVER (PARTITION BY session_key, agent_id, lane ORDER BY started_us, call_id)
      AS previous_compaction_hint,
    LAG(initiator) OVER (PARTITION BY session_key, agent_id, lane ORDER BY started_us, call_id)
      AS previous_initiator,
    LAST_VALUE(input_tokens IGNORE NULLS) OVER (
      PARTITION BY session_key, agent_id, lane ORDER BY started_us, call_id
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS previous_input_tokens
  FROM streamed
),
placed AS (
  SELECT
    laned.*,
    ROW_NUMBER() OVER (PARTITION BY session_key, agent_id, turn_key ORDER BY started_us, call_id) AS number_in_turn,
    SUM(CASE WHEN lane = 'work' THEN 1 ELSE 0 END) OVER (
      PARTITION BY session_key, agent_id, turn_key ORDER BY started_us, call_id
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS work_in_turn,
    MAX(ended_us) OVER (
      PARTITION BY session_key, agent_id, turn_key ORDER BY started_us, call_id
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS previous_in_turn_us
  FROM laned
)
SELECT
  p.call_number,
  MAX(p.ended_us) OVER (
    PARTITION BY p.session_key ORDER BY p.started_us, p.call_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
  ) AS previous_in_session_us,
  ROW_NUMBER() OVER (PARTITION BY p.session_key ORDER BY p.started_us, p.call_id) AS number_in_session,
  p.previous_in_turn_us,
  p.lane_number,
  p.turn_key,
  CASE WHEN p.lane = 'work' THEN GREATEST(COALESCE(p.call_index, 1), CAST(p.work_in_turn AS BIGINT)) END
    AS call_in_turn,
  p.number_in_turn,
  p.previous_ended_us,
  p.previous_model_group,
  p.previous_compaction_hint,
  p.previous_initiator,
  p.previous_input_tokens,
  s.session_has_user,
  s.session_is_service
FROM placed AS p
JOIN session AS s ON s.session_key = p.session_key
