-- call_id_shared: LiteLLM call ids that several overlapping calls carry (the client may set that id).
-- Grain: litellm_call_id. Sources: fct_call. Severity: warning (such ids never join a row to a call).
SELECT a.litellm_call_id AS id, COUNT(*) AS overlaps
FROM fct_call AS a
JOIN fct_call AS b
  ON a.litellm_call_id = b.litellm_call_id AND a.call_id < b.call_id AND a.start_at < b.end_at AND b.start_at < a.end_at
WHERE a.litellm_call_id IS NOT NULL AND a.litellm_call_id <> ''
GROUP BY a.litellm_call_id
