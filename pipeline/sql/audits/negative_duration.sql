-- negative_duration: calls whose told duration, first token or gap is negative, or whose first token is after the end.
-- Grain: call_id. Sources: stg_call. Severity: warning (such values are not used).
SELECT call_id AS id, duration_ms, ttft_ms, idle_ms
FROM stg_call
WHERE duration_ms < 0 OR ttft_ms < 0 OR idle_ms < 0 OR ttft_ms > duration_ms + 1
