"""Staging of SpendLogs rows in DuckDB: typed, checked, and merged into one Parquet file per date."""

# ruff: noqa: S608 - identifiers come from the schema; paths are our own

from __future__ import annotations

import csv
import secrets
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pipeline.extract.spend_row import TEXT_COLUMNS
from pipeline.lake import Lake
from pipeline.schema import SCHEMAS

if TYPE_CHECKING:
    import duckdb

TABLE: Final = "raw/spend_logs"
REJECTS: Final = "rejects/spend_logs"
_TIMES: Final = ("start_time", "end_time", "completion_start_time")
#: Mark of a staged row -> why one of its values became null.
_REPAIRS: Final = {
    "lost_spend": "spend not a finite number",
    "lost_count": "token count negative or unreadable",
    "lost_end": "end_time before start_time or unreadable",
}
_CHECKED: Final = ("reason", "start_text", *_REPAIRS)
#: Most texts are ids that hardly repeat: the search for repeated ones ends early, and no filter over them is
#: built, since nothing looks up one id. Smaller row groups keep less in memory. Numbers and lengths of texts
#: as differences (version 2) save what the lowest, and fastest, level of compression costs.
_WRITER: Final = (
    "ROW_GROUP_SIZE 30720, DICTIONARY_SIZE_LIMIT 2000, WRITE_BLOOM_FILTER false, PARQUET_VERSION v2, "
    "COMPRESSION_LEVEL 1"
)
_NARROW: Final = ", ".join(("request_id", "start_time", "extracted_at", *_CHECKED))
#: Text with or without an offset is read as an instant in UTC; a bare number as epoch seconds.
_MACROS: Final = """
CREATE OR REPLACE TEMP MACRO instant(t) AS
  CASE WHEN t SIMILAR TO '[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:.]{8,15}' THEN TRY_CAST(t AS TIMESTAMP)
       WHEN TRY_CAST(t AS DOUBLE) IS NOT NULL
       THEN CASE WHEN TRY_CAST(t AS DOUBLE) BETWEEN 0 AND 4102444800
                 THEN make_timestamp(CAST(round(TRY_CAST(t AS DOUBLE) * 1000000) AS BIGINT)) END
       WHEN isfinite(TRY_CAST(t AS TIMESTAMPTZ)) THEN CAST(TRY_CAST(t AS TIMESTAMPTZ) AS TIMESTAMP) END;
CREATE OR REPLACE TEMP MACRO counted(t) AS
  CASE WHEN TRY_CAST(t AS BIGINT) >= 0 THEN TRY_CAST(t AS BIGINT) END;
"""


@dataclass(slots=True)
class Flushed:
    """What one flush wrote."""

    rows: int = 0
    dates: set[date] = field(default_factory=set)
    rejected: Counter[str] = field(default_factory=Counter)
    repaired: Counter[str] = field(default_factory=Counter)


