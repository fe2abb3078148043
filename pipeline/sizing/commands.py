"""Commands ``plan`` and ``knee``: thin adapters that parse, call the model and print.

Data goes to standard output, everything else to standard error. Exit codes: 0 ok, 2 a wrong input, 5 a
threshold breached (a regression, an assumption that broke, a check that failed under ``--strict``).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from pipeline.sizing import (
    checks,
    document,
    knee,
    measured,
    plan,
    plan_compare,
    plan_file,
    sweep,
    tables,
    tco,
)
from pipeline.sizing.evidence import Evidence
from pipeline.sizing.units import SizingError

EXIT_USAGE = 2
EXIT_THRESHOLD = 5


class Format(StrEnum):
    """How a result is printed."""

    yaml = "yaml"
    json = "json"
    md = "md"


class _DefaultCommand(TyperGroup):
    """A group whose first word may be left out: ``plan FILE`` is ``plan run FILE``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert ``run`` unless a command of the group or help is asked for."""
        if args and args[0] not in self.commands and args[0] not in ("--help", "-h"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


plan_app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    cls=_DefaultCommand,
    no_args_is_help=True,
    help="Size GPUs and gateway from a plan file.",
)
knee_app = typer.Typer(cls=_DefaultCommand, no_args_is_help=True, help="Find the knee of a load sweep.")
app = typer.Typer(no_args_is_help=True, help="Size the platform.")
app.add_typer(plan_app, name="plan")
app.add_typer(knee_app, name="knee")

FormatOption = Annotated[Format, typer.Option("--format", "-f", help="yaml, json or md")]


def _fail(message: object, code: int = EXIT_USAGE) -> NoReturn:
    typer.echo(f"{message}", err=True)
    raise typer.Exit(code)


def _print(data: Any, form: Format, markdown: Callable[[Any], str]) -> None:
    if form is Format.md:
        typer.echo(markdown(data), nl=False)
    elif form is Format.json:
        typer.echo(json.dumps(data, indent=2, ensure_ascii=False))
    else:
        typer.echo(document.dump(data), nl=False)


def _read(path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise SizingError(f"{path}: {error.strerror or error}") from error
    return document.parse(text, path.name).data


@plan_app.command("run")
def run(
    file: Annotated[Path | None, typer.Argument(help="Plan file; published defaults without one.")] = None,
    from_week: Annotated[
        Path | None, typer.Option("--from-week", help="report.json of a measured week, laid over the plan.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="Proxy config.yaml, for the checks.")] = None,
    chart: Annotated[Path | None, typer.Option("--values", help="Chart values, for the checks.")] = None,
    dashboards: Annotated[
        Path | None, typer.Option(help="Folder of dashboards, rules and autoscalers, for the checks.")
    ] = None,
    engine: Annotated[str | None, typer.Option(help="Engine command line, for the checks.")] = None,
    fragments: Annotated[
        Path | None, typer.Option(help="Folder for the matching config.yaml and values.yaml fragments.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 5 when a check fails.")] = False,
    form: FormatOption = Format.yaml,
) -> None:
    """Compute a plan: fleet, regimes, gateway, money, power, intervals and checks."""
    if file is None and from_week is None:
        _fail("give a plan file, or --from-week report.json")
    try:
        stated = plan_file.load(file) if file else measured.published()
        account = week = None
        if from_week is not None:
            week = measured.load(from_week)
            stated, account = measured.overlay(stated, week)
        report = plan.compute(stated)
        if account is not None:
            report["week"] = document.rounded(account)
        found = checks.run(
            Evidence(
                config=None if config is None else _read(config),
                chart=None if chart is None else _read(chart),
                report=None if week is None else week.report,
                plan=report,
                dashboards=None if dashboards is None else _texts(dashboards),
                engine=engine,
            )
        )
        if fragments is not None:
            _write_fragments(report, fragments)
    except SizingError as error:
        _fail(error)
    report["checks"] = [asdict(c) for c in found]
    _print(report, form, tables.plan)
    failed = [c for c in found if c.status == "fail"]
    for check in failed:
        typer.echo(f"check failed: {check.id}: {check.evidence}", err=True)
    if strict and failed:
        raise typer.Exit(EXIT_THRESHOLD)


def _write_fragments(report: dict[str, Any], folder: Path) -> None:
    gateway = report["results"].get("gateway")
    if gateway is None:
        raise SizingError("fragments come from a plan of the method agents")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("config_yaml", "values_yaml"):
            path = folder / name.replace("_", ".")
            path.write_text(document.dump(gateway["fragments"][name]), encoding="utf-8")
            typer.echo(f"wrote {path}", err=True)
    except OSError as error:
        raise SizingError(f"{folder}: {error.strerror or error}") from error


def _texts(folder: Path) -> list[tuple[str, str]]:
    wanted = sorted(p for p in folder.rglob("*") if p.suffix in {".json", ".yaml", ".yml"} and p.is_file())
    if not wanted:
        raise SizingError(f"{folder}: no dashboard, rule or manifest in it")
    return [(str(p.relative_to(folder)), p.read_text(encoding="utf-8")) for p in wanted]


@plan_app.command("diff")
def diff(
    before: Annotated[Path, typer.Argument(help="Computed plan (YAML or JSON).")],
    after: Annotated[Path, typer.Argument(help="Computed plan (YAML or JSON).")],
    form: FormatOption = Format.md,
) -> None:
    """Show what changed between two computed plans."""
    try:
        result = plan_compare.diff(_read(before), _read(after))
    except SizingError as error:
        _fail(error)
    _print(result, form, tables.difference)


@plan_app.command("check")
def check(
    predicted: Annotated[Path, typer.Argument(help="Computed plan (YAML or JSON).")],
    week: Annotated[Path, typer.Argument(help="report.json of the week to check it against.")],
    form: FormatOption = Format.md,
) -> None:
    """Compare a plan with a measured week and name the assumption that broke (exit code 5)."""
    try:
        result = document.rounded(plan_compare.check(_read(predicted), measured.load(week)))
    except SizingError as error:
        _fail(error)
    _print(result, form, tables.verification)
    if not result["holds"]:
        typer.echo(f"broke: {', '.join(result['broke'])}; first suspect: {result['first_suspect']}", err=True)
        raise typer.Exit(EXIT_THRESHOLD)


TtftOption = Annotated[
    float | None, typer.Option("--ttft-ms", help="Target for the time to first token, ms.")
]
TtftPercentile = Annotated[str, typer.Option("--ttft-percentile", help="Percentile of that target.")]
ItlOption = Annotated[float | None, typer.Option("--itl-ms", help="Target for the time between tokens, ms.")]
ItlPercentile = Annotated[str, typer.Option("--itl-percentile", help="Percentile of that target.")]
ShareOption = Annotated[float, typer.Option("--goodput-share", help="Goodput over throughput at least.")]


def _slo(ttft: float | None, ttft_p: str, itl: float | None, itl_p: str, share: float) -> knee.KneeSlo:
    return knee.KneeSlo(ttft, ttft_p.lower(), itl, itl_p.lower(), share)


@knee_app.command("run")
def find(
    results: Annotated[list[Path], typer.Argument(help="Result files or folders of one load tool.")],
    ttft_ms: TtftOption = None,
    ttft_percentile: TtftPercentile = "p99",
    itl_ms: ItlOption = None,
    itl_percentile: ItlPercentile = "p95",
    goodput_share: ShareOption = knee.GOODPUT_SHARE_MIN,
    replica_hour: Annotated[str | None, typer.Option(help="Cost of the tested replica per hour.")] = None,
    power: Annotated[
        Path | None, typer.Option(help="CSV of epoch seconds and watts covering the sweep, for J/token.")
    ] = None,
    boundary: Annotated[
        str, typer.Option(help="Boundary of that power: board, node, rack, facility.")
    ] = "board",
    form: FormatOption = Format.yaml,
) -> None:
    """Find the highest load that keeps the declared SLO; refuse a sweep that never broke."""
    try:
        slo = _slo(ttft_ms, ttft_percentile, itl_ms, itl_percentile, goodput_share)
        rounds = sweep.read_sweep(results, slo)
        found = knee.find_knee(rounds, slo)
        result: dict[str, Any] = document.rounded(found)
        if replica_hour is not None:
            cost = knee.eur_per_million_tokens(tco.money(replica_hour), found.goodput_tok_s)
            result["cost_per_million_tokens"] = str(cost.quantize(tco.money("0.001")))
        if power is not None:
            result["energy"] = document.rounded(
                knee.pair_power(found.at, sweep.read_power(power), boundary=boundary)
            )
        result["sweep"] = document.rounded(sorted(rounds, key=lambda r: r.rate))
    except SizingError as error:
        _fail(error)
    _print(result, form, _knee_table)


def _knee_table(result: dict[str, Any]) -> str:
    columns = (
        "rate",
        "concurrency",
        "ttft_ms",
        "itl_ms",
        "throughput_tok_s",
        "goodput_tok_s",
        "goodput_source",
    )
    rows = [[r[c] for c in columns] for r in result["sweep"]]
    at, broke = result["at"], result["broke_at"]
    return (
        f"# Knee: {at['goodput_tok_s']:g} tok/s at {at['rate']:g} req/s\n\nUnder {result['slo']}. "
        f"Broke at {broke['rate']:g} req/s: {', '.join(result['broke'])}.\n\n{tables.table(columns, rows)}\n"
    )


@knee_app.command("compare")
def compare(
    baseline: Annotated[Path, typer.Argument(help="Result file or folder of the baseline.")],
    candidate: Annotated[Path, typer.Argument(help="Result file or folder of the candidate.")],
    ttft_ms: TtftOption = None,
    ttft_percentile: TtftPercentile = "p99",
    itl_ms: ItlOption = None,
    itl_percentile: ItlPercentile = "p95",
    goodput_share: ShareOption = knee.GOODPUT_SHARE_MIN,
    threshold: Annotated[float, typer.Option(help="Drop of goodput that is a regression.")] = 0.05,
    form: FormatOption = Format.yaml,
) -> None:
    """Compare the knees of two sweeps; exit code 5 when goodput dropped by more than the threshold."""
    try:
        slo = _slo(ttft_ms, ttft_percentile, itl_ms, itl_percentile, goodput_share)
        found = [knee.find_knee(sweep.read_sweep([path], slo), slo) for path in (baseline, candidate)]
        result = knee.compare_knees(found[0], found[1], threshold)
    except SizingError as error:
        _fail(error)
    shown = document.rounded(result)
    _print(shown, form, lambda data: tables.table(("", ""), list(data.items())) + "\n")
    if result.regressed:
        typer.echo(f"goodput at the knee changed by {result.goodput_change:+.1%}", err=True)
        raise typer.Exit(EXIT_THRESHOLD)
