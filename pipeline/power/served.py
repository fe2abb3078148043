"""The served ratio of one boundary: hourly cells, both intervals, parts by day, week and profile."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Final

from pipeline.power import places
from pipeline.power.energy import Energy
from pipeline.power.interval import (
    JOULES_PER_MWH,
    Bounds,
    Day,
    known_share,
    measurement_interval,
    ratio_interval,
)
from pipeline.sql import parameters

if TYPE_CHECKING:
    import duckdb

STATES: Final = ("in_turn", "open", "llm_active")
_ASSUMPTION: Final = "turns of unknown conformity conform as often as the known ones of their day"


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


@dataclass(frozen=True)
class Served:
    """Everything the rows of one boundary and pool are made of."""

    energy: Energy
    hours: Sequence[EnergyHour]
    agents: Sequence[AgentHour]
    #: (kind, state, tier) -> agent-hours (lower, upper) of the whole window
    window: dict[tuple[str, str, str], tuple[float, float]]
    #: (state, tier) -> convention -> cap -> conformant agent-hours that the cap takes away
    removed: dict[tuple[str, str], dict[str, dict[str, float]]]

    def of(self, kind: str, state: str, tier: str) -> list[AgentHour]:
        """Return the cells of a kind, state and tier."""
        return [a for a in self.agents if (a.kind, a.state, a.tier) == (kind, state, tier)]


def load(con: duckdb.DuckDBPyConnection, energy: Energy) -> Served:
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
        "SELECT agent_kind, state, tier, agent_hours_lower, agent_hours_upper FROM mart_agent_window "
        "WHERE pool = $pool",
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
        {(k, s, t): (float(lo), float(up)) for k, s, t, lo, up in window},
        removed,
    )


def rows(served: Served, settings: parameters.Conventions) -> list[dict[str, Any]]:
    """Return one row per state and service level."""
    found = []
    for state in STATES:
        for tier in settings.slo_tiers:
            row = _row(served, settings, state, parameters.tier_label(tier))
            if row is not None:
                found.append(row)
    return found


def _row(served: Served, settings: parameters.Conventions, state: str, tier: str) -> dict[str, Any] | None:
    energy = served.energy
    cells = served.of("main", state, tier)
    if not cells:
        return None
    mwh = energy.mwh
    total, lower, upper = (sum(getattr(c, n) for c in cells) for n in ("total", "lower", "upper"))
    subagents = served.of("subagent", state, tier)
    days = by_day(served, cells)
    return {
        "boundary": energy.scope,
        "pool": energy.pool,
        "kind": "served",
        "power": "measured",
        "synthetic": energy.synthetic,
        "state": state,
        "tier": tier,
        "rule": "turn",
        "value": lower / mwh,
        "value_upper": upper / mwh,
        "estimate": _estimate(days),
        "any_conformity": total / mwh,
        "pooled_rule": sum(c.pooled for c in cells) / mwh,
        "subagents_beside": sum(c.lower for c in subagents) / mwh if subagents else None,
        "agent_hours": total,
        "conformant_agent_hours": [lower, upper],
        "conformant_share": [lower / total, upper / total] if total > 0 else None,
        "megawatt_hours": mwh,
        "measurement_interval": _measurement(served, state, tier, lower, upper),
        "week_interval": _week([Day(d.lower, d.mwh, d.weekend) for d in days]),
        "sensitivity": sensitivity(served, settings, state, tier, lower),
        "by_day": [
            {"day": d.day, "value": d.lower / d.mwh, "agent_hours": d.lower, "megawatt_hours": d.mwh}
            for d in days
        ],
        "by_week": _by_week(days),
        "by_profile": _parts(cells, mwh, lambda c: c.profile, "profile"),
    }


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


def _measurement(served: Served, state: str, tier: str, lower: float, upper: float) -> list[float] | None:
    energy = served.energy
    whole = served.window.get(("main", state, tier), (lower, upper))
    interval = measurement_interval(
        Bounds(
            hours_lower=lower,
            hours_upper=upper,
            joules=energy.joules,
            window_hours_lower=whole[0],
            window_hours_upper=whole[1],
            window_joules_low=energy.joules_low,
            window_joules_high=energy.joules_high,
            accuracy_percent=energy.accuracy_percent,
        )
    )
    return None if isinstance(interval, str) else list(interval)


def _estimate(days: Sequence[DaySum]) -> dict[str, Any]:
    """Return the value between the bounds that takes unknown turns to be like the known ones."""
    filled = []
    for d in days:
        share = known_share(d.total, d.lower, d.upper)
        if share is None and d.total > 0:
            reason = f"on {d.day} no turn's conformity is known"
            return {"value": None, "reason": reason, "assumption": _ASSUMPTION, "week_interval": None}
        filled.append(Day((share or 0.0) * d.total, d.mwh, d.weekend))
    return {
        "value": sum(d.numerator for d in filled) / sum(d.denominator for d in filled),
        "reason": None,
        "assumption": _ASSUMPTION,
        "week_interval": _week(filled),
    }


def _week(days: Sequence[Day]) -> dict[str, Any]:
    interval = ratio_interval(days)
    if isinstance(interval, str):
        return {"value": None, "reason": interval, "days": len(days)}
    return {"value": list(interval), "reason": None, "days": len(days), "confidence": 0.95}


def sensitivity(
    served: Served, settings: parameters.Conventions, state: str, tier: str, lower: float
) -> dict[str, dict[str, float]]:
    """Return the value under each cap: tool gaps count up to it, idle gaps longer than it not at all."""
    gone = served.removed.get((state, tier), {})
    tool = {parameters.cap_label(c) for c in settings.tool_caps_s}
    idle = {f"{round(c)} s" for c in settings.idle_caps_s}
    mwh = served.energy.mwh
    result = {"tool cap": {cap: (lower - gone.get("tool cap", {}).get(cap, 0.0)) / mwh for cap in tool}}
    if state == "open":
        result["idle cap"] = {cap: (lower - gone.get("idle cap", {}).get(cap, 0.0)) / mwh for cap in idle}
    return {name: dict(sorted(caps.items(), key=_by_seconds)) for name, caps in result.items()}


def _by_seconds(item: tuple[str, float]) -> float:
    return float("inf") if item[0] == "none" else float(item[0].removesuffix(" s"))


def _by_week(days: Sequence[DaySum]) -> list[dict[str, Any]]:
    weeks: dict[tuple[int, int], list[DaySum]] = defaultdict(list)
    for day in days:
        year, week, _ = day.day.isocalendar()
        weeks[year, week].append(day)
    return [
        {
            "week": f"{year}-W{week:02d}",
            "days": len(members),
            "value": sum(d.lower for d in members) / sum(d.mwh for d in members),
            "value_upper": sum(d.upper for d in members) / sum(d.mwh for d in members),
            "agent_hours": sum(d.lower for d in members),
            "megawatt_hours": sum(d.mwh for d in members),
            "week_interval": _week([Day(d.lower, d.mwh, d.weekend) for d in members]),
        }
        for (year, week), members in sorted(weeks.items())
    ]


def _parts(
    cells: Iterable[AgentHour], mwh: float, key: Callable[[AgentHour], str | None], name: str
) -> list[dict[str, Any]]:
    """Return the parts of a value: agent-hours of each ÷ the same energy, so they add up to it."""
    sums: dict[str | None, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for cell in cells:
        part = sums[key(cell)]
        part[0] += cell.lower
        part[1] += cell.upper
        part[2] += cell.total
    return [
        {name: k, "contribution": v[0] / mwh, "contribution_upper": v[1] / mwh, "agent_hours": v[2]}
        for k, v in sorted(sums.items(), key=lambda item: item[0] or "")
    ]


def pooled_rows(values: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rule of a published benchmark as rows of its own, without intervals of ours."""
    return [
        {k: r[k] for k in ("boundary", "pool", "kind", "power", "synthetic", "state", "tier")}
        | {"rule": "pooled", "value": r["pooled_rule"],
           "meaning": "all agent-hours of hours whose P95 time to first token and P25 speed keep the tier"}
        for r in values
    ]  # fmt: skip
