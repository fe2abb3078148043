-- fct_potential: prefix tokens of a call within every retention that is asked for.
-- Grain: (call_id, retention). Only calls whose potential prefix is known have rows.
-- Sources: fct_prefix, stg_prefix_step, prm_retention (label, seconds; NULL seconds = without limit).
-- Meaning: see fct_prefix, whose columns are the usual retentions; others take a pass of their own over the steps.
WITH other AS (
  SELECT s.record_number AS call_number, t.label AS retention, MAX(s.step_bytes) AS step_bytes
  FROM stg_prefix_step AS s
  JOIN prm_retention AS t ON s.age_s <= t.seconds
  WHERE t.label NOT IN ('inf', '3600', '300')
  GROUP BY s.record_number, t.label
),
retained AS (
  SELECT
    k.call_number,
    k.call_id,
    t.label AS retention,
    k.input_tokens,
    k.prompt_bytes,
    CASE
      WHEN k.shared_bytes = 0 THEN 0
      WHEN k.has_steps = 1 THEN COALESCE(o.step_bytes, 0)
    END AS retained_bytes
  FROM fct_prefix AS k
  CROSS JOIN prm_retention AS t
  LEFT JOIN other AS o ON o.call_number = k.call_number AND o.retention = t.label
  WHERE t.label NOT IN ('inf', '3600', '300')
)
SELECT call_number, call_id, 'inf' AS retention, input_tokens, potential_inf_tokens AS potential_tokens
FROM fct_prefix
WHERE potential_inf_tokens IS NOT NULL
UNION ALL
SELECT call_number, call_id, '3600' AS retention, input_tokens, potential_3600_tokens AS potential_tokens
FROM fct_prefix
WHERE potential_3600_tokens IS NOT NULL
UNION ALL
SELECT call_number, call_id, '300' AS retention, input_tokens, potential_300_tokens AS potential_tokens
FROM fct_prefix
WHERE potential_300_tokens IS NOT NULL
UNION ALL
SELECT
  call_number,
  call_id,
  retention,
  input_tokens,
  CAST(LEAST(input_tokens, input_tokens * retained_bytes / prompt_bytes) AS DOUBLE) AS potential_tokens
FROM retained
WHERE retained_bytes IS NOT NULL
