-- mart_agent_window: agent-hours of the whole window, measured or not.
-- Grain: (pool, business_day, agent_kind, state, tier, model_group, profile).
-- Sources: mart_agent_interval, mart_turn_conformity, prm_group_place, prm_business_day. Parameters:
--   $window_start, $window_end, $unseen_s.
-- Meaning: the gateway saw every agent, also while a power sensor was silent; with the bounds of the energy of
--   that while (mart_energy_bound) these hours give the measurement interval. Work of ours only. edge_hours: the
--   part that the engine may not have seen: before the first call of an interval was handed to it, and at
--   both ends the longest by which the gateway's instants may differ from the engine's. beginnings: intervals
--   that begin here; at both ends of each the client may have seen as much more.
WITH piece AS (
  SELECT
    g.pool, d.business_day, a.session_key, a.agent_id, a.turn_key, a.agent_kind, a.state, a.model_group, a.profile,
    a.start_at AS begun_at,
    a.engine_start_at,
    GREATEST(a.start_at, g.start_at, d.start_at, CAST($window_start AS TIMESTAMP)) AS start_at,
    LEAST(a.end_at, g.end_at, d.end_at, CAST($window_end AS TIMESTAMP)) AS end_at
  FROM mart_agent_interval AS a
  JOIN prm_group_place AS g
    ON (g.model_group IS NULL OR g.model_group = a.model_group)
    AND a.start_at < g.end_at AND a.end_at > g.start_at
  JOIN prm_business_day AS d ON a.start_at < d.end_at AND a.end_at > d.start_at
  WHERE a.is_external = 0
),
timed AS (
  SELECT
    pool, business_day, session_key, agent_id, turn_key, agent_kind, state, model_group, profile,
    DATE_DIFF('microsecond', start_at, end_at) / 3.6e9 AS hours,
    LEAST(
      DATE_DIFF('microsecond', start_at, end_at) / 3.6e9,
      GREATEST(DATE_DIFF('microsecond', start_at, LEAST(engine_start_at, end_at)), 0) / 3.6e9
        + CASE WHEN start_at = begun_at THEN 2 * CAST($unseen_s AS DOUBLE) / 3600 ELSE 0 END
    ) AS edge_hours,
    CASE WHEN start_at = begun_at THEN 1 ELSE 0 END AS begins
  FROM piece
  WHERE end_at > start_at
)
SELECT
  p.pool,
  p.business_day,
  p.agent_kind,
  p.state,
  q.tier,
  p.model_group,
  p.profile,
  SUM(p.hours) AS agent_hours,
  SUM(p.hours * q.conforms_lower) AS agent_hours_lower,
  SUM(p.hours * q.conforms_upper) AS agent_hours_upper,
  SUM(p.edge_hours) AS edge_hours,
  SUM(p.edge_hours * q.conforms_lower) AS edge_hours_lower,
  SUM(p.begins) AS beginnings,
  SUM(p.begins * q.conforms_upper) AS beginnings_upper
FROM timed AS p
JOIN mart_turn_conformity AS q
  ON q.session_key = p.session_key AND q.agent_id = p.agent_id AND q.turn_key = p.turn_key
GROUP BY p.pool, p.business_day, p.agent_kind, p.state, q.tier, p.model_group, p.profile
