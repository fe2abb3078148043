-- fct_session: a visit: a session cut where nothing was in flight for longer than the visit gap.
-- Grain: (session_key, visit_number).
-- Sources: fct_call. Parameters: $visit_gap_s.
-- Meaning: from the start of its first call to the latest end of its calls, subagents included; attributed to
--   the day it starts.
WITH ordered AS (
  SELECT
    call_id, session_key, agent_id, agent_kind, turn_key, user_hash, client, team_id, is_attended, initiator,
    started_us, start_at, COALESCE(end_at, start_at) AS end_at, session_evidence, input_tokens, output_tokens,
    MAX(COALESCE(end_at, start_at)) OVER (
      PARTITION BY session_key ORDER BY started_us, call_id
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS previous_end_at
  FROM fct_call
  WHERE session_key IS NOT NULL
),
cut AS (
  SELECT
    ordered.*,
    SUM(
      CASE
        WHEN previous_end_at IS NULL THEN 1
        WHEN DATE_DIFF('microsecond', previous_end_at, start_at) > CAST($visit_gap_s AS DOUBLE) * 1e6 THEN 1
        ELSE 0
      END
    ) OVER (
      PARTITION BY session_key ORDER BY started_us, call_id
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS visit_number
  FROM ordered
)
SELECT
  session_key,
  CAST(visit_number AS BIGINT) AS visit_number,
  CAST(MIN(start_at) AS DATE) AS start_date,
  MIN(start_at) AS start_at,
  MAX(end_at) AS end_at,
  MAX(user_hash) AS user_hash,
  MAX(client) AS client,
  MAX(team_id) AS team_id,
  MAX(session_evidence) AS session_evidence,
  MAX(is_attended) AS is_attended,
  COUNT(*) AS calls,
  COUNT(DISTINCT agent_id) AS agents,
  COUNT(DISTINCT CASE WHEN agent_kind = 'main' THEN turn_key END) AS turns,
  SUM(CASE WHEN initiator = 'user' THEN 1 ELSE 0 END) AS user_calls,
  SUM(input_tokens) AS input_tokens,
  SUM(output_tokens) AS output_tokens
FROM cut
GROUP BY session_key, visit_number
