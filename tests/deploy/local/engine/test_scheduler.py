"""Queues, slots and pace, and what happens when a client leaves."""

from __future__ import annotations

import asyncio
import json
import threading
from array import array
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from deploy.local.engine.timing import Speeds
from tests.deploy.local.engine.conftest import ENDLESS, PATHS, Running, Serve, limit, request

#: Nothing ever leaves its prefill.
STUCK = Speeds(prefill_tok_s=1e-6)


class Clients:
    """Requests under way, each with a connection of its own that can be cut."""

    def __init__(self) -> None:
        self.tasks: list[asyncio.Task[bytes]] = []

    def send(
        self, running: Running, text: str, route: str = "chat", stream: bool = True, **fields: Any
    ) -> asyncio.Task[bytes]:
        body = request(route, text, stream=stream, **fields)

        async def exchange() -> bytes:
            async with (
                aiohttp.ClientSession() as http,
                http.post(running.url + PATHS[route], json=body) as answer,
            ):
                return await answer.read()

        task = asyncio.create_task(exchange())
        self.tasks.append(task)
        return task


@pytest_asyncio.fixture
async def clients() -> AsyncIterator[Clients]:
    found = Clients()
    yield found
    for task in found.tasks:
        task.cancel()
    await asyncio.gather(*found.tasks, return_exceptions=True)


