"""Columns of every raw table, declared once; the event columns follow the event contract."""

from __future__ import annotations

from gateway_plugin.event import FIELDS

_EVENT_TYPES = {"str": "VARCHAR", "int": "BIGINT", "float": "DOUBLE", "bool": "BOOLEAN", "steps": "VARCHAR"}

#: Column names and DuckDB types of every raw table, without the partition column ``date``.
SCHEMAS: dict[str, dict[str, str]] = {
    "raw/events": {
        **{f.name: _EVENT_TYPES[f.type] for f in FIELDS},
        "stream_id": "VARCHAR",
        "collected_at": "TIMESTAMP",
    },
    "raw/spend_logs": {
        "request_id": "VARCHAR",
        "litellm_call_id": "VARCHAR",
        "call_type": "VARCHAR",
        "key_hash": "VARCHAR",
        "spend": "DECIMAL(18,9)",
        "prompt_tokens": "BIGINT",
        "completion_tokens": "BIGINT",
        "total_tokens": "BIGINT",
        "start_time": "TIMESTAMP",
        "end_time": "TIMESTAMP",
        "completion_start_time": "TIMESTAMP",
        "model": "VARCHAR",
        "model_id": "VARCHAR",
        "model_group": "VARCHAR",
        "provider": "VARCHAR",
        "user_hash": "VARCHAR",
        "team_id": "VARCHAR",
        "row_session_id": "VARCHAR",
        "status": "VARCHAR",
        "cache_hit": "BOOLEAN",
        "usage_input": "BIGINT",
        "usage_cached": "BIGINT",
        "usage_cache_write": "BIGINT",
        "usage_output": "BIGINT",
        "attempted_retries": "BIGINT",
        "error_class": "VARCHAR",
        "error_code": "VARCHAR",
        "aw": "VARCHAR",
        "extracted_at": "TIMESTAMP",
    },
    "raw/metrics": {
        "ts": "TIMESTAMP",
        "target": "VARCHAR",
        "name": "VARCHAR",
        "labels": "VARCHAR",
        "value": "DOUBLE",
        "kind": "VARCHAR",
    },
    "rejects/events": {
        "stream_id": "VARCHAR",
        "reason": "VARCHAR",
        "bytes": "BIGINT",
        "excerpt": "VARCHAR",
        "collected_at": "TIMESTAMP",
    },
    "rejects/spend_logs": {
        "request_id": "VARCHAR",
        "reason": "VARCHAR",
        "start_time": "VARCHAR",
        "extracted_at": "TIMESTAMP",
    },
}
