"""The two intervals of a ratio of agent-hours and megawatt-hours, which answer different questions.

*Measurement*: what this week's value may have been, given sensors, gaps and turns of unknown conformity;
a bound, not a probability. *Week to week*: what another week of the same process would bring; days are the
unit, because all sessions of a day share its energy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

WH_PER_MWH: Final = 1e6
JOULES_PER_MWH: Final = 3.6e9


@dataclass(frozen=True, slots=True)
class Day:
    """Numerator and denominator of one day, and its stratum."""

    numerator: float
    denominator: float
    weekend: bool


@dataclass(frozen=True, slots=True)
class Bounds:
    """What bounds the agent-hours and the energy of a window.

    ``hours_…`` and ``joules`` cover the measured seconds; ``window_…`` the whole window: its agents are
    known, the energy of a silent sensor lies between the least and the most power that it ever showed.
    ``edge_share_…``: parts of the agent-hours at the ends of intervals, where the gateway's clock is neither
    the engine's (it begins later) nor the client's (it began earlier).
    """

    hours_lower: float
    hours_upper: float
    joules: float
    window_hours_lower: float
    window_hours_upper: float
    window_joules_low: float
    window_joules_high: float
    accuracy_percent: float
    edge_share_lower: float = 0.0
    edge_share_upper: float = 0.0


def measurement_interval(bounds: Bounds) -> tuple[float, float] | str:
    """Return the lowest and highest agents per megawatt that fit what was measured, or why there is none.

    Sensors may all be wrong by their accuracy in the same direction; unknown conformity counts as miss below
    and as pass above; both the measured seconds and the whole window are covered, and both the time at the
    engine and the time at the client.
    """
    accuracy = bounds.accuracy_percent / 100
    if accuracy >= 1:
        return f"a sensor accuracy of ± {bounds.accuracy_percent:g} % bounds nothing"
    if bounds.joules <= 0 or bounds.window_joules_low <= 0:
        return "no energy was measured"
    low = min(bounds.hours_lower / bounds.joules, bounds.window_hours_lower / bounds.window_joules_high)
    high = max(bounds.hours_upper / bounds.joules, bounds.window_hours_upper / bounds.window_joules_low)
    low *= max(0.0, 1 - bounds.edge_share_lower)
    high *= 1 + bounds.edge_share_upper
    return low * JOULES_PER_MWH / (1 + accuracy), high * JOULES_PER_MWH / (1 - accuracy)


def known_share(total: float, lower: float, upper: float) -> float | None:
    """Return the conforming share of the time whose conformity is known; None when none of it is."""
    known = total - (upper - lower)
    return lower / known if known > 1e-12 * max(total, 1e-300) and total > 0 else None


def ratio_interval(days: Sequence[Day], confidence: float = 0.95) -> tuple[float, float] | str:
    """Return the interval of Σ numerator ÷ Σ denominator, or why there is none.

    Delete-one-day jackknife, stratified into weekdays and weekend: the other days of a left-out day's stratum
    count n ÷ (n − 1) times, so that the stratum keeps its weight in the week; Student's t with Σ (n − 1)
    degrees of freedom (Lohr, Sampling, section 9.3; Rust & Rao 1996). The lower end is at least 0.
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
        numerator, denominator = sum(d.numerator for d in members), sum(d.denominator for d in members)
        left_out = []
        for day in members:
            rest = bottom + (denominator - n * day.denominator) / (n - 1)
            if rest <= 0:
                return "one day holds all the energy: there is nothing to leave out"
            left_out.append((top + (numerator - n * day.numerator) / (n - 1)) / rest)
        mean = sum(left_out) / n
        variance += (n - 1) / n * sum((x - mean) ** 2 for x in left_out)
    freedom = sum(len(members) - 1 for members in strata.values())
    half = t_quantile(0.5 + confidence / 2, freedom) * math.sqrt(variance)
    value = top / bottom
    return max(0.0, value - half), value + half


def mean_interval(days: Sequence[tuple[float, float]], confidence: float = 0.95) -> tuple[float, float] | str:
    """Return the interval of Σ numerator ÷ Σ denominator over days of one kind (delete-one jackknife)."""
    n = len(days)
    if n < 2:
        return f"needs at least two days, has {n}"
    top, bottom = sum(d[0] for d in days), sum(d[1] for d in days)
    if any(bottom - d[1] <= 0 for d in days):
        return "one day holds all the energy: there is nothing to leave out"
    left_out = [(top - d[0]) / (bottom - d[1]) for d in days]
    mean = sum(left_out) / n
    half = t_quantile(0.5 + confidence / 2, n - 1) * math.sqrt(
        (n - 1) / n * sum((x - mean) ** 2 for x in left_out)
    )
    return max(0.0, top / bottom - half), top / bottom + half


@cache
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
