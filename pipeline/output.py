"""Output of the commands: data on stdout in the format asked for; progress and messages on stderr."""

from __future__ import annotations

import csv
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime
from enum import StrEnum
from typing import Any, TextIO

from pipeline.errors import AgentwattError


class Format(StrEnum):
    """Formats of data on stdout."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"
    MARKDOWN = "markdown"


def write_rows(rows: Sequence[Mapping[str, Any]], form: Format | None, out: TextIO | None = None) -> None:
    """Write *rows* (same keys in each) to stdout. Default: a table on a terminal, JSON lines in a pipe."""
    out = out or sys.stdout
    form = form or (Format.TABLE if out.isatty() else Format.JSONL)
    if form is Format.JSON:
        out.write(json.dumps([_plain(r) for r in rows], indent=2, ensure_ascii=False) + "\n")
    elif form is Format.JSONL:
        for row in rows:
            out.write(json.dumps(_plain(row), ensure_ascii=False) + "\n")
    elif form is Format.CSV:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(_columns(rows))
        writer.writerows([[_cell(r.get(c), "") for c in _columns(rows)] for r in rows])
    elif form is Format.MARKDOWN:
        columns = _columns(rows)
        out.write(f"| {' | '.join(columns)} |\n|{' --- |' * len(columns)}\n")
        for row in rows:
            cells = [_cell(row.get(c), "–").replace("|", "\\|").replace("\n", " ") for c in columns]
            out.write(f"| {' | '.join(cells)} |\n")
    else:
        _write_table(rows, out)


def write_record(record: Mapping[str, Any], form: Format | None, out: TextIO | None = None) -> None:
    """Write one record: keys and values below each other in a table, one object in the other formats."""
    out = out or sys.stdout
    form = form or (Format.TABLE if out.isatty() else Format.JSONL)
    if form in {Format.TABLE, Format.MARKDOWN}:
        write_rows([{"name": k, "value": v} for k, v in record.items()], form, out)
    elif form is Format.JSON:
        out.write(json.dumps(_plain(record), indent=2, ensure_ascii=False) + "\n")
    else:
        write_rows([record], form, out)


def say(message: str) -> None:
    """Write one line for people to stderr."""
    sys.stderr.write(message + "\n")


def show_error(error: AgentwattError) -> None:
    """What happened, why, and the next command."""
    say(f"Error: {error.what}")
    if error.why:
        say(f"  Why:  {error.why}")
    if error.next_step:
        say(f"  Next: {error.next_step}")


@contextmanager
def progress(label: str, *, enabled: bool = True) -> Iterator[Callable[[str], None]]:
    """A line of progress on stderr, only on a terminal; the yielded function replaces its text."""
    if not enabled or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console

    began = time.monotonic()
    with Console(stderr=True).status(label) as status:
        yield lambda text: status.update(f"{label}: {text} ({time.monotonic() - began:.0f} s)")


def _write_table(rows: Sequence[Mapping[str, Any]], out: TextIO) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(show_edge=False, pad_edge=False)
    for column in _columns(rows):
        numeric = all(isinstance(r.get(column), int | float | None) for r in rows)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*[_cell(row.get(c), "–") for c in _columns(rows)])
    console = Console(file=out, highlight=False, markup=False)
    console.print(table)


def _columns(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(key for row in rows for key in row))


def _cell(value: Any, null: str) -> str:
    if value is None:
        return null
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{k}: {v}" for k, v in value.items()) or null
    if isinstance(value, list | tuple):
        return ", ".join(_cell(v, "none") for v in value) or null
    return str(value)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, date | datetime):
        return value.isoformat()
    return value
