-- stg_prefix_step: the step function of a call's shared prefix, one row a step.
-- Grain: (record_number, step); record_number and event_id name the same event.
-- Sources: stg_event.prefix_steps, JSON [[age s, shared bytes], …].
-- Meaning: bytes of this call's prefix that some earlier call of the stream sent and that were last touched
--   no longer than age_s ago. What is no JSON list has one row without age and bytes, is_unreadable = 1, which audit
--   bad_prefix_steps counts.
WITH opened AS (
  SELECT record_number, event_id, TRY_CAST(prefix_steps AS JSON) AS steps
  FROM stg_event
  WHERE prefix_steps <> '[]'
),
typed AS (
  SELECT
    record_number,
    event_id,
    steps,
    CASE WHEN JSON_TYPE(steps) = 'ARRAY' THEN 0 ELSE 1 END AS is_unreadable
  FROM opened
),
parsed AS (
  SELECT
    record_number,
    event_id,
    is_unreadable,
    UNNEST(CASE is_unreadable WHEN 0 THEN FROM_JSON(steps, '[["DOUBLE"]]') ELSE [CAST([NULL, NULL] AS DOUBLE[])] END)
      AS step
  FROM typed
)
SELECT record_number, event_id, step[1] AS age_s, step[2] AS step_bytes, is_unreadable
FROM parsed
WHERE is_unreadable = 1 OR (step[1] IS NOT NULL AND step[2] IS NOT NULL)
