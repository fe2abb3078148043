"""Binds the lake's Parquet files to the relation names that the models use.

The only place that knows paths and ``read_parquet``: a model names ``raw_event`` or ``fct_call`` and runs
unchanged wherever these relations exist.
"""

# ruff: noqa: S608 - relation names and columns are our own; paths are quoted; values are parameters

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pipeline.lake import Lake
from pipeline.schema import SCHEMAS

if TYPE_CHECKING:
    import duckdb

#: relation name -> (folder below the lake, columns)
RAW: Final = {
    relation: (table, SCHEMAS[table])
    for relation, table in (
        ("raw_event", "raw/events"),
        ("raw_spend_log", "raw/spend_logs"),
        ("raw_metric", "raw/metrics"),
    )
}
#: fact relation -> folder below the lake
FACTS: Final = {
    "fct_call": "facts/call",
    "fct_turn": "facts/turn",
    "fct_session": "facts/session",
    "fct_potential": "facts/potential",
}


def files(lake: Path, folder: str, days: Iterable[date] | None = None) -> list[Path]:
    """Return the Parquet files of *folder*, of all days or of the given ones, in a stable order."""
    wanted = None if days is None else set(days)
    dated = (p for p in Lake(lake).files(folder) if p.parent.name.startswith("date="))
    return sorted(p for p in dated if wanted is None or day_of(p) in wanted)


def day_of(path: Path) -> date:
    """Return the day of a file's ``date=`` folder."""
    return date.fromisoformat(path.parent.name.removeprefix("date="))


def bind_raw(con: duckdb.DuckDBPyConnection, relation: str, paths: list[Path]) -> None:
    """Bind a raw relation to *paths*; columns that the files lack are null, unknown ones are left out."""
    _, columns = RAW[relation]
    typed = ", ".join(f'CAST(NULL AS {kind}) AS "{name}"' for name, kind in columns.items())
    chosen = ", ".join(f'CAST("{name}" AS {kind}) AS "{name}"' for name, kind in columns.items())
    source = f"SELECT {typed} WHERE FALSE"
    if paths:
        source += f" UNION ALL BY NAME SELECT * FROM {parquet(paths)}"
    con.execute(f"CREATE OR REPLACE TEMP VIEW {relation} AS SELECT {chosen} FROM ({source})")


def bind_fact(con: duckdb.DuckDBPyConnection, relation: str, paths: list[Path]) -> None:
    """Bind a fact relation to *paths*.

    Raises:
        FileNotFoundError: there are no files, so the relation's columns are unknown.
    """
    if not paths:
        raise FileNotFoundError(f"no files for {relation}")
    con.execute(f"CREATE OR REPLACE TEMP VIEW {relation} AS SELECT * FROM {parquet(paths)}")


def parquet(paths: list[Path], *, with_day: bool = False) -> str:
    """Return the table function over *paths*; *with_day* adds the folder's day as column ``date``."""
    listed = ", ".join("'" + str(p).replace("'", "''") + "'" for p in paths)
    partitions = "true, hive_types = {'date': DATE}" if with_day else "false"
    return f"read_parquet([{listed}], union_by_name = true, hive_partitioning = {partitions})"
