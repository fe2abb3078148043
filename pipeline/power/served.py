"""The served ratio of one boundary: both intervals, and its parts by hour, day, week and profile."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import date
from typing import Any, Final

from pipeline.power import cells
from pipeline.power.cells import DaySum, Served, by_day
from pipeline.power.interval import JOULES_PER_MWH, Day, known_share, ratio_interval
from pipeline.sql import parameters

STATES: Final = ("in_turn", "open", "llm_active")
_ASSUMPTION: Final = "turns of unknown conformity conform as often as the known ones of their day"


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
    own = served.of("main", state, tier)
    if not own:
        return None
    mwh = energy.mwh
    total, lower, upper = (sum(getattr(c, n) for c in own) for n in ("total", "lower", "upper"))
    subagents = served.of("subagent", state, tier)
    days = by_day(served, own)
    narrow = served.only(lambda x: x.state == state and x.tier == tier)  # parts look at these cells again
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
        "any_conformity_interval": cells.interval(served, state, tier, any_conformity=True),
        "pooled_rule": sum(c.pooled for c in own) / mwh,
        "subagents_beside": sum(c.lower for c in subagents) / mwh if subagents else None,
        "agent_hours": total,
        "conformant_agent_hours": [lower, upper],
        "conformant_share": [lower / total, upper / total] if total > 0 else None,
        "megawatt_hours": mwh,
        "measurement_interval": cells.interval(served, state, tier),
        "week_interval": week_interval(days),
        "sensitivity": sensitivity(served, settings, state, tier, lower),
        "by_day": [
            {"day": d.day, "value": d.lower / d.mwh, "agent_hours": d.lower, "megawatt_hours": d.mwh}
            for d in days
        ],
        "by_week": _by_week(narrow, state, tier, days),
        "by_profile": _by_profile(narrow, state, tier),
    }


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
        "week_interval": _interval_of(filled),
    }


def week_interval(days: Sequence[DaySum]) -> dict[str, Any]:
    """Return the week-to-week interval of the lower bound over *days*, or null with the reason."""
    return _interval_of([Day(d.lower, d.mwh, d.weekend) for d in days])


def _interval_of(days: Sequence[Day]) -> dict[str, Any]:
    found = ratio_interval(days)
    if isinstance(found, str):
        return {"value": None, "reason": found, "days": len(days)}
    return {"value": list(found), "reason": None, "days": len(days), "confidence": 0.95}


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


def _by_week(served: Served, state: str, tier: str, days: Sequence[DaySum]) -> list[dict[str, Any]]:
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
            "measurement_interval": cells.interval(served.on(_days_of(served, year, week)), state, tier),
            "week_interval": week_interval(members),
        }
        for (year, week), members in sorted(weeks.items())
    ]


def _days_of(served: Served, year: int, week: int) -> frozenset[date]:
    """Days of a week, those without any measured second too: their agents were seen."""
    days = {h.day for h in served.hours} | {w.day for w in served.window} | set(served.energy.day_bounds)
    return frozenset(d for d in days if d.isocalendar()[:2] == (year, week))


def _by_profile(served: Served, state: str, tier: str) -> list[dict[str, Any]]:
    """Return the parts of the value: a profile's agent-hours ÷ the energy of all, so they add up to it."""
    profiles = sorted({c.profile for c in served.of("main", state, tier)})
    return [
        {"profile": p} | contribution(served.only(lambda x, p=p: x.profile == p), state, tier)  # type: ignore[misc]
        for p in profiles
    ]


def contribution(part: Served, state: str, tier: str) -> dict[str, Any]:
    """Return what *part* of the agents adds to the value, with both intervals of that ratio."""
    own, mwh = part.of("main", state, tier), part.energy.mwh
    return {
        "contribution": sum(c.lower for c in own) / mwh,
        "contribution_upper": sum(c.upper for c in own) / mwh,
        "agent_hours": sum(c.total for c in own),
        "contribution_interval": cells.interval(part, state, tier),
        "contribution_week_interval": week_interval(by_day(part, own)),
    }


def by_hour(served: Served, state: str, tier: str) -> list[dict[str, Any]]:
    """Return the hourly cells; an hour without agents has a ratio of 0, because it cost energy."""
    agents: dict[Any, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for cell in served.of("main", state, tier):
        sums = agents[cell.hour]
        for i, hours in enumerate((cell.lower, cell.upper, cell.total)):
            sums[i] += hours
    return [
        {
            "hour": h.hour.isoformat(),
            "covered_s": h.covered_s,
            "megawatt_hours": h.joules / JOULES_PER_MWH,
            "agent_hours": agents[h.hour][2],
            "conformant_agent_hours": agents[h.hour][:2],
            "value": agents[h.hour][0] / h.joules * JOULES_PER_MWH,
        }
        for h in served.hours
        if h.joules > 0
    ]


def pooled_rows(values: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rule of a published benchmark as rows of its own, without intervals of ours."""
    return [
        {k: r[k] for k in ("boundary", "pool", "kind", "power", "synthetic", "state", "tier")}
        | {"rule": "pooled", "value": r["pooled_rule"],
           "meaning": "all agent-hours of hours whose P95 time to first token and P25 speed keep the tier"}
        for r in values
    ]  # fmt: skip
