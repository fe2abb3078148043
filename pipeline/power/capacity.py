"""Capacity: the highest ratio that was carried while enough of the agents' time conformed.

Served is what a window asked for; capacity is what its busiest hours show the hardware can carry. Hours are
sorted by load and pooled in groups of equal size, because the best single hour is mostly luck; the envelope
is the highest ratio over the groups that conform. Where nothing tells of a limit (no waiting requests, KV
cache never near full, no busier group that fails) the result is a lower bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from itertools import pairwise
from typing import Any, Final

from pipeline.power.interval import JOULES_PER_MWH, mean_interval

_GROUPS: Final = 10
_HOURS_A_GROUP: Final = 4
_LEAST_HOURS: Final = 8
#: Part of an hour that must be measured for it to stand for a load.
_LEAST_COVER: Final = 0.5


@dataclass(frozen=True, slots=True)
class LoadHour:
    """One hour: measured seconds, energy, agent-hours and the conformant part of them (lower bound)."""

    day: date
    covered_s: float
    joules: float
    agent_hours: float
    conformant_hours: float

    @property
    def load(self) -> float:
        """Mean agents."""
        return self.agent_hours / (self.covered_s / 3600)


def capacity(hours: Sequence[LoadHour], needed: float, near_limit: bool | None) -> dict[str, Any]:
    """Return the capacity row, or null with the reason.

    Args:
        hours: measured hours of one boundary, state and service level.
        needed: share of the agent time of a group that must conform.
        near_limit: whether the engine was near its limit in the window; None: unknown.
    """
    row: dict[str, Any] = {"value": None, "kind": "capacity", "needed_share": needed, "lower_bound": None}
    usable = sorted(
        (h for h in hours if h.agent_hours > 0 and h.covered_s >= _LEAST_COVER * 3600 and h.joules > 0),
        key=lambda h: (h.load, h.day),
    )
    if len(usable) < _LEAST_HOURS:
        reason = f"needs at least {_LEAST_HOURS} measured hours with agents, has {len(usable)}"
        return row | {"reason": reason}
    count = min(_GROUPS, len(usable) // _HOURS_A_GROUP)
    edges = [round(i * len(usable) / count) for i in range(count + 1)]
    groups = [_group(usable[a:b]) for a, b in pairwise(edges)]
    passing = [i for i, g in enumerate(groups) if g["conformant_share"] >= needed]
    row["groups"] = groups
    if not passing:
        return row | {"reason": f"in no group of hours did {needed:.0%} of the agents' time conform"}
    best = max(passing, key=lambda i: groups[i]["value"])
    knee = any(i > max(passing) for i in range(len(groups)))
    limit = True if knee else near_limit
    members = usable[edges[best] : edges[best + 1]]
    interval = mean_interval(_days(members))
    return row | {
        "value": groups[best]["value"],
        "agents": groups[best]["agents"],
        "hours": len(members),
        "conformant_share": groups[best]["conformant_share"],
        "interval": None if isinstance(interval, str) else list(interval),
        "interval_reason": interval if isinstance(interval, str) else None,
        "lower_bound": None if limit is None else not limit,
        "reason": _why(knee, near_limit),
    }


def _why(knee: bool, near_limit: bool | None) -> str | None:
    if knee:
        return None  # busier hours failed: this is the knee
    if near_limit is None:
        return "no engine metrics, and no busier hours that failed: it is unknown whether this is the limit"
    if not near_limit:
        return "lower bound: the engine was never near its limit and no busier hours failed"
    return None


def _group(hours: Sequence[LoadHour]) -> dict[str, Any]:
    agents = sum(h.agent_hours for h in hours)
    conformant = sum(h.conformant_hours for h in hours)
    return {
        "agents": agents / (sum(h.covered_s for h in hours) / 3600),
        "value": conformant / sum(h.joules for h in hours) * JOULES_PER_MWH,
        "conformant_share": conformant / agents,
        "hours": len(hours),
    }


def _days(hours: Sequence[LoadHour]) -> list[tuple[float, float]]:
    days: dict[date, tuple[float, float]] = {}
    for hour in hours:
        top, bottom = days.get(hour.day, (0.0, 0.0))
        days[hour.day] = (top + hour.conformant_hours, bottom + hour.joules / JOULES_PER_MWH)
    return list(days.values())
