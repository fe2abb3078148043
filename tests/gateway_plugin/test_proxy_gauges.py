from __future__ import annotations

import asyncio
import sys
import types
from typing import Any

import pytest

from gateway_plugin import proxy_gauges
from gateway_plugin.sinks import metric_table as table


def module(monkeypatch: pytest.MonkeyPatch, name: str, **attributes: Any) -> None:
    monkeypatch.setitem(sys.modules, name, types.SimpleNamespace(**attributes))


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "litellm.proxy.utils",
        "litellm.proxy.proxy_server",
        "litellm.litellm_core_utils.logging_worker",
        "litellm.litellm_core_utils.token_counter",
    ):
        monkeypatch.delitem(sys.modules, name, raising=False)


def test_outside_a_proxy_there_is_nothing_to_see() -> None:
    assert proxy_gauges.sample() == {}


def test_the_spend_queue_is_read_with_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    client = types.SimpleNamespace(spend_log_transactions=[], spend_log_queue_bytes=700)
    live = types.SimpleNamespace(spend_log_transactions=[1, 2])
    module(monkeypatch, "litellm.proxy.utils", PrismaClient=client, SPEND_LOG_QUEUE_MAX_BYTES=64_000_000)
    module(monkeypatch, "litellm.proxy.proxy_server", prisma_client=live)
    assert proxy_gauges.sample() == {
        table.SPEND_QUEUE_ROWS: 2,
        table.SPEND_QUEUE_BYTES: 700,
        table.SPEND_QUEUE_CAP: 64_000_000,
    }


def test_the_logging_worker_is_read_before_and_after_it_started(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "litellm.litellm_core_utils.logging_worker"
    worker = types.SimpleNamespace(_queue=None, _running_tasks=set(), max_queue_size=50_000)
    module(monkeypatch, name, GLOBAL_LOGGING_WORKER=worker)
    assert proxy_gauges.sample()[table.LOGGING_QUEUE] == 0
    worker._queue = asyncio.Queue()
    worker._queue.put_nowait(1)
    worker._running_tasks, worker._timeout_total = {1, 2}, 5
    sample = proxy_gauges.sample()
    assert (sample[table.LOGGING_QUEUE], sample[table.LOGGING_RUNNING], sample[table.LOGGING_TIMEOUTS]) == (
        1,
        2,
        5,
    )


def test_another_shape_leaves_its_group_out_and_keeps_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    module(monkeypatch, "litellm.proxy.utils", PrismaClient=object)
    module(monkeypatch, "litellm.litellm_core_utils.token_counter", _COUNT_OFFLOAD_LIMITER=7)
    module(
        monkeypatch,
        "litellm.litellm_core_utils.logging_worker",
        GLOBAL_LOGGING_WORKER=types.SimpleNamespace(max_queue_size="many"),
    )
    assert proxy_gauges.sample() == {table.LOGGING_QUEUE: 0, table.LOGGING_RUNNING: 0}


async def test_database_connections_are_asked_within_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    async def query_raw(sql: str) -> list[dict[str, int]]:
        assert "pg_stat_activity" in sql
        return [{"used": 12, "allowed": 100}]

    client = types.SimpleNamespace(db=types.SimpleNamespace(query_raw=query_raw))
    module(monkeypatch, "litellm.proxy.proxy_server", prisma_client=client)
    assert await proxy_gauges.db_connections(1) == {table.DB_CONNECTIONS: 12, table.DB_CONNECTIONS_CAP: 100}

    async def hang(_: str) -> None:
        await asyncio.Event().wait()

    client.db.query_raw = hang
    with pytest.raises(TimeoutError):
        await proxy_gauges.db_connections(0.01)
    module(monkeypatch, "litellm.proxy.proxy_server", prisma_client=None)
    assert await proxy_gauges.db_connections(1) == {}
