-- mart_turn_conformity: whether a turn met a service level.
-- Grain: (session_key, agent_id, turn_key, tier).
-- Sources: fct_call, prm_slo_tier (tier, ttft_s, speed_tok_s).
-- Meaning: a turn conforms when at most 5 % of its calls (rounded down) exceed the time to first token and at
--   most 25 % (rounded down) generate slower than the speed; calls are those that reached an engine. A failed
--   call never had a first token: it exceeds. Where the time to first token is missing it matters only if the
--   whole call took longer than the bound, or if the speed over the whole call is too slow; such calls are
--   unknown: misses in conforms_lower, passes in conforms_upper.
WITH judged AS (
  SELECT
    c.session_key,
    c.agent_id,
    c.turn_key,
    t.tier,
    c.is_engine,
    CASE WHEN c.outcome = 'rejected' THEN 1 ELSE 0 END AS is_rejected,
    CASE
      WHEN c.is_engine = 0 THEN 0
      WHEN c.outcome = 'failure' THEN 1
      WHEN c.ttft_ms > t.ttft_s * 1000 THEN 1
      ELSE 0
    END AS late,
    CASE
      WHEN c.is_engine = 0 OR c.outcome = 'failure' OR c.ttft_ms IS NOT NULL THEN 0
      WHEN c.duration_ms <= t.ttft_s * 1000 THEN 0
      ELSE 1
    END AS late_unknown,
    CASE WHEN c.is_engine = 1 AND c.tokens_per_s < t.speed_tok_s THEN 1 ELSE 0 END AS slow,
    CASE
      WHEN c.is_engine = 0 OR c.outcome = 'failure' OR c.tokens_per_s IS NOT NULL OR c.output_tokens < 16 THEN 0
      WHEN c.duration_ms > 0 AND (c.output_tokens - 1) * 1000.0 / c.duration_ms >= t.speed_tok_s THEN 0
      ELSE 1
    END AS slow_unknown
  FROM fct_call AS c
  CROSS JOIN prm_slo_tier AS t
  WHERE c.session_key IS NOT NULL AND c.turn_key IS NOT NULL
),
counted AS (
  SELECT
    session_key,
    agent_id,
    turn_key,
    tier,
    SUM(is_engine) AS calls,
    SUM(is_rejected) AS rejected_calls,
    SUM(late) AS late,
    SUM(late_unknown) AS late_unknown,
    SUM(slow) AS slow,
    SUM(slow_unknown) AS slow_unknown
  FROM judged
  GROUP BY session_key, agent_id, turn_key, tier
)
SELECT
  session_key,
  agent_id,
  turn_key,
  tier,
  calls,
  late,
  late_unknown,
  slow,
  slow_unknown,
  CASE
    WHEN calls = 0 THEN CASE WHEN rejected_calls > 0 THEN 0 ELSE 1 END
    WHEN late + late_unknown <= FLOOR(calls * 5 / 100.0) AND slow + slow_unknown <= FLOOR(calls * 25 / 100.0) THEN 1
    ELSE 0
  END AS conforms_lower,
  CASE
    WHEN calls = 0 THEN CASE WHEN rejected_calls > 0 THEN 0 ELSE 1 END
    WHEN late <= FLOOR(calls * 5 / 100.0) AND slow <= FLOOR(calls * 25 / 100.0) THEN 1
    ELSE 0
  END AS conforms_upper
FROM counted
