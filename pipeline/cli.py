"""The command ``agentwatt``. Data goes to stdout, all else to stderr; heavy libraries load on use.

Exit codes: 0 ok, 1 unexpected, 2 usage or settings, 3 something unreachable or locked, 4 audit failed,
5 threshold breached, 130 interrupted.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from pipeline import commands_data, commands_export, commands_figures
from pipeline.deferred import RootGroup
from pipeline.errors import AgentwattError, AuditFailedError, ConfigError, ExitCode, UnreachableError
from pipeline.interrupt import Stop, stop_signal
from pipeline.options import Config, Form, LakeRoot, Since, Until, Wanted, day, loaded
from pipeline.output import Format, progress, say, show_error, write_record, write_rows

app = typer.Typer(
    name="agentwatt",
    cls=RootGroup,
    help="Measures agentic LLM traffic at a LiteLLM gateway and sizes the platform for it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
config_app = typer.Typer(help="Show the settings.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(config_app, name="config")


@app.callback()
def _root(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    no_progress: Annotated[bool, typer.Option("--no-progress", help="No progress on stderr.")] = False,
) -> None:
    Wanted.debug = debug
    Wanted.progress = not no_progress


@app.command()
def collect(
    once: Annotated[bool, typer.Option("--once/--follow", help="Stop at the end, or go on reading.")] = True,
    max_wait: Annotated[
        float | None,
        typer.Option(
            help="Seconds. --once: wait this long for a first entry (default 0). "
            "--follow: write an entry at the latest this long after it was read (default 30).",
            min=0,
            show_default=False,
        ),
    ] = None,
    spool: Annotated[
        Path | None, typer.Option(help="Read the plugin's spool files instead of the stream.")
    ] = None,
    config: Config = None,
    lake: LakeRoot = None,
    form: Form = None,
) -> None:
    """Read the plugin's events into the lake."""
    from pipeline import workflow

    settings = loaded(config, lake).settings
    with stop_signal() as stop, progress("Collecting", enabled=Wanted.progress) as show:
        report = workflow.collect(
            settings, once=once, max_wait_s=max_wait, spool=spool, stop=stop.is_set, show=show
        )
    for notice in report.notices:
        say(f"Note: {notice}")
    write_record(report.as_dict(), form)
    _end(stop)


@app.command()
def scrape(
    urls: Annotated[list[str] | None, typer.Argument(help="Metrics endpoints.", show_default=False)] = None,
    interval: Annotated[float, typer.Option(help="Seconds between scrapes.", min=0.05)] = 15.0,
    seconds: Annotated[
        float | None, typer.Option("--for", help="Stop after these seconds.", min=0, show_default=False)
    ] = None,
    target_name: Annotated[
        list[str] | None, typer.Option(help="Name of each endpoint, in order.", show_default=False)
    ] = None,
    match: Annotated[
        str | None, typer.Option(help="Regular expression at the start of metric names to keep.")
    ] = None,
    prometheus: Annotated[
        str | None, typer.Option(help="Read a Prometheus server instead; needs --query and --since.")
    ] = None,
    query: Annotated[list[str] | None, typer.Option(help="PromQL selector.", show_default=False)] = None,
    step: Annotated[float, typer.Option(help="Seconds between samples of --query.", min=1)] = 15.0,
    since: Since = None,
    until: Until = None,
    config: Config = None,
    lake: LakeRoot = None,
    form: Form = None,
) -> None:
    """Write metrics of engines and exporters into the lake."""
    from pipeline import scraping

    settings = loaded(config, lake).settings
    configured = settings.metrics.prometheus_url
    address = prometheus or (configured.get_secret_value() if query and configured else None)
    if address:
        first, last = day(since, "--since"), day(until, "--until")
        if not query or first is None:
            raise ConfigError("--prometheus needs --query and --since.", next_step="agentwatt scrape --help")
        with progress("Reading Prometheus", enabled=Wanted.progress) as show:
            for report in scraping.read_prometheus(settings, address, query, first, last, step, show):
                write_record(report, form)
        return
    if not urls:
        raise ConfigError(
            "There is nothing to scrape.", next_step="agentwatt scrape http://host:8000/metrics"
        )
    with stop_signal() as stop, progress("Scraping", enabled=Wanted.progress) as show:
        result = scraping.scrape(settings, urls, target_name or [], interval, seconds, match, stop, show)
    write_record(result.as_dict(), form)
    if result.scrapes and result.scrapes == result.failed.total():
        raise UnreachableError(
            "No scrape succeeded.", why=result.last_error or "", next_step="Check the addresses with curl."
        )
    _end(stop)


