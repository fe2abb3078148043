"""The command that prints quantities by day and week and by who."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer

from pipeline.options import Config, Form, LakeRoot, Since, Until, day, loaded
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
    since: Since = None,
    until: Until = None,
    config: Config = None,
    lake: LakeRoot = None,
    form: Form = None,
) -> None:
    """Figures by day or week and by who, with coverage and evidence. Build facts first: agentwatt run."""
    from pipeline.figures.registry import QUANTITIES
    from pipeline.figures.series import series

    if list_:
        rows = [
            {"figure": q.name, "unit": q.unit, "formula": q.formula, "by": ", ".join(q.dimensions)}
            for q in QUANTITIES.values()
        ]
        write_rows(rows, form)
        return
    settings = loaded(config, lake).settings
    table = series(
        settings.lake,
        settings,
        names or (),
        period=period.value,
        by=by or ("all",),
        since=day(since, "--since"),
        until=day(until, "--until"),
    )
    found = table.rows()
    if form is Format.TABLE or (form is None and sys.stdout.isatty()):
        found = [{key: _short(row[key]) for key in _SHORT} for row in found]
    write_rows(found, form)


def _short(value: object) -> object:
    return float(f"{value:.4g}") if isinstance(value, float) else value
