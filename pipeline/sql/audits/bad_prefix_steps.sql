-- bad_prefix_steps: events whose prefix steps cannot be read, or do not grow with age.
-- Grain: event_id. Sources: stg_event, stg_prefix_step. Severity: warning.
SELECT e.event_id AS id, e.prefix_steps
FROM stg_event AS e
WHERE e.prefix_steps IS NOT NULL
  AND (TRY_CAST(e.prefix_steps AS JSON) IS NULL OR JSON_TYPE(TRY_CAST(e.prefix_steps AS JSON)) <> 'ARRAY')
UNION ALL
SELECT a.event_id AS id, MAX(e.prefix_steps) AS prefix_steps
FROM stg_prefix_step AS a
JOIN stg_prefix_step AS b ON b.event_id = a.event_id AND b.age_s > a.age_s AND b.step_bytes < a.step_bytes
JOIN stg_event AS e ON e.event_id = a.event_id
GROUP BY a.event_id
