-- mart_in_turn: time spent inside turns, under several caps on tool gaps.
-- Grain: (day, business_day, team_id, key_alias, client, model_group, profile, tool_cap_s); NULL cap = none.
-- Sources: mart_placed_call, prm_tool_cap (label, seconds). Parameters: $window_start, $window_end.
-- Meaning: main-thread calls of attended sessions that start in the window: in-flight time, overlaps counted
--   once, plus each gap between calls of a turn, cut down to the cap (a long tool gap counts the cap); the day of
--   the call that follows the gap counts both. Team, key, client, model and profile are those of the visit.
-- Additive: yes, over everything but the caps.
WITH chained AS (
  SELECT
    start_date AS day, business_day, visit_team_id AS team_id, visit_key_alias AS key_alias, visit_client AS client,
    visit_model_group AS model_group, visit_profile AS profile, start_at, COALESCE(end_at, start_at) AS end_at,
    previous_in_turn_at AS previous_end_at
  FROM mart_placed_call
  WHERE is_attended = 1 AND agent_kind = 'main'
    AND start_at >= CAST($window_start AS TIMESTAMP) AND start_at < CAST($window_end AS TIMESTAMP)
),
placed AS (
  SELECT
    day, business_day, team_id, key_alias, client, model_group, profile,
    CASE
      WHEN previous_end_at IS NULL OR previous_end_at <= start_at
        THEN DATE_DIFF('microsecond', start_at, end_at) / 1e6
      WHEN end_at > previous_end_at THEN DATE_DIFF('microsecond', previous_end_at, end_at) / 1e6
      ELSE 0.0
    END AS flight_s,
    CASE
      WHEN previous_end_at < start_at THEN DATE_DIFF('microsecond', previous_end_at, start_at) / 1e6
      ELSE 0.0
    END AS gap_s
  FROM chained
)
SELECT
  p.day,
  p.business_day,
  p.team_id,
  p.key_alias,
  p.client,
  p.model_group,
  p.profile,
  k.label AS tool_cap,
  k.seconds AS tool_cap_s,
  COUNT(*) AS calls,
  SUM(p.flight_s + CASE WHEN k.seconds IS NULL THEN p.gap_s ELSE LEAST(p.gap_s, k.seconds) END) / 3600.0
    AS in_turn_hours
FROM placed AS p
CROSS JOIN prm_tool_cap AS k
GROUP BY p.day, p.business_day, p.team_id, p.key_alias, p.client, p.model_group, p.profile, k.label, k.seconds
