"""Commands ``power meter`` and ``power boards``: bring power into the lake where no scraped exporter does."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated

import typer

from pipeline.errors import ExitCode
from pipeline.interrupt import stop_signal
from pipeline.lake import Lake
from pipeline.options import Config, Form, LakeRoot, loaded
from pipeline.output import say, write_record, write_rows

power_app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Bring measured power into the lake."
)


@power_app.command("meter")
def read_meter(
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="CSV or Parquet logs of a meter.")],
    metric: Annotated[str, typer.Option(help="Series name to write, as power.sources declares it.")],
    time_column: Annotated[str, typer.Option(help="Column of instants.")] = "time",
    value_column: Annotated[str, typer.Option(help="Column of readings.")] = "value",
    device_column: Annotated[
        str | None, typer.Option(help="Column of device names.", show_default=False)
    ] = None,
    zone: Annotated[str, typer.Option(help="Zone of times that name none.")] = "UTC",
    target: Annotated[str, typer.Option(help="Scrape target to write, as pools name it.")] = "meter",
    config: Config = None,
    lake: LakeRoot = None,
    form: Form = None,
) -> None:
    """Read a meter's log: one instant, one number and perhaps a device a row."""
    from pipeline.power.meter import Columns, read

    root = _lake(config, lake)
    columns = Columns(time_column, value_column, device_column, zone)
    reports = [read(root, path, metric=metric, target=target, columns=columns) for path in files]
    for report in reports:
        for reason, count in report.rejected.items():
            say(f"Note: {report.file}: {count:,} rows with {reason} were left out")
    write_rows([r.as_dict() for r in reports], form)


@power_app.command("boards")
def read_boards(
    interval: Annotated[float, typer.Option(help="Seconds between readings.", min=0.1)] = 15.0,
    seconds: Annotated[
        float | None, typer.Option("--for", help="Stop after these seconds.", min=0, show_default=False)
    ] = None,
    config: Config = None,
    lake: LakeRoot = None,
    form: Form = None,
) -> None:
    """Read this machine's NVIDIA boards through the driver (extra gpu)."""
    from pipeline.power.nvml import Boards, record

    root = _lake(config, lake)
    with stop_signal() as stop, Boards() as boards:
        samples = record(root, boards, interval_s=interval, for_s=seconds, stop=stop)
        for name in boards.silent:
            say(f"Note: board {name} gives neither energy nor power")
        write_record({"samples": samples, "silent_boards": boards.silent}, form)
    if stop.number == signal.SIGINT:
        raise typer.Exit(ExitCode.INTERRUPTED)


def _lake(config: Path | None, lake: Path | None) -> Lake:

    root = Lake(loaded(config, lake).settings.lake)
    root.prepare()
    return root
