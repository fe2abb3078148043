"""What the gateway itself costs: overhead, token counting, tool catalogues, and how calls fail."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipeline.report import charts, text
from pipeline.report.blocks import Block, Chart, Charts, Column, Row, Section, Text, number, share, table


def section(document: Mapping[str, Any]) -> Section:
    """The section of the gateway."""
    found = document["gateway"]
    title = "What the gateway costs"
    blocks: list[Block] = []
    drawn = _phases(found)
    if drawn:
        blocks.append(Charts((drawn,)))
    blocks += table(
        "phases",
        "Time in the gateway per call",
        "Phase",
        ("Calls", Column("P50 ms", "ms"), Column("P95 ms", "ms"), Column("Total s", "s")),
        [
            Row(
                p["phase"].removesuffix("_ms").replace("_", " "),
                (number(p["calls"]), number(p["p50_ms"]), number(p["p95_ms"]), number(p["total_s"])),
            )
            for p in found["phases"]
            if p["calls"]
        ],
        definition="gateway",
    )
    counting = found["counting"]
    for key, label, head in (("by_prompt", "Token counting by prompt length", "Prompt tokens"),
                             ("by_tools", "Token counting by tools in the request", "Tools")):  # fmt: skip
        blocks += table(
            f"counting_{key}",
            label,
            head,
            ("Calls", Column("P50 ms", "ms"), Column("P95 ms", "ms"), "Counts per call"),
            [
                Row(
                    r["bucket"],
                    (
                        number(r["calls"]),
                        number(r["p50_ms"]),
                        number(r["p95_ms"]),
                        number(r["counts_per_call"]),
                    ),
                )
                for r in counting[key]
            ],
            definition="counting",
        )
    if counting["reason"]:
        blocks.append(Text(text.sentence(counting["reason"]), small=True))
    blocks += _failures(found["failures"])
    blocks += _catalogue(document["catalogue"])
    return Section("gateway", title, _lead(found), "gateway", tuple(blocks))


def _lead(found: Mapping[str, Any]) -> str:
    parts = []
    overhead = next((p for p in found["phases"] if p["phase"] == "overhead_ms"), None)
    if overhead and overhead["calls"]:
        parts.append(
            f"A call waits {text.number(overhead['p50_ms'])} ms in the gateway before its provider is "
            "asked, one in "
            f"twenty more than {text.number(overhead['p95_ms'])} ms"
        )
    else:
        parts.append(text.capital(found["reason"] or "the gateway's overhead is unknown"))
    failed = found["failures"]
    bad = sum(r["calls"] for r in failed["rows"])
    if failed["calls"]:
        parts.append(
            f"{bad:,} of {failed['calls']:,} calls did not succeed ({text.share(bad / failed['calls'])})"
        )
    return "; ".join(parts) + "."


def _phases(found: Mapping[str, Any]) -> Chart | None:
    rows = [p for p in found["phases"] if p["calls"]]
    if not rows:
        return None
    data = [
        (
            p["phase"].removesuffix("_ms").replace("_", " "),
            float(p["p95_ms"]),
            f"{text.number(p['p95_ms'])} ms, half {text.number(p['p50_ms'])}",
        )
        for p in rows
    ]
    whole = next((p["p95_ms"] for p in rows if p["phase"] == "overhead_ms"), max(p["p95_ms"] for p in rows))
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
                f"{found['extra_attempts']:,} attempts on top, each of them load for an engine.",
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
