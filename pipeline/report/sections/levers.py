"""What the decision rests on: inputs that turn it, regimes in which it fails, and what was not measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pipeline.report import charts, text
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
    table,
    words,
)
from pipeline.report.front import basis_words, turning
from pipeline.sizing.inputs import BY_KEY

#: Regimes of the sizing model in words.
REGIMES: Final = {
    "as_planned": "as measured",
    "within_turn": "only within turns",
    "turn_boundary": "only after pauses",
    "model_switch": "after model switches",
    "retrieved_context": "context always new",
    "failing_sessions": "sessions fail",
    "affinity_off_x20": "no affinity, 20 ×",
    "affinity_off_x60": "no affinity, 60 ×",
}

_INSTALLED: Final = "installed"
#: Where an input comes from, in words.
TAGS: Final = {"measured": "measured", "declared": "declared", "literature": "published"}


def section(document: Mapping[str, Any]) -> Section:
    """The section behind the decision."""
    decision = document["decision"]
    blocks: list[Block] = []
    if not decision["rows"]:
        return Section(
            "decision", "What the decision rests on", f"There is none: {decision['reason']}.", "decision", ()
        )
    blocks += table(
        "decision",
        "Needed and installed",
        "Part",
        (
            "Needed",
            Column("Interval", numeric=False),
            "Installed",
            "Difference",
            Column("Answer", numeric=False),
        ),
        [_need(r) for r in decision["rows"]],
        definition="decision",
        folded=True,
        note=f"Installed: {decision['installed_source']}."
        if decision["installed_source"]
        else "Installed is not declared (settings, sizing.installed: gpus, replicas, workers, source).",
    )
    drawn = _regimes(decision)
    if drawn:
        blocks.append(Charts((drawn,)))
    blocks.append(_basis(decision))
    blocks += table(
        "sensitivity",
        "Each input moved alone",
        "Input",
        (
            "Now",
            "Moved from",
            "to",
            "GPUs",
            Column("GPUs change", numeric=False),
            Column("Source", numeric=False),
        ),
        [_lever(r) for r in decision["levers"]],
        whole=True,
        definition="sensitivity",
    )
    lead = "The plan is the sizing model over this window's figures; what it takes from elsewhere is listed."
    count = len(turning(decision))
    if count:
        lead += f" {text.count(count, 'input')} can change the number of GPUs; the strongest come first."
    return Section("decision", "What the decision rests on", lead, "decision", tuple(blocks))


def _basis(decision: Mapping[str, Any]) -> Points:
    """What the plan is made from, and what of it was not measured."""
    plan, evidence = decision["plan"], decision["evidence"]
    return Points(
        (
            f"Plan: {plan['name']}; it is beside this report as plan.yaml.",
            f"{evidence['measured']} inputs are measured, {evidence['declared']} declared, "
            f"{evidence['literature']} published.",
            f"Intervals: {decision['interval']}.",
            *(_missing(m) for m in decision["not_measured"]),
        ),
        "What the plan is made from",
    )


def _missing(entry: Mapping[str, Any]) -> str:
    spec = BY_KEY.get(entry["input"])
    name = spec.meaning if spec else "calls in flight by hour of the week"
    instead = f"{entry['filled_with']} instead ({entry['from']})"
    if entry["filled_with"] is None:
        instead = "left out"
    elif spec is None:
        instead = f"{basis_words('D x rho x A')}, instead"
    return f"{text.capital(name)}: {entry['why']}; {instead}."


def _need(row: Mapping[str, Any]) -> Row:
    between = "" if row["low"] is None else text.span(row["low"], row["high"])
    difference = (
        Cell("–") if row["difference"] is None else Cell(f"{row['difference']:+d}", row["difference"])
    )
    return Row(
        row["unit"],
        (
            number(row["needed"]),
            words(between),
            number(row["installed"]),
            difference,
            words(row["answer"] or row["reason"]),
        ),
    )


def _lever(row: Mapping[str, Any]) -> Row:
    def amount(value: float) -> Cell:
        return Cell(text.share(value) if row["is_share"] else text.number(value), value)

    ends = [str(g) if g is not None else "none" for g in row["gpus"]]
    turns = [
        f"{word} {amount(t['value']).shown}: {'none holds' if t['gpus'] is None else t['gpus']}"
        for word, t in (("above", row["turns"]["above"]), ("below", row["turns"]["below"]))
        if t
    ]
    fleet = Cell(ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}", row["gpus"][1])
    unit = "" if row["is_share"] or row["unit"] in ("share", "factor") else f" ({row['unit']})"
    return Row(
        row["title"] + unit,
        (
            amount(row["value"]),
            amount(row["low"]),
            amount(row["high"]),
            fleet,
            words("; ".join(turns) or "no"),
            words(TAGS[row["tag"]]),
        ),
    )


def _regimes(decision: Mapping[str, Any]) -> Chart | None:
    regimes = decision["regimes"]
    known = [r["gpus"] for r in regimes if r["gpus"] is not None]
    if not known:
        return None
    have = decision["rows"][0]["installed"]
    data = [] if have is None else [(_INSTALLED, float(have), f"{have}")]
    data += [
        (
            REGIMES.get(r["name"], r["name"]),
            float(r["gpus"] or 0),
            f"{r['gpus'] or 'no fleet'} (hit {text.percent(r['hit'])})",
        )
        for r in regimes
    ]
    lost = len(regimes) - len(known)
    if lost:
        title = f"In {lost} of {len(regimes)} regimes no number of GPUs keeps the promised speed"
    elif max(known) == known[0]:
        title = "No regime takes more GPUs"
    else:
        title = f"GPUs rise from {known[0]} to {max(known)} in the worst regime"
    svg = charts.bars(data, title, mark=REGIMES["as_planned"] if have is None else _INSTALLED)
    return Chart("regimes", title, "GPUs by regime, with the prefix hit assumed in it", svg)
