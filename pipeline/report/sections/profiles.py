"""Who works how: the same figures by profile, client, team and model, because one mean describes nobody."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipeline.report.blocks import Block, Column, Row, Section, Text, number, share, table
from pipeline.report.change import IDLE_CAP_S


def section(document: Mapping[str, Any]) -> Section:
    """The section of profiles."""
    rows = {scope: _rows(document, scope) for scope in ("profile", "client", "team")}
    blocks: list[Block] = []
    for scope, title in (("profile", "By profile"), ("client", "By client"), ("team", "By team")):
        blocks += table(
            f"by_{scope}",
            title,
            scope.capitalize(),
            ("Calls", "Human-hours", "Calls per human-hour", Column("Median prompt", "tokens"), "Prefix hit"),
            rows[scope],
            definition="profiles",
            folded=scope == "team" and bool(rows["client"]),
        )
    blocks += table(
        "profile_power",
        "Agents per megawatt by profile",
        "Profile",
        ("Adds to the figure", "Agent-hours"),
        [
            Row(p["profile"].replace("_", " "), (number(p["contribution"]), number(p["agent_hours"])))
            for p in _parts(document, "by_profile")
        ],
        definition="profiles",
    )
    if not blocks:
        blocks.append(Text("No call of the window tells its client, team or profile.", small=True))
    lead = "Kinds of work differ by a factor of ten and more; a plan made for their mean serves none of them."
    return Section("profiles", "Who works how", lead, "profiles", tuple(blocks))


def _rows(document: Mapping[str, Any], scope: str) -> list[Row]:
    human = _by(document, "calls_per_human_hour", scope, scope)
    human = {k: r for k, r in human.items() if r.get("idle_cap_s", IDLE_CAP_S) == IDLE_CAP_S}
    lengths = _by(document, "prompt_length", scope, scope)
    hits = _by(document, "prefix_hit", scope, scope)
    names = sorted({*human, *lengths, *hits}, key=lambda n: -(_calls(n, lengths, human, hits) or 0))
    return [
        Row(
            str(name).replace("_", " ") if scope == "profile" else str(name),
            (
                number(_calls(name, lengths, human, hits)),
                number(human.get(name, {}).get("human_hours")),
                number(human.get(name, {}).get("value")),
                number(lengths.get(name, {}).get("p50")),
                share(hits.get(name, {}).get("realised")),
            ),
        )
        for name in names
    ]


def _calls(name: Any, *sources: Mapping[Any, Mapping[str, Any]]) -> float | None:
    return next((s[name]["calls"] for s in sources if name in s and s[name].get("calls") is not None), None)


def _by(document: Mapping[str, Any], figure: str, scope: str, column: str) -> dict[Any, Mapping[str, Any]]:
    """Rows of a figure by a scope, under whichever of the usual names its column has."""
    parts = document[figure].get("by") or {}
    found: dict[Any, Mapping[str, Any]] = {}
    for name in (scope, f"{scope}_id"):
        for row in parts.get(name) or ():
            key = row.get(column, row.get(f"{column}_id"))
            if key is not None and row.get("idle_cap_s", IDLE_CAP_S) == IDLE_CAP_S:
                found[key] = row
    return found


def _parts(document: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    rows = document["agents_per_megawatt"].get("values") or ()
    lead: Mapping[str, Any] = next((r for r in rows if r.get("state") == "in_turn"), {})
    return list(lead.get(key) or ())
