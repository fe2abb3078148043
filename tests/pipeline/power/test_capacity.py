"""Capacity from hourly cells: the envelope, the knee, and what is only a lower bound."""

from __future__ import annotations

from datetime import date, timedelta

import pytest

from pipeline.power.capacity import LoadHour, capacity

DAY = date(2026, 3, 2)


def hours(
    loads: list[float], *, limit: float = 1e9, idle_w: float = 200, watts: float = 100
) -> list[LoadHour]:
    """Whole hours at these loads: power is linear in load, above *limit* half of the time misses."""
    return [
        LoadHour(
            DAY + timedelta(days=n % 5),
            3600,
            (idle_w + watts * load) * 3600,
            load,
            load if load <= limit else load / 2,
        )
        for n, load in enumerate(loads)
    ]


def test_the_busiest_hours_that_conform_carry_the_most_agents_per_megawatt() -> None:
    found = capacity(hours([1, 1, 1, 1, 2, 2, 2, 2, 8, 8, 8, 8]), 0.95, near_limit=True)
    assert found["value"] == pytest.approx(8 / (200 + 800) * 1e6)
    assert (found["agents"], found["hours"], found["lower_bound"]) == (8, 4, False)


def test_hours_beyond_the_knee_do_not_count_and_show_that_the_limit_was_seen() -> None:
    loads = [1.0] * 4 + [4.0] * 4 + [8.0] * 4
    found = capacity(hours(loads, limit=5), 0.95, near_limit=None)
    assert found["agents"] == 4
    assert found["lower_bound"] is False
    assert found["reason"] is None


@pytest.mark.parametrize(("near", "bound"), [(False, True), (True, False), (None, None)])
def test_without_a_knee_the_engine_tells_whether_it_is_a_lower_bound(
    near: bool | None, bound: bool | None
) -> None:
    found = capacity(hours([1, 2, 3, 4] * 3), 0.95, near_limit=near)
    assert found["lower_bound"] is bound
    assert found["value"] is not None


def test_too_few_hours_or_none_that_conform_give_null_with_the_reason() -> None:
    assert "has 3" in capacity(hours([1, 2, 3]), 0.95, near_limit=True)["reason"]
    failing = capacity(hours([5.0] * 12, limit=1), 0.95, near_limit=True)
    assert failing["value"] is None
    assert "95%" in failing["reason"]


def test_an_hour_that_was_hardly_measured_stands_for_no_load() -> None:
    thin = [LoadHour(DAY, 60, 60 * 1000, 1.0, 1.0)] * 12
    assert "has 0" in capacity(thin, 0.95, near_limit=True)["reason"]


def test_the_interval_is_over_days_and_missing_for_a_single_one() -> None:
    spread = hours([1.0] * 4 + [8.0, 8.2, 8.4, 8.6], watts=90)
    found = capacity(spread, 0.95, near_limit=True)
    assert found["interval"][0] < found["value"] < found["interval"][1]
    one = [LoadHour(DAY, 3600, 1e6, h.agent_hours, h.conformant_hours) for h in spread]
    single = capacity(one, 0.95, near_limit=True)
    assert single["interval"] is None
    assert "two days" in single["interval_reason"]
