"""The four figures at a glance: value, meaning, interval, coverage, and change from the window before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pipeline.report import text
from pipeline.report.change import CAP_NAME, interval_of
from pipeline.report.definitions import DEFINITIONS


@dataclass(frozen=True, slots=True)
class Card:
    """One figure at a glance."""

    figure: str
    title: str
    shown: str
    unit: str
    beside: str
    interval: str
    coverage: str
    change: str
    reason: str | None = None


def card(name: str, document: Mapping[str, Any]) -> Card:
    """Return one figure of a report document at a glance."""
    figure = document[name]
    title = DEFINITIONS[name].title
    reason = figure.get("reason")
    change = _change(name, document)
    if figure.get("value") is None:
        return Card(name, title, text.NONE, "", "", "", "", change, reason)
    return {
        "calls_per_human_hour": _human,
        "prompt_length": _length,
        "prefix_hit": _hit,
        "agents_per_megawatt": _agents,
    }[name](name, title, figure, document, change)


def _human(
    name: str, title: str, figure: Mapping[str, Any], document: Mapping[str, Any], change: str
) -> Card:
    values = figure["value"]
    key = CAP_NAME if CAP_NAME in values else next(iter(values))
    ends = [v for v in values.values() if v is not None]
    beside = f"pauses ≤ {key} are work; {text.span(min(ends), max(ends))} over all caps"
    covered = (figure.get("coverage") or {}).get("attended_share")
    return Card(
        name,
        title,
        text.number(values[key]),
        "per hour of work",
        beside,
        _spread(document, name, key),
        _covered(covered, "of calls are people's"),
        change,
    )


def _length(
    name: str, title: str, figure: Mapping[str, Any], document: Mapping[str, Any], change: str
) -> Card:
    value = figure["value"]
    covered = (figure.get("coverage") or {}).get("share")
    return Card(
        name,
        title,
        text.number(value["p50"]),
        "tokens, median",
        f"5 % are longer than {text.number(value['p95'])}",
        _spread(document, name, "p50"),
        _covered(covered, "of calls have a length"),
        change,
    )


def _hit(name: str, title: str, figure: Mapping[str, Any], document: Mapping[str, Any], change: str) -> Card:
    value = figure["value"]
    real, could = value.get("realised"), value.get("potential_inf")
    covered = (figure.get("coverage") or {}).get("share_of_input_tokens")
    if real is None:
        why = (figure.get("realised") or {}).get("reason") or "not reported"
        return Card(
            name,
            title,
            text.share(could),
            "of tokens could be reused",
            f"realised: {why}",
            "",
            _covered(covered, "of tokens report it"),
            change,
        )
    beside = "potential unknown" if could is None else f"{text.share(could)} could be reused"
    return Card(
        name,
        title,
        text.share(real),
        "of tokens reused",
        beside,
        _spread(document, name, "realised", as_share=True),
        _covered(covered, "of tokens report it"),
        change,
    )


def _agents(
    name: str, title: str, figure: Mapping[str, Any], document: Mapping[str, Any], change: str
) -> Card:
    head = figure["headline"]
    row = next(r for r in figure["values"] if all(r[k] == v for k, v in head.items()))
    beside = f"in a turn, at {row['tier']}, {row['boundary']} power"
    if row.get("synthetic"):
        beside += ", synthetic"
    measured = row["measurement_interval"]
    interval = f"measured {text.span(*measured)}" if measured else ""
    other = _spread(document, name, "headline")
    covered = ((figure.get("coverage") or {}).get("power") or {}).get(row["boundary"])
    return Card(
        name,
        title,
        text.number(figure["value"]),
        "agents per MW",
        beside,
        "; ".join(p for p in (interval, other) if p),
        _covered(covered, "of the time measured"),
        change,
    )


def _spread(document: Mapping[str, Any], figure: str, key: str, *, as_share: bool = False) -> str:
    found = interval_of(document, figure, key)
    if found["value"] is None:
        why = found["reason"] or ""
        return "no interval of weeks: too few days" if why.startswith("needs at least") else why
    low, high = found["value"]
    between = f"{text.share(low)} to {text.share(high)}" if as_share else text.span(low, high)
    return f"days from {between}" if found["kind"].startswith("days") else f"week to week {between}"


def _covered(value: float | None, what: str) -> str:
    return "" if value is None else f"{text.percent(value)} {what}"


_KEYS: Final = {
    "calls_per_human_hour": CAP_NAME,
    "prompt_length": "p50",
    "prefix_hit": "realised",
    "agents_per_megawatt": "headline",
}


def _change(name: str, document: Mapping[str, Any]) -> str:
    row = next(r for r in document["change"]["rows"] if r["figure"] == name and r["key"] == _KEYS[name])
    return change_words(row)


def change_words(row: Mapping[str, Any], *, brief: bool = False) -> str:
    """A change in words: how much, from what, and whether that is usual; *brief* beside the earlier value."""
    if row["change"] is None:
        return f"no comparison: {row['reason']}"
    before = text.share(row["before"]) if row["is_share"] else text.number(row["before"])
    size = row["change"] * 100
    amount = f"{size:+.1f} points" if row["is_share"] else f"{size:+.0f} %"
    if abs(size) < (0.05 if row["is_share"] else 0.5):
        amount = "unchanged"
    usual = {True: "usual", False: "unusual", None: None}[row["within_spread"]]
    said = amount if brief else f"{amount} from {before}"
    said = said.replace("-", "−", 1) if said.startswith("-") else said
    return f"{said}, {usual}" if usual else said
