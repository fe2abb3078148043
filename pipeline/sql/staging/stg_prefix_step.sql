-- stg_prefix_step: the step function of a call's shared prefix, one row a step.
-- Grain: (record_number, step); record_number and event_id name the same event.
-- Sources: stg_event.prefix_steps, JSON [[age s, shared bytes], …].
-- Meaning: bytes of this call's prefix that some earlier call of the stream sent and that were last touched
--   no longer than age_s ago. Unreadable JSON yields no step (audit bad_prefix_steps counts it).
WITH parsed AS (
  SELECT record_number, event_id, UNNEST(FROM_JSON(TRY_CAST(prefix_steps AS JSON), '[["DOUBLE"]]')) AS step
  FROM stg_event
  WHERE prefix_steps IS NOT NULL AND JSON_TYPE(TRY_CAST(prefix_steps AS JSON)) = 'ARRAY'
)
SELECT record_number, event_id, step[1] AS age_s, step[2] AS step_bytes
FROM parsed
WHERE step[1] IS NOT NULL AND step[2] IS NOT NULL
