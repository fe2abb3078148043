"""The ground truth: fields, instants and sums."""

from __future__ import annotations

import hashlib
import json
import time

import pytest

from deploy.local.engine.truth import TruthLog
from tests.deploy.local.engine.conftest import PATHS, Serve, limit, request

FIELDS = {
    "n", "route", "model", "stream", "body_sha256", "started_us", "ended_us", "first_token_us",
    "input_tokens", "cached_tokens", "output_tokens", "status", "aborted", "request_id", "marker",
    "words_sha256",
}  # fmt: skip


class Clock:
    """A clock that moves when told."""

    now = 50.0

    def __call__(self) -> float:
        return self.now


def test_mean_running_is_the_time_average_up_to_now() -> None:
    clock = Clock()
    log = TruthLog(clock)
    assert log.summary(0.0)["mean_running"] is None
    for seconds, running in ((2.0, 1), (3.0, 4), (5.0, 0), (10.0, 2)):
        clock.now += seconds
        log.running(running)
    clock.now += 5.0
    expected = (2 * 0 + 3 * 1 + 5 * 4 + 10 * 0 + 5 * 2) / 25
    summary = log.summary(12.5)
    assert (summary["mean_running"], summary["seconds"]) == (pytest.approx(expected), pytest.approx(25.0))
    assert summary["energy_joules"] == 12.5
    clock.now += 25.0
    assert log.summary(0.0)["mean_running"] == pytest.approx((expected * 25 + 25 * 2) / 50)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("route", PATHS)
async def test_a_record_has_the_agreed_fields_and_real_instants(
    serve: Serve, route: str, stream: bool
) -> None:
    running = await serve()
    raw = json.dumps(request(route, "hi [[trace:mark 7]]", stream=stream, **limit(route, 3))).encode()
    before = time.time_ns() // 1000
    async with running.http.post(running.url + PATHS[route], data=raw) as answer:
        body = await answer.text()
    await running.until(lambda: running.engine.truth.records[0].ended_us is not None)
    after = time.time_ns() // 1000
    (record,) = [json.loads(line) for line in (await running.get("/ground-truth")).splitlines()]
    assert set(record) == FIELDS
    assert record["n"] == 0
    assert (record["route"], record["model"], record["stream"]) == (route, "coder-large", stream)
    assert record["body_sha256"] == hashlib.sha256(raw).hexdigest()
    assert record["marker"] == "mark 7"
    assert record["request_id"] in body
    assert (record["status"], record["aborted"], record["output_tokens"]) == (200, False, 3)
    assert before <= record["started_us"] <= record["first_token_us"] <= record["ended_us"] <= after


async def test_records_stand_in_order_of_arrival(serve: Serve) -> None:
    running = await serve()
    for number in range(4):
        await running.ask("chat", f"[[trace:{number}]]", max_tokens=1)
    records = [json.loads(line) for line in (await running.get("/ground-truth")).splitlines()]
    assert [(r["n"], r["marker"]) for r in records] == [(n, str(n)) for n in range(4)]


async def test_nothing_served_is_nothing_said(serve: Serve) -> None:
    running = await serve()
    assert await running.get("/ground-truth") == b""
    assert json.loads(await running.get("/ground-truth/summary"))["requests"] == 0
