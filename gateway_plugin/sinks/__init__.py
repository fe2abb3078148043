"""Where call events leave the proxy process: Redis stream, spool, SpendLogs, metrics, spans."""
