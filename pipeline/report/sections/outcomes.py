"""How long people wait: sessions, turns, first tokens and the speed of answers, and who waits how long."""

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
    Row,
    Section,
    Text,
    number,
    share,
    table,
)
from pipeline.report.sections.gateway import rows_of

_NAMES: Final = {
    ("turn_latency", "p50"): "a turn, median",
    ("turn_latency", "p90"): "a turn, nine of ten are shorter than",
    ("task_latency", "p50"): "all turns of a session, median",
    ("task_latency", "p90"): "all turns of a session, nine of ten are shorter than",
    ("interactivity", "p50"): "speed of an answer, median",
    ("interactivity", "slow90"): "speed that nine of ten answers reach",
    ("decode_share", "all"): "share of engine time spent writing answers",
}
_PROFILE: Final = (
    ("turn_latency", "p90", "Turn P90 s"),
    ("task_latency", "p90", "Session P90 s"),
    ("interactivity", "p50", "Speed tok/s"),
    ("tokens_per_turn", "all", "Tokens per turn"),
    ("context_at_end", "p50", "Context at end"),
    ("failing_turn_share", "all", "Turns that fail"),
)


def section(document: Mapping[str, Any]) -> Section:
    """The section of what people wait for."""
    title = "How long people wait"
    rows = [_row(document, name, part, words) for (name, part), words in _NAMES.items()]
    known = [r for r in rows if r]
    blocks: list[Block] = []
    drawn = _chart(document)
    if drawn:
        blocks.append(Charts((drawn,)))
    blocks += table(
        "outcomes",
        "Waiting and speed",
        "What",
        ("Value", Column("Unit", numeric=False)),
        known,
        definition="outcomes",
    )
    blocks += _profiles(document)
    if not known:
        reason = next(
            (r["reason"] for r in rows_of(document, "turn_latency") if r["reason"]), "no call in the window"
        )
        return Section("outcomes", title, f"Unknown: {reason}.", "outcomes", ())
    beside = [
        ("subagents make", "subagent_share", "of the calls"),
        ("turns with a failed call are", "failing_turn_share", "of the turns"),
    ]
    said = [
        f"{words} {text.share(value)} {of}"
        for words, name, of in beside
        if (value := _value(document, name, "all")) is not None
    ]
    factor = _value(document, "failing_turn_amplification", "all")
    if factor is not None:
        said.append(f"such a turn makes {text.number(factor)} times the calls of another")
    if said:
        blocks.append(Text(f"{text.capital('; '.join(said))}.", small=True))
    turn, speed = _value(document, "turn_latency", "p90"), _value(document, "interactivity", "p50")
    lead = f"Nine of ten turns are done within {text.number(turn)} s"
    if speed is not None:
        lead += f"; an answer is written at {text.number(speed)} tokens per second"
    return Section("outcomes", title, f"{lead}.", "outcomes", tuple(blocks))


def _value(document: Mapping[str, Any], name: str, part: str) -> float | None:
    return next((r["value"] for r in rows_of(document, name) if r["part"] == part), None)


def _row(document: Mapping[str, Any], name: str, part: str, words: str) -> Row | None:
    found = next((r for r in rows_of(document, name) if r["part"] == part and r["value"] is not None), None)
    if found is None:
        return None
    is_share = found["unit"].startswith("share")
    value = share(found["value"]) if is_share else number(found["value"])
    return Row(words, (value, Cell("" if is_share else found["unit"])))


def _profiles(document: Mapping[str, Any]) -> list[Block]:
    found: dict[str, dict[tuple[str, str], float]] = {}
    for name, part, _ in _PROFILE:
        for row in rows_of(document, name, "profile"):
            if row["part"] == part and row["value"] is not None:
                found.setdefault(row["member"], {})[name, part] = row["value"]
    return table(
        "outcomes_by_profile",
        "By profile",
        "Profile",
        [Column(head) for *_, head in _PROFILE],
        [
            Row(
                member.replace("_", " "),
                tuple(
                    (share if name == "failing_turn_share" else number)(values.get((name, part)))
                    for name, part, _ in _PROFILE
                ),
            )
            for member, values in sorted(found.items())
        ],
        definition="profiles",
    )


def _chart(document: Mapping[str, Any]) -> Chart | None:
    data = []
    for row in rows_of(document, "first_token_time"):
        bucket, _, stat = row["part"].rpartition(" ")
        if stat == "p95" and row["value"] is not None:
            data.append((bucket, float(row["value"]), f"{text.number(row['value'])} s"))
    if not data:
        return None
    data.sort(key=lambda d: _size(d[0]))
    worst = max(data, key=lambda d: d[1])
    title = f"Prompts of {worst[0]} tokens wait longest for their first token: {worst[2]}"
    return Chart(
        "first_token",
        title,
        "s to the first token by prompt tokens, 95th percentile",
        charts.bars(data, title, mark=worst[0]),
    )


def _size(bucket: str) -> float:
    """Where a bucket of prompt sizes stands: by its upper end, open ones last."""
    digits = bucket.strip("≤>").split("–")[-1].removesuffix("K")
    return float("inf") if bucket.startswith((">", "≥")) or not digits.isdigit() else float(digits)
