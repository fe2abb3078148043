"""The command that prints quantities by day and week and by who."""

from __future__ import annotations

import sys
from datetime import date
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from pipeline.errors import ConfigError
from pipeline.output import Format, write_rows

#: Columns for people; the others are in every other format.
_SHORT = ("figure", "part", "start", "dimension", "member", "value", "unit", "calls", "coverage", "reason")


class Span(StrEnum):
    """Over what a quantity is computed."""

    DAY = "day"
    WEEK = "week"
    WINDOW = "window"


def figures(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FIGURE…", help="Names; all by default. --list prints them.", show_default=False
        ),
    ] = None,
    period: Annotated[Span, typer.Option(help="Business days, their ISO weeks, or all as one.")] = Span.WEEK,
    by: Annotated[
        list[str] | None,
        typer.Option(
            help="all, profile, team, key, client or model; repeat for more. Default: all with its profiles.",
            show_default=False,
        ),
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="Print names, units and formulas instead.")] = False,
    since: Annotated[str | None, typer.Option(help="First UTC day, YYYY-MM-DD.", show_default=False)] = None,
    until: Annotated[
        str | None, typer.Option(help="Day after the last, YYYY-MM-DD.", show_default=False)
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", help="Settings file (YAML).", show_default=False)
    ] = None,
    lake: Annotated[
        Path | None, typer.Option("--lake", help="Folder of the lake.", show_default=False)
    ] = None,
    form: Annotated[
        Format | None,
        typer.Option("--format", help="Format on stdout. Default: table on a terminal, jsonl in a pipe."),
    ] = None,
) -> None:
    """Figures by day or week and by who, with coverage and evidence. Build facts first: agentwatt run."""
    from pipeline.figures.registry import QUANTITIES
    from pipeline.figures.series import series
    from pipeline.layers import load

    if list_:
        rows = [
            {"figure": q.name, "unit": q.unit, "formula": q.formula, "by": ", ".join(q.dimensions)}
            for q in QUANTITIES.values()
        ]
        write_rows(rows, form)
        return
    settings = load(config, {"lake": lake}).settings
    table = series(
        settings.lake,
        settings,
        names or (),
        period=period.value,
        by=by or ("all",),
        since=_day(since, "--since"),
        until=_day(until, "--until"),
    )
    found = table.rows()
    if form is Format.TABLE or (form is None and sys.stdout.isatty()):
        found = [{key: _short(row[key]) for key in _SHORT} for row in found]
    write_rows(found, form)


def _short(value: object) -> object:
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _day(value: str | None, option: str) -> date | None:
    try:
        return None if value is None else date.fromisoformat(value)
    except ValueError:
        raise ConfigError(f"{option} {value} is no day.", next_step="Write it as 2026-11-29 (UTC).") from None
