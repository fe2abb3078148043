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
within_age AS (
  SELECT s.record_number AS call_number, t.label AS retention, MAX(s.step_bytes) AS step_bytes
  FROM stg_prefix_step AS s
  JOIN prm_retention AS t ON t.seconds IS NULL OR s.age_s <= t.seconds
  GROUP BY s.record_number, t.label
),
shared AS (
  SELECT
    k.call_number,
    k.call_id,
    t.label AS retention,
    k.input_tokens,
    k.prompt_bytes,
    CASE
      WHEN t.seconds IS NULL THEN GREATEST(k.shared_bytes, COALESCE(w.step_bytes, 0))
      WHEN k.shared_bytes = 0 THEN 0
      WHEN k.has_steps = 1 THEN COALESCE(w.step_bytes, 0)
    END AS retained_bytes
  FROM known AS k
  CROSS JOIN prm_retention AS t
  LEFT JOIN within_age AS w ON w.call_number = k.call_number AND w.retention = t.label
)
SELECT
  call_number,
  call_id,
  retention,
  CAST(input_tokens AS DOUBLE) AS input_tokens,
  CAST(LEAST(input_tokens, input_tokens * retained_bytes / prompt_bytes) AS DOUBLE) AS potential_tokens
FROM shared
WHERE retained_bytes IS NOT NULL
