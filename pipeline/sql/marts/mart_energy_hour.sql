-- mart_energy_hour: measured seconds and energy of an hour.
-- Grain: (scope, hour_start).
-- Sources: mart_energy_segment, mart_energy_island, prm_hour (hour_start, start_at, end_at cut at the window,
--   business_day, is_weekend).
-- Meaning: energy of a segment is spread evenly over its time; only the measured stretches count.
WITH covered AS (
  SELECT
    i.scope, h.hour_start, h.business_day, h.is_weekend,
    GREATEST(i.start_at, h.start_at) AS start_at,
    LEAST(i.end_at, h.end_at) AS end_at
  FROM mart_energy_island AS i
  JOIN prm_hour AS h ON i.start_at < h.end_at AND i.end_at > h.start_at
),
time_covered AS (
  SELECT
    scope, hour_start, business_day, is_weekend,
    SUM(DATE_DIFF('microsecond', start_at, end_at)) / 1e6 AS covered_s
  FROM covered
  GROUP BY scope, hour_start, business_day, is_weekend
),
energy AS (
  SELECT
    c.scope, c.hour_start,
    SUM(
      s.joules
      * DATE_DIFF('microsecond', GREATEST(s.start_at, c.start_at), LEAST(s.end_at, c.end_at))
      / DATE_DIFF('microsecond', s.start_at, s.end_at)
    ) AS joules
  FROM covered AS c
  JOIN mart_energy_segment AS s
    ON s.scope = c.scope AND s.is_chosen = 1 AND s.start_at < c.end_at AND s.end_at > c.start_at
  WHERE s.end_at > s.start_at
  GROUP BY c.scope, c.hour_start
)
SELECT t.scope, t.hour_start, t.business_day, t.is_weekend, t.covered_s, e.joules
FROM time_covered AS t
JOIN energy AS e ON e.scope = t.scope AND e.hour_start = t.hour_start
