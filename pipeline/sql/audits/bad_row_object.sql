-- bad_row_object: ledger rows whose object of ours cannot be read.
-- Grain: ledger row. Sources: stg_row. Severity: warning.
SELECT request_id AS id, litellm_call_id
FROM stg_row
WHERE bad_object = 1
