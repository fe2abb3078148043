-- fct_place: where a call stands in its stream and turn.
-- Grain: call_number (of stg_call); only calls of a session.
-- Sources: stg_call, prm_service_key (value).
-- Meaning: a stream is (session_key, agent_id), in order of started_us and call_id; auxiliary and rejected calls
--   stand in lanes of their own. previous_…: of the call before it in its lane, previous_input_tokens of the
--   last one before it that has any; previous_end_at: the latest end of earlier calls of the stream in any
--   lane; previous_in_session_us and previous_in_turn_us: of earlier calls of the session or turn, whatever their
--   agent or lane. turn_key is the plugin's turn id; where it is missing, a user-initiated call opens a turn of its own
--   and other calls join the turn before them ('lead' when there is none). Every window sorts all that it
--   carries, so they carry numbers for names, and the first one settles the order of calls for the others.
WITH typed AS (
  SELECT
    c.call_number,
    c.call_id,
    c.session_key,
    c.agent_id,
    CASE WHEN c.outcome = 'rejected' THEN 2 WHEN c.initiator = 'auxiliary' THEN 1 ELSE 0 END AS lane,
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
stream AS (
  SELECT
    session_key,
    agent_id,
    ROW_NUMBER() OVER (ORDER BY session_key, agent_id) AS stream_number,
    MAX(CASE WHEN initiator = 'user' THEN 1 ELSE 0 END) AS has_user,
    MAX(is_service) AS is_service
  FROM typed
  GROUP BY session_key, agent_id
),
session AS (
  SELECT
    session_key,
    MIN(stream_number) AS session_number,
    MAX(has_user) AS session_has_user,
    MAX(is_service) AS session_is_service
  FROM stream
  GROUP BY session_key
),
of_session AS (
  SELECT stream.session_key, stream.agent_id, stream.stream_number, session.session_number
  FROM stream
  JOIN session ON session.session_key = stream.session_key
),
turn AS (
  SELECT turn_anchor, ROW_NUMBER() OVER (ORDER BY turn_anchor) AS turn_number
  FROM typed
  WHERE turn_anchor IS NOT NULL
  GROUP BY turn_anchor
),
model AS (
  SELECT model_group, ROW_NUMBER() OVER (ORDER BY model_group) AS model_number
  FROM typed
  WHERE model_group IS NOT NULL
  GROUP BY model_group
),
numbered AS (
  SELECT
    t.call_number,
    t.call_id,
    s.session_number,
    s.stream_number,
    t.lane,
    u.turn_number AS opened_turn,
    t.started_us,
    t.ended_us,
    m.model_number,
    t.compaction_hint,
    CASE t.initiator WHEN 'compaction' THEN 1 ELSE 0 END AS is_compaction,
    t.input_tokens,
    t.call_index
  FROM typed AS t
  JOIN of_session AS s ON s.session_key = t.session_key AND s.agent_id = t.agent_id
  LEFT JOIN turn AS u ON u.turn_anchor = t.turn_anchor
  LEFT JOIN model AS m ON m.model_group = t.model_group
),
ordered AS (
  SELECT
    call_number,
    session_number,
    stream_number,
    lane,
    opened_turn,
    ended_us,
    model_number,
    compaction_hint,
    is_compaction,
    input_tokens,
    call_index,
    ROW_NUMBER() OVER (PARTITION BY session_number ORDER BY started_us, call_id) AS number_in_session,
    MAX(ended_us) OVER (
      PARTITION BY session_number ORDER BY started_us, call_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS previous_in_session_us
  FROM numbered
),
streamed AS (
  SELECT
    ordered.*,
    COALESCE(
      LAST_VALUE(opened_turn IGNORE NULLS) OVER (
        PARTITION BY stream_number ORDER BY number_in_session ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
      ),
      (SELECT turn_number FROM turn WHERE turn_anchor = 'lead'),
      0
    ) AS turn_number,
    MAX(ended_us) OVER (
      PARTITION BY stream_number ORDER BY number_in_session ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS previous_ended_us
  FROM ordered
),
laned AS (
  SELECT
    call_number,
    session_number,
    stream_number,
    lane,
    turn_number,
    ended_us,
    call_index,
    number_in_session,
    previous_in_session_us,
    previous_ended_us,
    ROW_NUMBER() OVER (PARTITION BY stream_number, lane ORDER BY number_in_session) AS lane_number,
    LAG(model_number) OVER (PARTITION BY stream_number, lane ORDER BY number_in_session) AS previous_model_number,
    LAG(compaction_hint) OVER (PARTITION BY stream_number, lane ORDER BY number_in_session)
      AS previous_compaction_hint,
    LAG(is_compaction) OVER (PARTITION BY stream_number, lane ORDER BY number_in_session)
      AS previous_is_compaction,
    LAST_VALUE(input_tokens IGNORE NULLS) OVER (
      PARTITION BY stream_number, lane ORDER BY number_in_session
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS previous_input_tokens
  FROM streamed
),
placed AS (
  SELECT
    laned.*,
    ROW_NUMBER() OVER (PARTITION BY stream_number, turn_number ORDER BY number_in_session) AS number_in_turn,
    COUNT(CASE WHEN lane = 0 THEN 1 END) OVER (
      PARTITION BY stream_number, turn_number ORDER BY number_in_session
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS work_in_turn,
    MAX(ended_us) OVER (
      PARTITION BY stream_number, turn_number ORDER BY number_in_session
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS previous_in_turn_us
  FROM laned
)
SELECT
  p.call_number,
  p.previous_in_session_us,
  p.number_in_session,
  p.previous_in_turn_us,
  p.lane_number,
  COALESCE(u.turn_anchor, 'lead') AS turn_key,
  CASE WHEN p.lane = 0 THEN GREATEST(COALESCE(p.call_index, 1), p.work_in_turn) END AS call_in_turn,
  p.number_in_turn,
  p.previous_ended_us,
  m.model_group AS previous_model_group,
  p.previous_compaction_hint,
  p.previous_is_compaction,
  p.previous_input_tokens,
  s.session_has_user,
  s.session_is_service
FROM placed AS p
JOIN session AS s ON s.session_number = p.session_number
LEFT JOIN turn AS u ON u.turn_number = p.turn_number
LEFT JOIN model AS m ON m.model_number = p.previous_model_number
