from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.sizing import concurrency


def test_published_amplification_never_multiplies_a_measured_duty_cycle() -> None:
    with pytest.raises(ValueError, match=r"people\.amplification"):
        concurrency.combine(0.08, "measured", None, "literature")
    with pytest.raises(ValueError, match=r"people\.duty_cycle"):
        concurrency.combine(None, "literature", 1.4, "measured")


def test_pair_measured_together_or_published_together_is_accepted() -> None:
    assert concurrency.combine(0.08, "measured", 1.4, "measured").amplification == 1.4
    published = concurrency.combine(None, "literature", None, "literature")
    assert (published.rho, round(published.amplification, 4)) == (0.11, 2.9464)


@pytest.mark.parametrize(("rho", "factor"), [(0.0, 2.0), (0.1, 0.9), (math.nan, 1.0)])
def test_impossible_pair_is_refused(rho: float, factor: float) -> None:
    with pytest.raises(ValueError, match="people"):
        concurrency.combine(rho, "declared", factor, "declared")


def test_published_split_moves_load_between_people_and_adds_none() -> None:
    duty = concurrency.combine(None, "literature", None, "literature")
    profiles = concurrency.published_split(100, duty)
    assert sum(p.people for p in profiles) == pytest.approx(100)
    assert sum(p.mean for p in profiles) == pytest.approx(
        concurrency.concurrency(100, duty.rho, duty.amplification)
    )
    by_name = {p.name: p.duty.rho for p in profiles}
    assert by_name["deep-loop"] / by_name["chat-only"] == pytest.approx(1_100_000 / 23_000)


def test_busiest_hour_is_sized_and_not_the_mean() -> None:
    samples = {9: [2.0, 3.0, 4.0], 10: [8.0, 10.0, 12.0], 33: [1.0, 1.0, 1.0]}
    peak = concurrency.weekly_peak(samples, 0.5)
    assert (peak.value, peak.hour_of_week, peak.hours_seen) == (10.0, 10, 3)
    assert peak.mean == pytest.approx(42 / 9)
    assert peak.over_mean == pytest.approx(10 / (42 / 9))


def test_hours_without_samples_are_not_assumed_idle() -> None:
    assert concurrency.weekly_peak({0: [], 5: [3.0]}, 0.95).hours_seen == 1
    with pytest.raises(ValueError, match="no concurrency sample"):
        concurrency.weekly_peak({0: []}, 0.95)
    with pytest.raises(ValueError, match="168"):
        concurrency.weekly_peak({168: [1.0]}, 0.95)


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0, 1))
def test_quantile_lies_within_the_values(values: list[float], q: float) -> None:
    found = concurrency.quantile(values, q)
    assert min(values) - 1e-6 <= found <= max(values) + 1e-6


def test_quantile_interpolates_linearly() -> None:
    assert concurrency.quantile([1, 2, 3, 4], 0.5) == 2.5
    assert concurrency.quantile([5], 0.95) == 5


@pytest.mark.parametrize(
    ("mean", "q", "expected"), [(6.6, 0.95, 11), (0.0, 0.95, 0), (1.0, 0.5, 1), (100.0, 0.99, 124)]
)
def test_poisson_peak_matches_the_tables(mean: float, q: float, expected: int) -> None:
    assert concurrency.poisson_quantile(mean, q) == expected


def test_duty_from_decode_of_the_mean_session_is_eight_percent() -> None:
    assert concurrency.duty_cycle(40.6, 444, 60, 62.6) == pytest.approx(0.08, abs=1e-4)
