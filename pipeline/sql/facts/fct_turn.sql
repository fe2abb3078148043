-- fct_turn: a user-initiated call and every call until the next one of the same session and agent.
-- Grain: (session_key, agent_id, turn_key).
-- Sources: fct_call.
-- Meaning: attributed to the day it starts. has_start = 0 marks calls that came before any turn start we saw
--   ('lead'). engine_calls leaves out rejected calls and response-cache hits. is_external: some of its work
--   went to a provider outside our power meters. next_start_at closes the gap that the turn is followed by.
WITH grouped AS (
  SELECT
    session_key,
    agent_id,
    turn_key,
    MAX(CASE WHEN number_in_turn = 1 THEN agent_kind END) AS agent_kind,
    MAX(CASE WHEN number_in_turn = 1 THEN turn_source END) AS turn_source,
    MAX(CASE WHEN number_in_turn = 1 THEN turn_evidence END) AS turn_evidence,
    MAX(CASE WHEN number_in_turn = 1 THEN session_evidence END) AS session_evidence,
    MAX(CASE WHEN number_in_turn = 1 THEN initiator END) AS first_initiator,
    MAX(CASE WHEN number_in_turn = 1 THEN user_hash END) AS user_hash,
    MAX(CASE WHEN number_in_turn = 1 THEN client END) AS client,
    MAX(CASE WHEN number_in_turn = 1 THEN team_id END) AS team_id,
    MAX(CASE WHEN number_in_turn = 1 THEN model_group END) AS model_group,
    MAX(is_attended) AS is_attended,
    MAX(CASE WHEN initiator = 'user' THEN 1 ELSE 0 END) AS has_user_call,
    CASE WHEN turn_key = 'lead' THEN 0 ELSE 1 END AS has_start,
    MIN(started_us) AS started_us,
    MIN(start_at) AS start_at,
    MAX(COALESCE(end_at, start_at)) AS end_at,
    COUNT(*) AS calls,
    SUM(is_engine) AS engine_calls,
    SUM(CASE WHEN outcome = 'failure' THEN 1 ELSE 0 END) AS failed_calls,
    SUM(CASE WHEN outcome = 'aborted' THEN 1 ELSE 0 END) AS aborted_calls,
    MAX(CASE WHEN is_engine = 1 THEN is_external ELSE 0 END) AS is_external,
    SUM(input_tokens) AS input_tokens,
    SUM(cached_tokens) AS cached_tokens,
    SUM(output_tokens) AS output_tokens,
    SUM(duration_ms) AS call_ms
  FROM fct_call
  WHERE session_key IS NOT NULL AND turn_key IS NOT NULL
  GROUP BY session_key, agent_id, turn_key
)
SELECT
  session_key,
  agent_id,
  turn_key,
  CAST(start_at AS DATE) AS start_date,
  ROW_NUMBER() OVER (PARTITION BY session_key, agent_id ORDER BY started_us, turn_key) AS turn_number,
  agent_kind,
  turn_source,
  turn_evidence,
  session_evidence,
  first_initiator,
  user_hash,
  client,
  team_id,
  model_group,
  is_attended,
  has_user_call,
  has_start,
  started_us,
  start_at,
  end_at,
  LEAD(start_at) OVER (PARTITION BY session_key, agent_id ORDER BY started_us, turn_key) AS next_start_at,
  calls,
  engine_calls,
  failed_calls,
  aborted_calls,
  is_external,
  input_tokens,
  cached_tokens,
  output_tokens,
  call_ms
FROM grouped
