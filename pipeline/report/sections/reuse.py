"""Where reuse is lost, and what it costs in GPU-hours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pipeline.report import charts, text
from pipeline.report.blocks import Block, Cell, Chart, Charts, Column, Row, Section, Text, number, table
from pipeline.report.canvas import BLUE, GREY, ORANGE
from pipeline.report.sections.prefix import name_of

_MEANING: Final = {
    "within 5 min": "another replica answered, or the cache was too small: session affinity, more cache",
    "5 min to 1 h": "the cache did not keep it over a pause: longer retention, an offload tier",
    "more than 1 h": "a long pause: only a stored cache would help",
}


def section(document: Mapping[str, Any]) -> Section:
    """The section of lost reuse."""
    found = document["reuse"]
    title = "Where reuse is lost, and what it costs"
    if found["value"] is None:
        return Section("reuse", title, f"Unknown: {found['reason']}.", "reuse", ())
    rate = found["cost"]
    blocks: list[Block] = []
    drawn = _chart(found)
    if drawn:
        blocks.append(Charts((drawn,)))
    blocks += table(
        "lost_by_age",
        "Lost tokens by age of the prefix",
        "Last used",
        (
            Column("Lost tokens", "tokens"),
            Column("GPU-hours", "GPU-h"),
            Column("What would help", numeric=False),
        ),
        [
            Row(r["age"], (number(r["lost_tokens"]), number(r["gpu_hours"]), Cell(_MEANING[r["age"]])))
            for r in found["by_age"]
        ],
        definition="reuse",
    )
    for scope, head, folded in (("category", "Situation", False), ("break_reason", "Prefix ended by", False),
                                ("model_group", "Model", True), ("client", "Client", True)):  # fmt: skip
        blocks += table(
            f"lost_by_{scope}",
            "By what ended the prefix" if scope == "break_reason" else f"By {head.lower()}",
            head,
            (
                "Calls",
                Column("Lost tokens", "tokens"),
                Column("GPU-hours", "GPU-h"),
                Column("New tokens", "tokens"),
            ),
            [
                Row(
                    name_of(r[scope]) if scope in ("category", "break_reason") else str(r[scope]),
                    (
                        number(r["calls"]),
                        number(r["lost_tokens"]),
                        number(r["gpu_hours"]),
                        number(r["new_tokens"]),
                    ),
                )
                for r in found["by"][scope]
            ],
            definition="reuse",
            folded=folded,
        )
    if rate["gpu_tok_s"] is None:
        blocks.append(Text(f"No GPU-hours: {rate['reason']}.", small=True))
    else:
        blocks.append(
            Text(
                f"GPU-hours at {text.number(rate['gpu_tok_s'])} prompt tokens per second and GPU "
                f"({rate['source']}). Prefixes are measured in bytes, so one or two per cent of the tokens "
                "may be error.",
                small=True,
            )
        )
    return Section("reuse", title, _lead(found), "reuse", tuple(blocks))


def _lead(found: Mapping[str, Any]) -> str:
    share, hours = found["share_of_input"], found["cost"]["gpu_hours"]
    cost = "" if hours is None else f", {text.number(hours)} GPU-hours of arithmetic"
    lost = f"{text.number(found['value'])} tokens ({text.share(share)})"
    lead = f"{lost} were computed although they had been sent before{cost}."
    broken = found["broken"]
    if broken["value"]:
        hours = "" if broken["gpu_hours"] is None else f", {text.number(broken['gpu_hours'])} GPU-hours"
        lead += (
            f" Beside that, {text.number(broken['value'])} tokens were new because a prompt changed where it "
            f"need not have{hours}: tools, system prompt, history, model or compaction."
        )
    return lead


def _chart(found: Mapping[str, Any]) -> Chart | None:
    rows = [r for r in found["by"]["category"] if r["lost_tokens"] > 0]
    if not rows:
        return None
    data = []
    for r in rows:
        young, middle = r["lost_300_tokens"], r["lost_3600_tokens"]
        hours = "" if r["gpu_hours"] is None else f", {text.number(r['gpu_hours'])} GPU-h"
        data.append(
            {
                "name": name_of(r["category"]),
                "young": young,
                "middle": max(0.0, middle - young),
                "old": max(0.0, r["lost_tokens"] - middle),
                "shown": f"{_short(r['lost_tokens'])}{hours}",
            }
        )
    title = f"Most reuse is lost at “{data[0]['name']}”"
    svg = charts.stacked(data, (("young", ORANGE), ("middle", BLUE), ("old", GREY)), title)
    return Chart(
        "lost",
        title,
        "lost tokens by situation, from left: prefix last used within 5 min, within 1 h, earlier",
        svg,
    )


def _short(tokens: float) -> str:
    for size, sign in ((1e9, "G"), (1e6, "M"), (1e3, "K")):
        if tokens >= size:
            return f"{text.number(tokens / size)}{sign}"
    return text.number(tokens)