async def cut(running: Running, task: asyncio.Task[bytes], record: int) -> None:
    """Leave as a client and wait until the engine has noticed."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await running.until(lambda: running.engine.truth.records[record].ended_us is not None)


def in_phase(running: Running, phase: str) -> Callable[[], bool]:
    return lambda: any(job.phase == phase for job in running.engine.scheduler._running)


async def assert_idle(running: Running, model: str = "coder-large") -> None:
    """Nothing runs, waits or holds blocks."""
    assert running.engine.scheduler.cache(model).used_blocks == 0
    for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"):
        assert await running.sample(name) == 0
    assert running.engine.power.board_watts == pytest.approx(95.0)


# -- clients that leave


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("route", PATHS)
async def test_a_client_that_leaves_while_decoding_frees_its_blocks_at_once(
    serve: Serve, clients: Clients, route: str, stream: bool
) -> None:
    running = await serve(block_size=4)
    task = clients.send(running, f"go {ENDLESS}", route, stream, **limit(route, 500))
    await running.until(in_phase(running, "decode"))
    assert running.engine.scheduler.cache("coder-large").used_blocks > 100
    assert await running.sample("kv_cache_usage_perc") > 0
    await cut(running, task, 0)
    await assert_idle(running)
    (record,) = running.engine.truth.records
    assert (record.aborted, record.status, record.output_tokens) == (True, 200 if stream else 499, 1)
    assert record.first_token_us is not None
    # As in vLLM: counted as prompt and as generated, but finished in no way.
    assert await running.sample("prompt_tokens_total") == record.input_tokens
    assert await running.sample("generation_tokens_total") == 1
    for reason in ("stop", "length", "abort"):
        assert await running.sample("request_success_total", finished_reason=reason) == 0
    assert await running.sample("e2e_request_latency_seconds_count") == 0


async def test_a_client_that_leaves_in_prefill_was_looked_up_but_never_counted_as_prompt(
    serve: Serve, clients: Clients
) -> None:
    running = await serve(block_size=4, speeds=STUCK)
    task = clients.send(running, "some words " * 20)
    await running.until(in_phase(running, "prefill"))
    await cut(running, task, 0)
    await assert_idle(running)
    (record,) = running.engine.truth.records
    assert (record.aborted, record.first_token_us, record.output_tokens) == (True, None, 0)
    assert await running.sample("prefix_cache_queries_total") == record.input_tokens > 0
    assert await running.sample("prompt_tokens_total") == 0
    # What was never computed cannot be hit.
    assert running.engine.scheduler.cache("coder-large").cached_blocks == 0


async def test_a_client_that_leaves_while_waiting_was_never_admitted(serve: Serve, clients: Clients) -> None:
    running = await serve(max_running=1)
    first = clients.send(running, f"first {ENDLESS}")
    await running.until(in_phase(running, "decode"))
    looked_up = await running.sample("prefix_cache_queries_total")
    second = clients.send(running, "second", stream=False)
    await running.until(lambda: len(running.engine.scheduler._waiting) == 1)
    await cut(running, second, 1)
    assert await running.sample("num_requests_waiting") == 0
    assert await running.sample("prefix_cache_queries_total") == looked_up
    record = running.engine.truth.records[1]
    assert (record.aborted, record.status, record.cached_tokens) == (True, 499, 0)
    await cut(running, first, 0)
    await assert_idle(running)


async def test_a_client_that_leaves_while_its_prompt_is_tokenised_is_recorded(
    serve: Serve, clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = await serve()
    begun, go_on = threading.Event(), threading.Event()

    def encode(segments: tuple[str, ...]) -> array[int]:
        begun.set()
        go_on.wait(20)
        return array("I", [1])

    monkeypatch.setattr(running.engine, "_encode", encode)
    task = clients.send(running, "hello")
    try:
        await running.until(begun.is_set)
        await cut(running, task, 0)
    finally:
        go_on.set()
    (record,) = running.engine.truth.records
    assert (record.aborted, record.status, record.model) == (True, 499, "coder-large")


# -- queues


async def test_requests_wait_for_a_slot_and_run_in_order_of_arrival(serve: Serve, clients: Clients) -> None:
    running = await serve(max_running=1)
    tasks = []
    for number in range(3):
        tasks.append(clients.send(running, f"{number} {ENDLESS}"))
        await running.until(
            lambda n=number: (
                len(running.engine.scheduler._waiting) + len(running.engine.scheduler._running) == n + 1
            )
        )
    records = running.engine.truth.records
    for number in range(3):
        await running.until(in_phase(running, "decode"))
        assert [r.first_token_us is not None for r in records] == [n <= number for n in range(3)]
        assert await running.sample("num_requests_running") == 1
        assert await running.sample("num_requests_waiting") == 2 - number
        waiting = await running.sample("num_requests_waiting_by_reason", reason="capacity")
        assert waiting == 2 - number
        await cut(running, tasks[number], number)
    await assert_idle(running)


async def test_a_full_cache_holds_up_its_own_model_only(serve: Serve, clients: Clients) -> None:
    running = await serve(block_size=4, capacity_blocks=64, max_model_len=256)
    first = clients.send(running, f"first {ENDLESS}", max_tokens=200)
    await running.until(in_phase(running, "decode"))
    second = clients.send(running, "second", max_tokens=200)
    await running.until(lambda: len(running.engine.scheduler._waiting) == 1)
    small = clients.send(running, "small", max_tokens=1)
    await running.until(lambda: len(running.engine.scheduler._waiting) == 2)
    # A small one that would fit does not overtake the one that waits; another model is not concerned.
    other = await running.ask("chat", "other", model="coder-small", max_tokens=200)
    assert other["usage"]["completion_tokens"] == 200
    assert running.engine.truth.records[1].first_token_us is None
    assert running.engine.truth.records[2].first_token_us is None
    await cut(running, first, 0)
    for task in (second, small):
        assert b"[DONE]" in await task
    assert all(r.status == 200 for r in running.engine.truth.records)


async def test_hits_on_running_requests_need_no_second_copy(serve: Serve, clients: Clients) -> None:
    running = await serve(block_size=4)
    text = "shared words " * 50
    task = clients.send(running, text + ENDLESS, max_tokens=10)
    await running.until(in_phase(running, "decode"))
    cache = running.engine.scheduler.cache("coder-large")
    before = cache.used_blocks
    other = clients.send(running, text + ENDLESS.replace("1", "2", 1), max_tokens=10)
    await running.until(lambda: len(running.engine.truth.records) == 2 and cache.used_blocks > before)
    cached = running.engine.truth.records[1].cached_tokens
    assert cached > 90
    assert cache.used_blocks - before < before - cached // 4 + 5
    await cut(running, task, 0)
    assert cache.used_blocks >= cached // 4
    await cut(running, other, 1)
    await assert_idle(running)


# -- pace


class Watched(Speeds):
    """Speeds that note with how many others every step was decoded."""

    seen: list[int]

    def token_s(self, decoding: int, slow: float = 1.0) -> float:
        self.seen.append(decoding)
        return super().token_s(decoding, slow)


async def test_a_decoding_request_is_slowed_by_those_that_decode_beside_it(
    serve: Serve, clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Watched, "seen", [], raising=False)
    running = await serve(speeds=Watched(speed_up=1000))
    await running.ask("chat", max_tokens=2)
    for number in (1, 2):
        clients.send(running, f"{number} {ENDLESS}")
        await running.until(lambda n=number: len(Watched.seen) == n + 1)
    await running.ask("chat", max_tokens=2)
    assert Watched.seen == [1, 1, 2, 3]


async def test_the_first_token_takes_the_uncached_tokens_time(serve: Serve) -> None:
    speeds = Speeds(prefill_tok_s=2000, overhead_s=0.01, decode_tok_s=1e6)
    running = await serve(block_size=4, speeds=speeds)
    for _ in range(2):
        await running.ask("chat", "word " * 200, max_tokens=1)
    records = running.engine.truth.records
    expected = [speeds.prefill_s(r.input_tokens - r.cached_tokens) for r in records]
    assert expected[0] > 0.1
    assert expected[1] < 0.02
    for record, seconds in zip(records, expected, strict=True):
        assert record.first_token_us is not None
        assert (record.first_token_us - record.started_us) / 1e6 >= seconds - 0.001
    spent = await running.sample("request_prefill_time_seconds_sum")
    assert spent >= sum(expected) - 0.001
    assert await running.sample("time_to_first_token_seconds_sum") >= spent


async def test_decoding_takes_its_time_per_token(serve: Serve) -> None:
    running = await serve(speeds=Speeds(decode_tok_s=1000, overhead_s=0, chunk_s=0.01))
    await running.ask("chat", max_tokens=101)
    spent = await running.sample("request_decode_time_seconds_sum")
    assert spent >= 0.1 - 0.001
    assert await running.sample("inter_token_latency_seconds_count") == 100
    assert await running.sample("inter_token_latency_seconds_sum") == pytest.approx(spent, rel=0.05)
    per_token = await running.sample("request_time_per_output_token_seconds_sum")
    assert per_token == pytest.approx(spent / 100)


async def test_many_requests_at_once_are_all_served_and_add_up(serve: Serve) -> None:
    running = await serve(max_running=3, block_size=4, capacity_blocks=200, max_model_len=800)
    shared = "the same beginning for all of them " * 10
    routes = list(PATHS) * 10
    answers = await asyncio.gather(
        *(running.ask(r, f"{shared}{n % 7}", **limit(r, 1 + n)) for n, r in enumerate(routes))
    )
    assert len(answers) == 30
    records = running.engine.truth.records
    assert all((r.status, r.aborted) == (200, False) for r in records)
    assert sorted(r.output_tokens for r in records) == list(range(1, 31))
    await assert_idle(running)
    total, hits = sum(r.input_tokens for r in records), sum(r.cached_tokens for r in records)
    assert hits > total / 2
    assert await running.sample("prefix_cache_queries_total") == total
    assert await running.sample("prefix_cache_hits_total") == hits
    assert await running.sample("prompt_tokens_total") == total
    assert await running.sample("prompt_tokens_cached_total") == hits
    assert await running.sample("prompt_tokens_by_source_total", source="local_cache_hit") == hits
    assert await running.sample("prompt_tokens_by_source_total", source="local_compute") == total - hits
    assert await running.sample("prompt_tokens_cached_by_source_total", source="device") == hits
    assert await running.sample("generation_tokens_total") == sum(range(1, 31))
    assert await running.sample("request_success_total", finished_reason="length") == 30
    assert await running.sample("request_prompt_tokens_sum") == total
    assert await running.sample("request_prefill_kv_computed_tokens_sum") == total - hits
    assert await running.sample("request_generation_tokens_sum") == sum(range(1, 31))
    summary = json.loads(await running.get("/ground-truth/summary"))
    assert (summary["requests"], summary["input_tokens"]) == (30, total)
    assert (summary["cached_tokens"], summary["output_tokens"]) == (hits, sum(range(1, 31)))
    assert 0 < summary["mean_running"] <= 3
