-- stg_row_match: which event, if any, each ledger row belongs to.
-- Grain: (request_id, litellm_call_id, start_time), as in stg_row.
-- Sources: stg_row, stg_event.
-- Meaning: a row that carries our event id belongs to it. A row without one falls back to LiteLLM's call id,
--   but only where exactly one event has that id (or a row that carries our id says so) and started within an
--   hour of the row, because a client may set that id. A row with neither is kept under a name of its own: it is a call we could not attribute.
WITH asked AS (
  SELECT DISTINCT litellm_call_id
  FROM stg_row
  WHERE litellm_call_id IS NOT NULL AND litellm_call_id <> '' AND event_id IS NULL
),
told AS (
  SELECT litellm_call_id, event_id, started_us
  FROM stg_event
  WHERE litellm_call_id IN (SELECT litellm_call_id FROM asked)
  UNION ALL
  SELECT litellm_call_id, event_id, started_us
  FROM stg_row
  WHERE litellm_call_id IN (SELECT litellm_call_id FROM asked) AND event_id IS NOT NULL
),
unique_call_id AS (
  SELECT litellm_call_id, MIN(event_id) AS event_id, MIN(started_us) AS started_us
  FROM told
  GROUP BY litellm_call_id
  HAVING COUNT(DISTINCT event_id) = 1
)
SELECT
  r.*,
  COALESCE(
    r.event_id,
    u.event_id,
    'row:' || COALESCE(r.request_id, '') || ':' || COALESCE(r.litellm_call_id, '') || ':'
      || CAST(r.start_time AS VARCHAR)
  ) AS call_id,
  CASE WHEN r.event_id IS NOT NULL THEN 'event_id' WHEN u.event_id IS NOT NULL THEN 'litellm_call_id' ELSE 'none' END
    AS matched_by
FROM stg_row AS r
LEFT JOIN unique_call_id AS u
  ON r.event_id IS NULL
  AND r.litellm_call_id = u.litellm_call_id
  AND ABS(CAST(DATE_DIFF('second', TIMESTAMP '1970-01-01 00:00:00', r.start_time) AS DOUBLE) - u.started_us / 1e6) <= 3600