@app.command()
def run(
    since: Since = None,
    until: Until = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Read no stream and no database; build from the lake.")
    ] = False,
    build: Annotated[bool, typer.Option("--build/--no-build", help="Build facts and marts.")] = True,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be read, built and repaired; change nothing.")
    ] = False,
    config: Config = None,
    lake: LakeRoot = None,
    form: Form = None,
) -> None:
    """Collect, extract, then build facts and marts. Run it again at any time."""
    from pipeline import workflow

    settings = loaded(config, lake).settings
    first, last = day(since, "--since"), day(until, "--until")
    if dry_run:
        found = workflow.preview(settings, since=first, until=last, offline=offline, build=build)
        write_rows([step.as_dict() for step in found.steps], form)
        for sentence in found.sentences():
            say(sentence)
        return
    with stop_signal() as stop, progress("Running", enabled=Wanted.progress) as show:
        outcome = workflow.run(
            settings, since=first, until=last, offline=offline, build=build, show=show, stop=stop
        )
    for notice in outcome.notices:
        say(f"Note: {notice}")
    write_record(outcome.summary, form)
    _end(stop)
    if outcome.failed_audits:
        raise AuditFailedError(
            f"{len(outcome.failed_audits)} audits found rows that must not exist.",
            why="; ".join(outcome.failed_audits),
            next_step="The facts were built; look at the rows before using the figures.",
        )


@app.command()
def report(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the report.")] = Path("report"),
    week: Annotated[
        str | None,
        typer.Option(
            help="A business week, 2026-W48, or last: the newest complete one. Default: the whole lake.",
            show_default=False,
        ),
    ] = None,
    since: Since = None,
    until: Until = None,
    note: Annotated[
        list[str] | None, typer.Option(help="Something a reader must know; repeat for more.")
    ] = None,
    config: Config = None,
    lake: LakeRoot = None,
    form: Form = None,
) -> None:
    """Write the report of a window: HTML, Markdown, JSON, CSV, and the computed plan."""
    from pipeline import workflow
    from pipeline.sizing.units import SizingError

    settings = loaded(config, lake).settings
    first, last = day(since, "--since"), day(until, "--until")
    try:
        with progress("Writing the report", enabled=Wanted.progress):
            files = workflow.report(settings, out, since=first, until=last, week=week, more_notes=note or ())
    except SizingError as error:
        raise ConfigError(
            "A file that the settings name under sizing cannot be used.", why=str(error)
        ) from error
    write_rows([{"file": str(path)} for path in files], form)


@app.command()
def status(config: Config = None, lake: LakeRoot = None, form: Form = None) -> None:
    """What the lake holds, how far each source is read, and who is writing."""
    from pipeline import status as state

    root = loaded(config, lake).settings.lake
    if not root.is_dir():
        raise ConfigError(
            f"There is no lake at {root}.", next_step="agentwatt run fills it; --lake names another."
        )
    for part in state.parts(root, as_tables=form is Format.TABLE or (form is None and sys.stdout.isatty())):
        write_rows(part, form)
    if writer := state.writer(root):
        say(f"Being written by {writer}.")


@app.command()
def compact(
    minimum: Annotated[int, typer.Option(help="Leave dates with fewer files alone.", min=2)] = 4,
    config: Config = None,
    lake: LakeRoot = None,
    form: Form = None,
) -> None:
    """Merge the small files of each date. The next run builds its facts anew."""
    from pipeline import workflow

    settings = loaded(config, lake).settings
    with progress("Compacting", enabled=Wanted.progress) as show:
        rows = workflow.compact(settings, minimum, show)
    write_rows(rows, form)


@app.command()
def doctor(config: Config = None, lake: LakeRoot = None, form: Form = None) -> None:
    """Check settings, lake, connections, schema and clocks."""
    found = loaded(config, lake)
    from pipeline.doctor import examine, exit_code

    checks = examine(found.settings)
    write_rows([c.as_dict() for c in checks], form)
    for notice in found.notices:
        say(f"Note: {notice}")
    raise typer.Exit(exit_code(checks))


@config_app.command("show")
def config_show(
    origin: Annotated[bool, typer.Option("--origin", help="Say where each value comes from.")] = False,
    config: Config = None,
    lake: LakeRoot = None,
    form: Form = None,
) -> None:
    """Print every setting; secrets are masked."""
    found = loaded(config, lake)
    rows = found.rows()
    write_rows(rows if origin else [{"key": r["key"], "value": r["value"]} for r in rows], form)
    for notice in found.notices:
        say(f"Note: {notice}")


commands_data.register(app)
commands_export.register(app)
app.command()(commands_figures.figures)


def main() -> None:
    """Run the command line and turn errors into one explanation and an exit code."""
    try:
        app(prog_name="agentwatt")
    except AgentwattError as error:
        if Wanted.debug:
            raise
        show_error(error)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(ExitCode.OK)
    except Exception as error:
        if Wanted.debug:
            raise
        show_error(
            AgentwattError(
                "Something unexpected went wrong.",
                why=f"{type(error).__name__}: {error}",
                next_step="Run the same command as agentwatt --debug … and report the traceback.",
            )
        )
        sys.exit(ExitCode.UNEXPECTED)


def _end(stop: Stop) -> None:
    if stop.number == signal.SIGINT:
        raise typer.Exit(ExitCode.INTERRUPTED)


if __name__ == "__main__":
    main()
