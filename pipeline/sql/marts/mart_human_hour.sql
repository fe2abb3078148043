-- mart_human_hour: the time people worked with agents.
-- Grain: (scope, scope_value, user_key, business_day, idle_cap_s); scope: all, team, key, client, model or profile.
-- Sources: mart_burst, mart_visit, prm_idle_cap (seconds), prm_business_day (business_day, start_at, end_at in UTC).
--   Parameters: $window_start, $window_end.
-- Meaning: per session, in-flight time and every gap up to the cap between one call's end and the next
--   call's start, in whatever agent; a longer gap counts nothing. Then the union over the user's sessions, so
--   parallel sessions count once: of each stretch, what is past the end of all that began before it; cut at the
--   window and at business days. Unattended work has none. A scope's
--   value is that of the visit. A call of unknown user stands for its session.
-- Additive: over users, days and windows; not over the values of a scope (a user may be in several at once).
WITH attended AS (
  SELECT
    b.session_key, b.burst_number, b.start_at, b.end_at, b.previous_end_at,
    COALESCE(b.user_hash, 'session:' || b.session_key) AS user_key,
    v.team_id, v.key_alias, v.client, v.model_group, v.profile
  FROM mart_burst AS b
  LEFT JOIN mart_visit AS v
    ON v.session_key = b.session_key AND b.start_at >= v.start_at AND b.start_at <= v.end_at
  WHERE b.is_attended = 1
),
session_cut AS (
  SELECT
    a.*,
    g.seconds AS idle_cap_s,
    SUM(
      CASE
        WHEN a.previous_end_at IS NULL THEN 1
        WHEN DATE_DIFF('microsecond', a.previous_end_at, a.start_at) > g.seconds * 1e6 THEN 1
        ELSE 0
      END
    ) OVER (
      PARTITION BY a.session_key, g.seconds ORDER BY a.burst_number
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS island
  FROM attended AS a
  CROSS JOIN prm_idle_cap AS g
),
session_island AS (
  SELECT
    session_key, idle_cap_s, island, MIN(user_key) AS user_key, MIN(start_at) AS start_at, MAX(end_at) AS end_at,
    ARG_MIN(team_id, burst_number) AS team_id,
    ARG_MIN(key_alias, burst_number) AS key_alias,
    ARG_MIN(client, burst_number) AS client,
    ARG_MIN(model_group, burst_number) AS model_group,
    ARG_MIN(profile, burst_number) AS profile
  FROM session_cut
  GROUP BY session_key, idle_cap_s, island
  HAVING MAX(end_at) > CAST($window_start AS TIMESTAMP) AND MIN(start_at) < CAST($window_end AS TIMESTAMP)
),
scoped AS (
  SELECT 'all' AS scope, 'all' AS scope_value, idle_cap_s, user_key, start_at, end_at
  FROM session_island
  UNION ALL
  SELECT 'team' AS scope, team_id AS scope_value, idle_cap_s, user_key, start_at, end_at
  FROM session_island
  WHERE team_id IS NOT NULL
  UNION ALL
  SELECT 'key' AS scope, key_alias AS scope_value, idle_cap_s, user_key, start_at, end_at
  FROM session_island
  WHERE key_alias IS NOT NULL
  UNION ALL
  SELECT 'client' AS scope, client AS scope_value, idle_cap_s, user_key, start_at, end_at
  FROM session_island
  WHERE client IS NOT NULL
  UNION ALL
  SELECT 'model' AS scope, model_group AS scope_value, idle_cap_s, user_key, start_at, end_at
  FROM session_island
  WHERE model_group IS NOT NULL
  UNION ALL
  SELECT 'profile' AS scope, profile AS scope_value, idle_cap_s, user_key, start_at, end_at
  FROM session_island
  WHERE profile IS NOT NULL
),
user_chain AS (
  SELECT
    scope, scope_value, user_key, idle_cap_s, start_at, end_at,
    MAX(end_at) OVER (
      PARTITION BY scope, scope_value, user_key, idle_cap_s ORDER BY start_at
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS previous_end_at
  FROM scoped
),
user_new AS (
  SELECT
    scope, scope_value, user_key, idle_cap_s,
    GREATEST(
      CASE WHEN previous_end_at > start_at THEN previous_end_at ELSE start_at END, CAST($window_start AS TIMESTAMP)
    ) AS start_at,
    LEAST(end_at, CAST($window_end AS TIMESTAMP)) AS end_at
  FROM user_chain
)
SELECT
  u.scope,
  u.scope_value,
  u.user_key,
  d.business_day,
  u.idle_cap_s,
  SUM(DATE_DIFF('microsecond', GREATEST(u.start_at, d.start_at), LEAST(u.end_at, d.end_at))) / 3.6e9
    AS human_hours
FROM user_new AS u
JOIN prm_business_day AS d ON u.start_at < d.end_at AND u.end_at > d.start_at
WHERE u.end_at > u.start_at
GROUP BY u.scope, u.scope_value, u.user_key, d.business_day, u.idle_cap_s
