"""Gauges of LiteLLM's own failure modes, read from the running proxy's objects without importing it.

All of these are private parts of LiteLLM: whatever is missing or has another shape is left out.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any, Final

from gateway_plugin.sinks import metric_table as table
from gateway_plugin.sinks.metric_table import Metric

#: One row: connections in use and the server's limit.
_CONNECTIONS_SQL: Final = (
    "SELECT (SELECT count(*) FROM pg_stat_activity)::int AS used, "
    "current_setting('max_connections')::int AS allowed"
)

Sample = dict[Metric, float]


def _module(name: str) -> Any:
    return sys.modules.get(name)


def sample() -> Sample:
    """Return the gauges that this proxy offers right now; never raises."""
    found: Sample = {}
    for read in (_spend_queue, _logging_worker, _token_counts):
        try:
            found |= {m: float(v) for m, v in read().items() if isinstance(v, (int, float)) and v >= 0}
        except Exception:  # noqa: BLE001, S112 - another version's shape: this group is left out
            continue
    return found


def _spend_queue() -> dict[Metric, Any]:
    utils = _module("litellm.proxy.utils")
    client: Any = getattr(utils, "PrismaClient", None)
    live: Any = getattr(_module("litellm.proxy.proxy_server"), "prisma_client", None) or client
    if client is None:
        return {}
    return {
        table.SPEND_QUEUE_ROWS: len(live.spend_log_transactions),
        table.SPEND_QUEUE_BYTES: getattr(client, "spend_log_queue_bytes", None),
        table.SPEND_QUEUE_CAP: getattr(utils, "SPEND_LOG_QUEUE_MAX_BYTES", None),
    }


def _logging_worker() -> dict[Metric, Any]:
    worker = getattr(_module("litellm.litellm_core_utils.logging_worker"), "GLOBAL_LOGGING_WORKER", None)
    if worker is None:
        return {}
    queue = getattr(worker, "_queue", None)
    return {
        table.LOGGING_QUEUE: queue.qsize() if queue is not None else 0,
        table.LOGGING_RUNNING: len(getattr(worker, "_running_tasks", ())),
        table.LOGGING_QUEUE_CAP: getattr(worker, "max_queue_size", None),
        table.LOGGING_TIMEOUTS: getattr(worker, "_timeout_total", None),
    }


def _token_counts() -> dict[Metric, Any]:
    variable = getattr(_module("litellm.litellm_core_utils.token_counter"), "_COUNT_OFFLOAD_LIMITER", None)
    limiter = variable.get(None) if variable is not None else None
    if limiter is None:
        return {}
    statistics = limiter.statistics()
    return {
        table.COUNTS_WAITING: statistics.tasks_waiting,
        table.COUNTS_RUNNING: statistics.borrowed_tokens,
        table.COUNTS_CAP: statistics.total_tokens,
    }


async def db_connections(timeout_s: float) -> Sample:
    """Ask the proxy's database for its connections, within *timeout_s*; empty when it cannot be asked."""
    client = getattr(_module("litellm.proxy.proxy_server"), "prisma_client", None)
    query: Callable[[str], Any] | None = getattr(getattr(client, "db", None), "query_raw", None)
    if query is None:
        return {}
    async with asyncio.timeout(timeout_s):
        rows = await query(_CONNECTIONS_SQL)
    row = rows[0]
    return {table.DB_CONNECTIONS: float(row["used"]), table.DB_CONNECTIONS_CAP: float(row["allowed"])}
