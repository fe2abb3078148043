-- mart_human_hour: the time people worked with agents.
-- Grain: (scope, scope_value, user_key, business_day, idle_cap_s).
-- Sources: fct_call, prm_idle_cap (seconds), prm_business_day (business_day, start_at, end_at in UTC).
--   Parameters: $window_start, $window_end.
-- Meaning: per session, in-flight time and every gap up to the cap between one call's end and the next
--   call's start, in whatever agent; a longer gap counts nothing. Then the union over the user's sessions, so
--   parallel sessions count once, cut at the window and at business days. Unattended work has none. Not
--   additive over scopes; additive over users and days. A call of unknown user stands for its session.
WITH scoped AS (
  SELECT
    'all' AS scope, 'all' AS scope_value, COALESCE(user_hash, 'session:' || session_key) AS user_key,
    session_key, call_id, started_us, start_at, COALESCE(end_at, start_at) AS end_at
  FROM fct_call
  WHERE is_attended = 1
  UNION ALL
  SELECT
    'client' AS scope, client AS scope_value, COALESCE(user_hash, 'session:' || session_key) AS user_key,
    session_key, call_id, started_us, start_at, COALESCE(end_at, start_at) AS end_at
  FROM fct_call
  WHERE is_attended = 1 AND client IS NOT NULL
  UNION ALL
  SELECT
    'team' AS scope, team_id AS scope_value, COALESCE(user_hash, 'session:' || session_key) AS user_key,
    session_key, call_id, started_us, start_at, COALESCE(end_at, start_at) AS end_at
  FROM fct_call
  WHERE is_attended = 1 AND team_id IS NOT NULL
),
chained AS (
  SELECT
    scoped.*,
    MAX(end_at) OVER (
      PARTITION BY scope, scope_value, user_key, session_key ORDER BY started_us, call_id
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS previous_end_at
  FROM scoped
  WHERE end_at >= CAST($window_start AS TIMESTAMP) - INTERVAL 1 DAY AND start_at < CAST($window_end AS TIMESTAMP)
),
session_cut AS (
  SELECT
    c.scope, c.scope_value, c.user_key, c.session_key, c.start_at, c.end_at, g.seconds AS idle_cap_s,
    SUM(
      CASE
        WHEN c.previous_end_at IS NULL THEN 1
        WHEN DATE_DIFF('microsecond', c.previous_end_at, c.start_at) > g.seconds * 1e6 THEN 1
        ELSE 0
      END
    ) OVER (
      PARTITION BY c.scope, c.scope_value, c.user_key, c.session_key, g.seconds ORDER BY c.started_us, c.call_id
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS island
  FROM chained AS c
  CROSS JOIN prm_idle_cap AS g
),
session_island AS (
  SELECT
    scope, scope_value, user_key, session_key, idle_cap_s, island, MIN(start_at) AS start_at, MAX(end_at) AS end_at
  FROM session_cut
  GROUP BY scope, scope_value, user_key, session_key, idle_cap_s, island
),
user_chain AS (
  SELECT
    session_island.*,
    MAX(end_at) OVER (
      PARTITION BY scope, scope_value, user_key, idle_cap_s ORDER BY start_at, session_key, island
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS previous_end_at
  FROM session_island
),
user_cut AS (
  SELECT
    user_chain.*,
    SUM(CASE WHEN previous_end_at IS NULL OR start_at > previous_end_at THEN 1 ELSE 0 END) OVER (
      PARTITION BY scope, scope_value, user_key, idle_cap_s ORDER BY start_at, session_key, island
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS span
  FROM user_chain
),
user_span AS (
  SELECT
    scope, scope_value, user_key, idle_cap_s, span,
    GREATEST(MIN(start_at), CAST($window_start AS TIMESTAMP)) AS start_at,
    LEAST(MAX(end_at), CAST($window_end AS TIMESTAMP)) AS end_at
  FROM user_cut
  GROUP BY scope, scope_value, user_key, idle_cap_s, span
)
SELECT
  u.scope,
  u.scope_value,
  u.user_key,
  d.business_day,
  u.idle_cap_s,
  SUM(
    DATE_DIFF('microsecond', GREATEST(u.start_at, d.start_at), LEAST(u.end_at, d.end_at)) / 3.6e9
  ) AS human_hours
FROM user_span AS u
JOIN prm_business_day AS d ON u.start_at < d.end_at AND u.end_at > d.start_at
WHERE u.end_at > u.start_at
GROUP BY u.scope, u.scope_value, u.user_key, d.business_day, u.idle_cap_s
