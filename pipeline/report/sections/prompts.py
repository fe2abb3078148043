"""How long the prompts are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.report import charts, text
from pipeline.report.blocks import Block, Chart, Charts, Column, Row, Section, Text, number, table


def section(document: Mapping[str, Any], notes: tuple[str, ...]) -> Section:
    """The section of prompt lengths."""
    figure = document["prompt_length"]
    title = "How long the prompts are"
    if figure.get("value") is None:
        return Section("prompt_length", title, f"Unknown: {figure['reason']}.", "prompt_length", (), notes)
    value = figure["value"]
    blocks: list[Block] = []
    drawn = _histogram(figure)
    if drawn:
        blocks.append(Charts((drawn,)))
    blocks += table(
        "prompt_length",
        "Prompt tokens per call",
        "What",
        (Column("Tokens", "tokens"),),
        [Row(_name(k), (number(v),)) for k, v in value.items()],
        definition="prompt_length",
    )
    blocks += _by(figure, "model_group", "By model", "Model", "model_group")
    blocks += _by(figure, "client", "By client", "Client", "client", folded=True)
    fresh, ratio = figure["new_tokens_per_call"], figure["input_to_output"]
    estimated = (figure.get("coverage") or {}).get("estimated_share")
    said = []
    if fresh.get("value") is not None:
        said.append(
            f"{text.number(fresh['value'])} tokens of a prompt are new on average, the rest was cached"
        )
    if ratio.get("value") is not None:
        said.append(f"{text.number(ratio['value'])} tokens go in for each that comes out")
    if estimated:
        said.append(f"{text.share(estimated)} of the lengths are estimated")
    lead = (
        f"Half of the prompts are longer than {text.number(value['p50'])} tokens and one in twenty is longer "
        f"than {text.number(value['p95'])}: memory is sized for the long ones, arithmetic for what is new in "
        "them."
    )
    if said:
        blocks.append(Text(text.capital("; ".join(said)) + "."))
    return Section("prompt_length", title, lead, "prompt_length", tuple(blocks), notes)


def _name(key: str) -> str:
    return "mean" if key == "mean" else f"{key.upper()}: {key[1:]} % are at most this long"


def _by(
    figure: Mapping[str, Any], scope: str, title: str, head: str, column: str, *, folded: bool = False
) -> list[Block]:
    found: Sequence[Mapping[str, Any]] = (figure.get("by") or {}).get(scope) or ()
    ordered = sorted(found, key=lambda r: -r["calls"])
    return table(
        f"length_by_{scope}",
        title,
        head,
        ("Calls", "P50", "P95", "Mean"),
        [
            Row(str(r[column]), (number(r["calls"]), number(r["p50"]), number(r["p95"]), number(r["mean"])))
            for r in ordered
        ],
        definition="prompt_length",
        folded=folded,
    )


def _histogram(figure: Mapping[str, Any]) -> Chart | None:
    buckets = figure.get("display_histogram") or ()
    used = [i for i, b in enumerate(buckets) if b["calls"]]
    if not used:
        return None
    total = sum(b["calls"] for b in buckets)
    middle = figure["value"]["p50"]
    data, half = [], None
    for b in buckets[used[0] : used[-1] + 1]:
        name = _bucket(b)
        if b["above"] < middle and (b["up_to"] is None or middle <= b["up_to"]):
            half = name
        data.append((name, float(b["calls"]), f"{b['calls']:,} ({text.percent(b['calls'] / total)})"))
    title = f"Half of the prompts are longer than {text.number(middle)} tokens"
    return Chart(
        "prompt_length",
        title,
        "calls by prompt tokens; the bar that holds the median is set apart",
        charts.bars(data, title, mark=half),
    )


def _bucket(bucket: Mapping[str, Any]) -> str:
    def short(tokens: int) -> str:
        return f"{tokens // 1_000_000}M" if tokens >= 1_000_000 else f"{tokens // 1000}K"

    return f"> {short(bucket['above'])}" if bucket["up_to"] is None else f"≤ {short(bucket['up_to'])}"
