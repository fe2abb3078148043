-- turn_without_start: calls of a session that came before any turn start we saw.
-- Grain: (session_key, agent_id). Sources: fct_turn. Severity: warning (a session cut by the edge of the data).
SELECT session_key AS id, agent_id, calls
FROM fct_turn
WHERE has_start = 0 OR calls < 1 OR end_at < start_at
