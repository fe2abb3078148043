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


#: Retentions that have columns of their own in fct_call; files of fct_potential hold the others.
_CALL_RETENTIONS: Final = ("inf", "3600", "300")
#: Above the rows of any one file: numbers of records run through the files of a relation.
_ROWS_MAX: Final = 1 << 36


def files(lake: Path, folder: str, days: Iterable[date] | None = None) -> list[Path]:
    """Return the Parquet files of *folder*, of all days or of the given ones, in a stable order.

    Files outside the folders of days are left out; :func:`stray` names them.
    """
    if days is None:
        return sorted(p for p in Lake(lake).files(folder) if day_named(p.parent.name) is not None)
    found: list[Path] = []
    for day in sorted(set(days)):
        found += Lake(lake).day_files(folder, day)
    return found


def days(lake: Path, folder: str) -> set[date]:
    """Return the days that have a file in *folder*."""
    return {day_of(p) for p in files(lake, folder)}


def stray(lake: Path) -> list[str]:
    """Return the places below the raw tables whose files belong to no day, such as ``raw/events/date=x``."""
    found = set()
    for table, _ in RAW.values():
        for path in (lake / table).rglob("*.parquet"):
            if path.parent.parent != lake / table or day_named(path.parent.name) is None:
                found.add(str(path.parent.relative_to(lake)))
    return sorted(found)


def day_of(path: Path) -> date:
    """Return the day of a file's ``date=`` folder."""
    return date.fromisoformat(path.parent.name.removeprefix("date="))


def day_named(folder: str) -> date | None:
    """Return the day that a folder's name tells, or None where it tells none."""
    try:
        return date.fromisoformat(folder.removeprefix("date=")) if folder.startswith("date=") else None
    except ValueError:
        return None


def bind_raw(con: duckdb.DuckDBPyConnection, relation: str, paths: list[Path]) -> None:
    """Bind a raw relation to *paths*; columns that the files lack are null, unknown ones are left out.

    Records have a number, ``record_number``, for as long as the relation is bound.
    """
    con.execute(f"CREATE OR REPLACE TEMP VIEW {relation} AS {raw_query(relation, paths)}")


def raw_query(relation: str, paths: list[Path], where: str = "", *, number_from: int = 0) -> str:
    """Return the query behind :func:`bind_raw`.

    *where* restricts the records; *number_from* keeps their numbers apart from those of as many other files.
    """
    columns = RAW[relation][1] | {"record_number": "BIGINT"}
    typed = ", ".join(f'CAST(NULL AS {kind}) AS "{name}"' for name, kind in columns.items())
    chosen = ", ".join(f'CAST("{name}" AS {kind}) AS "{name}"' for name, kind in columns.items())
    source = f"SELECT {typed} WHERE FALSE"
    if paths:
        number = f"(file_index + {number_from}) * {_ROWS_MAX} + file_row_number AS record_number"
        source += f" UNION ALL BY NAME SELECT *, {number} FROM {parquet(paths)}"
    return f"SELECT {chosen} FROM ({source})" + (f" WHERE {where}" if where else "")


def bind_fact(con: duckdb.DuckDBPyConnection, relation: str, paths: list[Path]) -> None:
    """Bind a fact relation to *paths*; for ``fct_potential``, ``fct_call`` must be bound.

    Raises:
        FileNotFoundError: there are no files, so the relation's columns are unknown.
    """
    if relation == "fct_potential":
        con.execute(f"CREATE OR REPLACE TEMP VIEW {relation} AS {_potential(paths)}")
        return
    if not paths:
        raise FileNotFoundError(f"no files for {relation}")
    con.execute(f"CREATE OR REPLACE TEMP VIEW {relation} AS SELECT * FROM {parquet(paths)}")


def _potential(paths: list[Path]) -> str:
    """The query of fct_potential: what the columns of fct_call tell, and the rows of other retentions."""
    parts = [
        f"SELECT call_id, '{label}' AS retention, CAST(input_tokens AS DOUBLE) AS input_tokens, "
        f"potential_{label}_tokens AS potential_tokens FROM fct_call "
        f"WHERE potential_{label}_tokens IS NOT NULL"
        for label in _CALL_RETENTIONS
    ]
    if paths:
        parts.append(f"SELECT call_id, retention, input_tokens, potential_tokens FROM {parquet(paths)}")
    return " UNION ALL ".join(parts)


#: What of fct_potential is written: the rest stands in fct_call.
OTHER_POTENTIAL: Final = (
    "SELECT p.call_id, p.retention, p.input_tokens, p.potential_tokens, c.start_date "
    "FROM fct_call AS c JOIN fct_potential AS p ON p.call_id = c.call_id "
    f"WHERE p.retention NOT IN {_CALL_RETENTIONS}"
)


def parquet(paths: list[Path], *, with_day: bool = False) -> str:
    """Return the table function over *paths*; *with_day* adds the folder's day as column ``date``."""
    listed = ", ".join("'" + str(p).replace("'", "''") + "'" for p in paths)
    partitions = "true, hive_types = {'date': DATE}" if with_day else "false"
    return f"read_parquet([{listed}], union_by_name = true, hive_partitioning = {partitions})"
