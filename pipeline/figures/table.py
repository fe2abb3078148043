"""Tables of the lake for notebooks: rows as plain Python, and Arrow or pandas where they are installed."""

# ruff: noqa: S608 - names come from closed lists; paths are quoted; values are parameters

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.errors import ConfigError
from pipeline.lake import Lake
from pipeline.schema import SCHEMAS
from pipeline.sql import binding, models

if TYPE_CHECKING:
    import duckdb


def names() -> list[str]:
    """Names of every table that :func:`load` knows."""
    marts = [f"marts/{name.removeprefix('mart_')}" for name in models.PUBLISHED]
    return [*SCHEMAS, *binding.FACTS.values(), *marts]


def load(
    lake: Path,
    name: str,
    *,
    since: date | None = None,
    until: date | None = None,
    columns: Sequence[str] = (),
) -> Table:
    """Open one table of the lake; nothing is read before rows are asked for.

    Args:
        lake: root of the lake.
        name: as it lies in the lake, for example ``facts/call``, ``marts/human_hour`` or ``raw/events``.
        since: first UTC day; of a mart, the first business day.
        until: day after the last one.
        columns: the columns to read; all by default.

    Raises:
        ConfigError: no such table, nothing of it is in the lake, or no such column.
    """
    import duckdb

    if name not in names():
        raise ConfigError(f"There is no table {name}.", why=f"Tables: {', '.join(names())}.")
    paths = Lake(lake).files(name, since=since, until=until)
    if not paths:
        raise ConfigError(f"The lake {lake} holds nothing of {name} there.", next_step="agentwatt run")
    con = duckdb.connect()
    con.execute("SET TimeZone = 'UTC'")
    source = (
        Lake(lake).relation_sql(name, since=since, until=until)
        if name in SCHEMAS
        else f"SELECT * FROM {binding.parquet(paths)}"
    )
    relation = con.sql(source)
    found = Table(name, con, relation)
    return found.project(columns) if columns else found


class Table:
    """A table of the lake. ``relation`` is DuckDB's own and can be filtered and joined further."""

    def __init__(self, name: str, con: duckdb.DuckDBPyConnection, relation: duckdb.DuckDBPyRelation) -> None:
        self.name = name
        self.connection = con
        self.relation = relation

    @property
    def columns(self) -> list[str]:
        """Names of its columns."""
        return list(self.relation.columns)

    def project(self, columns: Sequence[str]) -> Table:
        """Return the table with only *columns*.

        Raises:
            ConfigError: it has no such column; the table is closed.
        """
        if absent := [c for c in columns if c not in self.relation.columns]:
            self.connection.close()
            raise ConfigError(
                f"{self.name} has no column {', '.join(absent)}.", why=f"Columns: {', '.join(self.columns)}."
            )
        chosen = self.relation.project(", ".join(f'"{c}"' for c in columns))
        return Table(self.name, self.connection, chosen)

    def rows(self) -> list[dict[str, Any]]:
        """Return all rows as dictionaries of plain Python values."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.relation.fetchall()]

    def arrow(self) -> Any:
        """Return a ``pyarrow.Table``.

        Raises:
            ConfigError: pyarrow is not installed.
        """
        _need("pyarrow")
        return self.relation.to_arrow_table()

    def pandas(self) -> Any:
        """Return a ``pandas.DataFrame``.

        Raises:
            ConfigError: pandas or numpy is not installed.
        """
        _need("pandas", "numpy")
        return self.relation.df()

    def __len__(self) -> int:
        found = self.relation.count("*").fetchone()
        return int(found[0]) if found else 0


def _need(*packages: str) -> None:
    absent = [p for p in packages if find_spec(p) is None]
    if absent:
        raise ConfigError(
            f"{' and '.join(absent)} is not installed.",
            why="Only notebooks need it, so it is no dependency.",
            next_step=f"pip install {' '.join(absent)}, or use rows(), which needs nothing.",
        )
