"""The report as Markdown: the same sections, tables and findings, without drawings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.report import text
from pipeline.report.blocks import Block, Charts, Points, Section, Table
from pipeline.report.definitions import DEFINITIONS, GLOSSARY
from pipeline.report.front import Front


def render(
    document: Mapping[str, Any], front: Front, sections: Sequence[Section], notes: Sequence[str]
) -> str:
    """Return the report as Markdown; *notes* concern every figure."""
    window = document["meta"]["window"]
    out = ["# agentwatt report", ""]
    zone = document["meta"]["conventions"]["business_time_zone"]
    out += [
        f"Window: {text.window(window, zone)}." if window else "The lake holds no call in the window.",
        "",
    ]
    out += [f"**{_plain(front.verdict)}**", ""]
    if front.because:
        out += [_plain(front.because), ""]
    if front.needs:
        out += ["| part | needed | installed | answer |", "|---|---:|---:|---|"]
        out += [f"| {n.unit} | {n.needed} | {n.installed} | {n.answer} |" for n in front.needs] + [""]
    out += [
        "| figure | value | unit | and | interval | coverage | change |",
        "|---|---:|---|---|---|---|---|",
    ]
    out += [
        "| "
        + " | ".join(
            _cell(v)
            for v in (c.title, c.shown, c.unit, c.reason or c.beside, c.interval, c.coverage, c.change)
        )
        + " |"
        for c in front.cards
    ]
    out += ["", "What would change it:", "", *(f"- {_plain(lever)}" for lever in front.levers), ""]
    if front.caveats:
        out += ["Before you sign:", "", *(f"- {_plain(c)}" for c in front.caveats), ""]
    out += _quoted(notes)
    for section in sections:
        out += [f"## {section.title}", "", _plain(section.lead), ""]
        out += _quoted([n for n in section.notes if n not in notes])
        for block in section.blocks:
            out += _block(block)
    out += ["## Definitions", ""]
    for name, definition in DEFINITIONS.items():
        out += [
            f"- **{definition.title}** ({name}): {definition.formula}. Unit: {definition.unit}. Coverage: "
            f"{definition.coverage}."
        ]
    out += [f"- **{entry.title}**: {text.sentence(entry.formula)}" for entry in GLOSSARY.values()]
    return "\n".join(out) + "\n"


def _quoted(notes: Sequence[str]) -> list[str]:
    return [*(f"> **Note:** {_plain(n)}" for n in notes), ""] if notes else []


def _block(block: Block) -> list[str]:
    if isinstance(block, Table):
        heads = [block.head, *(c.title for c in block.columns)]
        lines = [f"### {block.title}", "", f"| {' | '.join(heads)} |"]
        lines.append(f"|---|{'|'.join('---:' if c.numeric else '---' for c in block.columns)}|")
        for row in block.shown:
            name = f"{row.name} ({row.small})" if row.small else row.name
            lines.append(f"| {' | '.join(_cell(v) for v in (name, *(c.shown for c in row.cells)))} |")
        if block.hidden:
            lines += ["", f"{block.hidden} more rows are in figures.csv."]
        return [*lines, *(["", _plain(block.note)] if block.note else []), ""]
    if isinstance(block, Charts):
        return [*(f"- {_plain(c.title)} ({c.unit})" for c in block.items), ""]
    if isinstance(block, Points):
        return [
            *([f"{block.title}:", ""] if block.title else []),
            *(f"- {_plain(i)}" for i in block.items),
            "",
        ]
    return [_plain(block.words), ""]


def _cell(value: str) -> str:
    return _plain(value).replace("|", "\\|")


def _plain(value: str) -> str:
    """One line, and no tag: names in it come from the data, and Markdown lets HTML through."""
    return value.replace("\n", " ").replace("<", "&lt;")
