-- mart_visit: one sitting of one session, what it asked for, and its profile.
-- Grain: (session_key, start_at); day is the UTC day it starts in, business_day that of the business time zone (NULL
--   for a visit that started before the window: it is here for the calls that it still had in it).
-- Sources: mart_burst, fct_turn, prm_business_day, prm_profile (profile, below_tokens). Parameters: $deep_loop_calls.
-- Meaning: team, key, client and user are those of its first call, the model that of its first main-thread work
--   call. A turn belongs to the visit that it starts in; its latency runs from its first start to its last end,
--   tool time included. task_s adds up the latencies of the visit's main-thread turns: the time that a person
--   waited for the session, without the time the session waited for the person. context_end_tokens: prompt and
--   answer of the last main-thread call.
--   profile: chat-only without a call that an agent started and without a tool call; deep-loop from
--   $deep_loop_calls calls a turn on; else, where the answers of half of its calls or more tell what tools they
--   call, by the kind that leads: edits (coders), commands (terminal), or reads beyond one an edit (readers),
--   the first of these on a tie; else by input tokens a turn, against the bounds of prm_profile; unknown without
--   a turn or known lengths. profile_evidence: what told it (tools, loops, tokens, none).
-- Additive: no (sessions, quantiles); rows of several days can be put together, and its sums add up.
WITH visit AS (
  SELECT
    session_key,
    visit_number,
    MIN(started_us) AS started_us,
    MIN(start_at) AS start_at,
    MAX(end_at) AS end_at,
    MAX(is_attended) AS is_attended,
    MAX(user_hash) AS user_hash,
    ARG_MIN(team_id, burst_number) AS team_id,
    ARG_MIN(key_alias, burst_number) AS key_alias,
    ARG_MIN(client, burst_number) AS client,
    ARG_MIN(model_group, burst_number) AS model_group,
    MIN(session_evidence) AS session_evidence,
    SUM(calls) AS calls,
    SUM(main_calls) AS main_calls,
    SUM(agent_calls) AS agent_calls,
    SUM(input_calls) AS input_calls,
    SUM(input_tokens) AS input_tokens,
    SUM(told_calls) AS told_calls,
    COALESCE(SUM(tool_reads), 0) AS tool_reads,
    COALESCE(SUM(tool_edits), 0) AS tool_edits,
    COALESCE(SUM(tool_runs), 0) AS tool_runs,
    COALESCE(SUM(tool_others), 0) AS tool_others,
    SUM(flight_us) AS flight_us,
    SUM(main_flight_us) AS main_flight_us,
    SUM(busy_us) AS busy_us,
    SUM(all_flight_us) AS all_flight_us,
    ARG_MAX(context_end_tokens, last_n) AS context_end_tokens
  FROM mart_burst
  GROUP BY session_key, visit_number
),
turn AS (
  SELECT
    v.session_key,
    v.visit_number,
    COUNT(*) AS turns,
    SUM(t.has_user_call) AS prompts,
    SUM(t.calls) AS turn_calls,
    SUM(CASE WHEN t.failed_calls > 0 THEN 1 ELSE 0 END) AS failing_turns,
    SUM(CASE WHEN t.failed_calls > 0 THEN t.calls ELSE 0 END) AS failing_turn_calls,
    SUM(DATE_DIFF('microsecond', t.start_at, t.end_at)) / 1e6 AS task_s
  FROM visit AS v
  JOIN fct_turn AS t ON t.session_key = v.session_key AND t.start_at >= v.start_at AND t.start_at <= v.end_at
  WHERE t.agent_kind = 'main'
  GROUP BY v.session_key, v.visit_number
),
counted AS (
  SELECT
    v.*,
    COALESCE(t.turns, 0) AS turns,
    COALESCE(t.prompts, 0) AS prompts,
    COALESCE(t.turn_calls, 0) AS turn_calls,
    COALESCE(t.failing_turns, 0) AS failing_turns,
    COALESCE(t.failing_turn_calls, 0) AS failing_turn_calls,
    v.tool_reads + v.tool_edits + v.tool_runs + v.tool_others AS tool_calls,
    t.task_s
  FROM visit AS v
  LEFT JOIN turn AS t ON t.session_key = v.session_key AND t.visit_number = v.visit_number
),
told AS (
  SELECT
    counted.*,
    CASE
      WHEN turns = 0 THEN 'none'
      WHEN agent_calls + tool_calls = 0 THEN 'loops'
      WHEN CAST(calls AS DOUBLE) / turns >= $deep_loop_calls THEN 'loops'
      WHEN told_calls * 2 >= calls AND tool_calls > tool_others THEN 'tools'
      WHEN input_calls = 0 THEN 'none'
      ELSE 'tokens'
    END AS profile_evidence
  FROM counted
),
bounded AS (
  SELECT c.session_key, c.visit_number, MIN(p.below_tokens) AS below_tokens
  FROM counted AS c
  JOIN prm_profile AS p ON CAST(c.input_tokens AS DOUBLE) / c.turns < p.below_tokens
  WHERE c.turns > 0
  GROUP BY c.session_key, c.visit_number
)
SELECT
  CAST(c.start_at AS DATE) AS day,
  d.business_day,
  c.session_key,
  c.start_at,
  c.end_at,
  CASE
    WHEN c.profile_evidence = 'none' THEN 'unknown'
    WHEN c.profile_evidence = 'tokens' THEN p.profile
    WHEN c.profile_evidence = 'loops' AND c.agent_calls + c.tool_calls = 0 THEN 'chat-only'
    WHEN c.profile_evidence = 'loops' THEN 'deep-loop'
    WHEN c.tool_edits >= c.tool_runs AND 2 * c.tool_edits >= c.tool_reads THEN 'coders'
    WHEN c.tool_runs >= c.tool_reads - c.tool_edits THEN 'terminal'
    ELSE 'readers'
  END AS profile,
  c.profile_evidence,
  c.team_id,
  c.key_alias,
  c.client,
  c.model_group,
  c.user_hash,
  c.is_attended,
  c.session_evidence,
  c.calls,
  c.main_calls,
  c.calls - c.main_calls AS subagent_calls,
  c.agent_calls,
  c.turns,
  c.prompts,
  c.turn_calls,
  c.failing_turns,
  c.failing_turn_calls,
  c.input_calls,
  c.input_tokens,
  c.told_calls,
  CASE WHEN c.told_calls > 0 THEN c.tool_reads END AS tool_reads,
  CASE WHEN c.told_calls > 0 THEN c.tool_edits END AS tool_edits,
  CASE WHEN c.told_calls > 0 THEN c.tool_runs END AS tool_runs,
  CASE WHEN c.told_calls > 0 THEN c.tool_others END AS tool_others,
  c.context_end_tokens,
  DATE_DIFF('microsecond', c.start_at, c.end_at) / 1e6 AS wall_s,
  c.task_s,
  c.flight_us / 1e6 AS flight_s,
  c.main_flight_us / 1e6 AS main_flight_s,
  c.busy_us / 1e6 AS busy_s,
  c.all_flight_us / 1e6 AS overlapping_s
FROM told AS c
LEFT JOIN prm_business_day AS d ON c.start_at >= d.start_at AND c.start_at < d.end_at
LEFT JOIN bounded AS b ON b.session_key = c.session_key AND b.visit_number = c.visit_number
LEFT JOIN prm_profile AS p ON p.below_tokens = b.below_tokens
