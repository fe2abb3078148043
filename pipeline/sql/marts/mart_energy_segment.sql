-- mart_energy_segment: energy between two neighbouring samples of one device.
-- Grain: (scope, device, kind, start_at).
-- Sources: raw_metric, prm_power_series (name, target, labels -> source, scope, kind, factor, device).
--   Parameters: $window_start, $window_end, $max_gap_s; $metric_start and $metric_end lie
--   a longest gap outside the window.
-- Meaning: one value per device and instant (a GPU sliced into instances repeats its power on every slice, so
--   the largest counts once). An energy counter gives differences, and its new value after a reset; a watt
--   gauge gives trapezoids. A device with a counter that moves is read from it, else from the gauge. Samples
--   that mean "not available" are dropped (blank values of DCGM among them); neighbours further apart than the
--   longest gap bound no segment. A counter that falls to a value that the device cannot have used since the
--   sample before (more than 20 times its usual power) did not restart: that step is not measured.
WITH reading AS (
  SELECT
    s.scope,
    s.device,
    s.kind,
    m.ts,
    MAX(m.value * s.factor) AS value
  FROM raw_metric AS m
  JOIN prm_power_series AS s ON s.name = m.name AND s.target = m.target AND s.labels = m.labels
  WHERE m.ts >= CAST($metric_start AS TIMESTAMP)
    AND m.ts <= CAST($metric_end AS TIMESTAMP)
    AND m.value >= 0
    AND m.value < 9.2e18
    AND NOT (m.value >= 2147483632 AND m.value <= 2147483635 AND m.value = FLOOR(m.value))
    AND NOT (m.value >= 140737488355328 AND m.value <= 140737488355331)
    AND (s.kind = 'counter' OR m.value * s.factor < 2e9)
  GROUP BY s.scope, s.device, s.kind, m.ts
),
neighbour AS (
  SELECT
    scope,
    device,
    kind,
    LAG(ts) OVER (PARTITION BY scope, device, kind ORDER BY ts) AS start_at,
    ts AS end_at,
    LAG(value) OVER (PARTITION BY scope, device, kind ORDER BY ts) AS start_value,
    value AS end_value
  FROM reading
),
step AS (
  SELECT
    scope,
    device,
    kind,
    start_at,
    end_at,
    CASE
      WHEN kind = 'gauge'
        THEN (start_value + end_value) / 2 * DATE_DIFF('microsecond', start_at, end_at) / 1e6
      WHEN end_value >= start_value THEN end_value - start_value
      ELSE end_value
    END AS joules,
    CASE WHEN kind = 'counter' AND end_value < start_value THEN 1 ELSE 0 END AS is_reset
  FROM neighbour
  WHERE start_at IS NOT NULL
    AND DATE_DIFF('microsecond', start_at, end_at) <= CAST($max_gap_s AS DOUBLE) * 1e6
),
usual AS (
  SELECT
    scope,
    device,
    QUANTILE_CONT(joules * 1e6 / DATE_DIFF('microsecond', start_at, end_at), 0.5) AS watts
  FROM step
  WHERE kind = 'counter' AND is_reset = 0
  GROUP BY scope, device
),
measured AS (
  SELECT
    s.*,
    CASE
      WHEN s.is_reset = 1 AND u.watts > 0
        AND s.joules * 1e6 > 20 * u.watts * DATE_DIFF('microsecond', s.start_at, s.end_at) THEN 1
      ELSE 0
    END AS is_implausible
  FROM step AS s
  LEFT JOIN usual AS u ON u.scope = s.scope AND u.device = s.device
),
choice AS (
  SELECT
    scope,
    device,
    CASE WHEN SUM(CASE WHEN kind = 'counter' THEN joules ELSE 0 END) > 0 THEN 'counter' ELSE 'gauge' END AS kind
  FROM measured
  WHERE is_implausible = 0
  GROUP BY scope, device
)
SELECT
  m.scope,
  m.device,
  m.kind,
  m.start_at,
  m.end_at,
  m.joules,
  m.is_reset,
  m.is_implausible,
  CASE WHEN c.kind = m.kind AND m.is_implausible = 0 THEN 1 ELSE 0 END AS is_chosen
FROM measured AS m
JOIN choice AS c ON c.scope = m.scope AND c.device = m.device
WHERE m.end_at > CAST($window_start AS TIMESTAMP) AND m.start_at < CAST($window_end AS TIMESTAMP)
