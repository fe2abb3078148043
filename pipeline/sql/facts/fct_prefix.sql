-- fct_prefix: prefix tokens of a call that an earlier call of its (session, agent, model) had already sent.
-- Grain: call_number (of stg_call). Only calls whose prompt and shared bytes are known have rows.
-- Sources: stg_call, stg_prefix_step, prm_retention (label).
-- Meaning: a column for each of the usual retentions; fct_potential has a row for each, and for others that are asked
--   for. tokens = input tokens × shared bytes ÷ prompt bytes, at most the input. Retention is inclusive. A ledger
--   row carries the prefix of any age alone, so a call known from its row has no finite retention, save where
--   nothing at all is shared. NULL: not known, or nobody asked for that retention.
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
usual AS (
  SELECT
    record_number AS call_number,
    MAX(step_bytes) AS bytes_inf,
    MAX(CASE WHEN age_s <= 3600 THEN step_bytes END) AS bytes_3600,
    MAX(CASE WHEN age_s <= 300 THEN step_bytes END) AS bytes_300
  FROM stg_prefix_step
  GROUP BY record_number
),
retained AS (
  SELECT
    k.call_number,
    k.call_id,
    k.input_tokens,
    k.prompt_bytes,
    k.shared_bytes,
    k.has_steps,
    CASE WHEN EXISTS (SELECT 1 FROM prm_retention WHERE label = 'inf')
      THEN GREATEST(k.shared_bytes, COALESCE(u.bytes_inf, 0)) END AS bytes_inf,
    CASE WHEN EXISTS (SELECT 1 FROM prm_retention WHERE label = '3600')
      THEN CASE WHEN k.shared_bytes = 0 THEN 0 WHEN k.has_steps = 1 THEN COALESCE(u.bytes_3600, 0) END END
      AS bytes_3600,
    CASE WHEN EXISTS (SELECT 1 FROM prm_retention WHERE label = '300')
      THEN CASE WHEN k.shared_bytes = 0 THEN 0 WHEN k.has_steps = 1 THEN COALESCE(u.bytes_300, 0) END END
      AS bytes_300
  FROM known AS k
  LEFT JOIN usual AS u ON u.call_number = k.call_number
)
SELECT
  call_number,
  call_id,
  input_tokens,
  prompt_bytes,
  shared_bytes,
  has_steps,
  CASE WHEN bytes_inf IS NOT NULL
    THEN CAST(LEAST(input_tokens, input_tokens * bytes_inf / prompt_bytes) AS DOUBLE) END AS potential_inf_tokens,
  CASE WHEN bytes_3600 IS NOT NULL
    THEN CAST(LEAST(input_tokens, input_tokens * bytes_3600 / prompt_bytes) AS DOUBLE) END AS potential_3600_tokens,
  CASE WHEN bytes_300 IS NOT NULL
    THEN CAST(LEAST(input_tokens, input_tokens * bytes_300 / prompt_bytes) AS DOUBLE) END AS potential_300_tokens
FROM retained
