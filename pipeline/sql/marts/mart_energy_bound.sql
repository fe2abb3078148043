-- mart_energy_bound: what is known of one device's energy, whatever the others did.
-- Grain: (scope, pool, device).
-- Sources: mart_energy_segment, prm_power_place.
-- Meaning: expected_s: how long it serves the pool in the window; measured_s and joules: what its own samples
--   cover; min_watts and max_watts: least and most mean power between two samples (restarts left out);
--   reset_s: stretches in which its counter began again, whose energy is known from below only; idle_watts:
--   least mean power of an hour (what the device draws when it does nothing, if it ever did nothing), null
--   where only one hour was measured.
WITH piece AS (
  SELECT
    p.scope, p.pool, p.device, s.is_reset,
    DATE_TRUNC('hour', GREATEST(s.start_at, p.start_at)) AS hour_start,
    DATE_DIFF('microsecond', GREATEST(s.start_at, p.start_at), LEAST(s.end_at, p.end_at)) / 1e6 AS seconds,
    s.joules * 1e6 / DATE_DIFF('microsecond', s.start_at, s.end_at) AS watts
  FROM mart_energy_segment AS s
  JOIN prm_power_place AS p ON p.scope = s.scope AND p.device = s.device
  WHERE s.is_chosen = 1 AND s.start_at < p.end_at AND s.end_at > p.start_at AND s.end_at > s.start_at
),
hourly AS (
  SELECT scope, pool, device, hour_start, SUM(watts * seconds) / SUM(seconds) AS watts
  FROM piece
  WHERE is_reset = 0
  GROUP BY scope, pool, device, hour_start
),
idle AS (
  SELECT scope, pool, device, MIN(watts) AS idle_watts
  FROM hourly
  GROUP BY scope, pool, device
  HAVING COUNT(*) >= 2
),
told AS (
  SELECT
    scope, pool, device,
    SUM(seconds) AS measured_s,
    SUM(watts * seconds) AS joules,
    MIN(CASE WHEN is_reset = 0 THEN watts END) AS min_watts,
    MAX(CASE WHEN is_reset = 0 THEN watts END) AS max_watts,
    SUM(CASE WHEN is_reset = 1 THEN seconds ELSE 0 END) AS reset_s
  FROM piece
  GROUP BY scope, pool, device
),
expected AS (
  SELECT scope, pool, device, SUM(DATE_DIFF('microsecond', start_at, end_at)) / 1e6 AS expected_s
  FROM prm_power_place
  GROUP BY scope, pool, device
)
SELECT
  e.scope, e.pool, e.device, e.expected_s,
  COALESCE(t.measured_s, 0) AS measured_s,
  COALESCE(t.joules, 0) AS joules,
  t.min_watts, t.max_watts,
  COALESCE(t.reset_s, 0) AS reset_s,
  i.idle_watts
FROM expected AS e
LEFT JOIN told AS t ON t.scope = e.scope AND t.pool = e.pool AND t.device = e.device
LEFT JOIN idle AS i ON i.scope = e.scope AND i.pool = e.pool AND i.device = e.device
