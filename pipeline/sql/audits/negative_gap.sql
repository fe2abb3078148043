-- negative_gap: facts with a gap below zero.
-- Grain: call_id. Sources: fct_call. Severity: error.
SELECT call_id AS id, gap_ms
FROM fct_call
WHERE gap_ms < 0
