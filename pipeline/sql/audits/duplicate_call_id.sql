-- duplicate_call_id: calls that are in the facts more than once.
-- Grain: call_id. Sources: fct_call. Severity: error.
SELECT call_id AS id, COUNT(*) AS copies
FROM fct_call
GROUP BY call_id
HAVING COUNT(*) > 1
