"""Options that several commands take, read in one way."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.errors import ConfigError
from pipeline.output import Format

if TYPE_CHECKING:
    from pipeline.layers import Loaded

Config = Annotated[Path | None, typer.Option("--config", help="Settings file (YAML).", show_default=False)]
LakeRoot = Annotated[Path | None, typer.Option("--lake", help="Folder of the lake.", show_default=False)]
Form = Annotated[
    Format | None,
    typer.Option("--format", help="Format on stdout. Default: table on a terminal, jsonl in a pipe."),
]
Since = Annotated[str | None, typer.Option("--since", help="First UTC day, YYYY-MM-DD.", show_default=False)]
Until = Annotated[
    str | None, typer.Option("--until", help="Day after the last, YYYY-MM-DD.", show_default=False)
]


class Wanted:
    """What the options before the command's name ask for."""

    debug = False
    progress = True


def loaded(config: Path | None, lake: Path | None) -> Loaded:
    """Return the settings and where each came from.

    Raises:
        ConfigError: a file, variable or value cannot be used.
    """
    from pipeline.layers import load

    return load(config, {"lake": lake})


def day(text: str | None, option: str) -> date | None:
    """Return the day that *option* names, None where it was not given.

    Raises:
        ConfigError: it is no day.
    """
    if text is None:
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"{option} {text} is no day.", next_step="Write it as 2026-11-29 (UTC).") from None
