-- mart_agent_window: agent-hours of the whole window, measured or not.
-- Grain: (pool, agent_kind, state, tier).
-- Sources: mart_agent_interval, mart_turn_conformity, prm_group_place. Parameters: $window_start, $window_end.
-- Meaning: the gateway saw every agent, also while a power sensor was silent; with the bounds of the energy of
--   that while (mart_energy_bound) these hours give the measurement interval. Work of ours only.
WITH piece AS (
  SELECT
    g.pool, a.session_key, a.agent_id, a.turn_key, a.agent_kind, a.state,
    GREATEST(a.start_at, g.start_at, CAST($window_start AS TIMESTAMP)) AS start_at,
    LEAST(a.end_at, g.end_at, CAST($window_end AS TIMESTAMP)) AS end_at
  FROM mart_agent_interval AS a
  JOIN prm_group_place AS g
    ON (g.model_group IS NULL OR g.model_group = a.model_group)
    AND a.start_at < g.end_at AND a.end_at > g.start_at
  WHERE a.is_external = 0
)
SELECT
  p.pool,
  p.agent_kind,
  p.state,
  q.tier,
  SUM(DATE_DIFF('microsecond', p.start_at, p.end_at)) / 3.6e9 AS agent_hours,
  SUM(DATE_DIFF('microsecond', p.start_at, p.end_at) * q.conforms_lower) / 3.6e9 AS agent_hours_lower,
  SUM(DATE_DIFF('microsecond', p.start_at, p.end_at) * q.conforms_upper) / 3.6e9 AS agent_hours_upper
FROM piece AS p
JOIN mart_turn_conformity AS q
  ON q.session_key = p.session_key AND q.agent_id = p.agent_id AND q.turn_key = p.turn_key
WHERE p.end_at > p.start_at
GROUP BY p.pool, p.agent_kind, p.state, q.tier
