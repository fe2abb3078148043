-- bad_prefix_steps: events whose prefix steps cannot be read, or do not grow with age.
-- Grain: event_id. Sources: stg_prefix_step. Severity: warning.
SELECT event_id AS id, is_unreadable
FROM stg_prefix_step
WHERE is_unreadable = 1
UNION ALL
SELECT a.event_id AS id, MAX(a.is_unreadable) AS is_unreadable
FROM stg_prefix_step AS a
JOIN stg_prefix_step AS b ON b.record_number = a.record_number AND b.age_s > a.age_s AND b.step_bytes < a.step_bytes
GROUP BY a.event_id
