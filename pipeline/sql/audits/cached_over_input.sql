-- cached_over_input: calls whose backend reported more cached than prompt tokens, or a negative number.
-- Grain: call_id. Sources: fct_call. Severity: warning (their cached tokens are set aside as unknown).
SELECT call_id AS id, input_tokens
FROM fct_call
WHERE cached_invalid = 1
