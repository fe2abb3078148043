-- potential_over_input: potential prefix tokens outside 0 … input.
-- Grain: (call_id, retention). Sources: fct_potential. Severity: error.
SELECT call_id AS id, retention, potential_tokens
FROM fct_potential
WHERE potential_tokens < 0 OR potential_tokens > input_tokens
