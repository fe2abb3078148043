"""The lake: Parquet (zstd) in Hive folders ``date=YYYY-MM-DD``, written to a temporary name and renamed.

A reader never sees half a file: it appears by rename after its bytes are on disk. Files that
replace others do so through a journal that readers honour, so a crash in between shows neither loss nor
duplicates.
"""

# ruff: noqa: S608 - identifiers come from pipeline.schema and paths are quoted; there is no other input

from __future__ import annotations

import json
import os
import re
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline import engine
from pipeline.durable import sync, write_text
from pipeline.errors import ConfigError
from pipeline.schema import SCHEMAS

if TYPE_CHECKING:
    import duckdb

__all__ = ["Lake", "TableSize", "connect", "finish_compaction", "write_text"]

_DATE = re.compile(r"date=(\d{4}-\d{2}-\d{2})")
_JOURNAL = ".compaction.json"


@dataclass(frozen=True, slots=True)
class TableSize:
    """What one table of the lake holds on disk."""

    table: str
    files: int
    bytes: int
    first_date: date | None
    last_date: date | None


class Lake:
    """Files of one lake root."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def prepare(self) -> None:
        """Create the root and prove that it can be written.

        Raises:
            ConfigError: the folder cannot be made or written.
        """
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            probe = self.root / f".probe-{secrets.token_hex(4)}"
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise ConfigError(
                f"The lake {self.root} cannot be written.",
                why=str(error),
                next_step="Set lake (or --lake) to a folder that this user may write.",
            ) from None

    # -- listing

    def dates(self, table: str) -> list[date]:
        """Dates that have a folder with at least one file, rising."""
        found = {d for path in self.files(table) if (d := _date_of(path)) is not None}
        return sorted(found)

    def files(self, table: str, *, since: date | None = None, until: date | None = None) -> list[Path]:
        """Parquet files of *table*, dates within ``[since, until)``, without files a compaction replaced."""
        folder = self.root / table
        paths: list[Path] = []
        if not folder.is_dir():
            return paths
        for part in [folder, *sorted(folder.glob("date=*"))]:
            day = _date_of(part)
            if day and ((since and day < since) or (until and day >= until)):
                continue
            paths += [p for p in _visible(part) if p.is_file()]
        return paths

    def day_files(self, table: str, day: date) -> list[Path]:
        """Parquet files of one date of *table*, without files that others replaced."""
        return [p for p in _visible(self.root / table / f"date={day.isoformat()}") if p.is_file()]

    def size(self, table: str) -> TableSize:
        """Files, bytes and date range of *table*."""
        paths, dates = self.files(table), self.dates(table)
        total = sum(p.stat().st_size for p in paths)
        return TableSize(table, len(paths), total, dates[0] if dates else None, dates[-1] if dates else None)

    # -- reading

    def relation_sql(self, table: str, *, since: date | None = None, until: date | None = None) -> str:
        """A SELECT over *table* with the declared columns and types, whatever the files hold.

        No file gives an empty relation; a column that older files lack is null.
        """
        columns = {**SCHEMAS[table], "date": "DATE"}
        nothing = ", ".join(f"NULL::{type_} AS {name}" for name, type_ in columns.items())
        empty = f"SELECT {nothing} WHERE false"
        paths = self.files(table, since=since, until=until)
        if not paths:
            return empty
        listed = ", ".join(_quote(str(p)) for p in paths)
        stored = (
            f"SELECT * FROM read_parquet([{listed}], union_by_name = true, hive_partitioning = true, "
            "hive_types = {'date': DATE})"
        )
        typed = ", ".join(f"{name}::{type_} AS {name}" for name, type_ in columns.items())
        return f"SELECT {typed} FROM ({empty} UNION ALL BY NAME {stored})"

    def view(self, con: duckdb.DuckDBPyConnection, table: str, name: str | None = None) -> str:
        """Create a view over *table* (default name: the table with ``/`` as ``_``) and return its name."""
        name = name or table.replace("/", "_")
        con.execute(f"CREATE OR REPLACE VIEW {name} AS {self.relation_sql(table)}")
        return name

    # -- writing

    def write(
        self, con: duckdb.DuckDBPyConnection, sql: str, path: Path, order: str = "", options: str = ""
    ) -> int:
        """Write the rows of *sql* to *path* (relative to the root) atomically; return the number of rows.

        *options* are further ones of the Parquet writer, such as ``ROW_GROUP_SIZE 61440``.

        The temporary name lies in the same folder, so that the rename stays in one file system.
        """
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp")
        ordered = f"SELECT * FROM ({sql}) ORDER BY {order}" if order else sql
        further = f", {options}" if options else ""
        try:
            result = con.execute(
                f"COPY ({ordered}) TO {_quote(str(temporary))} (FORMAT parquet, COMPRESSION zstd{further})"
            ).fetchone()
            sync(temporary)
            temporary.replace(target)
            sync(target.parent)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        return int(result[0]) if result else 0

    def write_columns(
        self,
        con: duckdb.DuckDBPyConnection,
        table: str,
        path: Path,
        rows: Sequence[Sequence[Any]],
        order: str,
    ) -> int:
        """Write *rows* (values in the order of ``SCHEMAS[table]``) to *path* atomically.

        DuckDB takes a NaN inside a list for null, which is what a sample without observations means.
        """
        schema = SCHEMAS[table]
        columns = [list(values) for values in zip(*rows, strict=True)] or [[] for _ in schema]
        con.execute("DROP TABLE IF EXISTS staged_rows")
        con.execute(
            "CREATE TEMP TABLE staged_rows AS SELECT "
            + ", ".join(f"unnest(?::{type_}[]) AS {name}" for name, type_ in schema.items()),
            columns,
        )
        try:
            return self.write(con, "SELECT * FROM staged_rows", path, order)
        finally:
            con.execute("DROP TABLE IF EXISTS staged_rows")

    def write_aside(
        self, con: duckdb.DuckDBPyConnection, sql: str, folder: Path, name: str, *, empty: bool = False
    ) -> Path | None:
        """Write the rows of *sql* to a hidden file for *folder*; None where there is no row, unless *empty*.

        :meth:`replace` makes it visible. Its name ends in ``.tmp``, so :meth:`sweep` finds what a crash left.
        """
        (self.root / folder).mkdir(parents=True, exist_ok=True)
        target = self.root / folder / f".{name}.tmp"
        result = con.execute(
            f"COPY ({sql}) TO {_quote(str(target))} (FORMAT parquet, COMPRESSION zstd)"
        ).fetchone()
        if not empty and (not result or not result[0]):
            target.unlink()
            return None
        return target

    def replace(self, folder: Path, aside: Sequence[Path]) -> None:
        """Let the hidden files *aside* take the place of everything in *folder*, at once for every reader."""
        place = self.root / folder
        finish_compaction(place)
        old = _visible(place)
        if not aside:
            for path in old:
                path.unlink()
            if place.is_dir() and not any(place.iterdir()):
                place.rmdir()
            return
        targets = [place / p.name.removeprefix(".").removesuffix(".tmp") for p in aside]
        for path in aside:
            sync(path)
        plan = {
            "output": targets[-1].name,
            "outputs": [t.name for t in targets],
            "inputs": [p.name for p in old],
        }
        write_text(place / _JOURNAL, json.dumps(plan))
        for path, target in zip(aside, targets, strict=True):
            path.replace(target)
        finish_compaction(place)

    def read_state(self, source: str) -> dict[str, Any]:
        """What *source* remembered (watermarks, counters); empty when it never ran.

        Raises:
            ConfigError: the state file is damaged.
        """
        path = self.root / "state" / f"{source}.json"
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"The state file {path} cannot be read.",
                why=str(error),
                next_step="Remove it: the source is then read again from its beginning, without duplicates.",
            ) from None
        return content if isinstance(content, dict) else {}

    def write_state(self, source: str, state: Mapping[str, Any]) -> None:
        """Replace the memory of *source* atomically."""
        write_text(self.root / "state" / f"{source}.json", json.dumps(state, indent=1, sort_keys=True) + "\n")

    def sweep(self, older_than_s: float = 86_400.0) -> int:
        """Remove temporary files that killed processes left; return how many."""
        limit = time.time() - older_than_s
        stale = [p for p in self.root.rglob(".*.tmp") if p.is_file() and p.stat().st_mtime < limit]
        stale += [p for p in (self.root / ".tmp").glob("*") if p.is_file() and p.stat().st_mtime < limit]
        for path in stale:
            path.unlink(missing_ok=True)
        return len(stale)

    # -- compaction

    def compact(self, con: duckdb.DuckDBPyConnection, table: str, day: date, *, minimum: int = 2) -> int:
        """Merge the files of one date into one; return how many files went into it (0: nothing to do).

        Identical rows of events (same stream id) and of metrics are written once. Call it under the writer
        lock: two compactions of one date must not overlap. Collectors may keep adding files meanwhile.
        """
        folder = self.root / table / f"date={day.isoformat()}"
        finish_compaction(folder)
        sources = _visible(folder)
        if len(sources) < max(2, minimum):
            return 0
        listed = ", ".join(_quote(str(p)) for p in sources)
        columns = ", ".join(SCHEMAS[table])
        stored = f"SELECT * FROM read_parquet([{listed}], union_by_name = true, hive_partitioning = false)"
        nothing = ", ".join(f"NULL::{type_} AS {name}" for name, type_ in SCHEMAS[table].items())
        rows = f"SELECT {columns} FROM (SELECT {nothing} WHERE false UNION ALL BY NAME {stored})"
        if table == "raw/metrics":
            rows = f"SELECT DISTINCT * FROM ({rows})"
        elif table in {"raw/events", "rejects/events"}:
            rows += " QUALIFY row_number() OVER (PARTITION BY stream_id ORDER BY collected_at) = 1"
        target = folder / f"compact-{secrets.token_hex(8)}.parquet"
        # The journal comes first and counts only once its output exists: before the rename readers see the
        # inputs, after it they see the output.
        write_text(
            folder / _JOURNAL, json.dumps({"output": target.name, "inputs": [p.name for p in sources]})
        )
        self.write(con, rows, target.relative_to(self.root))
        finish_compaction(folder)
        return len(sources)


@contextmanager
def connect() -> Iterator[duckdb.DuckDBPyConnection]:
    """A private in-memory DuckDB in UTC."""
    con = engine.connect(threads=max(1, min(4, os.cpu_count() or 1)))
    try:
        yield con
    finally:
        con.close()


def finish_compaction(folder: Path) -> None:
    """Complete or forget a replacement of files that a crash left in *folder*."""
    plan = _journal(folder)
    if plan is None:
        return
    for name in _hidden(folder, plan):
        (folder / name).unlink(missing_ok=True)
    sync(folder)
    (folder / _JOURNAL).unlink(missing_ok=True)


def _hidden(folder: Path, plan: dict[str, Any]) -> set[str]:
    """The names that readers pass over: the old files once the last new one is there, the new ones before."""
    done = (folder / plan["output"]).exists()
    return set(plan["inputs"] if done else plan.get("outputs", ()))


def _visible(folder: Path) -> list[Path]:
    plan = _journal(folder)
    hidden = _hidden(folder, plan) if plan else ()
    return [p for p in sorted(folder.glob("*.parquet")) if p.name not in hidden]


def _journal(folder: Path) -> dict[str, Any] | None:
    try:
        plan = json.loads((folder / _JOURNAL).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError:
        return None
    return plan if isinstance(plan, dict) and {"output", "inputs"} <= plan.keys() else None


def _date_of(path: Path) -> date | None:
    found = _DATE.search(path.as_posix())
    try:
        return date.fromisoformat(found[1]) if found else None
    except ValueError:
        return None


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
