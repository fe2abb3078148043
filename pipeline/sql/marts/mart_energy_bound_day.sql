-- mart_energy_bound_day: what is known of one device's energy on one business day.
-- Grain: (scope, pool, device, business_day).
-- Sources: mart_energy_segment, mart_energy_bound, prm_power_place, prm_business_day.
-- Meaning: joules_low and joules_high bound the energy of the day: what its samples cover, and for the rest the
--   least or the most power that the device showed in the whole window. Days add up to the window.
WITH place AS (
  SELECT
    p.scope, p.pool, p.device, d.business_day,
    GREATEST(p.start_at, d.start_at) AS start_at,
    LEAST(p.end_at, d.end_at) AS end_at
  FROM prm_power_place AS p
  JOIN prm_business_day AS d ON p.start_at < d.end_at AND p.end_at > d.start_at
),
expected AS (
  SELECT
    scope, pool, device, business_day, SUM(DATE_DIFF('microsecond', start_at, end_at)) / 1e6 AS expected_s
  FROM place
  GROUP BY scope, pool, device, business_day
),
piece AS (
  SELECT
    p.scope, p.pool, p.device, p.business_day, s.is_reset,
    DATE_DIFF('microsecond', GREATEST(s.start_at, p.start_at), LEAST(s.end_at, p.end_at)) / 1e6 AS seconds,
    s.joules * 1e6 / DATE_DIFF('microsecond', s.start_at, s.end_at) AS watts
  FROM mart_energy_segment AS s
  JOIN place AS p ON p.scope = s.scope AND p.device = s.device
  WHERE s.is_chosen = 1 AND s.start_at < p.end_at AND s.end_at > p.start_at AND s.end_at > s.start_at
),
told AS (
  SELECT
    scope, pool, device, business_day,
    SUM(seconds) AS measured_s,
    SUM(watts * seconds) AS joules,
    SUM(CASE WHEN is_reset = 1 THEN seconds ELSE 0 END) AS reset_s
  FROM piece
  GROUP BY scope, pool, device, business_day
)
SELECT
  e.scope, e.pool, e.device, e.business_day, e.expected_s,
  COALESCE(t.measured_s, 0) AS measured_s,
  COALESCE(t.joules, 0)
    + GREATEST(e.expected_s - COALESCE(t.measured_s, 0), 0) * b.min_watts AS joules_low,
  COALESCE(t.joules, 0)
    + (GREATEST(e.expected_s - COALESCE(t.measured_s, 0), 0) + COALESCE(t.reset_s, 0)) * b.max_watts AS joules_high
FROM expected AS e
JOIN mart_energy_bound AS b ON b.scope = e.scope AND b.pool = e.pool AND b.device = e.device
LEFT JOIN told AS t
  ON t.scope = e.scope AND t.pool = e.pool AND t.device = e.device AND t.business_day = e.business_day
