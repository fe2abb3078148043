-- mart_agent_hour: agent-hours of an hour inside the measured stretches, and how many of them conformed.
-- Grain: (scope, pool, hour_start, agent_kind, state, tier, is_external, model_group, profile); pool '*' is all
--   pools together, so pools are never added to it.
-- Sources: mart_agent_interval, mart_turn_conformity, mart_energy_island, prm_hour, prm_group_place (pool,
--   model_group, start_at, end_at: when a pool serves a model group; null: any), mart_pooled_hour.
-- Meaning: numerator of agents per megawatt. agent_hours: all; lower and upper: of conforming turns, unknown
--   ones counted as misses or as passes; pooled: all, in hours that pass the pooled rule. External work stands
--   in pool '*' only.
WITH cell AS (
  SELECT
    i.scope, i.pool, h.hour_start, h.business_day, h.is_weekend,
    GREATEST(i.start_at, h.start_at) AS start_at,
    LEAST(i.end_at, h.end_at) AS end_at
  FROM mart_energy_island AS i
  JOIN prm_hour AS h ON i.start_at < h.end_at AND i.end_at > h.start_at
),
placed AS (
  SELECT
    g.pool, a.session_key, a.agent_id, a.turn_key, a.agent_kind, a.state, a.is_external, a.model_group, a.profile,
    GREATEST(a.start_at, g.start_at) AS start_at,
    LEAST(a.end_at, g.end_at) AS end_at
  FROM mart_agent_interval AS a
  JOIN prm_group_place AS g
    ON (g.model_group IS NULL OR g.model_group = a.model_group)
    AND a.start_at < g.end_at AND a.end_at > g.start_at
  WHERE a.is_external = 0
  UNION ALL
  SELECT
    '*' AS pool, session_key, agent_id, turn_key, agent_kind, state, is_external, model_group, profile,
    start_at, end_at
  FROM mart_agent_interval
  WHERE is_external = 1
),
piece AS (
  SELECT
    c.scope, c.pool, c.hour_start, c.business_day, c.is_weekend,
    a.session_key, a.agent_id, a.turn_key, a.agent_kind, a.state, a.is_external, a.model_group, a.profile,
    SUM(DATE_DIFF('microsecond', GREATEST(a.start_at, c.start_at), LEAST(a.end_at, c.end_at))) / 3.6e9 AS hours
  FROM placed AS a
  JOIN cell AS c ON c.pool = a.pool AND a.start_at < c.end_at AND a.end_at > c.start_at
  GROUP BY
    c.scope, c.pool, c.hour_start, c.business_day, c.is_weekend, a.session_key, a.agent_id, a.turn_key,
    a.agent_kind, a.state, a.is_external, a.model_group, a.profile
)
SELECT
  p.scope,
  p.pool,
  p.hour_start,
  p.business_day,
  p.is_weekend,
  p.agent_kind,
  p.state,
  q.tier,
  p.is_external,
  p.model_group,
  p.profile,
  COUNT(*) AS turns,
  SUM(q.conforms_lower) AS turns_lower,
  SUM(p.hours) AS agent_hours,
  SUM(p.hours * q.conforms_lower) AS agent_hours_lower,
  SUM(p.hours * q.conforms_upper) AS agent_hours_upper,
  SUM(p.hours * COALESCE(o.passes, 0)) AS agent_hours_pooled
FROM piece AS p
JOIN mart_turn_conformity AS q
  ON q.session_key = p.session_key AND q.agent_id = p.agent_id AND q.turn_key = p.turn_key
LEFT JOIN mart_pooled_hour AS o ON o.hour_start = p.hour_start AND o.tier = q.tier
GROUP BY
  p.scope, p.pool, p.hour_start, p.business_day, p.is_weekend, p.agent_kind, p.state, q.tier, p.is_external,
  p.model_group, p.profile
