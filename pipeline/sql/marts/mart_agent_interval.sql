-- mart_agent_interval: when an agent was in which state, and the turn that answers for it.
-- Grain: (session_key, agent_id, turn_key, state, start_at).
-- Sources: fct_turn, fct_session, fct_call.
-- Meaning: open (root agents: the visit; a gap belongs to the turn before it), in_turn (from the turn's first
--   call to its last end, at the latest to the next turn's start), llm_active (calls in flight, overlaps once).
--   A visit cut inside a turn cuts open and in_turn alike, so open ⊇ in_turn ⊇ llm_active.
WITH in_visit AS (
  SELECT
    t.session_key, t.agent_id, t.turn_key, t.agent_kind, t.is_external,
    GREATEST(t.start_at, v.start_at) AS start_at,
    LEAST(t.end_at, COALESCE(t.next_start_at, t.end_at), v.end_at) AS in_turn_end_at,
    LEAST(COALESCE(t.next_start_at, v.end_at), v.end_at) AS open_end_at
  FROM fct_turn AS t
  JOIN fct_session AS v
    ON v.session_key = t.session_key
    AND v.start_at <= COALESCE(t.next_start_at, t.end_at)
    AND v.end_at >= t.start_at
  WHERE v.start_at <= t.end_at
),
flight AS (
  SELECT
    c.session_key, c.agent_id, c.turn_key, t.agent_kind, t.is_external, c.started_us, c.call_id, c.start_at,
    LEAST(c.end_at, COALESCE(t.next_start_at, c.end_at)) AS end_at,
    MAX(LEAST(c.end_at, COALESCE(t.next_start_at, c.end_at))) OVER (
      PARTITION BY c.session_key, c.agent_id, c.turn_key ORDER BY c.started_us, c.call_id
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS previous_end_at
  FROM fct_call AS c
  JOIN fct_turn AS t
    ON t.session_key = c.session_key AND t.agent_id = c.agent_id AND t.turn_key = c.turn_key
  WHERE c.is_engine = 1 AND c.end_at IS NOT NULL
),
flight_new AS (
  SELECT
    session_key, agent_id, turn_key, agent_kind, is_external,
    CASE WHEN previous_end_at > start_at THEN previous_end_at ELSE start_at END AS start_at,
    end_at
  FROM flight
)
SELECT session_key, agent_id, turn_key, agent_kind, is_external, 'open' AS state, start_at, open_end_at AS end_at
FROM in_visit
WHERE agent_kind = 'main' AND open_end_at > start_at
UNION ALL
SELECT session_key, agent_id, turn_key, agent_kind, is_external, 'in_turn' AS state, start_at, in_turn_end_at AS end_at
FROM in_visit
WHERE in_turn_end_at > start_at
UNION ALL
SELECT session_key, agent_id, turn_key, agent_kind, is_external, 'llm_active' AS state, start_at, end_at
FROM flight_new
WHERE end_at > start_at
