"""The memory and event-loop benchmark: its slope, its clocks and its verdict, without LiteLLM."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAME = "plugin_memory"


@pytest.fixture(scope="module")
def program() -> Any:
    spec = importlib.util.spec_from_file_location(NAME, ROOT / "benchmarks" / f"{NAME}.py")
    assert spec is not None
    assert spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = module  # dataclasses look their module up by name
    path = list(sys.path)
    try:
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.path[:] = path
        sys.modules.pop(NAME, None)


def _samples(program: Any, bytes_late: float, blocks_late: float) -> list[Any]:
    """Memory that doubles during the warm-up and then grows as told, per request."""
    out = []
    for n in range(10_000, 200_001, 10_000):
        late = max(0, n - 120_000)
        early = min(n, 120_000)
        out.append(
            program.Sample(
                n,
                200 + early * 1e-3 + late * bytes_late / 1e6,
                10**6 + early * 9 + int(late * blocks_late),
                None,
            )
        )
    return out


PROMPTS = [{"longest_ms": 2.0, "ending_ms": 0.3}]


def test_filling_the_bounded_tables_is_no_growth(program: Any) -> None:
    result = program.verdict(_samples(program, 0, 0), {"_request": 1.0}, PROMPTS)
    assert result["flat"] is True
    assert result["met"] is True
    assert result["growth_per_request"]["rss_bytes"] == pytest.approx(0)


@pytest.mark.parametrize(("rss", "blocks"), [(200.0, 0.0), (0.0, 1.0)])
def test_one_object_kept_per_request_is_growth(program: Any, rss: float, blocks: float) -> None:
    result = program.verdict(_samples(program, rss, blocks), {"_request": 1.0}, PROMPTS)
    assert result["flat"] is False
    assert result["met"] is False
    assert result["growth_per_request"]["rss_bytes"] == pytest.approx(rss, abs=0.1)
    assert result["growth_per_request"]["blocks"] == pytest.approx(blocks, abs=0.01)


@pytest.mark.parametrize(
    ("steps", "prompts"),
    [
        ({"writer": 5.1}, PROMPTS),
        ({}, [{"longest_ms": 5.1, "ending_ms": 0.1}]),
        ({}, [{"longest_ms": 1.0, "ending_ms": 5.1}]),
    ],
)
def test_one_long_step_anywhere_on_the_loop_misses_the_target(
    program: Any, steps: dict[str, float], prompts: list[dict[str, Any]]
) -> None:
    result = program.verdict(_samples(program, 0, 0), steps, prompts)
    assert result["longest_step_ms"] == 5.1
    assert result["met"] is False


def test_the_slope_is_not_decided_by_one_jump(program: Any) -> None:
    assert program.slope([0, 1, 2, 3, 4], [0, 2, 4, 6, 800]) == pytest.approx(2, abs=1)
    assert program.slope([0, 1, 2, 3, 4, 5, 6, 7, 8], [5, 5, 5, 5, 5, 5, 5, 5, 900]) == 0
    with pytest.raises(ValueError, match="two points"):
        program.slope([1], [1])


def test_growth_of_traced_memory_is_told_only_when_it_was_traced(program: Any) -> None:
    plain = _samples(program, 0, 0)
    assert program.growth(plain)["traced_bytes"] is None
    traced = [program.Sample(s.requests, s.rss_mb, s.blocks, s.requests * 2e-6) for s in plain]
    assert program.growth(traced)["traced_bytes"] == pytest.approx(2)


async def test_every_step_of_a_task_is_timed_and_waiting_is_not(program: Any) -> None:
    async def busy() -> str:
        end = time.thread_time() + 0.01
        while time.thread_time() < end:
            pass
        await asyncio.sleep(0)
        return "done"

    async def idle() -> None:
        await asyncio.wait_for(asyncio.Event().wait(), 0.05)

    loop = asyncio.get_running_loop()
    longest = program.Longest({})
    program.time_tasks(loop, longest)
    try:
        assert await loop.create_task(busy()) == "done"
        with pytest.raises(TimeoutError):
            await loop.create_task(idle())
    finally:
        loop.set_task_factory(None)
    assert 10 <= longest.steps["busy"] < 40
    assert longest.steps["idle"] < 10


async def test_a_timed_task_can_be_cancelled(program: Any) -> None:
    async def forever() -> None:
        await asyncio.Event().wait()

    loop = asyncio.get_running_loop()
    program.time_tasks(loop, program.Longest({}))
    try:
        task = loop.create_task(forever())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    finally:
        loop.set_task_factory(None)


def test_the_load_has_sessions_that_grow_with_each_call(program: Any) -> None:
    template = program.body_of(2_000, 20, 5, 0)
    calls: dict[int, list[list[Any]]] = {}
    for serial in range(512):
        data, session = program._call_of(template, serial)
        calls.setdefault(session, []).append(data["messages"])
        named = "x-session-id" in data["proxy_server_request"]["headers"]
        assert named == (session % 4 != 3)
    assert len(calls) == 128
    for prompts in calls.values():
        assert [len(p) for p in prompts] == [6, 8, 10, 12]
        assert prompts[3][:10] == prompts[2]
    assert calls[0][0][1] != calls[1][0][1]


def test_resident_memory_is_that_of_this_process(program: Any) -> None:
    before = program.rss_mb()
    block = bytearray(50_000_000)
    block[::4096] = b"x" * len(block[::4096])
    assert 40 < program.rss_mb() - before < 80


def test_too_few_requests_end_with_exit_code_2(program: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        program.main(["--requests", "10"])
    assert ended.value.code == 2
    assert "--requests" in capsys.readouterr().err


@pytest.mark.parametrize(("rss", "code"), [(0.0, 0), (500.0, 1)])
def test_the_exit_code_and_the_last_line_tell_whether_the_targets_were_met(
    program: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    rss: float,
    code: int,
) -> None:
    for name in (
        "AGENTWATT_PLUGIN__SECRET",
        "AGENTWATT_PLUGIN__LEFT_GRACE_S",
        "LITELLM_LOCAL_MODEL_COST_MAP",
    ):
        monkeypatch.setenv(name, "1")
    monkeypatch.setattr(program.logging, "disable", lambda level: None)

    async def measure(options: Any) -> dict[str, Any]:
        result: dict[str, Any] = program.verdict(_samples(program, rss, 0), {"_request": 1.0}, PROMPTS)
        return result

    monkeypatch.setattr(program, "measure", measure)
    assert program.main(["--no-redis"]) == code
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["met"] is (code == 0)
