"""How much a person's hour asks of the models, and how far that rests on conventions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipeline.report import charts, text
from pipeline.report.blocks import Block, Chart, Charts, Column, Row, Section, Text, number, table
from pipeline.report.change import IDLE_CAP_S


def section(document: Mapping[str, Any], notes: tuple[str, ...]) -> Section:
    """The section of human-hours."""
    figure = document["calls_per_human_hour"]
    title = "What an hour of a person's work asks for"
    blocks: list[Block] = []
    if figure.get("value"):
        drawn = [c for c in (_week(document), _caps(figure), _days(figure)) if c]
        if drawn:
            blocks.append(Charts(tuple(drawn)))
        blocks += table(
            "human_hours",
            "By the longest pause that still counts as work",
            "Pauses up to",
            (
                Column("Calls per human-hour"),
                Column("Human-hours", "h"),
                "Duty cycle ρ",
                "Amplification A",
                "Active people D",
            ),
            [_cap_row(r) for r in figure["values"]],
            definition="human_hour",
            note=_check(figure),
        )
    in_turn = (figure.get("calls_per_in_turn_hour") or {}).get("values") or {}
    rows = [
        Row(f"per in-turn hour, tool gaps {'in full' if c == 'none' else 'up to ' + c}", (number(v),))
        for c, v in in_turn.items()
    ]
    others = {
        "calls_per_user_prompt": "per user prompt",
        "turns_per_session": "turns per session",
        "calls_per_turn": "main-thread calls per turn",
    }
    for key, name in others.items():
        value = (figure.get(key) or {}).get("value")
        if value is not None:
            rows.append(Row(name, (number(value),)))
    sessions = (figure.get("calls_per_session_hour") or {}).get("value") or {}
    rows += [Row(f"per session-hour, gaps up to {cap}", (number(v),)) for cap, v in sessions.items()]
    blocks += table(
        "calls_per", "Other ways to count the same calls", "Calls", ("Value",), rows, definition="human_hour"
    )
    if figure.get("value") is None:
        return Section(
            "calls_per_human_hour",
            title,
            f"Unknown: {figure['reason']}.",
            "calls_per_human_hour",
            tuple(blocks),
            notes,
        )
    coverage = figure.get("coverage") or {}
    said = f"{text.number(coverage.get('unattended_calls'))} calls were unattended and have no human-hours."
    longest = figure.get("longest_user_day_hours")
    if longest is not None:
        said += f" The longest day of one user: {text.number(longest)} h."
    blocks.append(Text(said, small=True))
    ends = [v for v in figure["value"].values() if v is not None]
    between = text.span(min(ends), max(ends))
    caps = "by how long a pause may be" if " " in between else "however long a pause may be"
    lead = (
        f"An hour of a person's work with agents makes {between} calls, {caps} to count as work. Calls per "
        "user prompt need no such convention."
    )
    return Section("calls_per_human_hour", title, lead, "calls_per_human_hour", tuple(blocks), notes)


def _check(figure: Mapping[str, Any]) -> str | None:
    """D·ρ·A against the mean number of calls in flight, which it must equal whatever the cap."""
    row = next((r for r in figure["values"] if r.get("d_rho_a") and r.get("mean_concurrency")), None)
    if row is None:
        return None
    return (
        f"Check: D·ρ·A = {text.number(row['d_rho_a'])}, counted calls in flight "
        f"{text.number(row['mean_concurrency'])}."
    )


def _cap_row(row: Mapping[str, Any]) -> Row:
    keys = (
        "value",
        "human_hours",
        "duty_cycle",
        "amplification",
        "mean_active_people",
    )
    return Row(f"{row['idle_cap_s'] / 60:g} min", tuple(number(row.get(k)) for k in keys))


def _caps(figure: Mapping[str, Any]) -> Chart | None:
    data = [
        (f"pauses ≤ {cap}", float(v), text.number(v)) for cap, v in figure["value"].items() if v is not None
    ]
    if len(data) < 2:
        return None
    values = [v for _, v, _ in data]
    factor = max(values) / min(values) if min(values) else 0
    title = (
        "The idle cap does not matter in this window"
        if factor < 1.05
        else f"The idle cap alone moves the figure by a factor of {factor:.2g}"
    )
    return Chart("idle_cap", title, "calls per human-hour", charts.bars(data, title))


def _days(figure: Mapping[str, Any]) -> Chart | None:
    rows = [d for d in figure.get("by_day") or () if d["idle_cap_s"] == IDLE_CAP_S and d["human_hours"]]
    if len(rows) < 2:
        return None
    data = [
        (
            f"{_day(d['day']):%a %-d %b}",
            float(d["human_hours"]),
            f"{text.number(d['human_hours'])} h, {d['calls']:,} calls",
        )
        for d in rows
    ][-10:]
    busiest = max(data, key=lambda d: d[1])[0]
    title = f"The busiest day was {busiest}"
    return Chart(
        "human_days",
        title,
        "human-hours by business day, pauses up to 15 min",
        charts.bars(data, title, mark=busiest),
    )


def _day(value: Any) -> Any:
    from datetime import date

    return value if isinstance(value, date) else date.fromisoformat(str(value)[:10])


def _week(document: Mapping[str, Any]) -> Chart | None:
    hours = document["calls_per_human_hour"].get("concurrency_by_hour_of_week") or {}
    samples = {int(h): sum(v) / len(v) for h, v in hours.items() if v}
    sized = document["decision"].get("plan", {}).get("sized_for") if document["decision"]["rows"] else None
    label = "" if sized is None else f"planned for {text.number(sized)}"
    svg = charts.week(samples, sized, label, "Mean calls in flight by hour of the week")
    if not svg:
        return None
    peak = max(samples.values())
    mean = sum(samples.values()) / len(samples)
    title = (
        f"The busiest hour runs {text.number(peak)} calls at once, {peak / mean:.1f} times the mean"
        if mean
        else "Nothing was in flight"
    )
    return Chart("concurrency", title, "mean calls in flight by hour of the business week", svg)
