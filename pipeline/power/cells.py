"""Hourly cells of one boundary and pool: energy, agent-hours, and what bounds both over the whole window."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import TYPE_CHECKING

from pipeline.power import places
from pipeline.power.energy import Energy
from pipeline.power.interval import JOULES_PER_MWH, Bounds, measurement_interval

if TYPE_CHECKING:
    import duckdb


@dataclass(frozen=True, slots=True)
class EnergyHour:
    """Energy of one hour of a boundary and pool."""

    hour: datetime
    day: date
    weekend: bool
    window_s: float
    covered_s: float
    joules: float


@dataclass(frozen=True, slots=True)
class AgentHour:
    """Agent-hours of one hour, kind, state, tier, model group and profile."""

    hour: datetime
    day: date
    kind: str
    state: str
    tier: str
    model_group: str | None
    profile: str
    total: float
    lower: float
    upper: float
    pooled: float


@dataclass(frozen=True, slots=True)
class WindowDay:
    """Agent-hours of one day, measured or not, and what is uncertain at the ends of their intervals.

    ``edge``: hours that the engine may not have seen; ``beginnings``: intervals that begin on the day.
    """

    day: date
    kind: str
    state: str
    tier: str
    model_group: str | None
    profile: str
    total: float
    lower: float
    upper: float
    edge: float
    edge_lower: float
    beginnings: float
    beginnings_upper: float


@dataclass(frozen=True)
class Served:
    """Everything the rows of one boundary and pool are made of.

    ``unseen_s``: the longest that either end of an interval may lie from the gateway's own instant.
    """

    energy: Energy
    hours: Sequence[EnergyHour]
    agents: Sequence[AgentHour]
    window: Sequence[WindowDay]
    #: (state, tier) -> convention -> cap -> conformant agent-hours that the cap takes away
    removed: Mapping[tuple[str, str], Mapping[str, Mapping[str, float]]]
    unseen_s: float = 0.0

    def of(self, kind: str, state: str, tier: str) -> list[AgentHour]:
        """Return the cells of a kind, state and tier."""
        return [a for a in self.agents if (a.kind, a.state, a.tier) == (kind, state, tier)]

    def days_of(self, state: str, tier: str) -> list[WindowDay]:
        """Return the root agents' days of a state and tier."""
        return [w for w in self.window if (w.kind, w.state, w.tier) == ("main", state, tier)]

    def only(self, keep: Callable[[AgentHour | WindowDay], bool]) -> Served:
        """Return the same energy with the agents that *keep* wants."""
        return replace(
            self, agents=[a for a in self.agents if keep(a)], window=[w for w in self.window if keep(w)]
        )

    def on(self, days: frozenset[date]) -> Served:
        """Return these days alone, their energy and its bounds too."""
        hours = [h for h in self.hours if h.day in days]
        bounds = {d: b for d, b in self.energy.day_bounds.items() if d in days}
        energy = replace(
            self.energy,
            joules=sum(h.joules for h in hours),
            covered_s=sum(h.covered_s for h in hours),
            joules_low=sum(b[0] for b in bounds.values()),
            joules_high=sum(b[1] for b in bounds.values()),
            day_bounds=bounds,
        )
        return replace(self, energy=energy, hours=hours).only(lambda x: x.day in days)

    def scaled(self, share: Callable[[EnergyHour], float]) -> Served:
        """Return the same agents on the *share* of every hour's energy that a rule gives them."""
        hours = [replace(h, joules=h.joules * share(h)) for h in self.hours]
        joules = sum(h.joules for h in hours)
        part = joules / self.energy.joules if self.energy.joules > 0 else 0.0
        energy = replace(
            self.energy,
            joules=joules,
            joules_low=self.energy.joules_low * part,
            joules_high=self.energy.joules_high * part,
            day_bounds={d: (b[0] * part, b[1] * part) for d, b in self.energy.day_bounds.items()},
        )
        return replace(self, energy=energy, hours=hours)


