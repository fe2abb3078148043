-- mart_agent_gap: conformant agent-hours that a cap on gaps takes away.
-- Grain: (scope, state, tier, convention, cap).
-- Sources: fct_call, fct_turn, mart_agent_interval, mart_turn_conformity, mart_energy_island, prm_tool_cap,
--   prm_idle_cap.
-- Meaning: how far the figure rests on conventions. tool cap: a gap between calls of a turn counts up to the
--   cap. idle cap: a gap between turns that is longer than the cap counts nothing (the visit gap already cuts
--   longer ones). Root agents, work of ours, measured seconds.
WITH chained AS (
  SELECT
    session_key, agent_id, turn_key, start_at,
    MAX(COALESCE(end_at, start_at)) OVER (
      PARTITION BY session_key, agent_id, turn_key ORDER BY started_us, call_id
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS previous_end_at
  FROM fct_call
  WHERE agent_kind = 'main' AND session_key IS NOT NULL AND turn_key IS NOT NULL
),
removed AS (
  SELECT
    c.session_key, c.agent_id, c.turn_key, 'tool cap' AS convention, k.label AS cap,
    c.previous_end_at + TO_MICROSECONDS(CAST(k.seconds * 1e6 AS BIGINT)) AS start_at,
    c.start_at AS end_at
  FROM chained AS c
  JOIN prm_tool_cap AS k ON DATE_DIFF('microsecond', c.previous_end_at, c.start_at) > k.seconds * 1e6
  UNION ALL
  SELECT
    t.session_key, t.agent_id, t.turn_key, 'idle cap' AS convention,
    CAST(CAST(ROUND(g.seconds) AS BIGINT) AS VARCHAR) || ' s' AS cap,
    t.end_at AS start_at, t.next_start_at AS end_at
  FROM fct_turn AS t
  JOIN prm_idle_cap AS g ON DATE_DIFF('microsecond', t.end_at, t.next_start_at) > g.seconds * 1e6
  WHERE t.agent_kind = 'main'
),
inside AS (
  SELECT
    a.session_key, a.agent_id, a.turn_key, a.state, r.convention, r.cap,
    GREATEST(a.start_at, r.start_at) AS start_at,
    LEAST(a.end_at, r.end_at) AS end_at
  FROM removed AS r
  JOIN mart_agent_interval AS a
    ON a.session_key = r.session_key AND a.agent_id = r.agent_id AND a.turn_key = r.turn_key
  WHERE a.is_external = 0 AND a.start_at < r.end_at AND a.end_at > r.start_at
)
SELECT
  i.scope, p.state, q.tier, p.convention, p.cap,
  SUM(
    DATE_DIFF('microsecond', GREATEST(p.start_at, i.start_at), LEAST(p.end_at, i.end_at)) / 3.6e9
    * q.conforms_lower
  ) AS removed_hours_lower
FROM inside AS p
JOIN mart_energy_island AS i ON i.pool = '*' AND p.start_at < i.end_at AND p.end_at > i.start_at
JOIN mart_turn_conformity AS q
  ON q.session_key = p.session_key AND q.agent_id = p.agent_id AND q.turn_key = p.turn_key
GROUP BY i.scope, p.state, q.tier, p.convention, p.cap
