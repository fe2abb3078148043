from __future__ import annotations

import math
import random
from collections.abc import Generator
from dataclasses import replace
from typing import Any

import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from pipeline.sizing import regimes, speed

MACHINE = speed.Machine(
    active_weights_gb_per_gpu=15, hbm_gb_s=3350, prefill_tok_s=16_483, bandwidth_efficiency=0.7
)
WORK = speed.Work(
    prompt_tokens=68_000, prompt_tokens_p95=131_072, hit=0.96, output_tokens=444, kv_gb_per_gpu=3.36
)
SLO = speed.Slo(ttft_ms=5000, tpot_ms=50)


def test_one_request_without_prefill_reaches_the_bandwidth_floor() -> None:
    lone = speed.timing(
        replace(MACHINE, bandwidth_efficiency=1.0), replace(WORK, hit=1.0, kv_gb_per_gpu=0.0), 1
    )
    assert lone.tpot_ms == pytest.approx(speed.tpot_floor_ms(15, 3350))
    assert lone.prefill_share == 0
    assert lone.decode_share == 1


def test_closed_loop_share_matches_a_simulation_of_shared_steps() -> None:
    """Calls circulate: prefill one at a time, decode all together at what prefill leaves of the machine."""
    requests, prefill_s, decode_s = 6, 0.2, 3.0
    machine = speed.Machine(3000.0 * decode_s / 100, 3000.0, 1000.0, 1.0)
    work = speed.Work(200.0, 200.0, 0.0, 100.0, 0.0)
    assert work.new_tokens / machine.prefill_tok_s == prefill_s
    found = speed.timing(machine, work, requests)

    environment = simpy.Environment()
    engine = simpy.Resource(environment, capacity=1)
    busy = done = 0.0
    generator = random.Random(5)
    step = 0.01
    waiting: dict[int, float] = {}

    def call(name: int) -> Generator[Any, Any, None]:
        nonlocal busy, done
        yield environment.timeout(generator.random() * 3)
        while True:
            with engine.request() as turn:
                yield turn
                yield environment.timeout(prefill_s)
                busy += prefill_s
            left = decode_s
            while left > 1e-9:
                # Decode advances only while no prefill holds the machine.
                yield environment.timeout(step)
                if engine.count == 0:
                    left -= step
            done += 1
            waiting[name] = environment.now

    for index in range(requests):
        environment.process(call(index))
    environment.run(until=4000)
    assert found.prefill_share == pytest.approx(busy / 4000, rel=0.1)
    assert requests / found.call_s == pytest.approx(done / 4000, rel=0.1)


@given(st.integers(1, 60))
def test_latencies_grow_with_requests_in_flight(requests: int) -> None:
    one, more = speed.timing(MACHINE, WORK, requests), speed.timing(MACHINE, WORK, requests + 1)
    assert more.tpot_ms > one.tpot_ms
    assert more.ttft_ms >= one.ttft_ms


@given(st.floats(20, 200), st.floats(600, 20_000))
def test_time_ceiling_is_the_last_number_that_keeps_both_targets(tpot: float, ttft: float) -> None:
    slo = speed.Slo(ttft, tpot)
    ceiling = speed.time_ceiling(MACHINE, WORK, slo, 200)
    if ceiling:
        assert speed.timing(MACHINE, WORK, ceiling).meets(slo)
    if ceiling < 200:
        assert not speed.timing(MACHINE, WORK, ceiling + 1).meets(slo)


@pytest.mark.parametrize(
    ("vram", "slo", "bound"),
    [(8, SLO, "vram"), (100, SLO, "tpot"), (100, speed.Slo(700, 500), "ttft")],
)
def test_tighter_budget_is_named(vram: int, slo: speed.Slo, bound: str) -> None:
    found = speed.replica_ceiling(MACHINE, WORK, slo, vram)
    assert found.bound == bound
    assert found.requests == min(found.vram, found.time)


def test_target_that_one_request_misses_is_refused_with_both_numbers() -> None:
    with pytest.raises(ValueError, match=r"slo\.tpot_ms: one request alone takes 8 ms, the target is 5 ms"):
        speed.replica_ceiling(MACHINE, WORK, speed.Slo(5000, 5), 8)
    with pytest.raises(ValueError, match=r"slo\.ttft_ms"):
        speed.replica_ceiling(MACHINE, WORK, speed.Slo(100, 50), 8)


def test_cobatching_is_measured_for_two_long_requests_and_a_lower_bound_beyond() -> None:
    assert speed.cobatching(0) == speed.Cobatching(1.0, lower_bound=False)
    assert speed.cobatching(1).factor == 1.383
    assert speed.cobatching(2) == speed.Cobatching(1.797, lower_bound=False)
    assert speed.cobatching(5) == speed.Cobatching(1.797, lower_bound=True)
    with pytest.raises(ValueError, match="negative"):
        speed.cobatching(-1)


def test_decode_takes_nine_tenths_of_the_time_when_the_cache_hits() -> None:
    """The published split is 91.0 to 98.6 % in decode; it must come out at a hit of 98 %."""
    lone = speed.timing(MACHINE, replace(WORK, hit=0.98), 1)
    assert 0.91 <= lone.decode_share <= 0.986


def test_saturated_prefill_has_no_finite_latency() -> None:
    flooded = speed.timing(MACHINE, replace(WORK, hit=0.0, output_tokens=1.0), 5000)
    assert flooded.tpot_ms == math.inf
    assert flooded.prefill_share == 1.0


BASE = regimes.Baseline(
    MACHINE, WORK, SLO, sequences=8, vram_sequences=8, gpus_per_replica=2, spare_replicas=1
)


def test_regimes_contain_the_published_hit_rates_and_the_failing_sessions() -> None:
    rows = {row.name: row for row in regimes.scenarios(BASE)}
    assert [rows[n].hit for n in regimes.HIT_BY_REGIME] == [0.98, 0.55, 0.08, 0.01]
    assert rows["failing_sessions"].context_factor == 1.8
    assert rows["as_planned"].gpus == 4
    assert rows["failing_sessions"].gpus == 6  # four fit where eight did: two replicas and a spare


def test_lost_affinity_multiplies_prefill_and_gives_a_reason_where_no_fleet_helps() -> None:
    rows = {row.name: row for row in regimes.scenarios(BASE)}
    assert rows["affinity_off_x20"].prefill_multiplier == pytest.approx(20)
    assert rows["affinity_off_x60"].prefill_multiplier == pytest.approx(25)  # everything: 1 / (1 - 0.96)
    assert rows["affinity_off_x60"].gpus is None
    assert "slo.ttft_ms" in str(rows["affinity_off_x60"].reason)


def test_miss_after_a_hit_of_98_percent_costs_fifty_times_the_prefill() -> None:
    assert regimes.prefill_multiplier(0.98, 0.0) == pytest.approx(50)
    with pytest.raises(ValueError, match="finite"):
        regimes.prefill_multiplier(1.0, 0.5)


@pytest.mark.parametrize(
    "make",
    [
        lambda: speed.Work(1, 1, 1.5, 1, 0),
        lambda: speed.Work(0, 1, 0.5, 1, 0),
        lambda: speed.timing(MACHINE, WORK, 0),
        lambda: speed.prefill_tok_s(1, 989, 1.5, 70e9),
        lambda: speed.tpot_floor_ms(35, 0),
    ],
)
def test_impossible_machine_or_work_is_refused(make: Any) -> None:
    with pytest.raises(ValueError, match=r"must|at least one"):
        make()
