"""The queueing formulas against a discrete-event simulation."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Generator
from typing import Any

import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from pipeline.sizing import queueing

Draw = Callable[[random.Random], float]


def simulate(
    servers: int, arrival: Draw, service: Draw, *, calls: int = 60_000, seed: int = 7
) -> tuple[float, float, float]:
    """Mean wait, share that waits and P95 of the wait, after a warm-up of a tenth."""
    generator = random.Random(seed)
    environment = simpy.Environment()
    desk = simpy.Resource(environment, capacity=servers)
    waits: list[float] = []

    def call() -> Generator[Any, Any, None]:
        came = environment.now
        with desk.request() as turn:
            yield turn
            waits.append(environment.now - came)
            yield environment.timeout(service(generator))

    def source() -> Generator[Any, Any, None]:
        for _ in range(calls):
            yield environment.timeout(arrival(generator))
            environment.process(call())

    environment.process(source())
    environment.run()
    kept = sorted(waits[calls // 10 :])
    return sum(kept) / len(kept), sum(w > 1e-12 for w in kept) / len(kept), kept[int(0.95 * len(kept))]


def exponential(mean: float) -> Draw:
    return lambda g: g.expovariate(1 / mean)


@pytest.mark.parametrize(("servers", "rho"), [(1, 0.6), (4, 0.7), (8, 0.8)])
def test_erlang_c_matches_the_simulation(servers: int, rho: float) -> None:
    rate = servers * rho
    mean, waiting, p95 = simulate(servers, exponential(1 / rate), exponential(1.0))
    assert queueing.erlang_c(servers, rate) == pytest.approx(waiting, rel=0.06)
    assert queueing.mean_wait_s(servers, rate, 1.0) == pytest.approx(mean, rel=0.12)
    assert queueing.wait_quantile_s(servers, rate, 1.0, 0.95) == pytest.approx(p95, rel=0.12)


@pytest.mark.parametrize(
    ("service", "cv2"),
    [(lambda g: 1.0, 0.0), (lambda g: g.choices((0.25, 4.0), (0.8, 0.2))[0], 2.25)],
    ids=["constant", "short and long"],
)
def test_allen_cunneen_matches_the_simulation(service: Draw, cv2: float) -> None:
    servers, rate = 4, 0.75 * 4
    mean, _, _ = simulate(servers, exponential(1 / rate), service, calls=120_000)
    assert queueing.mean_wait_s(servers, rate, 1.0, cv2_service=cv2) == pytest.approx(mean, rel=0.15)


def test_single_server_reduces_to_the_textbook() -> None:
    assert queueing.erlang_c(1, 0.7) == pytest.approx(0.7)
    assert queueing.mean_wait_s(1, 0.7, 1.0) == pytest.approx(0.7 / 0.3)
    assert queueing.mean_wait_s(1, 0.7, 1.0, cv2_service=0.0) == pytest.approx(0.7 / 0.3 / 2)


def test_saturation_waits_for_ever() -> None:
    assert queueing.erlang_c(3, 3.0) == 1.0
    assert queueing.mean_wait_s(3, 3.0, 1.0) == math.inf
    assert queueing.wait_quantile_s(3, 4.0, 1.0, 0.5) == math.inf


def test_thousands_of_servers_stay_in_range() -> None:
    assert 0 < queueing.erlang_c(5000, 4950.0) < 1


def test_fewest_servers_meet_the_target_and_one_fewer_does_not() -> None:
    found = queueing.smallest_servers(20.0, 0.5, target_wait_s=0.1)
    assert queueing.wait_quantile_s(found, 20.0, 0.5, 0.95) <= 0.1
    assert queueing.wait_quantile_s(found - 1, 20.0, 0.5, 0.95) > 0.1


@given(st.floats(200, 500))
def test_published_table_is_interpolated_within_its_ends(ttft: float) -> None:
    assert 0.55 <= queueing.rho_max_published(ttft) <= 0.75


@pytest.mark.parametrize(("ttft", "rho"), [(200, 0.55), (250, 0.59), (350, 0.665), (500, 0.75)])
def test_published_table_is_exact_at_its_points(ttft: float, rho: float) -> None:
    assert queueing.rho_max_published(ttft) == rho


@pytest.mark.parametrize("ttft", [0, 199.9, 500.1, 1500])
def test_target_outside_the_published_table_is_refused(ttft: float) -> None:
    with pytest.raises(queueing.OutOfRange, match="published table"):
        queueing.rho_max_published(ttft)


def test_measured_service_time_explains_the_table_within_a_hundredth() -> None:
    for ttft, rho in queueing.RHO_MAX_TABLE:
        assert queueing.rho_max_mm1(ttft / 1e3, 0.17) == pytest.approx(rho, abs=0.01)


def test_relaxed_target_allows_more_utilisation() -> None:
    assert queueing.rho_max_mm1(0.5, 0.17) > queueing.rho_max_mm1(0.2, 0.17)


@pytest.mark.parametrize(
    "call",
    [
        lambda: queueing.erlang_c(0, 1.0),
        lambda: queueing.erlang_c(1, -1.0),
        lambda: queueing.mean_wait_s(1, 0.5, 0.0),
        lambda: queueing.wait_quantile_s(1, 0.5, 1.0, 1.0),
        lambda: queueing.rho_max_mm1(-1.0, 1.0),
        lambda: queueing.smallest_servers(10, 1, target_wait_s=0.0, limit=11),
    ],
)
def test_impossible_queue_is_refused(call: Callable[[], float]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        call()
