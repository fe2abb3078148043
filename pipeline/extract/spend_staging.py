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
    """Collects pages and writes them; *now* stamps the rows and bounds plausible start times."""

    def __init__(self, con: duckdb.DuckDBPyConnection, lake: Lake, now: datetime) -> None:
        self._con = con
        self._lake = lake
        self._now = now
        self.rows = 0
        con.execute(_MACROS)
        columns = ", ".join(f"{name} {type_}" for name, type_ in SCHEMAS[TABLE].items())
        con.execute(f"CREATE TEMP TABLE staged ({columns}, reason VARCHAR, start_text VARCHAR)")
        con.execute("CREATE TEMP TABLE repairs (reason VARCHAR, n BIGINT)")

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
            self.insert()
        finally:
            path.unlink(missing_ok=True)

    def flush(self) -> Flushed:
        """Merge the staged rows into the files of their dates; forget them."""
        flushed = Flushed()
        con = self._con
        reasons = con.execute(
            "SELECT reason, count(*) FROM staged WHERE reason IS NOT NULL GROUP BY reason"
        ).fetchall()
        flushed.rejected.update(dict(reasons))
        flushed.repaired.update(
            dict(con.execute("SELECT reason, sum(n)::BIGINT FROM repairs GROUP BY 1").fetchall())
        )
        days = con.execute(
            "SELECT DISTINCT CAST(start_time AS DATE) FROM staged WHERE reason IS NULL ORDER BY 1"
        ).fetchall()
        for (day,) in days:
            flushed.rows += self._merge(day)
            flushed.dates.add(day)
        if reasons:
            self._reject()
        con.execute("DELETE FROM staged")
        con.execute("DELETE FROM repairs")
        self.rows = 0
        return flushed

    def _load(self, path: Path) -> None:
        con = self._con
        listed = ", ".join(f"'{name}': 'VARCHAR'" for name in TEXT_COLUMNS)
        con.execute(
            f"""CREATE OR REPLACE TEMP TABLE page AS SELECT * FROM read_csv(?, header = false,
            auto_detect = false, columns = {{{listed}}}, delim = ',', quote = '"', escape = '"', nullstr = '',
            new_line = '\\n', parallel = false, max_line_size = 20000000)""",
            [str(path)],
        )

    def insert(self) -> None:
        """Type and check the text rows of the table ``page`` (columns ``TEXT_COLUMNS``) and stage them."""
        con = self._con
        expressions = {}
        for name, type_ in SCHEMAS[TABLE].items():
            if name == "extracted_at":
                expressions[name] = "$now"
            elif name in _TIMES:
                expressions[name] = f"instant({name})"
            elif type_ == "BIGINT":
                expressions[name] = f"counted({name})"
            else:
                expressions[name] = name if type_ == "VARCHAR" else f"TRY_CAST({name} AS {type_})"
        selected = ", ".join(f"{expression} AS {name}" for name, expression in expressions.items())
        con.execute(
            f"""INSERT INTO staged SELECT * EXCLUDE (start_text) REPLACE (
              CASE WHEN end_time >= start_time THEN end_time END AS end_time,
              CASE WHEN completion_start_time >= start_time THEN completion_start_time END
                AS completion_start_time),
              CASE WHEN request_id IS NULL THEN 'missing request_id'
                   WHEN start_time IS NULL THEN 'start_time unreadable'
                   WHEN start_time < TIMESTAMP '2020-01-01' OR start_time >= $now + INTERVAL 1 DAY
                     THEN 'start_time out of range' END,
              start_text
            FROM (SELECT {selected}, left(start_time, 64) AS start_text FROM page) AS typed""",
            {"now": self._now},
        )
        counted = con.execute("SELECT COUNT(*) FROM page").fetchone()
        self.rows += int(counted[0]) if counted else 0
        numbers = [n for n, t in SCHEMAS[TABLE].items() if t == "BIGINT"]
        if self._whole(("spend", "end_time", *numbers)):
            return
        checks = {
            "spend not a finite number": "spend IS NOT NULL AND TRY_CAST(spend AS DECIMAL(18,9)) IS NULL",
            "token count negative or unreadable": " OR ".join(
                f"({n} IS NOT NULL AND counted({n}) IS NULL)" for n in numbers
            ),
            "end_time before start_time or unreadable": "end_time IS NOT NULL AND "
            "coalesce(instant(end_time) < instant(start_time), true)",
        }
        for reason, condition in checks.items():
            con.execute(
                f"INSERT INTO repairs SELECT ?, count(*) FROM page WHERE {condition} HAVING count(*) > 0",
                [reason],
            )

    def _whole(self, columns: Sequence[str]) -> bool:
        """Whether every value of *columns* of the page was kept, by counting those staged with it."""
        counts = ", ".join(f"COUNT({name})" for name in columns)
        told = self._con.execute(f"SELECT COUNT(*), {counts} FROM page").fetchone()
        kept = self._con.execute(
            f"SELECT COUNT(*), {counts} FROM staged WHERE rowid > (SELECT MAX(rowid) FROM staged) - $rows",
            {"rows": told[0] if told else 0},
        ).fetchone()
        return told == kept

    def _merge(self, day: date) -> int:
        columns = ", ".join(SCHEMAS[TABLE])
        path = Path(TABLE) / f"date={day.isoformat()}" / "rows.parquet"
        stored = self._lake.root / path
        older = (
            f"UNION ALL BY NAME SELECT *, 0 AS fresh FROM read_parquet('{_escape(stored)}', "
            "hive_partitioning = false)"
            if stored.exists()
            else ""
        )
        merged = f"""SELECT {columns} FROM (
            SELECT {columns}, 1 AS fresh FROM staged
            WHERE reason IS NULL AND CAST(start_time AS DATE) = DATE '{day.isoformat()}' {older})
            QUALIFY row_number() OVER (
              PARTITION BY request_id, start_time ORDER BY extracted_at DESC, fresh DESC) = 1"""
        if not stored.exists() or self._changes(stored, day):
            self._lake.write(self._con, merged, path, "start_time, request_id")
        counted = self._con.execute(
            "SELECT count(*) FROM staged WHERE reason IS NULL AND CAST(start_time AS DATE) = ?", [day]
        ).fetchone()
        return int(counted[0]) if counted else 0

    def _changes(self, stored: Path, day: date) -> bool:
        """Whether any staged row of *day* is new or differs: an untouched file spares its day a rebuild."""
        compared = ", ".join(name for name in SCHEMAS[TABLE] if name != "extracted_at")
        nothing = ", ".join(f"NULL::{type_} AS {name}" for name, type_ in SCHEMAS[TABLE].items())
        found = self._con.execute(
            f"""SELECT 1 FROM (
              SELECT {compared} FROM staged
              WHERE reason IS NULL AND CAST(start_time AS DATE) = DATE '{day.isoformat()}'
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
            SELECT request_id, reason, start_text AS start_time, extracted_at FROM staged
            WHERE reason IS NOT NULL {older if stored.exists() else ""}) GROUP BY ALL"""
        self._lake.write(self._con, sql, path)


def _escape(path: Path) -> str:
    return str(path).replace("'", "''")
