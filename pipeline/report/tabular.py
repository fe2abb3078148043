"""The report as CSV: the headline numbers and every row of every table, one number a line."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.report import beside, text
from pipeline.report.blocks import Section

HEAD = ("figure", "name", "value", "unit", "coverage", "reason")


def render(content: Mapping[str, Mapping[str, Any]], sections: Sequence[Section]) -> str:
    """Return the headlines and what stands beside them, then the tables as ``table: row: column``."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(HEAD)
    for line in (*text.headlines(content), *beside.lines(content[beside.FIGURE])):
        writer.writerow(
            (
                line.figure,
                line.name,
                _number(line.value),
                line.unit,
                _number(line.coverage),
                line.reason or "",
            )
        )
    for section in sections:
        for table in section.tables:
            if table.name == beside.TABLE:
                continue
            for row in table.rows:
                for column, cell in zip(table.columns, row.cells, strict=True):
                    if cell.value is not None or (column.numeric and row.small):
                        name = f"{table.name}: {row.name}: {column.title}"
                        writer.writerow(
                            (section.id, name, _number(cell.value), column.unit, "", row.small or "")
                        )
    return buffer.getvalue()


def _number(value: float | None) -> str:
    return "" if value is None else repr(float(value))
