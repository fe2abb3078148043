-- zero_duration_failure: failures known from the ledger alone whose start and end are the same instant.
-- Grain: call_id. Sources: stg_call. Severity: info (their duration is unknown, not zero).
SELECT call_id AS id, error_class
FROM stg_call
WHERE outcome = 'failure' AND source = 'row' AND duration_ms IS NULL
