"""What must hold for every window: scaling, splitting, idle boards and turns that miss."""

from __future__ import annotations

import random
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import power_week
from benchmarks.power_week import Process, Week
from pipeline import figures
from pipeline.power.interval import Bounds, Day, measurement_interval, ratio_interval
from tests.pipeline.power.cases import figure, one_tier, turns, watts
from tests.pipeline.sql.synthetic import MONDAY

amounts = st.floats(min_value=0.01, max_value=1e4)
day = st.tuples(amounts, amounts)
weeks = st.tuples(st.lists(day, min_size=2, max_size=6), st.lists(day, min_size=2, max_size=3)).map(
    lambda w: [Day(n, d, False) for n, d in w[0]] + [Day(n, d, True) for n, d in w[1]]
)


@given(weeks, st.floats(min_value=0.01, max_value=100))
def test_scaling_energy_by_k_scales_value_and_interval_by_one_over_k(days: list[Day], k: float) -> None:
    scaled = ratio_interval([Day(d.numerator, d.denominator * k, d.weekend) for d in days])
    plain = ratio_interval(days)
    assert not isinstance(scaled, str)
    assert not isinstance(plain, str)
    assert scaled == pytest.approx((plain[0] / k, plain[1] / k), rel=1e-9, abs=1e-9)


@given(weeks, st.randoms(use_true_random=False))
def test_the_order_of_days_does_not_matter(days: list[Day], rng: random.Random) -> None:
    mixed = list(days)
    rng.shuffle(mixed)
    assert ratio_interval(mixed) == pytest.approx(ratio_interval(days), rel=1e-9, abs=1e-9)


@given(weeks)
def test_the_week_interval_holds_the_value(days: list[Day]) -> None:
    interval = ratio_interval(days)
    assert not isinstance(interval, str)
    value = sum(d.numerator for d in days) / sum(d.denominator for d in days)
    assert interval[0] <= value * (1 + 1e-12)
    assert value <= interval[1] * (1 + 1e-12)


@given(amounts, st.floats(0, 1), amounts, st.floats(0, 1), st.floats(0, 1), st.floats(0, 50))
def test_the_measurement_interval_holds_lower_and_upper_bound(
    hours: float, unknown: float, joules: float, more: float, gap: float, accuracy: float
) -> None:
    upper = hours * (1 + unknown)
    found = measurement_interval(
        Bounds(
            hours, upper, joules, hours * (1 + more), upper * (1 + more), joules, joules * (1 + gap), accuracy
        )
    )
    assert not isinstance(found, str)
    assert found[0] <= hours / joules * 3.6e9 * (1 + 1e-12)
    assert upper / joules * 3.6e9 <= found[1] * (1 + 1e-12)


def agents(seed: int) -> list[dict[str, Any]]:
    """A few sessions over two hours, some turns too late, some without a time to first token."""
    rng = random.Random(seed)
    events = []
    for s in range(4):
        start = rng.uniform(0, 2000)
        for n in range(rng.randint(1, 4)):
            ttft = rng.choice([1000, 1000, 9000, None])
            length = rng.uniform(30, 900)
            events += [e | {"event_id": f"s{s}-{n}", "turn_id": f"s{s}t{n}"}
                       for e in turns(f"s{s}", start, length_s=length, ttft_ms=ttft)]  # fmt: skip
            start += length + rng.uniform(5, 500)
    return events


def boards(factor: float = 1.0) -> list[dict[str, Any]]:
    return watts("GPU-a", 350 * factor, hours=2) + watts("GPU-b", 120 * factor, hours=2)


@pytest.mark.parametrize("seed", [1, 2])
def test_scaling_power_by_k_scales_the_figure_by_one_over_k(tmp_path: Path, seed: int) -> None:
    plain = figure(tmp_path / "a", agents(seed), boards(), hours=2)
    scaled = figure(tmp_path / "b", agents(seed), boards(2.5), hours=2)
    for one, other in zip(plain["values"], scaled["values"], strict=True):
        for key in ("value", "value_upper", "any_conformity", "pooled_rule"):
            assert other[key] * 2.5 == pytest.approx(one[key], rel=1e-9)
        assert [x * 2.5 for x in other["measurement_interval"]] == pytest.approx(one["measurement_interval"])


