-- mart_agent_interval: when an agent was in which state, and the turn that answers for it.
-- Grain: (session_key, agent_id, turn_key, state, start_at).
-- Sources: fct_turn, fct_session, fct_call, mart_visit.
-- Meaning: open (root agents: the visit; a gap belongs to the turn before it), in_turn (from the turn's first
--   call to its last end, at the latest to the next turn's start), llm_active (calls in flight, overlaps once).
--   A visit cut inside a turn cuts open and in_turn alike, so open ⊇ in_turn ⊇ llm_active. model_group is that
--   of the turn's first call, profile that of the visit that the interval starts in.
--   engine_start_at: when the gateway had handed the interval's first call to the engine; what lies before it
--   is the gateway's own time, and the engine knows nothing of it.
WITH timed AS (
  SELECT
    session_key, agent_id, turn_key, is_engine, started_us, call_id, start_at, end_at,
    start_at + TO_MICROSECONDS(
      CAST(GREATEST(COALESCE(overhead_ms, queue_ms + pre_call_ms, 0), 0) * 1000 AS BIGINT)
    ) AS handed_at
  FROM fct_call
  WHERE session_key IS NOT NULL AND turn_key IS NOT NULL
),
opening AS (
  SELECT session_key, agent_id, turn_key, MIN(handed_at) AS handed_at
  FROM timed
  WHERE is_engine = 1
  GROUP BY session_key, agent_id, turn_key
),
in_visit AS (
  SELECT
    t.session_key, t.agent_id, t.turn_key, t.agent_kind, t.is_external, t.model_group,
    COALESCE(o.handed_at, t.start_at) AS handed_at,
    GREATEST(t.start_at, v.start_at) AS start_at,
    LEAST(t.end_at, COALESCE(t.next_start_at, t.end_at), v.end_at) AS in_turn_end_at,
    LEAST(COALESCE(t.next_start_at, v.end_at), v.end_at) AS open_end_at
  FROM fct_turn AS t
  JOIN fct_session AS v
    ON v.session_key = t.session_key
    AND v.start_at <= COALESCE(t.next_start_at, t.end_at)
    AND v.end_at >= t.start_at
  LEFT JOIN opening AS o
    ON o.session_key = t.session_key AND o.agent_id = t.agent_id AND o.turn_key = t.turn_key
  WHERE v.start_at <= t.end_at
),
flight AS (
  SELECT
    c.session_key, c.agent_id, c.turn_key, t.agent_kind, t.is_external, t.model_group, c.started_us, c.call_id,
    c.start_at, c.handed_at,
    LEAST(c.end_at, COALESCE(t.next_start_at, c.end_at)) AS end_at,
    MAX(LEAST(c.end_at, COALESCE(t.next_start_at, c.end_at))) OVER (
      PARTITION BY c.session_key, c.agent_id, c.turn_key ORDER BY c.started_us, c.call_id
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS previous_end_at
  FROM timed AS c
  JOIN fct_turn AS t
    ON t.session_key = c.session_key AND t.agent_id = c.agent_id AND t.turn_key = c.turn_key
  WHERE c.is_engine = 1 AND c.end_at IS NOT NULL
),
flight_new AS (
  SELECT
    session_key, agent_id, turn_key, agent_kind, is_external, model_group, handed_at,
    CASE WHEN previous_end_at > start_at THEN previous_end_at ELSE start_at END AS start_at,
    end_at
  FROM flight
),
state AS (
  SELECT
    session_key, agent_id, turn_key, agent_kind, is_external, model_group, 'open' AS state, start_at,
    open_end_at AS end_at, handed_at
  FROM in_visit
  WHERE agent_kind = 'main' AND open_end_at > start_at
  UNION ALL
  SELECT
    session_key, agent_id, turn_key, agent_kind, is_external, model_group, 'in_turn' AS state, start_at,
    in_turn_end_at AS end_at, handed_at
  FROM in_visit
  WHERE in_turn_end_at > start_at
  UNION ALL
  SELECT
    session_key, agent_id, turn_key, agent_kind, is_external, model_group, 'llm_active' AS state, start_at, end_at,
    handed_at
  FROM flight_new
  WHERE end_at > start_at
)
SELECT
  s.session_key, s.agent_id, s.turn_key, s.agent_kind, s.is_external, s.model_group,
  COALESCE(v.profile, 'unknown') AS profile, s.state, s.start_at, s.end_at,
  LEAST(GREATEST(s.handed_at, s.start_at), s.end_at) AS engine_start_at
FROM state AS s
LEFT JOIN mart_visit AS v ON v.session_key = s.session_key AND s.start_at >= v.start_at AND s.start_at <= v.end_at
