"""The command that hands figures to other systems."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from pipeline.errors import ConfigError
from pipeline.options import Config, Form, LakeRoot, Wanted, day, loaded
from pipeline.output import progress, say, write_rows


class Target(StrEnum):
    """Where figures can go."""

    POSTGRES = "postgres"


def register(app: typer.Typer) -> None:
    """Add the command to *app*."""
    app.command()(export)


def export(
    to: Annotated[Target, typer.Option("--to", help="Where the figures go.")],
    url: Annotated[
        str | None,
        typer.Option(
            envvar="EXPORT_DATABASE_URL",
            help="PostgreSQL to write to. Better in EXPORT_DATABASE_URL: arguments are visible to others.",
            show_default=False,
        ),
    ] = None,
    schema: Annotated[str, typer.Option(help="Schema of the tables; made if it is missing.")] = "agentwatt",
    weeks: Annotated[int, typer.Option(help="Export the newest calendar weeks of the lake.", min=1)] = 2,
    since: Annotated[
        str | None, typer.Option(help="One period instead: its first day, YYYY-MM-DD.", show_default=False)
    ] = None,
    until: Annotated[
        str | None, typer.Option(help="The day after its last, YYYY-MM-DD.", show_default=False)
    ] = None,
    note: Annotated[
        list[str] | None, typer.Option(help="Something a reader must know; repeat for more.")
    ] = None,
    config: Config = None,
    lake: LakeRoot = None,
    form: Form = None,
) -> None:
    """Write weekly figures and daily series where dashboards read them. Run it again at any time."""
    from pipeline import export as exporting
    from pipeline import workflow
    from pipeline.lake import Lake

    if not url:
        raise ConfigError(
            "There is no database to export to.",
            why="Looked for --url and EXPORT_DATABASE_URL.",
            next_step="export EXPORT_DATABASE_URL=postgresql://user:password@host:5432/grafana",
        )
    if (since is None) != (until is None):
        raise ConfigError("--since and --until belong together.", next_step="Leave both out for --weeks.")
    first, last = day(since, "--since"), day(until, "--until")
    periods = [exporting.Period(first, last)] if first and last else []
    if periods and periods[0].start >= periods[0].end:
        raise ConfigError("--since is not before --until.")
    settings = loaded(config, lake).settings
    with progress("Exporting", enabled=Wanted.progress) as show:
        done = exporting.export(
            settings,
            url,
            schema=schema,
            periods=periods,
            weeks=weeks,
            notes=[*(note or ()), *workflow.notes(Lake(settings.lake))],
            show=show,
        )
    for period in done.periods:
        say(f"Exported {period.start} to {period.end} ({to}, schema {schema}).")
    write_rows([{"table": name, "rows": rows} for name, rows in done.rows.items()], form)
