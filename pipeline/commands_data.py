"""Commands that bring data in from elsewhere, check it against the proxy's own tables, and let it go."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.errors import ConfigError, ExitCode, ThresholdError
from pipeline.interrupt import stop_signal
from pipeline.options import Config, Form, LakeRoot, Since, Until, Wanted, day, loaded
from pipeline.output import progress, say, write_rows

if TYPE_CHECKING:
    pass


def register(app: typer.Typer) -> None:
    """Add the commands to *app*."""
    app.command("import")(import_traces)
    app.command()(reconcile)
    app.command()(retention)
    app.command()(catalogue)


def import_traces(
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE…", help="Trace files or folders; with --explain: kinds."),
    ] = None,
    kind: Annotated[
        str | None, typer.Option(help="Kind of the traces. Default: told by each file.", show_default=False)
    ] = None,
    map_: Annotated[
        list[str] | None,
        typer.Option("--map", help="FIELD=COLUMN of a plain table; repeat for more.", show_default=False),
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(help="Keeps session ids of collections apart. Default: the kind.", show_default=False),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say which figures each kind can carry, and import nothing.")
    ] = False,
    config: Config = None,
    lake: LakeRoot = None,
    form: Form = None,
) -> None:
    """Import recorded or published traces, without a proxy; then build with: agentwatt run --offline."""
    from pipeline.extract.traces import registry, table

    if explain:
        kinds = [*(files or ()), *([kind] if kind else ())]
        rows = [row for name in kinds for row in registry.explain(registry.named(name))] or registry.matrix()
        write_rows(rows, form)
        return
    if not files:
        raise ConfigError(
            "There is nothing to import.",
            why=f"Kinds: {', '.join(registry.SOURCES)}.",
            next_step="agentwatt import traces.jsonl.gz; --explain says what each kind gives.",
        )
    from pipeline import importing

    settings = loaded(config, lake).settings
    with stop_signal() as stop, progress("Importing", enabled=Wanted.progress) as show:
        report = importing.import_files(
            settings,
            [Path(f) for f in files],
            kind=kind,
            columns=table.mapping(map_ or ()),
            dataset=dataset,
            show=show,
            stop=stop,
        )
    for note in report.notes:
        say(f"Note: {note}")
    write_rows([f.as_dict() for f in report.files], form)
    if stop.number == signal.SIGINT:
        raise typer.Exit(ExitCode.INTERRUPTED)
    empty = [str(f.path) for f in report.files if f.status == "imported" and not f.calls]
    if empty:
        raise ConfigError(
            f"No record of {', '.join(empty)} became a call.",
            why="The reasons are in the report; nothing of these files counts as imported.",
            next_step="--kind names another kind; agentwatt import --explain lists them.",
        )
    if report.dates:
        say("Build the figures with: agentwatt run --offline")


def catalogue(
    by: Annotated[str, typer.Option(help="key_alias or team_id.")] = "key_alias",
    keep: Annotated[int, typer.Option(help="Tools that would be exposed instead.", min=0)] = 20,
    since: Since = None,
    config: Config = None,
    lake: LakeRoot = None,
    form: Form = None,
) -> None:
    """What resending the tool catalogue costs by key or team, and what exposing fewer tools would save."""
    if by not in ("key_alias", "team_id"):
        raise ConfigError(f"--by {by} is not known.", next_step="Write key_alias or team_id.")
    from datetime import datetime, time

    from pipeline.figures import catalogue as catalogues
    from pipeline.run import connect

    root = loaded(config, lake).settings.lake
    first = day(since, "--since")
    con = connect(root)
    try:
        start = None if first is None else datetime.combine(first, time())
        advice = catalogues.advice(
            con, root, start, None, by="key_alias" if by == "key_alias" else "team_id", keep=keep
        )
    finally:
        con.close()
    rows = [
        {
            by: a.name,
            "calls": a.calls,
            "tools": _rounded(a.tools_per_call),
            "tokens/call": _rounded(a.catalogue_tokens_per_call),
            "ms/call": a.catalogue_ms_per_call,
            "tokens": a.catalogue_tokens_total,
            "source": a.source,
            "keep": a.keep,
            "saved tokens": a.saved_tokens_total,
            "saved ms/call": a.saved_ms_per_call,
        }
        for a in advice
    ]
    write_rows(rows, form)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


def reconcile(
    since: Since = None,
    until: Until = None,
    fail_on: Annotated[
        float | None,
        typer.Option(help="Exit 5 above this per cent of unexplained calls.", min=0, show_default=False),
    ] = None,
    config: Config = None,
    lake: LakeRoot = None,
    form: Form = None,
) -> None:
    """Compare events, ledger rows and LiteLLM's daily sums, and say why they differ."""
    from pipeline import reconcile as books

    settings = loaded(config, lake).settings
    with progress("Comparing", enabled=Wanted.progress):
        found = books.reconcile(settings, since=day(since, "--since"), until=day(until, "--until"))
    for notice in found.notices:
        say(f"Note: {notice}")
    totals = found.summary()
    say(", ".join(f"{key.replace('_', ' ')}: {value}" for key, value in totals.items()))
    write_rows([d.as_dict() for d in found.differences], form)
    percent = found.unexplained_percent()
    if fail_on is not None and percent > fail_on:
        names = sorted({d.name for d in found.differences if not d.explained})
        raise ThresholdError(
            f"{percent:.2f} % of the window is unexplained, more than {fail_on:g} %.",
            why="; ".join(names),
            next_step="The classes above say what each of them means.",
        )


def retention(
    keep_days: Annotated[int, typer.Option(help="Days to keep, the present UTC day included.", min=1)],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would go, and remove nothing.")
    ] = False,
    config: Config = None,
    lake: LakeRoot = None,
    form: Form = None,
) -> None:
    """Remove old dates from the lake: raw records, facts, and what the marts held of them."""
    from pipeline import retention as old

    settings = loaded(config, lake).settings
    with progress("Removing", enabled=Wanted.progress) as show:
        report = old.retain(settings, keep_days, dry_run=dry_run, show=show)
    for notice in report.notices:
        say(f"Note: {notice}")
    write_rows([r.as_dict() for r in report.removed], form)
