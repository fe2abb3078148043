-- mart_visit: one sitting of one session, what it asked for, and its profile.
-- Grain: (session_key, start_at); day is the UTC day it starts in, business_day that of the business time zone (NULL
--   for a visit that started before the window: it is here for the calls that it still had in it).
-- Sources: mart_burst, fct_turn, prm_business_day, prm_profile (profile, below_tokens). Parameters: $deep_loop_calls.
-- Meaning: team, key, client and user are those of its first call, the model that of its first main-thread work
--   call. A turn belongs to the visit that it starts in; its latency runs from its first start to its last end,
--   tool time included. task_s adds up the latencies of the visit's main-thread turns: the time that a person
--   waited for the session, without the time the session waited for the person. context_end_tokens: prompt and
--   answer of the last main-thread call.
--   profile: chat-only without a call that an agent started; deep-loop from $deep_loop_calls calls a turn on;
--   else by input tokens a turn, against the bounds of prm_profile; unknown without a turn or known lengths.
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
    t.task_s
  FROM visit AS v
  LEFT JOIN turn AS t ON t.session_key = v.session_key AND t.visit_number = v.visit_number
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
    WHEN c.turns = 0 THEN 'unknown'
    WHEN c.agent_calls = 0 THEN 'chat-only'
    WHEN CAST(c.calls AS DOUBLE) / c.turns >= $deep_loop_calls THEN 'deep-loop'
    WHEN c.input_calls = 0 THEN 'unknown'
    ELSE p.profile
  END AS profile,
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
  c.context_end_tokens,
  DATE_DIFF('microsecond', c.start_at, c.end_at) / 1e6 AS wall_s,
  c.task_s,
  c.flight_us / 1e6 AS flight_s,
  c.main_flight_us / 1e6 AS main_flight_s,
  c.busy_us / 1e6 AS busy_s,
  c.all_flight_us / 1e6 AS overlapping_s
FROM counted AS c
LEFT JOIN prm_business_day AS d ON c.start_at >= d.start_at AND c.start_at < d.end_at
LEFT JOIN bounded AS b ON b.session_key = c.session_key AND b.visit_number = c.visit_number
LEFT JOIN prm_profile AS p ON p.below_tokens = b.below_tokens
