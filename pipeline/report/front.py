"""The first screen: the decision in a sentence, what would change it, and the four figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pipeline.report import text
from pipeline.report.change import CAP_NAME, interval_of
from pipeline.report.definitions import DEFINITIONS

_ANSWERS: Final = {"more": "More", "same": "The same", "fewer": "Fewer"}
_LEVERS: Final = 3


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


@dataclass(frozen=True, slots=True)
class Need:
    """One line of the decision."""

    unit: str
    needed: str
    installed: str
    answer: str


@dataclass(frozen=True, slots=True)
class Front:
    """Everything that stands above the fold."""

    verdict: str
    because: str
    needs: tuple[Need, ...]
    levers: tuple[str, ...]
    caveats: tuple[str, ...]
    cards: tuple[Card, ...]


def front(document: Mapping[str, Any]) -> Front:
    """Return the first screen of a report."""
    decision = document["decision"]
    return Front(
        verdict=_verdict(decision),
        because=_because(decision),
        needs=tuple(_need(row) for row in decision["rows"]),
        levers=tuple(lever_words(row) for row in turning(decision)[:_LEVERS]) or (_nothing_turns(decision),),
        caveats=tuple(decision["caveats"]),
        cards=tuple(_card(name, document) for name in DEFINITIONS),
    )


def _verdict(decision: Mapping[str, Any]) -> str:
    if not decision["rows"]:
        return f"No decision: {decision['reason']}."
    gpus = decision["rows"][0]
    lead = "Illustration on a published example: " if decision["plan"]["is_published_example"] else ""
    if gpus["installed"] is None:
        return text.capital(f"{lead}the window needs {text.count(gpus['needed'], 'GPU')}.")
    if gpus["answer"] == "same":
        return text.capital(
            f"{lead}the same: the window needs the {gpus['installed']} GPUs that are installed."
        )
    how = f"{abs(gpus['difference'])} {gpus['answer']}"
    sure = "" if gpus["clear"] is not False else "; not certain, the interval includes what is installed"
    return text.capital(
        f"{lead}{how} {'GPU' if abs(gpus['difference']) == 1 else 'GPUs'}: {gpus['needed']} needed, "
        f"{gpus['installed']} installed{sure}."
    )


def _because(decision: Mapping[str, Any]) -> str:
    if not decision["rows"]:
        return ""
    plan = decision["plan"]
    said = []
    if plan["sized_for"] is not None:
        said.append(
            f"Sized for {text.number(plan['sized_for'])} calls in flight ({basis_words(plan['basis'])})"
        )
    if plan["requests_per_replica"] is not None:
        limit = {"vram": "memory", "tpot": "time per token", "ttft": "time to first token"}
        said.append(
            f"{plan['requests_per_replica']} at once per replica, limited by "
            f"{limit.get(plan['bound'], plan['bound'])}"
        )
    if plan["spare_replicas"] is not None:
        said.append(f"{text.count(plan['spare_replicas'], 'spare replica')} included")
    return "; ".join(said) + "." if said else ""


def basis_words(basis: str | None) -> str:
    """The basis of the concurrency without symbols."""
    if basis is None:
        return "basis unknown"
    return basis.replace("D x rho x A", "people × their duty cycle × subagents and failures, a mean")


def _need(row: Mapping[str, Any]) -> Need:
    between = (
        "" if row["low"] is None or row["low"] == row["high"] else f" ({text.span(row['low'], row['high'])})"
    )
    if row["answer"] is None:
        answer = "not declared"
    elif row["answer"] == "same":
        answer = "the same"
    else:
        answer = f"{abs(row['difference'])} {row['answer']}"
    return Need(
        unit=row["unit"],
        needed=f"{row['needed']}{between}",
        installed="–" if row["installed"] is None else str(row["installed"]),
        answer=answer,
    )


def turning(decision: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The inputs at some value of which the number of GPUs changes, the strongest first."""
    return [r for r in decision["levers"] if r["turns"]["below"] or r["turns"]["above"]]


def lever_words(row: Mapping[str, Any]) -> str:
    """One input in a sentence: where it is, and from where on the answer is another."""

    def amount(value: float) -> str:
        return text.share(value) if row["is_share"] else text.number(value)

    unit = "" if row["is_share"] or row["unit"] in ("share", "factor") else f" {row['unit']}"
    parts = []
    for side, word in (("above", "above"), ("below", "below")):
        turn = row["turns"][side]
        if turn:
            fleet = "no fleet holds" if turn["gpus"] is None else text.count(turn["gpus"], "GPU")
            parts.append(f"{fleet} {word} {amount(turn['value'])}")
    return f"{row['title']}: {amount(row['value'])}{unit} now; {', '.join(parts)}."


def _nothing_turns(decision: Mapping[str, Any]) -> str:
    if not decision["rows"]:
        return "Nothing: there is no decision to change."
    return "No single input changes the number of GPUs between a quarter and four times its value."


def _card(name: str, document: Mapping[str, Any]) -> Card:
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
        return f"no interval of weeks: {found['reason']}" if found["reason"] else ""
    low, high = found["value"]
    between = f"{text.percent(low)} to {text.percent(high)}" if as_share else text.span(low, high)
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
    return f"{said}, {usual}" if usual else said
