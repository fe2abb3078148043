"""Intervals: inputs known within bounds give outputs within bounds, and the inputs that matter most.

Draws are triangular between the bounds with the mode at the stated value, independent, and seeded, so the
same plan always prints the same interval. A draw for which no fleet exists is counted, not dropped silently:
a plan that is infeasible in 10 % of its own uncertainty should say so.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pipeline.sizing.concurrency import quantile
from pipeline.sizing.units import SizingError

Model = Callable[[Mapping[str, float]], Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Range:
    """An input with bounds around its stated value."""

    low: float
    value: float
    high: float

    def __post_init__(self) -> None:
        if not self.low <= self.value <= self.high:
            raise SizingError(f"low {self.low:g}, value {self.value:g}, high {self.high:g} are not in order")


@dataclass(frozen=True, slots=True)
class Interval:
    """Central value of an output, and the bounds that hold ``confidence`` of the feasible draws."""

    central: float
    low: float
    high: float
    confidence: float
    draws: int
    infeasible: int


@dataclass(frozen=True, slots=True)
class Swing:
    """How far one input moves one output between its bounds, everything else as stated.

    An end is None where no fleet exists at that bound.
    """

    name: str
    at_low: float | None
    at_high: float | None

    @property
    def width(self) -> float:
        """Distance between the ends; infinite when one end has no fleet."""
        if self.at_low is None or self.at_high is None:
            return float("inf")
        return abs(self.at_high - self.at_low)


def monte_carlo(
    model: Model,
    inputs: Mapping[str, Range],
    *,
    draws: int = 500,
    seed: int = 20260101,
    confidence: float = 0.9,
) -> dict[str, Interval]:
    """Intervals of every output of ``model``.

    Raises:
        SizingError: the central values themselves have no fleet, or every draw failed.
    """
    central = model({name: r.value for name, r in inputs.items()})
    generator = random.Random(seed)  # noqa: S311 - reproducible draws, nothing secret
    samples: dict[str, list[float]] = {name: [] for name in central}
    infeasible = 0
    for _ in range(draws):
        drawn = {
            # random.triangular needs a width; a fixed input draws nothing.
            name: r.value if r.low == r.high else generator.triangular(r.low, r.high, r.value)
            for name, r in sorted(inputs.items())
        }
        try:
            for name, value in model(drawn).items():
                samples[name].append(value)
        except SizingError:
            infeasible += 1
    if infeasible == draws:
        raise SizingError("no draw within the stated bounds gives a fleet")
    tail = (1 - confidence) / 2
    return {
        name: Interval(
            central[name],
            quantile(values, tail),
            quantile(values, 1 - tail),
            confidence,
            draws,
            infeasible,
        )
        for name, values in samples.items()
    }


def tornado(model: Model, inputs: Mapping[str, Range], output: str) -> tuple[Swing, ...]:
    """Inputs by how much they move ``output``, widest first; inputs without a width are left out."""
    stated = {name: r.value for name, r in inputs.items()}

    def at(name: str, value: float) -> float | None:
        try:
            return model({**stated, name: value})[output]
        except SizingError:
            return None

    swings = [
        Swing(name, at(name, r.low), at(name, r.high)) for name, r in sorted(inputs.items()) if r.low < r.high
    ]
    return tuple(sorted(swings, key=lambda s: (-s.width, s.name)))
