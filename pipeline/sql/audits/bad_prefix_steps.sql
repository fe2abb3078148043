-- bad_prefix_steps: events whose prefix steps cannot be read, or do not grow with age.
-- Grain: event_id. Sources: stg_event, stg_prefix_step. Severity: warning.
SELECT e.event_id AS id, e.prefix_steps
FROM stg_event AS e
WHERE e.prefix_steps <> '[]'
  AND (TRY_CAST(e.prefix_steps AS JSON) IS NULL OR JSON_TYPE(TRY_CAST(e.prefix_steps AS JSON)) <> 'ARRAY')
UNION ALL
SELECT e.event_id AS id, MAX(e.prefix_steps) AS prefix_steps
FROM (
  SELECT
    record_number,
    step_bytes,
    LAG(step_bytes) OVER (PARTITION BY record_number ORDER BY age_s, step_bytes) AS previous_bytes
  FROM stg_prefix_step
) AS f
JOIN stg_event AS e ON e.record_number = f.record_number
WHERE f.step_bytes < f.previous_bytes
GROUP BY e.event_id
