-- stg_row_call: the ledger's view of one logical call: the row that tells most, and how many rows it has.
-- Grain: call_id (an event id, or a name of its own for a row without one).
-- Sources: stg_row_match.
-- Meaning: retries and fallbacks write one row each, so rows are attempts; spend adds up over them, every
--   other column comes from the successful row, else from the last one.
WITH ranked AS (
  SELECT
    m.*,
    ROW_NUMBER() OVER (
      PARTITION BY m.call_id
      ORDER BY
        CASE WHEN m.event_id IS NOT NULL THEN 0 ELSE 1 END,
        CASE WHEN m.status = 'success' OR m.outcome = 'success' THEN 0 ELSE 1 END,
        m.start_time DESC,
        m.request_id
    ) AS choice,
    COUNT(*) OVER (PARTITION BY m.call_id) AS row_count,
    SUM(m.spend) OVER (PARTITION BY m.call_id) AS call_spend
  FROM stg_row_match AS m
)
SELECT ranked.* FROM ranked WHERE choice = 1
