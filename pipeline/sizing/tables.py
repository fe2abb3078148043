"""Plans, comparisons and checks as Markdown tables for people; the YAML beside them is for machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.sizing.evidence import Check


def shown(value: Any) -> str:
    """A value in a cell: about four digits, null as a dash."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    if isinstance(value, int):
        return f"{value:,}"
    return str(value).replace("|", "/").replace("\n", " ")


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A Markdown table."""
    lines = [f"| {' | '.join(head)} |", f"|{'|'.join('---' for _ in head)}|"]
    lines += [f"| {' | '.join(shown(cell) for cell in row)} |" for row in rows]
    return "\n".join(lines)


def _pairs(data: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(k.replace("_", " "), v) for k, v in data.items() if not isinstance(v, Mapping | list)]


def plan(report: Mapping[str, Any]) -> str:
    """A computed plan."""
    head, results = report["plan"], report["results"]
    parts = [
        f"# {head['name']}",
        f"Method {head['method']}, currency {head['currency']}, dated {head['date']}, "
        f"inputs {head['inputs_digest']}" + (f", week {head['week']}" if head.get("week") else "") + ".",
        "## Fleet",
        table(("", ""), _pairs(results["fleet"])),
    ]
    if "concurrency" in results:
        parts += _agents(results)
    parts += ["## Money", _money(results["money"]), "## Power", _power(results["energy"])]
    parts += ["## Uncertainty", _uncertainty(report["uncertainty"])]
    if report.get("week"):
        parts += ["## Taken from the week", _week(report["week"])]
    parts += ["## What it rests on", _inputs(report)]
    if report.get("checks"):
        parts += ["## Checks", table(("check", "status", "evidence"), [
            (c["id"], c["status"], c["evidence"]) for c in report["checks"]
        ])]  # fmt: skip
    if results.get("notes"):
        parts += ["## Notes", "\n".join(f"- {note}" for note in results["notes"])]
    return "\n\n".join(parts) + "\n"


def _agents(results: Mapping[str, Any]) -> list[str]:
    concurrency, cache, replica = results["concurrency"], results["kv"], results["replica"]
    gate = results["gateway"]
    scenarios = [
        (
            s["name"], s["hit"], s["prefill_multiplier"], s["requests_per_replica"], s["bound"], s["tpot_ms"],
            s["ttft_ms"], s["gpus"], s["reason"],
        )
        for s in results["scenarios"]
    ]  # fmt: skip
    return [
        "## Concurrency",
        table(("", ""), _pairs(concurrency)),
        "## Cache",
        table(("", ""), [*_pairs(cache), *_pairs(cache["fit"])]),
        "## Replica",
        table(("", ""), [*_pairs(replica), *_pairs(replica["timing"])]),
        "## Regimes",
        table(
            (
                "regime",
                "hit",
                "prefill ×",
                "calls per replica",
                "bound",
                "TPOT ms",
                "TTFT ms",
                "GPUs",
                "reason",
            ),
            scenarios,
        ),
        "## Gateway",
        table(("", ""), [*_pairs(gate), *_pairs(gate["postgres"]), *_pairs(gate["spend_queue"])]),
    ]


def _money(money: Mapping[str, Any]) -> str:
    if money.get("reason"):
        return f"Not computed: {money['reason']}."
    parts = [table(("", ""), _pairs(money))]
    if money.get("offers"):
        parts.append(
            table(
                (
                    "offer",
                    "read on",
                    "GPU-hour",
                    "break-even",
                    "owning is cheaper",
                    "payback, years",
                    "reason",
                ),
                [list(offer.values()) for offer in money["offers"]],
            )
        )
    return "\n\n".join(parts)


def _power(power: Mapping[str, Any]) -> str:
    if power.get("reason"):
        return f"Not computed: {power['reason']}."
    rows = [
        (boundary, kw, *(by[boundary] for by in power["predicted_agents_per_megawatt"].values()))
        for boundary, kw in power["kw"].items()
    ]
    states = [f"{s.replace('_', '-')} agents/MW, predicted" for s in power["predicted_agents_per_megawatt"]]
    text = table(("boundary", "kW", *states), rows)
    measured = power.get("measured_agents_per_megawatt")
    return text + f"\n\nMeasured agents per megawatt: {shown(measured)}."


def _uncertainty(spread: Mapping[str, Any]) -> str:
    if spread.get("reason"):
        return f"No interval: {spread['reason']}."
    parts = [
        f"{spread['method']}; {spread['infeasible_share']:.0%} of the draws have no fleet.",
        table(("output", "low", "high"), [(k, *v) for k, v in spread["outputs"].items()]),
    ]
    for output, rows in spread["tornado"].items():
        parts.append(table((f"{output}: input", "at low", "at high"), [list(r.values()) for r in rows]))
    return "\n\n".join(parts)


def _week(week: Mapping[str, Any]) -> str:
    rows = [(m["input"], m["why"], m["filled_with"], m["from"]) for m in week["missing"]]
    text = f"Window {week['window']}. Taken: {', '.join(week['taken']) or 'nothing'}."
    return text + ("\n\n" + table(("not in the week", "why", "filled with", "from"), rows) if rows else "")


def _inputs(report: Mapping[str, Any]) -> str:
    return table(
        ("input", "value", "unit", "tag", "source", "date"),
        [
            (key, one["value"], one["unit"], one["tag"], one["source"], one["date"])
            for key, one in report["inputs"].items()
        ],
    )


def difference(result: Mapping[str, Any]) -> str:
    """What changed between two plans."""
    parts = [f"# {result['before']['name']} → {result['after']['name']}"]
    for part in ("inputs", "results"):
        rows = [(r["key"], r["before"], r["after"], r.get("change")) for r in result[part]]
        parts += [
            f"## {part.capitalize()}",
            table(("key", "before", "after", "change"), rows) if rows else "No change.",
        ]
    return "\n\n".join(parts) + "\n"


def verification(result: Mapping[str, Any]) -> str:
    """A prediction against a week."""
    rows = [
        (r["name"], r["predicted"], r["low"], r["high"], r["measured"], r["ratio"], r["verdict"], r["reason"])
        for r in result["rows"]
    ]
    head = (
        "Every assumption that was measured holds."
        if result["holds"]
        else f"Broke first: {result['first_suspect']}."
    )
    columns = ("assumption", "predicted", "low", "high", "measured", "ratio", "verdict", "reason")
    return f"# {result['plan']['name']} against {result['week']}\n\n{head}\n\n{table(columns, rows)}\n"


def checklist(checks: Sequence[Check]) -> str:
    """The machine checks."""
    return table(("check", "status", "evidence"), [(c.id, c.status, c.evidence) for c in checks]) + "\n"
