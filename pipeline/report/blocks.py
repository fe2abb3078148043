"""What a report is made of: sections of text, tables and charts, the same for every form of it.

The sections are built once; HTML, Markdown and CSV only differ in how they print them. A cell keeps its
number beside its words, so that no form has to read a number out of a text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from pipeline.report import text

#: Rows that a table shows to people; all of them are in the CSV.
SHOWN_ROWS: Final = 12


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell: what people read, and the number behind it where there is one."""

    shown: str
    value: float | None = None
    small: str | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """One column; a numeric one is set to the right."""

    title: str
    unit: str = ""
    numeric: bool = True


@dataclass(frozen=True, slots=True)
class Row:
    """One row: its name, the cells under the columns, and a small remark below its name."""

    name: str
    cells: tuple[Cell, ...]
    small: str | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """A table. ``head`` names the first column.

    A *folded* one is closed at first and not printed; of a *whole* one every row is shown, on paper too.
    """

    name: str
    title: str
    head: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    definition: str | None = None
    folded: bool = False
    note: str | None = None
    whole: bool = False

    @property
    def wide(self) -> bool:
        """Whether it needs the width of the page: many columns, or words in them."""
        words_ = sum(not c.numeric for c in self.columns)
        return len(self.columns) + words_ > 5 or words_ > 1 or (words_ == 1 and len(self.columns) > 2)

    @property
    def shown(self) -> tuple[Row, ...]:
        """The rows that people see."""
        return self.rows if self.whole else self.rows[:SHOWN_ROWS]

    @property
    def hidden(self) -> int:
        """How many rows are in the CSV only."""
        return len(self.rows) - len(self.shown)


@dataclass(frozen=True, slots=True)
class Chart:
    """A drawing: a title that says what it shows, its unit, and the SVG."""

    name: str
    title: str
    unit: str
    svg: str


@dataclass(frozen=True, slots=True)
class Charts:
    """Drawings that stand side by side where there is room."""

    items: tuple[Chart, ...]


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph; *small* ones are for the reader who asks how."""

    words: str
    small: bool = False


@dataclass(frozen=True, slots=True)
class Points:
    """A list of short sentences."""

    items: tuple[str, ...]
    title: str | None = None


Block = Text | Points | Table | Charts


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the report: what it answers, in one sentence, and what stands behind the answer."""

    id: str
    title: str
    lead: str
    definition: str | None
    blocks: tuple[Block, ...]
    notes: tuple[str, ...] = field(default=())

    @property
    def tables(self) -> tuple[Table, ...]:
        """The tables among the blocks."""
        return tuple(b for b in self.blocks if isinstance(b, Table))


def number(value: float | None, unit: str = "") -> Cell:
    """A cell with a number of about three digits."""
    shown = text.number(value)
    return Cell(f"{shown} {unit}" if unit and value is not None else shown, value)


def share(value: float | None) -> Cell:
    """A cell with a share, as per cent."""
    return Cell(text.share(value), value)


def words(value: object) -> Cell:
    """A cell with words only."""
    return Cell("" if value is None else str(value).replace("_", " "))


def table(
    name: str,
    title: str,
    head: str,
    columns: Sequence[Column | str],
    rows: Sequence[Row],
    *,
    definition: str | None = None,
    folded: bool = False,
    note: str | None = None,
    whole: bool = False,
) -> list[Block]:
    """A table as a list of one block, or nothing where it has no row.

    Raises:
        ValueError: a row has not one cell for every column.
    """
    typed = tuple(Column(c) if isinstance(c, str) else c for c in columns)
    if any(len(r.cells) != len(typed) for r in rows):
        raise ValueError(f"table {name}: not every row has {len(typed)} cells")
    return [Table(name, title, head, typed, tuple(rows), definition, folded, note, whole)] if rows else []
