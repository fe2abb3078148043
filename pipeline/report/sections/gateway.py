"""What the gateway itself costs: overhead, token counting, tool catalogues, and how calls fail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pipeline.report import charts, text
from pipeline.report.blocks import Block, Chart, Charts, Column, Row, Section, Text, number, share, table

#: What each phase is, in the order of a call.
PHASES: Final = {
    "queue": "until authenticated",
    "pre_call": "our first hook to the provider",
    "overhead": "receipt to provider, all of it",
    "count": "token counting",
    "plugin": "this plugin",
}


def section(document: Mapping[str, Any]) -> Section:
    """The section of the gateway."""
    title = "What the gateway costs"
    phases = _phases(document)
    blocks: list[Block] = []
    drawn = _chart(phases)
    if drawn:
        blocks.append(Charts((drawn,)))
    blocks += table(
        "phases",
        "Time in the gateway per call",
        "Phase",
        [Column(f"{_STATS[s]} ms", "ms") for s in _STATS],
        [
            Row(f"{PHASES.get(p, p)}", tuple(number(stats.get(s)) for s in _STATS))
            for p, stats in phases.items()
        ],
        definition="gateway",
        folded=bool(drawn),
    )
    counting = rows_of(document, "counting_cost")
    measured = [r for r in counting if r["value"] is not None]
    blocks += table(
        "counting",
        "Token counting per call, by prompt and catalogue",
        "Prompt and catalogue",
        (Column("Mean ms", "ms"), Column("P95 ms", "ms")),
        [
            Row(name, (number(stats.get("mean")), number(stats.get("p95"))))
            for name, stats in _stats(measured).items()
        ],
        definition="counting",
    )
    why = next((r["reason"] for r in counting if r["reason"]), None)
    if why and not measured:
        blocks.append(
            Text(f"{text.sentence(why)} The plugin's setting count_exact switches it on.", small=True)
        )
    blocks += _failures(document["failures"])
    lost = [r for r in rows_of(document, "losses") if r["value"]]
    blocks += table(
        "losses",
        "How calls are known, and how they ended",
        "Calls",
        ("Share",),
        [Row(r["part"], (share(r["value"]),)) for r in lost],
        definition="failures",
        folded=True,
    )
    blocks += _catalogue(document["catalogue"])
    return Section("gateway", title, _lead(phases, document["failures"]), "gateway", tuple(blocks))


_STATS: Final = {"p50": "P50", "p95": "P95", "p99": "P99", "mean": "Mean"}


def rows_of(document: Mapping[str, Any], name: str, dimension: str = "all") -> list[Mapping[str, Any]]:
    """Rows of one quantity of the registry by one dimension."""
    return [r for r in document["quantities"] if r["figure"] == name and r["dimension"] == dimension]


def _stats(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Values of rows whose part is a name and a statistic, as name -> statistic -> value."""
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        name, _, stat = row["part"].rpartition(" ")
        if row["value"] is not None:
            found.setdefault(name, {})[stat] = row["value"]
    return found


def _phases(document: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    found = _stats(rows_of(document, "gateway_overhead"))
    return {name: found[name] for name in (*PHASES, *sorted(set(found) - set(PHASES))) if name in found}


def _lead(phases: Mapping[str, Mapping[str, float]], failed: Mapping[str, Any]) -> str:
    overhead = phases.get("overhead")
    parts = [
        "The gateway's own time is unknown: it comes from the plugin, and no call of the window carries it"
    ]
    if overhead:
        parts = [
            f"A call waits {text.number(overhead['p50'])} ms in the gateway before its provider is asked, "
            f"one in twenty more than {text.number(overhead['p95'])} ms"
        ]
    if failed["calls"]:
        bad, total = failed["unsuccessful"], failed["calls"]
        parts.append(
            f"{bad:,} of {text.count(total, 'call')} did not succeed ({text.share(failed['share'])})"
        )
    return "; ".join(parts) + "."


def _chart(phases: Mapping[str, Mapping[str, float]]) -> Chart | None:
    if not phases:
        return None
    data = [
        (name.replace("_", " "), float(p["p95"]), f"{text.number(p['p95'])} ms, half {text.number(p['p50'])}")
        for name, p in phases.items()
    ]
    whole = phases.get("overhead", {}).get("p95")
    title = "Where a call waits in the gateway"
    if whole is not None:
        title = f"Nineteen of twenty calls leave the gateway within {text.number(whole)} ms"
    return Chart("phases", title, "ms per call, 95th percentile", charts.bars(data, title, mark="overhead"))


def _failures(found: Mapping[str, Any]) -> list[Block]:
    blocks = table(
        "failures",
        "How calls fail",
        "Outcome",
        ("Calls", "Share", "Attempts", Column("Median s", "s")),
        [
            Row(
                r["outcome"] + (f": {r['error_class']}" if r["error_class"] else ""),
                (number(r["calls"]), share(r["share"]), number(r["attempts"]), number(r["median_s"])),
            )
            for r in found["rows"]
        ],
        definition="failures",
    )
    if found["retried_calls"]:
        blocks.append(
            Text(
                f"{text.count(int(found['retried_calls']), 'call')} took more than one attempt: "
                f"{text.count(found['extra_attempts'], 'attempt')} on top, each of them load for an engine.",
                small=True,
            )
        )
    return blocks


def _catalogue(found: Mapping[str, Any]) -> list[Block]:
    blocks = table(
        "catalogue",
        f"Tool catalogues by key, and what exposing {found['keep']} tools would save",
        "Key",
        (
            "Calls",
            "Tools",
            Column("Tokens per call", "tokens"),
            Column("Tokens in all", "tokens"),
            Column("Saved", "tokens"),
            Column("Saved ms per call", "ms"),
        ),
        [
            Row(
                str(r["name"]) if r["name"] is not None else "no key",
                (
                    number(r["calls"]),
                    number(r["tools_per_call"]),
                    number(r["catalogue_tokens_per_call"]),
                    number(r["catalogue_tokens_total"]),
                    number(r["saved_tokens_total"]),
                    number(r["saved_ms_per_call"]),
                ),
            )
            for r in found["rows"]
            if r["catalogue_tokens_total"]
        ],
        definition="catalogue",
    )
    best = max(found["rows"], key=lambda r: r["saved_tokens_total"] or 0, default=None)
    if best and best["saved_tokens_total"]:
        name = best["name"] or "calls without a key"
        blocks.append(
            Text(
                f"{name} sends {text.number(best['tools_per_call'])} tools with every call: exposing "
                f"{found['keep']} would save {text.number(best['saved_tokens_per_call'])} tokens per call "
                f"({best['source']})."
            )
        )
    return blocks
