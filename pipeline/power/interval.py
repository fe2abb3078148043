"""The week-to-week interval of a ratio: days are the unit, because all sessions of a day share its energy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Day:
    """Numerator and denominator of one day, and its stratum."""

    numerator: float
    denominator: float
    weekend: bool


def ratio_interval(days: Sequence[Day], confidence: float = 0.95) -> tuple[float, float] | str:
    """Return the interval of Σ numerator ÷ Σ denominator, or why there is none.

    Delete-one-day jackknife, stratified into weekdays and weekend, Student's t with Σ (n − 1) degrees of
    freedom (Efron & Stein 1981; Lohr, Sampling, ch. 9). The lower end is at least 0.
    """
    strata = {weekend: [d for d in days if d.weekend is weekend] for weekend in (False, True)}
    for weekend, members in strata.items():
        if len(members) < 2:
            name = "weekend" if weekend else "week"
            return f"needs at least two measured {name} days, has {len(members)}"
    top, bottom = sum(d.numerator for d in days), sum(d.denominator for d in days)
    if bottom <= 0:
        return "no energy was measured"
    variance = 0.0
    for members in strata.values():
        n = len(members)
        left_out = [(top - d.numerator) / (bottom - d.denominator) for d in members]
        mean = sum(left_out) / n
        variance += (n - 1) / n * sum((x - mean) ** 2 for x in left_out)
    freedom = sum(len(members) - 1 for members in strata.values())
    half = t_quantile(0.5 + confidence / 2, freedom) * math.sqrt(variance)
    value = top / bottom
    return max(0.0, value - half), value + half


def t_quantile(probability: float, freedom: int) -> float:
    """Return Student's t quantile, by bisection on its distribution function.

    Raises:
        ValueError: the probability is not in (0, 1) or there is no degree of freedom.
    """
    if not 0 < probability < 1 or freedom < 1:
        raise ValueError(f"no t quantile for probability {probability} and {freedom} degrees of freedom")
    if probability < 0.5:
        return -t_quantile(1 - probability, freedom)
    low, high = 0.0, 1.0
    while _t_below(high, freedom) < probability:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        if _t_below(middle, freedom) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _t_below(x: float, freedom: int) -> float:
    """P(T ≤ x) for x ≥ 0 by the finite series in θ = atan(x/√ν) (Abramowitz & Stegun 26.7.3–4)."""
    theta = math.atan(x / math.sqrt(freedom))
    cosine, sine = math.cos(theta), math.sin(theta)
    if freedom % 2:
        term, total = cosine, 0.0
        for k in range(1, freedom - 1, 2):
            total += term
            term *= cosine * cosine * (k + 1) / (k + 2)
        return 0.5 + (theta + sine * total) / math.pi
    term, total = 1.0, 0.0
    for k in range(0, freedom - 1, 2):
        total += term
        term *= cosine * cosine * (k + 1) / (k + 2)
    return 0.5 + sine * total / 2
