"""Answers that are held back, and books that balance after a storm of clients that leave."""

from __future__ import annotations

import asyncio
import json
import random
from contextlib import suppress
from typing import Any

import aiohttp
import pytest

from deploy.local.engine.errors import BadRequest
from deploy.local.engine.prompt import parse
from deploy.local.engine.timing import Speeds
from tests.deploy.local.engine.conftest import PATHS, Running, Serve, limit, request


async def test_a_held_answer_comes_late_however_fast_the_engine_is(serve: Serve) -> None:
    running = await serve(speeds=Speeds(speed_up=1e6))
    await running.ask("chat", "[[standin:hold:0.02]]", max_tokens=1)
    await running.ask("chat", "at once", max_tokens=1)
    waits = [(r.first_token_us or 0) - r.started_us for r in running.engine.truth.records]
    assert waits[0] >= 20_000
    assert await running.sample("request_prefill_time_seconds_sum") >= 0.02


@pytest.mark.parametrize("route", PATHS)
def test_only_the_newest_user_text_holds_an_answer_back(route: str) -> None:
    body = request(route, "wait [[standin:hold:2.5]]")
    assert parse(route, json.dumps(body).encode()).hold_s == 2.5
    turns: list[dict[str, Any]] = body["input" if route == "responses" else "messages"]
    turns += [{"role": "assistant", "content": "ok"}, {"role": "user", "content": "next"}]
    assert parse(route, json.dumps(body).encode()).hold_s == 0.0


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "soon"])
def test_a_hold_that_makes_no_sense_is_refused(value: str) -> None:
    with pytest.raises(BadRequest, match="not a positive number"):
        parse("chat", json.dumps(request("chat", f"[[standin:hold:{value}]]")).encode())


async def test_after_a_storm_of_clients_that_leave_the_books_balance(serve: Serve) -> None:
    speeds = Speeds(prefill_tok_s=20_000, decode_tok_s=2_000, overhead_s=0.001, chunk_s=0.001)
    running = await serve(speeds=speeds, max_running=4, block_size=4, capacity_blocks=120, max_model_len=480)
    chance = random.Random(7)
    shared = "the same beginning " * 20

    async def client(number: int) -> None:
        route = chance.choice(list(PATHS))
        body = request(route, f"{shared}{number % 5}", **limit(route, 1 + number))
        body["stream"] = chance.random() < 0.5
        patience = chance.choice([0.0, 0.01, 0.03, 20.0])
        with suppress(TimeoutError):
            async with (
                asyncio.timeout(patience),
                aiohttp.ClientSession() as http,
                http.post(running.url + PATHS[route], json=body) as answer,
            ):
                assert answer.status == 200
                await answer.read()

    await asyncio.gather(*(client(number) for number in range(40)))
    records = running.engine.truth.records
    await running.until(lambda: all(record.ended_us is not None for record in records))
    await assert_balanced(running)
    assert any(r.aborted for r in records)
    assert any(not r.aborted for r in records)


async def assert_balanced(running: Running) -> None:
    """Everything is free again, and the counters are the sums of the ground truth."""
    lines = [json.loads(line) for line in (await running.get("/ground-truth")).splitlines()]
    begun = [r for r in lines if r["first_token_us"] is not None]
    whole = [r for r in lines if not r["aborted"]]
    for record in lines:
        heads = {200} if not record["aborted"] else {200, 499} if record["stream"] else {499}
        assert record["status"] in heads
        assert (record["output_tokens"] > 0) == (record["first_token_us"] is not None)
        assert record["cached_tokens"] <= max(0, record["input_tokens"] - 1)
    expected = {
        "num_requests_running": 0,
        "num_requests_waiting": 0,
        "kv_cache_usage_perc": 0,
        "prompt_tokens_total": sum(r["input_tokens"] for r in begun),
        "prompt_tokens_cached_total": sum(r["cached_tokens"] for r in begun),
        "prefix_cache_hits_total": sum(r["cached_tokens"] for r in lines),
        "generation_tokens_total": sum(r["output_tokens"] for r in lines),
        "time_to_first_token_seconds_count": len(begun),
        "inter_token_latency_seconds_count": sum(r["output_tokens"] - 1 for r in begun),
    }
    assert {name: await running.sample(name) for name in expected} == expected
    # An answer may be complete in the engine and its client gone before the last byte.
    done = await running.sample("request_success_total", finished_reason="length")
    assert len(whole) <= done <= len(begun)
    assert await running.sample("e2e_request_latency_seconds_count") == done
    assert await running.sample("request_success_total", finished_reason="abort") == 0
    summary = json.loads(await running.get("/ground-truth/summary"))
    assert summary["requests"] == len(lines)
    for name in ("input_tokens", "cached_tokens", "output_tokens"):
        assert summary[name] == sum(r[name] for r in lines)
    assert 0 < summary["mean_running"] <= 4
    assert 2 * 95 * summary["seconds"] < summary["energy_joules"] <= 2 * 700 * summary["seconds"]
