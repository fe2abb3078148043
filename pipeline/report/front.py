"""The first screen: the decision in a sentence, what would change it, and the four figures."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pipeline.report import text
from pipeline.report.cards import Card, card
from pipeline.report.definitions import DEFINITIONS

_ANSWERS: Final = {"more": "More", "same": "The same", "fewer": "Fewer"}
_LEVERS: Final = 3
#: How the sizing model names the measured basis.
_HOUR: Final = re.compile(r"measured: (P[\d.]+) of hour (\d+) of the week \(.*\)")


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
        levers=(*_levers(decision), *_regimes(decision)),
        caveats=tuple(decision["caveats"]),
        cards=tuple(card(name, document) for name in DEFINITIONS),
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
    """The basis of the concurrency in words."""
    if basis is None:
        return "basis unknown"
    basis = basis.replace("D x rho x A", "people × their duty cycle × subagents and failures, a mean")
    found = _HOUR.fullmatch(basis)
    if found is None:
        return basis
    hour = int(found[2])
    return f"measured, {found[1]} of the busiest hour, {text.hour_of_week(hour)}"


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


def _levers(decision: Mapping[str, Any]) -> tuple[str, ...]:
    found = tuple(lever_words(row) for row in turning(decision)[:_LEVERS])
    return found or (_nothing_turns(decision),)


def _regimes(decision: Mapping[str, Any]) -> tuple[str, ...]:
    """Losing session affinity, in a sentence, where that changes the fleet."""
    by = {r["name"]: r["gpus"] for r in decision["regimes"]}
    if "affinity_off_x20" not in by or by["affinity_off_x20"] == by.get("as_planned"):
        return ()
    gpus = by["affinity_off_x20"]
    fleet = "no number of GPUs keeps the promised speed" if gpus is None else text.count(gpus, "GPU")
    return (f"Without session affinity: {fleet}.",)


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
