-- future_call: calls that start after they were collected by more than five minutes (clock skew).
-- Grain: event_id. Sources: raw_event. Severity: warning.
SELECT event_id AS id, MAX(started_us) AS started_us
FROM raw_event
WHERE started_us > DATE_DIFF('microsecond', TIMESTAMP '1970-01-01 00:00:00', collected_at) + 300000000
GROUP BY event_id
