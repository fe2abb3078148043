-- mart_little: the two sides of Little's law for root agents in a turn.
-- Grain: one row.
-- Sources: fct_turn. Parameters: $window_start, $window_end.
-- Meaning: level_hours is the time integral of the number of turns under way, from a sweep over instants.
--   started, residence_hours: turns that start in the window and the whole time they take; carry_in_hours and
--   carry_out_hours correct the edges: time in the window of turns that began before it, and time after it of
--   turns that began in it. L = level ÷ window, λT = (residence + carry in − carry out) ÷ window.
WITH root AS (
  SELECT start_at, end_at, LEAST(end_at, COALESCE(next_start_at, end_at)) AS level_end_at
  FROM fct_turn
  WHERE agent_kind = 'main'
    AND end_at > CAST($window_start AS TIMESTAMP)
    AND start_at < CAST($window_end AS TIMESTAMP)
),
edge AS (
  SELECT GREATEST(start_at, CAST($window_start AS TIMESTAMP)) AS instant, 1 AS step
  FROM root
  WHERE level_end_at > CAST($window_start AS TIMESTAMP)
  UNION ALL
  SELECT LEAST(level_end_at, CAST($window_end AS TIMESTAMP)) AS instant, -1 AS step
  FROM root
  WHERE level_end_at > CAST($window_start AS TIMESTAMP)
),
level AS (
  SELECT
    instant,
    SUM(SUM(step)) OVER (ORDER BY instant ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS turns,
    LEAD(instant) OVER (ORDER BY instant) AS next_instant
  FROM edge
  GROUP BY instant
),
integral AS (
  SELECT COALESCE(SUM(turns * DATE_DIFF('microsecond', instant, next_instant)), 0) / 3.6e9 AS level_hours
  FROM level
  WHERE next_instant IS NOT NULL
),
residence AS (
  SELECT
    SUM(CASE WHEN start_at >= CAST($window_start AS TIMESTAMP) THEN 1 ELSE 0 END) AS started,
    COALESCE(SUM(
      CASE WHEN start_at >= CAST($window_start AS TIMESTAMP) THEN DATE_DIFF('microsecond', start_at, end_at) END
    ), 0) / 3.6e9 AS residence_hours,
    COALESCE(SUM(
      CASE WHEN start_at < CAST($window_start AS TIMESTAMP)
        THEN DATE_DIFF('microsecond', CAST($window_start AS TIMESTAMP), LEAST(end_at, CAST($window_end AS TIMESTAMP)))
      END
    ), 0) / 3.6e9 AS carry_in_hours,
    COALESCE(SUM(
      CASE WHEN start_at >= CAST($window_start AS TIMESTAMP) AND end_at > CAST($window_end AS TIMESTAMP)
        THEN DATE_DIFF('microsecond', CAST($window_end AS TIMESTAMP), end_at)
      END
    ), 0) / 3.6e9 AS carry_out_hours
  FROM root
)
SELECT i.level_hours, r.started, r.residence_hours, r.carry_in_hours, r.carry_out_hours
FROM integral AS i
CROSS JOIN residence AS r
