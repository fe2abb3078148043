-- turn_partition: sessions whose turns do not hold exactly their calls.
-- Grain: session_key. Sources: fct_call, fct_turn. Severity: error.
WITH by_call AS (
  SELECT session_key, COUNT(*) AS calls FROM fct_call WHERE session_key IS NOT NULL GROUP BY session_key
),
by_turn AS (
  SELECT session_key, SUM(calls) AS calls FROM fct_turn GROUP BY session_key
)
SELECT c.session_key AS id, c.calls AS calls_in_session, t.calls AS calls_in_turns
FROM by_call AS c
LEFT JOIN by_turn AS t ON t.session_key = c.session_key
WHERE t.calls IS NULL OR t.calls <> c.calls
