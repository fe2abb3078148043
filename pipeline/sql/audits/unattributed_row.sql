-- unattributed_row: successful ledger rows that carry nothing of ours and match no event.
-- Grain: call_id. Sources: fct_call. Severity: info (counted in coverage).
SELECT call_id AS id, model_group
FROM fct_call
WHERE source = 'row' AND session_key IS NULL AND outcome = 'success'
