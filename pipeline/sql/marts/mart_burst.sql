-- mart_burst: calls of a session without a pause longer than the shortest gap that any convention cuts at.
-- Grain: (session_key, burst_number). Built for other marts, not published.
-- Sources: fct_call. Parameters: $burst_gap_s (least of the visit gap and the idle caps), $visit_gap_s.
-- Meaning: visits (cut at the visit gap) and stretches of human time (cut at an idle cap) are runs of bursts, so
--   calls are sorted once for all of them. flight_us adds up the time of every engine call, busy_us counts
--   overlaps once. told_calls are those whose answer tells what tools it calls. Identity is that of the first
--   call. Not additive: a burst may span days; it belongs to the day that it starts in.
WITH ordered AS (
  SELECT
    session_key, started_us, start_at, COALESCE(end_at, start_at) AS end_at, agent_kind, lane, outcome, is_engine,
    is_attended, initiator, user_hash, team_id, key_alias, client, model_group, session_evidence, input_tokens,
    output_tokens, tool_reads, tool_edits, tool_runs, tool_others,
    number_in_session AS n, previous_in_session_at AS previous_end_at
  FROM fct_call
  WHERE session_key IS NOT NULL
),
opening AS (
  SELECT session_key, n
  FROM ordered
  WHERE DATE_DIFF('microsecond', previous_end_at, start_at) > CAST($burst_gap_s AS DOUBLE) * 1e6
  UNION
  SELECT session_key, MIN(n) AS n
  FROM ordered
  GROUP BY session_key
),
stretch AS (
  SELECT
    session_key,
    n AS first_n,
    ROW_NUMBER() OVER (PARTITION BY session_key ORDER BY n) AS burst_number,
    LEAD(n) OVER (PARTITION BY session_key ORDER BY n) AS next_n
  FROM opening
),
measured AS (
  SELECT
    ordered.*,
    stretch.burst_number,
    CAST(DATE_DIFF('microsecond', start_at, end_at) AS BIGINT) AS flight_us,
    CASE
      WHEN previous_end_at IS NULL OR previous_end_at <= start_at THEN DATE_DIFF('microsecond', start_at, end_at)
      WHEN end_at > previous_end_at THEN DATE_DIFF('microsecond', previous_end_at, end_at)
      ELSE 0
    END AS busy_us
  FROM ordered
  JOIN stretch
    ON stretch.session_key = ordered.session_key
    AND ordered.n >= stretch.first_n
    AND (stretch.next_n IS NULL OR ordered.n < stretch.next_n)
),
burst AS (
  SELECT
    session_key,
    burst_number,
    MIN(n) AS first_n,
    MIN(started_us) AS started_us,
    MIN(start_at) AS start_at,
    MAX(end_at) AS end_at,
    MIN(previous_end_at) AS previous_end_at,
    MAX(is_attended) AS is_attended,
    MAX(user_hash) AS user_hash,
    ARG_MIN(team_id, n) AS team_id,
    ARG_MIN(key_alias, n) AS key_alias,
    ARG_MIN(client, n) AS client,
    ARG_MIN(model_group, CASE WHEN lane = 'work' AND agent_kind = 'main' THEN n ELSE n + 1000000000 END) AS model_group,
    MIN(session_evidence) AS session_evidence,
    COUNT(*) AS calls,
    SUM(CASE WHEN agent_kind = 'main' THEN 1 ELSE 0 END) AS main_calls,
    SUM(CASE WHEN initiator = 'agent' THEN 1 ELSE 0 END) AS agent_calls,
    SUM(CASE WHEN input_tokens > 0 THEN 1 ELSE 0 END) AS input_calls,
    SUM(CASE WHEN input_tokens > 0 THEN input_tokens END) AS input_tokens,
    SUM(CASE WHEN tool_reads IS NOT NULL THEN 1 ELSE 0 END) AS told_calls,
    SUM(tool_reads) AS tool_reads,
    SUM(tool_edits) AS tool_edits,
    SUM(tool_runs) AS tool_runs,
    SUM(tool_others) AS tool_others,
    SUM(CASE WHEN is_engine = 1 THEN flight_us ELSE 0 END) AS flight_us,
    SUM(CASE WHEN is_engine = 1 AND agent_kind = 'main' AND outcome <> 'failure' THEN flight_us ELSE 0 END)
      AS main_flight_us,
    SUM(busy_us) AS busy_us,
    SUM(flight_us) AS all_flight_us,
    MAX(CASE WHEN agent_kind = 'main' AND lane = 'work' AND is_engine = 1 AND input_tokens > 0 THEN n END) AS last_n,
    ARG_MAX(
      input_tokens + COALESCE(output_tokens, 0),
      CASE WHEN agent_kind = 'main' AND lane = 'work' AND is_engine = 1 AND input_tokens > 0 THEN n END
    ) AS context_end_tokens
  FROM measured
  GROUP BY session_key, burst_number
)
SELECT
  session_key,
  burst_number,
  SUM(
    CASE
      WHEN previous_end_at IS NULL THEN 1
      WHEN DATE_DIFF('microsecond', previous_end_at, start_at) > CAST($visit_gap_s AS DOUBLE) * 1e6 THEN 1
      ELSE 0
    END
  ) OVER (PARTITION BY session_key ORDER BY burst_number ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
    AS visit_number,
  first_n,
  started_us,
  start_at,
  end_at,
  previous_end_at,
  is_attended,
  user_hash,
  team_id,
  key_alias,
  client,
  model_group,
  session_evidence,
  calls,
  main_calls,
  agent_calls,
  input_calls,
  input_tokens,
  told_calls,
  tool_reads,
  tool_edits,
  tool_runs,
  tool_others,
  flight_us,
  main_flight_us,
  busy_us,
  all_flight_us,
  last_n,
  context_end_tokens
FROM burst