class SpendStaging:
    """Collects pages and writes them; *now* stamps the rows and bounds plausible start times.

    ``rows`` and ``attached`` tell what is staged, ``flushes`` how often something was written.
    """

    def __init__(self, con: duckdb.DuckDBPyConnection, lake: Lake, now: datetime) -> None:
        self._con = con
        self._lake = lake
        self._now = now
        self.rows = self.flushes = 0
        con.execute(_MACROS)
        columns = ", ".join(f"{name} {type_}" for name, type_ in SCHEMAS[TABLE].items())
        marks = ", ".join(f"{name} BOOLEAN" for name in _REPAIRS)
        con.execute(f"CREATE TEMP TABLE staged ({columns}, reason VARCHAR, start_text VARCHAR, {marks})")
        self.attached: list[str] = []
        self._read = self._identified = ""

    def add(self, rows: Sequence[Sequence[str | None]]) -> None:
        """Stage text rows (see ``TEXT_COLUMNS``); identities in them are already hashed."""
        folder = self._lake.root / ".tmp"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"spend-{secrets.token_hex(8)}.csv"
        try:
            with path.open("w", encoding="utf-8", newline="") as handle:
                # Everything is quoted: a bare carriage return in a value would end the line for the reader.
                csv.writer(handle, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(rows)
            self._load(path)
            self._con.execute(f"INSERT INTO staged BY NAME {self._select('by_hand')}")
            self.rows += len(rows)
        finally:
            path.unlink(missing_ok=True)

    def attach(self, table: str, rows: int, read: str, identified: str) -> None:
        """Take over a table of source rows, without copying them, until they are written.

        Args:
            table: its name; it is dropped at the next flush.
            rows: number of its rows.
            read: SELECT of ``TEXT_COLUMNS`` and what identifies a row, from the relation ``arrived``.
            identified: FROM clause that joins ``p.user_hash`` and ``s.safe`` to what was read, as ``j``.
        """
        self.attached.append(table)
        self._read, self._identified = read, identified
        self.rows += rows

    def gather(self, before: datetime | None = None) -> str:
        """Bring what is staged, or the rows of it that start before an instant, into one relation.

        What there is to check about it goes into the table ``checked``. Returns the relation's name.
        """
        con = self._con
        every = [*SCHEMAS[TABLE], *_CHECKED]
        part = f"FROM staged WHERE {_taken(before)}"
        wide, narrow = [f"SELECT * {part}"], [f"SELECT {_NARROW} {part}"]
        if self.attached:
            union = " UNION ALL ".join(
                f"SELECT * FROM {table} WHERE {_taken(before)}" for table in self.attached
            )
            con.execute(f"CREATE OR REPLACE TEMP VIEW arrived AS {union}")
            con.execute(f"CREATE OR REPLACE TEMP VIEW engine AS {self._read}")
            con.execute(f"CREATE OR REPLACE TEMP VIEW typed AS {self._select('engine')}")
            digests = {"user_hash": "p.user_hash", "row_session_id": "s.safe"}
            chosen = ", ".join(f"{digests.get(name, f'j.{name}')} AS {name}" for name in every)
            wide.append(f"SELECT {chosen} {self._identified.format(relation='typed')}")
            narrow.append(f"SELECT {_NARROW} FROM typed")
        con.execute(f"CREATE OR REPLACE TEMP VIEW arriving AS {' UNION ALL '.join(wide)}")
        con.execute(f"CREATE OR REPLACE TEMP TABLE checked AS {' UNION ALL '.join(narrow)}")
        return "arriving"

    def flush(self, before: datetime | None = None) -> Flushed:
        """Merge the staged rows into the files of their dates; forget them.

        Args:
            before: rows that start at this instant or later stay staged, whatever there is to say of them;
                only for rows whose start the database told as a time.
        """
        flushed = Flushed()
        con = self._con
        self.gather(before)
        reasons = con.execute(
            "SELECT reason, count(*) FROM checked WHERE reason IS NOT NULL GROUP BY reason"
        ).fetchall()
        flushed.rejected.update(dict(reasons))
        counts = con.execute(
            f"SELECT {', '.join(f'COUNT(*) FILTER ({name})' for name in _REPAIRS)} FROM checked"
        )
        flushed.repaired.update(dict(zip(_REPAIRS.values(), counts.fetchone() or (), strict=True)))
        flushed.repaired += Counter()  # drops what did not happen
        days = con.execute(
            "SELECT DISTINCT CAST(start_time AS DATE) FROM checked WHERE reason IS NULL ORDER BY 1"
        ).fetchall()
        for (day,) in days:
            flushed.rows += self._merge(day)
            flushed.dates.add(day)
        if reasons:
            self._reject()
        con.execute("DROP TABLE checked")
        self._forget(before)
        self.flushes += 1
        return flushed

    def _forget(self, before: datetime | None) -> None:
        """Let go of what was written; count what stays."""
        con = self._con
        for name in ("staged", *self.attached):
            con.execute(f"DELETE FROM {name} WHERE {_taken(before)}" if before else f"TRUNCATE {name}")
        left = {n: self._count(n) for n in ("staged", *self.attached)}
        for table in self.attached:
            if not left[table]:
                con.execute(f"DROP TABLE {table}")
        self.attached = [table for table in self.attached if left[table]]
        self.rows = sum(left.values())

    def _count(self, table: str) -> int:
        (count,) = self._con.execute(f"SELECT COUNT(*) FROM {table}").fetchone() or (0,)
        return int(count)

    def _load(self, path: Path) -> None:
        con = self._con
        listed = ", ".join(f"'{name}': 'VARCHAR'" for name in TEXT_COLUMNS)
        con.execute(
            f"""CREATE OR REPLACE TEMP TABLE by_hand AS SELECT * FROM read_csv('{_escape(path)}',
            header = false, auto_detect = false, columns = {{{listed}}}, delim = ',',
            quote = '"', escape = '"', nullstr = '',
            new_line = '\\n', parallel = false, max_line_size = 20000000)"""
        )

    def _select(self, relation: str) -> str:
        """Return the SELECT that types and checks *relation*: ``TEXT_COLUMNS`` as text, or numbers and times.

        Other columns of it come along.
        """
        told = {n: kind for n, kind, *_ in self._con.execute(f"DESCRIBE {relation}").fetchall()}
        now = f"TIMESTAMP '{self._now.isoformat(sep=' ')}'"
        typed = {n: _typed(n, type_, told.get(n, ""), now) for n, type_ in SCHEMAS[TABLE].items()}
        selected = ", ".join(f"{expression} AS {name}" for name, expression in typed.items())
        lost = " OR ".join(
            f"({n} IS NOT NULL AND {typed[n]} IS NULL)" for n, t in SCHEMAS[TABLE].items() if t == "BIGINT"
        )
        others = "".join(f', "{name}"' for name in told if name not in TEXT_COLUMNS)
        return f"""SELECT * EXCLUDE (raw_start, told_end) REPLACE (
              CASE WHEN end_time >= start_time THEN end_time END AS end_time,
              CASE WHEN completion_start_time >= start_time THEN completion_start_time END
                AS completion_start_time),
              CASE WHEN request_id IS NULL THEN 'missing request_id'
                   WHEN start_time IS NULL THEN 'start_time unreadable'
                   WHEN start_time < TIMESTAMP '2020-01-01' OR start_time >= {now} + INTERVAL 1 DAY
                     THEN 'start_time out of range' END AS reason,
              CASE WHEN reason IS NOT NULL THEN left(CAST(raw_start AS VARCHAR), 64) END AS start_text,
              told_end AND (end_time >= start_time) IS NOT TRUE AS lost_end
            FROM (SELECT {selected}{others}, start_time AS raw_start, end_time IS NOT NULL AS told_end,
              spend IS NOT NULL AND {typed["spend"]} IS NULL AS lost_spend, {lost} AS lost_count
              FROM {relation}) AS typed"""

    def _merge(self, day: date) -> int:
        columns = ", ".join(SCHEMAS[TABLE])
        path = Path(TABLE) / f"date={day.isoformat()}" / "rows.parquet"
        stored = self._lake.root / path
        begin = f"TIMESTAMP '{day.isoformat()}'"
        within = f"WHERE reason IS NULL AND start_time >= {begin} AND start_time < {begin} + INTERVAL 1 DAY"
        fresh = f"FROM arriving {within}"
        count, falls = self._con.execute(
            f"""SELECT COUNT(*),
              COUNT(*) FILTER (start_time < before OR (start_time = before AND request_id <= other))
            FROM (SELECT start_time, request_id, lag(start_time) OVER () AS before,
              lag(request_id) OVER () AS other FROM checked {within})"""
        ).fetchone() or (0, 0)
        if not stored.exists() and not falls:  # rows come in their order and once: nothing to sort or merge
            # Joining the digests keeps the order unless the join is turned round for a small day.
            self._con.execute("SET disabled_optimizers = 'build_side_probe_side'")
            try:
                self._lake.write(self._con, f"SELECT {columns} {fresh}", path, options=_WRITER)
            finally:
                self._con.execute("RESET disabled_optimizers")
        elif not stored.exists() or self._changes(stored, fresh):
            older = (
                f"UNION ALL BY NAME SELECT *, 0 AS fresh FROM read_parquet('{_escape(stored)}', "
                "hive_partitioning = false)"
                if stored.exists()
                else ""
            )
            merged = f"""SELECT {columns} FROM (SELECT {columns}, 1 AS fresh {fresh} {older})
                QUALIFY row_number() OVER (
                  PARTITION BY request_id, start_time ORDER BY extracted_at DESC, fresh DESC) = 1"""
            self._lake.write(self._con, merged, path, "start_time, request_id", _WRITER)
        return int(count)

    def _changes(self, stored: Path, fresh: str) -> bool:
        """Whether any staged row of a day is new or differs: an untouched file spares its day a rebuild."""
        compared = ", ".join(name for name in SCHEMAS[TABLE] if name != "extracted_at")
        nothing = ", ".join(f"NULL::{type_} AS {name}" for name, type_ in SCHEMAS[TABLE].items())
        found = self._con.execute(
            f"""SELECT 1 FROM (
              SELECT {compared} {fresh}
              EXCEPT SELECT {compared} FROM (SELECT {nothing} WHERE false UNION ALL BY NAME
                SELECT * FROM read_parquet('{_escape(stored)}', hive_partitioning = false))) LIMIT 1"""
        ).fetchone()
        return found is not None

    def _reject(self) -> None:
        path = Path(REJECTS) / f"date={self._now.date().isoformat()}" / "rows.parquet"
        stored = self._lake.root / path
        older = (
            f"UNION ALL BY NAME SELECT * FROM read_parquet('{_escape(stored)}', hive_partitioning = false)"
        )
        sql = f"""SELECT request_id, reason, start_time, max(extracted_at) AS extracted_at FROM (
            SELECT request_id, reason, start_text AS start_time, extracted_at FROM checked
            WHERE reason IS NOT NULL {older if stored.exists() else ""}) GROUP BY ALL"""
        self._lake.write(self._con, sql, path)


def _taken(before: datetime | None) -> str:
    """Return the condition of the rows that a flush takes: those without a start have no later day."""
    if before is None:
        return "TRUE"
    return f"(start_time < TIMESTAMP '{before.isoformat(sep=' ')}' OR start_time IS NULL)"


def _typed(name: str, type_: str, told: str, now: str) -> str:
    """Return the expression that gives the column *name* its type, null where it has no such value."""
    if name == "extracted_at":
        return now
    if told == "VARCHAR":
        if name in _TIMES:
            return f"instant({name})"
        if type_ == "BIGINT":
            return f"counted({name})"
        return name if type_ == "VARCHAR" else f"TRY_CAST({name} AS {type_})"
    if name in _TIMES:
        return name
    return f"CASE WHEN {name} >= 0 THEN {name} END" if type_ == "BIGINT" else f"TRY_CAST({name} AS {type_})"


def _escape(path: Path) -> str:
    return str(path).replace("'", "''")
