"""The week-to-week interval and the t quantile behind it."""

from __future__ import annotations

import math

import pytest

from pipeline.power.interval import Day, ratio_interval, t_quantile


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
