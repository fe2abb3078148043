-- mart_energy_hour: measured seconds and energy of an hour.
-- Grain: (scope, pool, hour_start); pool '*' is all pools together, so pools are never added to it.
-- Sources: mart_energy_segment, mart_energy_island, prm_power_place, prm_hour (hour_start, start_at, end_at cut
--   at the window, business_day, is_weekend).
-- Meaning: energy of a segment is spread evenly over its time; only the measured stretches count. window_s is
--   the length of the hour inside the window: covered_s ÷ window_s is the coverage of the hour.
WITH covered AS (
  SELECT
    i.scope, i.pool, h.hour_start, h.business_day, h.is_weekend,
    DATE_DIFF('microsecond', h.start_at, h.end_at) / 1e6 AS window_s,
    GREATEST(i.start_at, h.start_at) AS start_at,
    LEAST(i.end_at, h.end_at) AS end_at
  FROM mart_energy_island AS i
  JOIN prm_hour AS h ON i.start_at < h.end_at AND i.end_at > h.start_at
),
time_covered AS (
  SELECT
    scope, pool, hour_start, business_day, is_weekend, window_s,
    SUM(DATE_DIFF('microsecond', start_at, end_at)) / 1e6 AS covered_s
  FROM covered
  GROUP BY scope, pool, hour_start, business_day, is_weekend, window_s
),
placed AS (
  SELECT
    p.scope, p.pool,
    GREATEST(s.start_at, p.start_at) AS start_at,
    LEAST(s.end_at, p.end_at) AS end_at,
    s.joules / DATE_DIFF('microsecond', s.start_at, s.end_at) AS joules_per_us
  FROM mart_energy_segment AS s
  JOIN prm_power_place AS p ON p.scope = s.scope AND p.device = s.device
  WHERE s.is_chosen = 1 AND s.start_at < p.end_at AND s.end_at > p.start_at AND s.end_at > s.start_at
),
energy AS (
  SELECT
    c.scope, c.pool, c.hour_start,
    SUM(
      s.joules_per_us
      * DATE_DIFF('microsecond', GREATEST(s.start_at, c.start_at), LEAST(s.end_at, c.end_at))
    ) AS joules
  FROM covered AS c
  JOIN placed AS s
    ON s.scope = c.scope AND s.pool = c.pool AND s.start_at < c.end_at AND s.end_at > c.start_at
  GROUP BY c.scope, c.pool, c.hour_start
)
SELECT t.scope, t.pool, t.hour_start, t.business_day, t.is_weekend, t.window_s, t.covered_s, e.joules
FROM time_covered AS t
JOIN energy AS e ON e.scope = t.scope AND e.pool = t.pool AND e.hour_start = t.hour_start
