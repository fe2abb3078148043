-- mart_in_turn: time spent inside turns, under several caps on tool gaps.
-- Grain: (client, team_id, tool_cap_s); NULL cap = none.
-- Sources: fct_call, prm_tool_cap (label, seconds). Parameters: $window_start, $window_end.
-- Meaning: main-thread turns of attended sessions that start in the window: in-flight time, overlaps counted
--   once, plus each gap between calls of a turn, cut down to the cap (a long tool gap counts the cap).
WITH chained AS (
  SELECT
    client, team_id, session_key, turn_key, start_at, COALESCE(end_at, start_at) AS end_at,
    MAX(COALESCE(end_at, start_at)) OVER (
      PARTITION BY session_key, agent_id, turn_key ORDER BY started_us, call_id
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS previous_end_at
  FROM fct_call
  WHERE is_attended = 1
    AND agent_kind = 'main'
    AND start_at >= CAST($window_start AS TIMESTAMP) AND start_at < CAST($window_end AS TIMESTAMP)
),
timed AS (
  SELECT
    client,
    team_id,
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
  t.client,
  t.team_id,
  k.label AS tool_cap,
  k.seconds AS tool_cap_s,
  SUM(t.flight_s + CASE WHEN k.seconds IS NULL THEN t.gap_s ELSE LEAST(t.gap_s, k.seconds) END) / 3600.0
    AS in_turn_hours
FROM timed AS t
CROSS JOIN prm_tool_cap AS k
GROUP BY t.client, t.team_id, k.label, k.seconds
