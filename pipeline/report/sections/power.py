"""How many agents a measured megawatt carried, at which boundary, and how far that can be trusted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.report import beside, charts, text
from pipeline.report.blocks import (
    Block,
    Cell,
    Chart,
    Charts,
    Column,
    Points,
    Row,
    Section,
    number,
    share,
    table,
    words,
)

Figure = Mapping[str, Any]


def section(document: Mapping[str, Any], notes: tuple[str, ...]) -> Section:
    """The section of agents per megawatt."""
    figure = document["agents_per_megawatt"]
    title = "How many agents a megawatt carries"
    values = figure.get("values") or ()
    blocks: list[Block] = []
    drawn = [c for c in (_ranges(figure), _days(figure)) if c]
    if drawn:
        blocks.append(Charts(tuple(drawn)))
    blocks += table(
        "agents_per_megawatt",
        "Agents per megawatt, served",
        "State, service level, boundary",
        (
            "Lower",
            "Upper",
            "Any speed",
            "Pooled rule",
            Column("Measurement", numeric=False),
            Column("Week to week", numeric=False),
        ),
        [_value_row(r) for r in values],
        definition="agents_per_megawatt",
        note=_no_weeks(values),
    )
    blocks += _boundaries(figure)
    blocks += _companions(figure)
    lead_row = next((r for r in values if r["state"] == "in_turn"), None)
    if lead_row is not None:
        blocks += _conventions(figure, lead_row)
    blocks += _everything(figure)
    points = _points(figure, lead_row)
    blocks += [Points(tuple(points))] if points else []
    lead = f"Unknown: {figure['reason']}." if figure.get("value") is None else _lead(figure)
    return Section("agents_per_megawatt", title, lead, "agents_per_megawatt", tuple(blocks), notes)


def _lead(figure: Figure) -> str:
    head = figure["headline"]
    made = "made-up" if figure.get("synthetic") else "measured"
    return (
        f"One megawatt of {made} {head['boundary']} power carried {text.number(figure['value'])} agents in a "
        f"turn, served at {head['tier']} or better. Power of a {head['boundary']} is not that of the "
        "building around it."
    )


def _name(row: Mapping[str, Any]) -> str:
    name = f"{row['state'].replace('_', '-')}, {row['tier']}, {row['boundary']}"
    return f"{name}, synthetic" if row.get("synthetic") else name


def _value_row(row: Mapping[str, Any]) -> Row:
    measured, weekly = row.get("measurement_interval"), row.get("week_interval") or {}
    return Row(
        _name(row),
        (
            number(row["value"]),
            number(row["value_upper"]),
            number(row.get("any_conformity")),
            number(row.get("pooled_rule")),
            words(text.span(*measured) if measured else "–"),
            words(text.span(*weekly["value"]) if weekly.get("value") else "–"),
        ),
    )


def _no_weeks(values: Sequence[Mapping[str, Any]]) -> str | None:
    """Why there is no week-to-week interval, once for all rows that lack it."""
    found = ((r.get("week_interval") or {}).get("reason") for r in values)
    reasons = {str(reason) for reason in found if reason}
    return f"No week-to-week interval: {'; '.join(sorted(reasons))}." if reasons else None


def _ranges(figure: Figure) -> Chart | None:
    values = figure.get("values") or ()
    if not values:
        return None
    boundary = values[0]["boundary"]
    data = []
    for row in values:
        if row["boundary"] != boundary:
            continue
        low, high = row.get("measurement_interval") or (row["value"], row["value_upper"])
        name = f"{row['state'].replace('_', '-')}, {row['tier']}"
        data.append(
            (name, float(low), float(row["value"]), float(max(high, row["value"])), text.number(row["value"]))
        )
    states: dict[str, list[float]] = {}
    for row in values:
        if row["boundary"] == boundary:
            states.setdefault(row["state"], []).append(row["value"])
    title = "Faster service carries fewer agents per megawatt"
    if all(max(v) - min(v) <= 0.01 * max(v) for v in states.values()):
        title = "The promised speed makes no difference here: every turn keeps the fastest level"
        if all(max(v) == 0 for v in states.values()):
            title = "No turn kept any promised speed"
    return Chart(
        "agents",
        title,
        f"agents per megawatt of {boundary} power; line: what it may have been, by sensors and unknown turns",
        charts.intervals(data, title),
    )


def _days(figure: Figure) -> Chart | None:
    lead = next((r for r in figure.get("values") or () if r["state"] == "in_turn"), None)
    days = [d for d in (lead or {}).get("by_day") or () if d.get("value") is not None]
    if lead is None or len(days) < 2:
        return None
    data = [(str(d["day"])[:10], float(d["value"]), text.number(d["value"])) for d in days][-10:]
    best = max(data, key=lambda d: d[1])[0]
    title = f"The best day was {best}"
    return Chart(
        "agents_days",
        title,
        f"agents per megawatt in a turn, {lead['tier']}, by UTC day",
        charts.bars(data, title, mark=best),
    )


def _boundaries(figure: Figure) -> list[Block]:
    return table(
        "boundaries",
        "Where power was measured",
        "Boundary",
        (
            Column("MWh"),
            Column("Mean W", "W"),
            "Time measured",
            Column("Left out s", "s"),
            "Devices",
            "Idle share",
            Column("Sensor", numeric=False),
        ),
        [
            Row(
                f"{b['boundary']}{', synthetic' if b.get('synthetic') else ''}",
                (
                    number(b["megawatt_hours"]),
                    number(b["mean_watts"]),
                    share(b["coverage"]),
                    number(b["excluded_s"]),
                    number(len(b["devices"])),
                    share(b.get("idle_share")),
                    words(f"± {text.number(b['accuracy_percent'])} % ({b['accuracy_source']})"),
                ),
            )
            for b in figure.get("boundaries") or ()
        ],
        definition="boundary",
    )


def _companions(figure: Figure) -> list[Block]:
    keys = (
        ("wh_per_session", "Wh per session"),
        ("wh_per_turn", "Wh per turn"),
        ("wh_per_call", "Wh per call"),
        ("wh_per_million_new_tokens", "Wh per million new tokens"),
        ("joules_per_token", "J per token"),
        ("agents_per_gpu", "agents per GPU"),
        ("agents_per_kilowatt", "agents per kW"),
    )
    found = figure.get("companions") or ()
    return table(
        "energy",
        "Energy of the work, an allocation",
        "What",
        tuple(c["boundary"] for c in found),
        [
            Row(name, tuple(number(c.get(key)) for c in found))
            for key, name in keys
            if any(c.get(key) is not None for c in found)
        ],
        definition="companions",
    )


def _conventions(figure: Figure, lead: Mapping[str, Any]) -> list[Block]:
    opened = next((r for r in figure["values"] if r["state"] == "open"), None)
    rows = [
        Row(f"{_name(r)}: {convention} {cap}", (number(value),))
        for r in (lead, opened) if r is not None
        for convention, caps in (r.get("sensitivity") or {}).items()
        for cap, value in caps.items()
    ]  # fmt: skip
    return table(
        "power_conventions",
        "How far it rests on conventions",
        "Cap",
        ("Agents per megawatt",),
        rows,
        definition="agents_per_megawatt",
        folded=True,
        note="Tool gaps count up to the cap; longer idle gaps count nothing.",
    )


def _everything(figure: Figure) -> list[Block]:
    """Every number that belongs to the figure, one a line, with what the lines mean and do not mean."""
    return table(
        beside.TABLE,
        "Every number that belongs to it",
        "What",
        ("Value", Column("Unit", numeric=False)),
        [
            Row(line.name, (Cell(line.shown, line.value), Cell(line.unit)), line.reason)
            for line in beside.lines(figure)
        ],
        definition="agents_per_megawatt",
        folded=True,
        whole=True,
        note=" ".join(beside.remarks(figure)),
    )


def _points(figure: Figure, lead: Mapping[str, Any] | None) -> Sequence[str]:
    """What a reader must know beside the tables, one sentence each."""
    found = []
    estimate = (lead or {}).get("estimate") or {}
    if estimate.get("value") is not None and lead is not None and estimate["value"] != lead["value"]:
        weekly = (estimate.get("week_interval") or {}).get("value")
        between = f", week to week {text.span(*weekly)}" if weekly else ""
        found.append(f"If {estimate['assumption']}: {text.number(estimate['value'])}{between}.")
    capacity = figure.get("capacity") or {}
    why = capacity.get("reason")
    if capacity.get("value") is not None:
        least = "at least " if capacity.get("lower_bound") else ""
        found.append(
            f"Capacity, which is not the same as served: {least}{text.number(capacity['value'])} agents per "
            f"megawatt{f' ({why})' if why else ''}."
        )
    elif why:
        found.append(f"Capacity, which is not the same as served: none; {why}.")
    little = figure.get("littles_law") or {}
    if little.get("residual") is not None:
        found.append(
            f"Cross-check by Little's law: {text.number(little['mean_agents_in_turn'])} agents in a turn "
            f"against rate × stay {text.number(little['rate_times_residence'])}, off by "
            f"{text.share(little['residual'])} ({'holds' if little.get('holds') else 'does not hold'}; 2 % "
            "is allowed)."
        )
    external = (figure.get("external") or {}).get("agent_hours") or {}
    if external:
        hours = ", ".join(f"{text.number(h)} agent-hours {s.replace('_', '-')}" for s, h in external.items())
        found.append(f"At providers whose power we do not measure, not in the ratio: {hours}.")
    provisioned = figure.get("provisioned") or {}
    if provisioned:
        found += _provisioned(provisioned)
    for entry in figure.get("elsewhere") or ():
        found.append(f"Measured, but in no pool: {entry['device']} ({entry['boundary']}).")
    for boundary, why in (figure.get("refused") or {}).items():
        found.append(f"No ratio at the {boundary}: {why}.")
    return found


def _provisioned(provisioned: Mapping[str, Any]) -> list[str]:
    declared, public = provisioned["declared"], provisioned["public_constants"]
    own = (
        declared["reason"]
        if declared["agents_per_provisioned_megawatt"] is None
        else (
            f"{text.number(declared['agents_per_provisioned_megawatt'])} agents per declared megawatt "
            f"({text.number(declared['provisioned_megawatts'])} MW)"
        )
    )
    said = [f"Provisioned power, not measured: {own}."]
    if public["agents_per_provisioned_megawatt"] is not None:
        said.append(
            f"On public constants: {text.number(public['agents_per_provisioned_megawatt'])} agents per "
            f"provisioned megawatt. {public['meaning']}"
        )
    return said
