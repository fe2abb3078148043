"""Who works how: the same figures by profile, client, team and model, because one mean describes nobody."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pipeline.report.blocks import Block, Column, Row, Section, Text, number, share, table
from pipeline.report.change import IDLE_CAP_S

#: Other names of a scope among the parts of a figure, and of its column.
_COLUMNS: Final = {"team": ("team_id",), "key": ("key_alias",), "model": ("model_group",)}
_SCOPES: Final = ("profile", "client", "team", "key", "model")


def section(document: Mapping[str, Any]) -> Section:
    """The section of profiles."""
    rows = {scope: _rows(document, scope) for scope in _SCOPES}
    blocks: list[Block] = []
    for scope in _SCOPES:
        blocks += table(
            f"by_{scope}",
            f"By {scope}",
            scope.capitalize(),
            ("Calls", "Human-hours", "Calls per human-hour", Column("Median prompt", "tokens"), "Prefix hit"),
            rows[scope],
            definition="profiles",
            folded=any(rows[s] for s in _SCOPES[: _SCOPES.index(scope)]),
        )
    blocks += table(
        "profile_power",
        "Agents per megawatt by profile",
        "Profile",
        ("Adds to the figure", "Agent-hours"),
        [
            Row(p["profile"], (number(p["contribution"]), number(p["agent_hours"])))
            for p in _parts(document, "by_profile")
        ],
        definition="profiles",
        folded=bool(blocks),
    )
    if not blocks:
        blocks.append(Text("No call of the window tells its client, team or profile.", small=True))
    return Section("profiles", "Who works how", _lead(rows["profile"]), "profiles", tuple(blocks))


def _lead(rows: Sequence[Row]) -> str:
    lengths = sorted((c.value, r.name) for r in rows for c in r.cells[3:4] if c.value is not None)
    if len(lengths) < 2 or not lengths[0][0]:
        return "Kinds of work differ widely; where several are told apart, each has a row of its own."
    (least, low), (most, high) = lengths[0], lengths[-1]
    return (
        f"The median prompt of {high} is {most / least:.1f} times that of {low}: a plan made for the mean of "
        "all would serve neither."
    )


def _rows(document: Mapping[str, Any], scope: str) -> list[Row]:
    human = _by(document, "calls_per_human_hour", scope)
    human = {k: r for k, r in human.items() if r.get("idle_cap_s", IDLE_CAP_S) == IDLE_CAP_S}
    lengths = _by(document, "prompt_length", scope)
    hits = _by(document, "prefix_hit", scope)
    names = sorted({*human, *lengths, *hits}, key=lambda n: -(_calls(n, lengths, human, hits) or 0))
    return [
        Row(
            str(name),
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


def _by(document: Mapping[str, Any], figure: str, scope: str) -> dict[Any, Mapping[str, Any]]:
    """Rows of a figure by a scope, under whichever of the usual names the scope and its column have."""
    parts = document[figure].get("by") or {}
    usual = (scope, *_COLUMNS.get(scope, ()))
    rows = next((parts[name] for name in usual if name in parts), ())
    found: dict[Any, Mapping[str, Any]] = {}
    for row in rows:
        key = next((row[column] for column in usual if column in row), None)
        if key is not None and row.get("idle_cap_s", IDLE_CAP_S) == IDLE_CAP_S:
            found[key] = row
    return found


def _parts(document: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    rows = document["agents_per_megawatt"].get("values") or ()
    lead: Mapping[str, Any] = next((r for r in rows if r.get("state") == "in_turn"), {})
    return list(lead.get(key) or ())
