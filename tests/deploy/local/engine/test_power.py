"""Board power, its energy, and both in DCGM's words."""

from __future__ import annotations

import json
import re
from contextlib import AsyncExitStack

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from deploy.local.engine.power import PowerModel
from deploy.local.engine.timing import Speeds
from tests.deploy.local.engine.conftest import ENDLESS, PATHS, Serve, request

ENERGY = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"


def series(text: str, name: str) -> dict[str, float]:
    """Return value by label text of the samples that have exactly this name."""
    return {m[1]: float(m[2]) for m in re.finditer(rf"^{name}\{{(.*)\}} (\S+)$", text, re.MULTILINE)}


class Clock:
    """A clock that moves when told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def model(clock: Clock, boards: int = 2) -> PowerModel:
    return PowerModel(boards=boards, slots=10, idle_w=100.0, max_w=700.0, clock=clock)


@pytest.mark.parametrize(
    ("prefill", "decode", "watts"),
    [(0, 0, 100), (1, 0, 430), (5, 0, 430), (0, 1, 301), (0, 10, 490), (0, 99, 490), (1, 10, 700)],
)
def test_watts_follow_the_documented_formula(prefill: int, decode: int, watts: float) -> None:
    power = model(Clock())
    power.change(prefill, decode)
    assert power.board_watts == pytest.approx(watts)


PHASES = st.lists(st.tuples(st.floats(0, 1000), st.integers(0, 5), st.integers(0, 20)), max_size=30)


@given(PHASES)
def test_energy_is_the_integral_of_the_watts(phases: list[tuple[float, int, int]]) -> None:
    clock = Clock()
    power = model(clock)
    expected = 0.0
    for seconds, prefill, decode in phases:
        power.change(prefill, decode)
        use = min(1.0, (0.55 if prefill else 0.0) + (0.30 + 0.35 * min(1, decode / 10) if decode else 0.0))
        clock.now += seconds
        expected += (100.0 + 600.0 * use) * seconds
    assert power.board_joules() == pytest.approx(expected, rel=1e-9, abs=1e-6)


def test_the_exposition_has_dcgms_names_units_and_labels() -> None:
    clock = Clock()
    power = model(clock)
    clock.now += 2.5
    text = power.exposition()
    assert "# TYPE DCGM_FI_DEV_POWER_USAGE gauge\n" in text
    assert "# TYPE DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION counter\n" in text
    watts, energy = series(text, "DCGM_FI_DEV_POWER_USAGE"), series(text, ENERGY)
    assert list(watts.values()) == [100.0, 100.0]
    assert list(energy.values()) == [250_000.0, 250_000.0]
    assert watts.keys() == energy.keys()
    for labels in energy:
        assert re.findall(r'(\w+)="', labels) == ["gpu", "UUID", "device", "modelName", "Hostname"]
        assert "stand-in (synthetic)" in labels
    # A Prometheus client reads it as well, and calls what is inside a counter "…_total".
    (family,) = [f for f in text_string_to_metric_families(text) if f.name == ENERGY]
    assert (family.type, len(family.samples)) == ("counter", 2)


@pytest.mark.parametrize("wrong", [{"boards": 0}, {"slots": 0}, {"idle_w": 800.0}, {"idle_w": -1.0}])
def test_an_impossible_power_model_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="power model"):
        PowerModel(**{"boards": 1, "slots": 1, **wrong})  # type: ignore[arg-type]


async def test_the_engines_counter_is_the_integral_of_what_it_did(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = await serve(boards=3)
    power, clock = running.engine.power, Clock()
    monkeypatch.setattr(power, "_clock", clock)
    monkeypatch.setattr(power, "_since", clock.now)
    base = power.board_joules()
    joules = 0.0
    change = power.change

    def timed(prefill: int, decode: int) -> None:
        nonlocal joules
        joules += power.board_watts * 7.0
        clock.now += 7.0
        change(prefill, decode)

    monkeypatch.setattr(power, "change", timed)
    await running.ask("chat", max_tokens=5)
    await running.ask("messages", max_tokens=5)
    assert joules > power.board_watts * 7.0 * 6  # above idle: it has worked
    assert power.board_joules() - base == pytest.approx(joules)
    counters = series((await running.get("/metrics")).decode(), ENERGY)
    assert list(counters.values()) == [float(int(power.board_joules() * 1e3))] * 3
    summary = json.loads(await running.get("/ground-truth/summary"))
    assert summary["energy_joules"] == pytest.approx(power.board_joules() * 3)


async def test_the_boards_draw_what_the_phases_of_the_running_requests_say(serve: Serve) -> None:
    decoding, stuck = await serve(max_running=10), await serve(speeds=Speeds(prefill_tok_s=1e-6))
    for running in (decoding, stuck):
        assert running.engine.power.board_watts == pytest.approx(95.0)
    records = decoding.engine.truth.records
    async with AsyncExitStack() as open_streams:
        for count in (1, 2):
            body = request("chat", f"{count} {ENDLESS}", stream=True)
            await open_streams.enter_async_context(
                decoding.http.post(decoding.url + PATHS["chat"], json=body)
            )
            await decoding.until(lambda n=count: sum(r.output_tokens for r in records) == n)
            assert decoding.engine.power.board_watts == pytest.approx(95 + 605 * (0.30 + 0.035 * count))
        await open_streams.enter_async_context(
            stuck.http.post(stuck.url + PATHS["chat"], json=request("chat", stream=True))
        )
        await stuck.until(lambda: stuck.engine.power.board_watts > 95)
        assert stuck.engine.power.board_watts == pytest.approx(95 + 605 * 0.55)
        await decoding.http.close()
        await stuck.http.close()
        for running in (decoding, stuck):
            async with aiohttp.ClientSession() as http:
                running.http = http
                await running.until(lambda r=running: r.engine.power.board_watts < 95.001)


def test_the_history_of_the_energy_is_its_sum_at_every_change() -> None:
    clock = Clock()
    power = PowerModel(boards=3, slots=10, clock=clock)
    changes = [(1, 0, 2.0), (0, 4, 3.0), (0, 0, 5.0)]
    expected = [0.0]
    for prefill, decode, seconds in changes:
        power.change(prefill, decode)
        clock.now += seconds
        expected.append(power.board_joules() * 3)
    history = power.history()
    assert [joules for _, joules in history] == pytest.approx([0.0, *expected])
    instants = [us for us, _ in history]
    assert instants == sorted(instants)
