-- mart_suspect_cell: provider × stream cells whose cached tokens cannot be believed.
-- Grain: (provider, is_stream).
-- Sources: fct_call. Parameters: $window_start, $window_end.
-- Meaning: every one of at least ten reporting calls says zero while the same provider's other mode of
--   answering (streamed or not) reports hits: the field is dropped on the way, not a miss. Kept out of the
--   headline hit and shown.
WITH cell AS (
  SELECT
    provider,
    is_stream,
    COUNT(*) AS reporting_calls,
    SUM(cached_tokens) AS cached_tokens,
    SUM(input_tokens) AS input_tokens
  FROM fct_call
  WHERE is_engine = 1
    AND input_tokens > 0
    AND cached_tokens IS NOT NULL
    AND provider IS NOT NULL
    AND is_stream IS NOT NULL
    AND start_at >= CAST($window_start AS TIMESTAMP) AND start_at < CAST($window_end AS TIMESTAMP)
  GROUP BY provider, is_stream
)
SELECT a.provider, a.is_stream, a.reporting_calls, a.input_tokens
FROM cell AS a
JOIN cell AS b ON b.provider = a.provider AND b.is_stream <> a.is_stream
WHERE a.cached_tokens = 0 AND a.reporting_calls >= 10 AND b.cached_tokens > 0
