-- health_check: the proxy's own health checks, which are nobody's calls and in no figure.
-- Grain: event or ledger row. Sources: stg_event, stg_row. Severity: info (left out).
SELECT event_id AS id
FROM stg_event
WHERE team_id = 'litellm-internal-health-check' OR key_alias = 'litellm-internal-health-check'
UNION ALL
SELECT request_id AS id
FROM stg_row
WHERE team_id = 'litellm-internal-health-check'
  OR key_hash IN (
    'litellm-internal-health-check', '2ee659761968def976c7905217d96fa6e765f300dfb066f6c73fd3c279b3435a'
  )
