"""How much of the prompts was reused, and how much could have been."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from pipeline.report import charts, text
from pipeline.report.blocks import Block, Chart, Charts, Row, Section, Text, number, share, table
from pipeline.report.canvas import BLUE, GREEN, ORANGE

_SCOPES: Final = (
    ("category", "By situation", "Situation"),
    ("position", "By position of the call in its turn", "Position"),
    ("idle_bin", "By pause before the call", "Pause"),
    ("break_reason", "By what ended the prefix", "Prefix ended by"),
    ("model_group", "By model", "Model"),
    ("client", "By client", "Client"),
    ("team_id", "By team", "Team"),
)
_DRAWN: Final = ("category", "position", "idle_bin")
_OPEN: Final = ("category",)
#: What the situations and reasons are called for people.
NAMES: Final = {
    "first_of_session": "first call",
    "model_switch": "model switch",
    "boundary": "new turn",
    "within": "within a turn",
    "none": "nothing (only grew)",
    "first": "first call",
    "system_changed": "system prompt changed",
    "tools_changed": "tools changed",
    "tool_reorder": "tools reordered",
    "history_edited": "history edited",
    "retrieved_context": "retrieved context",
    "unattributed": "no session",
    "1": "1st call",
    "2": "2nd call",
    "3+": "3rd and later",
}


def section(document: Mapping[str, Any], notes: tuple[str, ...]) -> Section:
    """The section of the prefix hit."""
    figure = document["prefix_hit"]
    title = "How much of the prompts is reused"
    if figure.get("value") is None:
        return Section("prefix_hit", title, f"Unknown: {figure['reason']}.", "prefix_hit", (), notes)
    blocks: list[Block] = []
    drawn = [c for c in (_dots(figure, s) for s in _DRAWN) if c]
    if drawn:
        blocks.append(Charts(tuple(drawn)))
    series = _series(figure)
    if series:
        blocks.append(Charts((series,)))
    blocks += _whole(figure)
    for scope, label, head in _SCOPES:
        blocks += _by(figure, scope, label, head)
    engine = figure["engine"]
    if engine["value"] is not None:
        blocks.append(
            Text(
                f"The engine's own counters say {text.share(engine['value'])}: "
                f"{engine['meaning'].partition(': ')[2]}.",
                small=True,
            )
        )
    return Section("prefix_hit", title, _lead(figure), "prefix_hit", tuple(blocks), notes)


def _lead(figure: Mapping[str, Any]) -> str:
    real, could = figure["value"].get("realised"), figure["value"].get("potential_inf")
    if real is None:
        return (
            f"{text.share(could)} of the prompt tokens had been sent before; how many were reused is unknown."
        )
    said = f"{text.share(real)} of the prompt tokens came out of a cache and cost next to nothing"
    if could is None:
        return f"{said}; how many could have is unknown."
    gap = could - real
    if gap > 0.02:
        won = f"{gap * 100:.0f} points are to be won by routing or a larger cache"
        return f"{said}; {text.share(could)} could have, so {won}."
    return f"{said}; {text.share(could)} could have: little is lost."


def _whole(figure: Mapping[str, Any]) -> list[Block]:
    real = figure["value"].get("realised")
    covered = figure["coverage"]["share_of_input_tokens"]
    rows = [Row("realised", (share(real), share(covered)), figure["realised"]["reason"])]
    rows += [
        Row(
            "potential, any age" if label == "inf" else f"potential within {_age(label)}",
            (share(part["value"]), share(part["coverage"])),
        )
        for label, part in figure["potential"].items()
    ]
    engine = figure["engine"]
    rows.append(Row("the engine's own counters", (share(engine["value"]), share(None)), engine["reason"]))
    return table(
        "prefix_hit", "Share of prompt tokens", "What", ("Share", "Coverage"), rows, definition="prefix_hit"
    )


def _age(label: str) -> str:
    seconds = float(label)
    return f"{seconds / 3600:g} h" if seconds >= 3600 else f"{seconds / 60:g} min"


def name_of(value: Any) -> str:
    """A situation, reason, position or pause in words."""
    return NAMES.get(str(value), str(value).replace("_", " "))


def _by(figure: Mapping[str, Any], scope: str, title: str, head: str) -> list[Block]:
    found: Sequence[Mapping[str, Any]] = (figure.get("by") or {}).get(scope) or ()
    ages = [k for k in ("potential_inf", "potential_3600", "potential_300") if any(k in r for r in found)]
    heads = {"potential_inf": "Potential", "potential_3600": "within 1 h", "potential_300": "within 5 min"}
    named = scope in ("model_group", "client", "team_id")
    return table(
        f"hit_by_{scope}",
        title,
        head,
        ("Calls", "Realised", *(heads[k] for k in ages)),
        [
            Row(
                str(r[scope]) if named else name_of(r[scope]),
                (number(r["calls"]), share(r["realised"]), *(share(r.get(k)) for k in ages)),
            )
            for r in found
        ],
        definition="prefix_hit",
        folded=scope not in _OPEN,
    )


def _dots(figure: Mapping[str, Any], scope: str) -> Chart | None:
    found = [
        r for r in (figure.get("by") or {}).get(scope) or ()
        if r["realised"] is not None or r.get("potential_inf") is not None
    ]  # fmt: skip
    if not found:
        return None
    data = [(name_of(r[scope]), r["realised"], r.get("potential_inf")) for r in found]
    title = _finding(scope, data)
    return Chart(
        f"hit_by_{scope}",
        title,
        "share of prompt tokens: ● reused, ◆ could have been",
        charts.dumbbells(data, title),
    )


def _finding(scope: str, data: Sequence[tuple[str, float | None, float | None]]) -> str:
    gaps = [(could - real, name) for name, real, could in data if real is not None and could is not None]
    what = {"category": "situation", "position": "position in the turn", "idle_bin": "pause before the call"}[
        scope
    ]
    if gaps and max(gaps)[0] > 0.02:
        gap, where = max(gaps)
        return f"By {what}, most is lost at “{where}”: {gap * 100:.0f} points"
    return f"By {what}, nearly all that could be reused is"


def _series(figure: Mapping[str, Any]) -> Chart | None:
    hours = figure.get("hourly") or ()
    found: dict[str, tuple[str, dict[datetime, float]]] = {
        "reused": (ORANGE, {}), "potential": (BLUE, {}), "engine": (GREEN, {}),
    }  # fmt: skip
    for row in hours:
        at = datetime.fromisoformat(row["hour"])
        for name, key in (("reused", "realised"), ("potential", "potential_inf"), ("engine", "engine")):
            if row.get(key) is not None:
                found[name][1][at] = row[key]
    known = list(found["reused"][1].values()) or list(found["potential"][1].values())
    if not known:
        return None
    title = f"Hour by hour the hit runs from {text.percent(min(known))} to {text.percent(max(known))}"
    svg = charts.hourly(found, title)
    return Chart("hit_hourly", title, "share of prompt tokens by hour, UTC", svg) if svg else None
