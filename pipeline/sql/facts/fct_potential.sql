-- fct_potential: prefix tokens of a call that an earlier call of its (session, agent, model) had already sent.
-- Grain: (call_id, retention). Only calls whose potential prefix is known have rows.
-- Sources: stg_call, stg_prefix_step, prm_retention (label, seconds; NULL seconds = without limit).
-- Meaning: tokens = input tokens × shared bytes ÷ prompt bytes, at most the input. Retention is inclusive.
--   A ledger row carries the prefix of any age alone, so a call known from its row has no finite retention,
--   save where nothing at all is shared.
WITH known AS (
  SELECT
    call_number,
    call_id,
    CAST(input_tokens AS DOUBLE) AS input_tokens,
    CAST(prompt_bytes AS DOUBLE) AS prompt_bytes,
    CAST(shared_bytes AS DOUBLE) AS shared_bytes,
    has_steps
  FROM stg_call
  WHERE input_tokens > 0 AND prompt_bytes > 0 AND shared_bytes IS NOT NULL
),
-- The usual retentions in one pass over the steps; others, if any are asked for, in a pass of their own.
usual AS (
  SELECT
    record_number AS call_number,
    MAX(step_bytes) AS bytes_inf,
    MAX(CASE WHEN age_s <= 3600 THEN step_bytes END) AS bytes_3600,
    MAX(CASE WHEN age_s <= 300 THEN step_bytes END) AS bytes_300
  FROM stg_prefix_step
  GROUP BY record_number
),
other AS (
  SELECT s.record_number AS call_number, t.label AS retention, MAX(s.step_bytes) AS step_bytes
  FROM stg_prefix_step AS s
  JOIN prm_retention AS t ON s.age_s <= t.seconds
  WHERE t.label NOT IN ('inf', '3600', '300')
  GROUP BY s.record_number, t.label
),
stepped AS (
  SELECT known.*, usual.bytes_inf, usual.bytes_3600, usual.bytes_300
  FROM known
  LEFT JOIN usual ON usual.call_number = known.call_number
),
touched AS (
  SELECT
    k.call_number,
    k.call_id,
    t.label AS retention,
    t.seconds,
    k.input_tokens,
    k.prompt_bytes,
    k.shared_bytes,
    k.has_steps,
    CASE t.label
      WHEN 'inf' THEN k.bytes_inf WHEN '3600' THEN k.bytes_3600 WHEN '300' THEN k.bytes_300 ELSE o.step_bytes
    END AS step_bytes
  FROM stepped AS k
  CROSS JOIN prm_retention AS t
  LEFT JOIN other AS o ON o.call_number = k.call_number AND o.retention = t.label
),
shared AS (
  SELECT
    call_number,
    call_id,
    retention,
    input_tokens,
    prompt_bytes,
    CASE
      WHEN seconds IS NULL THEN GREATEST(shared_bytes, COALESCE(step_bytes, 0))
      WHEN shared_bytes = 0 THEN 0
      WHEN has_steps = 1 THEN COALESCE(step_bytes, 0)
    END AS retained_bytes
  FROM touched
)
SELECT
  call_number,
  call_id,
  retention,
  CAST(input_tokens AS DOUBLE) AS input_tokens,
  CAST(LEAST(input_tokens, input_tokens * retained_bytes / prompt_bytes) AS DOUBLE) AS potential_tokens
FROM shared
WHERE retained_bytes IS NOT NULL
