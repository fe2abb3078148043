"""The week-to-week interval and the t quantile behind it."""

from __future__ import annotations

import math

import pytest

from pipeline.power.interval import (
    Bounds,
    Day,
    known_share,
    mean_interval,
    measurement_interval,
    ratio_interval,
    t_quantile,
)


@pytest.mark.parametrize(
    ("freedom", "expected"),
    [(1, 12.706205), (2, 4.302653), (3, 3.182446), (5, 2.570582), (10, 2.228139), (30, 2.042272)],
)
def test_t_quantiles_match_the_printed_table(freedom: int, expected: float) -> None:
    assert t_quantile(0.975, freedom) == pytest.approx(expected, abs=1e-6)
    assert t_quantile(0.025, freedom) == pytest.approx(-expected, abs=1e-6)


@pytest.mark.parametrize(("probability", "freedom"), [(0.0, 3), (1.0, 3), (0.5, 0)])
def test_impossible_quantiles_are_refused(probability: float, freedom: int) -> None:
    with pytest.raises(ValueError, match="no t quantile"):
        t_quantile(probability, freedom)


def week(weekdays: list[tuple[float, float]], weekend: list[tuple[float, float]]) -> list[Day]:
    return [Day(n, d, False) for n, d in weekdays] + [Day(n, d, True) for n, d in weekend]


def test_days_that_agree_have_no_width() -> None:
    interval = ratio_interval(week([(10, 2), (20, 4), (5, 1)], [(1, 0.2), (2, 0.4)]))
    assert interval == pytest.approx((5, 5))


def test_the_width_is_the_stratified_jackknife_with_t() -> None:
    days = week([(10, 2), (12, 2), (8, 2)], [(3, 1), (5, 1)])
    top, bottom = 38, 8
    # the days that stay stand for the whole stratum: 3 weekdays, 2 days of the weekend
    weekday = [((30 - n) * 3 / 2 + 8) / bottom for n in (10, 12, 8)]
    weekend = [((8 - n) * 2 + 30) / bottom for n in (3, 5)]
    variance = sum(
        (len(xs) - 1) / len(xs) * sum((x - sum(xs) / len(xs)) ** 2 for x in xs) for xs in (weekday, weekend)
    )
    half = 3.182446 * math.sqrt(variance)
    assert ratio_interval(days) == pytest.approx((top / bottom - half, top / bottom + half), rel=1e-6)


@pytest.mark.parametrize(
    ("days", "reason"),
    [
        (week([(1, 1)], [(1, 1), (1, 1)]), "two measured week days, has 1"),
        (week([(1, 1), (1, 1)], [(1, 1)]), "two measured weekend days, has 1"),
        ([], "two measured week days, has 0"),
    ],
)
def test_a_stratum_of_fewer_than_two_days_is_refused(days: list[Day], reason: str) -> None:
    assert reason in str(ratio_interval(days))


def test_the_weekend_keeps_its_weight_when_one_of_its_days_is_left_out() -> None:
    # Equal energy everywhere and weekdays that agree: only the two weekend days differ. The variance of a sum
    # of two draws is twice their sample variance, whatever the five other days are.
    days = week([(10, 1)] * 5, [(4, 1), (8, 1)])
    interval = ratio_interval(days)
    assert not isinstance(interval, str)
    sample_variance = ((4 - 6) ** 2 + (8 - 6) ** 2) / 1
    expected = t_quantile(0.975, 5) * math.sqrt(2 * sample_variance) / 7
    assert (interval[1] - interval[0]) / 2 == pytest.approx(expected)


def test_a_day_that_holds_all_energy_cannot_be_left_out() -> None:
    assert "all the energy" in str(ratio_interval(week([(1, 5), (1, 0)], [(0, 0), (0, 0)])))
    assert "all the energy" in str(mean_interval([(1.0, 2.0), (0.0, 0.0)]))


def bounds(**changes: float) -> Bounds:
    plain = {
        "hours_lower": 8.0, "hours_upper": 10.0, "joules": 3.6e9, "window_hours_lower": 8.0,
        "window_hours_upper": 10.0, "window_joules_low": 3.6e9, "window_joules_high": 3.6e9,
        "accuracy_percent": 0.0,
    }  # fmt: skip
    return Bounds(**plain | changes)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, (8, 10)),
        ({"accuracy_percent": 25.0}, (8 / 1.25, 10 / 0.75)),
        # a silent sensor drew as much as ever, or as little as ever, while the agents are known
        ({"window_joules_high": 7.2e9}, (4, 10)),
        ({"window_hours_lower": 12.0, "window_hours_upper": 15.0, "window_joules_high": 7.2e9}, (6, 15)),
    ],
)
def test_the_measurement_interval_takes_the_worst_of_everything(
    changes: dict[str, float], expected: tuple[float, float]
) -> None:
    assert measurement_interval(bounds(**changes)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("changes", "reason"), [({"accuracy_percent": 100.0}, "bounds nothing"), ({"joules": 0.0}, "no energy")]
)
def test_what_bounds_nothing_gives_no_measurement_interval(changes: dict[str, float], reason: str) -> None:
    assert reason in str(measurement_interval(bounds(**changes)))


@pytest.mark.parametrize(
    ("total", "lower", "upper", "share"),
    [(10, 8, 8, 0.8), (10, 6, 8, 0.75), (10, 0, 10, None), (0, 0, 0, None), (10, 10, 10, 1)],
)
def test_the_share_of_known_turns(total: float, lower: float, upper: float, share: float | None) -> None:
    assert known_share(total, lower, upper) == (None if share is None else pytest.approx(share))
