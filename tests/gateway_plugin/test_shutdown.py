from __future__ import annotations

import asyncio
import signal
import sys
import types
from collections.abc import Iterator

import pytest
import uvicorn

from gateway_plugin.shutdown import logged, run_at_shutdown


@pytest.fixture(autouse=True)
def _handler_kept() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


async def _app(scope: object, receive: object, send: object) -> None:
    raise AssertionError("no request is sent")


def _server() -> uvicorn.Server:
    return uvicorn.Server(uvicorn.Config(_app, lifespan="off", log_config=None))


async def test_it_runs_after_the_servers_own_shutdown(monkeypatch: pytest.MonkeyPatch) -> None:
    server, order = _server(), []

    async def shutdown(sockets: object = None) -> None:
        order.append("server")

    async def close() -> None:
        order.append("records")

    monkeypatch.setattr(server, "shutdown", shutdown)
    signal.signal(signal.SIGTERM, server.handle_exit)
    assert run_at_shutdown(close)
    await server.shutdown(sockets=None)
    assert order == ["server", "records"]


async def test_it_runs_even_when_the_servers_shutdown_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    server, closed = _server(), asyncio.Event()

    async def shutdown(sockets: object = None) -> None:
        raise RuntimeError("lifespan")

    async def close() -> None:
        closed.set()

    monkeypatch.setattr(server, "shutdown", shutdown)
    signal.signal(signal.SIGTERM, server.handle_exit)
    assert run_at_shutdown(close)
    with pytest.raises(RuntimeError, match="lifespan"):
        await server.shutdown()
    assert closed.is_set()


class _Elsewhere:
    async def shutdown(self) -> None: ...

    def handle_exit(self, *_: object) -> None: ...


async def _never() -> None:
    raise AssertionError("nothing ends")


def test_a_process_without_such_a_server_is_left_alone() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    assert not run_at_shutdown(_never)
    other = _Elsewhere()
    signal.signal(signal.SIGTERM, other.handle_exit)
    assert not run_at_shutdown(_never)
    assert "shutdown" not in vars(other)


def test_a_server_of_another_shape_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    server = _server()
    monkeypatch.setattr(server, "shutdown", lambda: None)
    signal.signal(signal.SIGTERM, server.handle_exit)
    assert not run_at_shutdown(_never)


async def test_what_litellm_still_logs_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "litellm.litellm_core_utils.logging_worker"
    queue: asyncio.Queue[int] = asyncio.Queue()
    queue.put_nowait(1)
    worker = types.SimpleNamespace(flush=queue.join)
    monkeypatch.setitem(sys.modules, name, types.SimpleNamespace(GLOBAL_LOGGING_WORKER=worker))
    waiting = asyncio.ensure_future(logged())
    await asyncio.sleep(0)
    assert not waiting.done()
    queue.get_nowait()
    queue.task_done()
    await asyncio.wait_for(waiting, 5)


async def test_without_litellms_worker_nothing_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "litellm.litellm_core_utils.logging_worker", raising=False)
    await asyncio.wait_for(logged(), 5)
