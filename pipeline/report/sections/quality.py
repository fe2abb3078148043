"""How much the figures rest on: coverage, evidence, audits, and where the data came from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pipeline.report import text
from pipeline.report.blocks import Block, Cell, Column, Row, Section, Text, number, share, table
from pipeline.report.definitions import DEFINITIONS

_EVIDENCE: Final = {
    "E1": "explicit id on the wire",
    "E2": "tool-call lineage",
    "E3": "message roles",
    "E4": "prefix lineage",
    "E5": "none",
}
_PROFILE: Final = {
    "tools": "names of tools",
    "loops": "calls a turn",
    "tokens": "input tokens a turn",
    "none": "nothing",
}


def section(document: Mapping[str, Any]) -> Section:
    """The section of data quality."""
    meta = document["meta"]
    counts = meta["counts"]
    blocks: list[Block] = []
    rows = [Row(name, (cell,)) for name, cell in _coverage(document) if cell.value is not None]
    blocks += table("coverage", "Coverage", "Share", ("Value",), rows, definition="coverage")
    evidence = (
        document["prompt_length"].get("evidence") or document["calls_per_human_hour"].get("evidence") or {}
    )
    blocks += table(
        "evidence",
        "How sessions and turns are known",
        "Evidence",
        ("Sessions", "Turns"),
        [
            Row(
                f"{key}: {what}",
                (
                    share((evidence.get("session_evidence") or {}).get(key)),
                    share((evidence.get("turn_evidence") or {}).get(key)),
                ),
            )
            for key, what in _EVIDENCE.items()
            if any(key in (evidence.get(part) or {}) for part in ("session_evidence", "turn_evidence"))
        ],
        definition="evidence",
    )
    told = evidence.get("profile_evidence") or {}
    blocks += table(
        "profile_evidence",
        "How profiles are known",
        "Told by",
        ("Calls",),
        [Row(what, (share(told[key]),)) for key, what in _PROFILE.items() if key in told],
        definition="profiles",
    )
    bad = [a for a in meta["audits"] if a["rows"]]
    blocks += table(
        "audits",
        "Checks of the data that found rows",
        "Check",
        (Column("Severity", numeric=False), "Rows", Column("Meaning", numeric=False)),
        [
            Row(a["name"].replace("_", " "), (Cell(a["severity"]), number(a["rows"]), Cell(a["meaning"])))
            for a in bad
        ],
        definition="audits",
    )
    blocks += table(
        "counts",
        "What was counted",
        "What",
        ("Calls",),
        [
            Row(k.replace("_", " "), (number(v),))
            for k, v in counts.items()
            if not isinstance(v, Mapping) and v
        ],
        folded=True,
    )
    files = ", ".join(
        f"{name.removeprefix('raw_').replace('_', ' ')} {text.count(s['files'], 'file')} over "
        f"{text.count(s['days'], 'day')}"
        for name, s in meta["sources"].items()
    )
    versions = meta["versions"]
    blocks.append(
        Text(
            f"Raw data: {files}. LiteLLM {', '.join(versions['litellm']) or 'unknown'}; plugin "
            f"{', '.join(versions['plugin']) or 'unknown'}; agentwatt {versions['agentwatt'] or 'unknown'}; "
            f"written {text.instant(meta['generated_at'])} UTC.",
            small=True,
        )
    )
    lead = (
        "Every check of the data came back empty."
        if not bad
        else f"{text.count(len(bad), 'check')} of the data found rows."
    )
    notes = tuple(n["text"] for n in meta["notes"] if set(n["figures"]) == set(DEFINITIONS))
    return Section("quality", "How much this rests on", lead, "coverage", tuple(blocks), notes)


def _coverage(document: Mapping[str, Any]) -> list[tuple[str, Cell]]:
    human = document["calls_per_human_hour"].get("coverage") or {}
    length = document["prompt_length"].get("coverage") or {}
    hit = document["prefix_hit"].get("coverage") or {}
    power = document["agents_per_megawatt"].get("coverage") or {}
    found = [
        ("calls of attended work", share(human.get("attended_share"))),
        ("attended calls whose user is known", share(human.get("calls_of_known_user"))),
        ("engine calls with a prompt length", share(length.get("share"))),
        ("of these, estimated", share(length.get("estimated_share"))),
        ("engine calls that report cached tokens", share(hit.get("share_of_calls"))),
        ("prompt tokens of those", share(hit.get("share_of_input_tokens"))),
    ]
    found += [
        (f"time with measured {scope} power", share(v)) for scope, v in (power.get("power") or {}).items()
    ]
    found += [
        (f"turns of unknown conformity at {tier}", share(v))
        for tier, v in (power.get("turns_of_unknown_conformity") or {}).items()
    ]
    return found