def load(con: duckdb.DuckDBPyConnection, energy: Energy, unseen_s: float = 0.0) -> Served:
    """Read the marts of one boundary and pool."""
    key = {"scope": energy.scope, "pool": energy.pool}
    hours = con.execute(
        "SELECT hour_start, business_day, is_weekend, window_s, covered_s, joules FROM mart_energy_hour "
        "WHERE scope = $scope AND pool = $pool ORDER BY hour_start",
        key,
    ).fetchall()
    agents = con.execute(
        "SELECT hour_start, business_day, agent_kind, state, tier, model_group, profile, agent_hours, "
        "agent_hours_lower, agent_hours_upper, agent_hours_pooled FROM mart_agent_hour "
        "WHERE scope = $scope AND pool = $pool AND is_external = 0 "
        "ORDER BY hour_start, agent_kind, state, tier, model_group, profile",
        key,
    ).fetchall()
    window = con.execute(
        "SELECT business_day, agent_kind, state, tier, model_group, profile, agent_hours, agent_hours_lower, "
        "agent_hours_upper, edge_hours, edge_hours_lower, beginnings, beginnings_upper "
        "FROM mart_agent_window WHERE pool = $pool "
        "ORDER BY business_day, agent_kind, state, tier, model_group, profile",
        {"pool": energy.pool},
    ).fetchall()
    removed: dict[tuple[str, str], dict[str, dict[str, float]]] = {}
    if energy.pool == places.ALL:
        gaps = con.execute(
            "SELECT state, tier, convention, cap, removed_hours_lower FROM mart_agent_gap "
            "WHERE scope = $scope ORDER BY state, tier, convention, cap",
            {"scope": energy.scope},
        ).fetchall()
        for state, tier, convention, cap, gone in gaps:
            removed.setdefault((state, tier), {}).setdefault(convention, {})[cap] = float(gone)
    return Served(
        energy,
        [EnergyHour(h, d, bool(w), float(s), float(c), float(j)) for h, d, w, s, c, j in hours],
        [AgentHour(*a[:7], *map(float, a[7:])) for a in agents],
        [WindowDay(*w[:6], *map(float, w[6:])) for w in window],
        removed,
        unseen_s,
    )


def interval(served: Served, state: str, tier: str, *, any_conformity: bool = False) -> list[float] | None:
    """Return the measurement interval of a state and tier; of all its agents with *any_conformity*."""
    cells, days = served.of("main", state, tier), served.days_of(state, tier)
    energy = served.energy
    low = sum(c.total if any_conformity else c.lower for c in cells)
    high = sum(c.total if any_conformity else c.upper for c in cells)
    whole_low = sum(w.total if any_conformity else w.lower for w in days)
    whole_high = sum(w.total if any_conformity else w.upper for w in days)
    lost = sum(w.edge if any_conformity else w.edge_lower for w in days)
    begun = sum(w.beginnings if any_conformity else w.beginnings_upper for w in days)
    gained = 2 * served.unseen_s / 3600 * begun
    found = measurement_interval(
        Bounds(
            hours_lower=low,
            hours_upper=high,
            joules=energy.joules,
            window_hours_lower=whole_low,
            window_hours_upper=whole_high,
            window_joules_low=energy.joules_low,
            window_joules_high=energy.joules_high,
            accuracy_percent=energy.accuracy_percent,
            edge_share_lower=lost / whole_low if whole_low > 0 else 0.0,
            edge_share_upper=gained / whole_high if whole_high > 0 else 0.0,
        )
    )
    return None if isinstance(found, str) else list(found)


@dataclass(frozen=True, slots=True)
class DaySum:
    """Agent-hours and energy of one business day."""

    day: date
    lower: float
    upper: float
    total: float
    mwh: float
    weekend: bool


def by_day(served: Served, cells: Iterable[AgentHour]) -> list[DaySum]:
    """Return the measured days of a boundary with the agent-hours of *cells*."""
    agents: dict[date, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for cell in cells:
        sums = agents[cell.day]
        sums[0] += cell.lower
        sums[1] += cell.upper
        sums[2] += cell.total
    energy: dict[date, float] = defaultdict(float)
    weekend: dict[date, bool] = {}
    for hour in served.hours:
        energy[hour.day] += hour.joules / JOULES_PER_MWH
        weekend[hour.day] = hour.weekend
    return [
        DaySum(day, agents[day][0], agents[day][1], agents[day][2], mwh, weekend[day])
        for day, mwh in sorted(energy.items())
        if mwh > 0
    ]
