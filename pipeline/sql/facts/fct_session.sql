-- fct_session: a visit: a session cut where nothing was in flight for longer than the visit gap.
-- Grain: (session_key, visit_number).
-- Sources: fct_call. Parameters: $visit_gap_s.
-- Meaning: from the start of its first call to the latest end of its calls, subagents included; attributed to
--   the day it starts. A visit takes the calls of its session from the instant that opens it to the next such.
WITH opening AS (
  SELECT session_key, started_us
  FROM fct_call
  WHERE session_key IS NOT NULL
    AND (
      previous_in_session_at IS NULL
      OR DATE_DIFF('microsecond', previous_in_session_at, start_at) > CAST($visit_gap_s AS DOUBLE) * 1e6
    )
),
visit AS (
  SELECT
    session_key,
    ROW_NUMBER() OVER (PARTITION BY session_key ORDER BY started_us) AS visit_number,
    started_us,
    LEAD(started_us) OVER (PARTITION BY session_key ORDER BY started_us) AS next_started_us
  FROM opening
)
SELECT
  c.session_key,
  CAST(v.visit_number AS BIGINT) AS visit_number,
  CAST(MIN(c.start_at) AS DATE) AS start_date,
  MIN(c.start_at) AS start_at,
  MAX(COALESCE(c.end_at, c.start_at)) AS end_at,
  MAX(c.user_hash) AS user_hash,
  MAX(c.client) AS client,
  MAX(c.team_id) AS team_id,
  MAX(c.session_evidence) AS session_evidence,
  MAX(c.is_attended) AS is_attended,
  COUNT(*) AS calls,
  COUNT(DISTINCT c.agent_id) AS agents,
  COUNT(DISTINCT CASE WHEN c.agent_kind = 'main' THEN c.turn_key END) AS turns,
  SUM(CASE WHEN c.initiator = 'user' THEN 1 ELSE 0 END) AS user_calls,
  SUM(c.input_tokens) AS input_tokens,
  SUM(c.output_tokens) AS output_tokens
FROM fct_call AS c
JOIN visit AS v
  ON v.session_key = c.session_key
  AND c.started_us >= v.started_us
  AND (v.next_started_us IS NULL OR c.started_us < v.next_started_us)
GROUP BY c.session_key, v.visit_number
