"""The four figures as a table for a terminal."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pipeline.report import beside, text
from pipeline.report.definitions import DEFINITIONS

if TYPE_CHECKING:
    from rich.table import Table


def table(figures: Mapping[str, Mapping[str, Any]]) -> Table:
    """Return a rich table of the figures with their coverage."""
    from rich.table import Table

    grid = Table(show_lines=False, pad_edge=False)
    grid.add_column("Figure")
    grid.add_column("What")
    grid.add_column("Value", justify="right")
    grid.add_column("Unit")
    grid.add_column("Coverage", justify="right")
    previous = None
    for line in text.headlines(figures):
        first = line.figure != previous
        if first and previous:
            grid.add_section()
        previous = line.figure
        what = f"{line.name}: {line.reason}" if line.reason else line.name
        grid.add_row(
            DEFINITIONS[line.figure].title if first else "",
            what,
            line.shown,
            line.unit,
            text.share(line.coverage),
        )
    return grid


def summary(
    figures: Mapping[str, Mapping[str, Any]], notes: Sequence[text.Note | str] = (), *, width: int = 110
) -> str:
    """Return the table as plain text, with its notes below."""
    from rich.console import Console

    console = Console(
        file=io.StringIO(), width=width, color_system=None, force_terminal=False, legacy_windows=False
    )
    console.print(table(figures))
    for note in text.all_notes(figures, notes):
        console.print(f"Note: {note.text}", markup=False, highlight=False)
    for sentence in beside.sentences(figures[beside.FIGURE]):
        console.print(sentence, markup=False, highlight=False)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()