@pytest.mark.parametrize("seed", [3, 4])
def test_splitting_a_window_and_merging_its_parts_changes_nothing(tmp_path: Path, seed: int) -> None:
    whole = figure(tmp_path, agents(seed), boards(), hours=2)
    cuts = [0, 0.25, 0.5, 2]
    parts = [
        figures.compute(
            tmp_path, one_tier(), MONDAY + timedelta(hours=a), MONDAY + timedelta(hours=b)
        ).figures["agents_per_megawatt"]
        for a, b in pairwise(cuts)
    ]
    for one in whole["values"]:
        of = [r for p in parts for r in p["values"] if r["state"] == one["state"]]
        hours = sum(r["conformant_agent_hours"][0] for r in of)
        # a part without any agent has energy but no row
        energy = sum(p["boundaries"][0]["megawatt_hours"] for p in parts)
        assert hours / energy == pytest.approx(one["value"], rel=1e-9)
        assert energy == pytest.approx(one["megawatt_hours"], rel=1e-9)


@pytest.mark.parametrize("seed", [5, 6])
def test_an_idle_board_more_lowers_the_figure(tmp_path: Path, seed: int) -> None:
    plain = figure(tmp_path / "a", agents(seed), boards(), hours=2)
    more = figure(tmp_path / "b", agents(seed), boards() + watts("GPU-idle", 60, hours=2), hours=2)
    for one, other in zip(plain["values"], more["values"], strict=True):
        assert other["value"] == pytest.approx(one["value"] * 470 / 530)
        assert one["value"] == 0 or other["value"] < one["value"]
        ends = zip(one["measurement_interval"], other["measurement_interval"], strict=True)
        assert all(after <= before for before, after in ends)


@pytest.mark.parametrize("seed", [7, 8])
def test_sessions_whose_turns_miss_never_raise_the_figure(tmp_path: Path, seed: int) -> None:
    plain = figure(tmp_path / "a", agents(seed), boards(), hours=2)
    missing = turns("late", 100, 900, ttft_ms=20_000) + turns("failed", 300, outcome="failure")
    more = figure(tmp_path / "b", agents(seed) + missing, boards(), hours=2)
    for one, other in zip(plain["values"], more["values"], strict=True):
        assert other["value"] == pytest.approx(one["value"], rel=1e-9)
        assert other["value_upper"] == pytest.approx(one["value_upper"], rel=1e-9)
        assert other["any_conformity"] > one["any_conformity"]


def test_a_simulated_week_is_the_sum_of_its_days(tmp_path: Path) -> None:
    """Gaps, restarts, slices, external work and a weekend: seven windows of a day give the week's figure."""
    week = Week(11, Process(sessions_per_weekday=12))
    whole = power_week.figure(week, tmp_path)
    days = []
    for day in range(power_week.DAYS):
        start = power_week.MONDAY + timedelta(days=day)
        computed = figures.compute(tmp_path, power_week.settings(), start, start + timedelta(days=1))
        days.append(computed.figures["agents_per_megawatt"])
    for one in whole["values"]:
        same = [r for d in days for r in d["values"] if r["state"] == one["state"]]
        assert len(same) == power_week.DAYS
        for key, of in (("conformant_agent_hours", lambda r: r["conformant_agent_hours"][0]),
                        ("agent_hours", lambda r: r["agent_hours"]),
                        ("megawatt_hours", lambda r: r["megawatt_hours"])):  # fmt: skip
            assert sum(of(r) for r in same) == pytest.approx(of(one), rel=1e-9), key
        merged = sum(r["conformant_agent_hours"][0] for r in same) / sum(r["megawatt_hours"] for r in same)
        assert merged == pytest.approx(one["value"], rel=1e-9)
        # and the week's own days are those seven windows
        by_day = [d["value"] for d in one["by_day"]]
        assert by_day == pytest.approx([r["value"] for r in same], rel=1e-9)
