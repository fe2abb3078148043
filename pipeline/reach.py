"""How far new records reach: the days to build again, and the sessions that tie other days to them.

Every day with raw records has a small list of its sessions (``facts/_sessions``), so that a run finds the
other days of a session without reading the records of all days.
"""

# ruff: noqa: S608 - relation names and columns are our own; paths are quoted; values are parameters

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pipeline.lake import Lake
from pipeline.sql import binding

if TYPE_CHECKING:
    import duckdb

INDEX: Final = "facts/_sessions"
#: Session key of a ledger row, whether its object is JSON or a string that holds JSON.
ROW_SESSION: Final = (
    "COALESCE(TRY_CAST(aw AS JSON) ->> '$.session_key', "
    "TRY_CAST(TRY_CAST(aw AS JSON) ->> '$' AS JSON) ->> '$.session_key')"
)
_DAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Reach:
    """What a run must read and write.

    ``whole`` days are built from all their records. On ``repaired`` days only the sessions of whole days are
    built again (temporary table ``reach_session``). Records of ``near`` days are read in full too, because
    a ledger row may lie on another day than its call; what they give is dropped unless a session ties it.
    """

    whole: frozenset[date]
    near: frozenset[date] = field(default=frozenset())
    repaired: frozenset[date] = field(default=frozenset())

    @property
    def is_all(self) -> bool:
        """Whether every record of the lake is read in full."""
        return not self.near and not self.repaired

    @property
    def days(self) -> list[date]:
        """Every day to read."""
        return sorted(self.whole | self.near | self.repaired)


def everything(con: duckdb.DuckDBPyConnection, lake: Path) -> Reach:
    """Return the reach of a run that builds every day, and list the sessions of every day."""
    days = _raw_days(lake)
    _index(con, lake, days)
    return Reach(frozenset(days))


def of(con: duckdb.DuckDBPyConnection, lake: Path, names: Iterable[str], *, index: bool = True) -> Reach:
    """Return the reach of new or changed raw files, and list the sessions of their days.

    Without *index* the lists are looked through as they would be, and the lake stays as it is.
    """
    events: set[date] = set()
    rows: set[date] = set()
    for name in names:
        (rows if name.startswith("raw/spend_logs") else events).add(binding.day_of(Path(name)))
    if index:
        _index(con, lake, events | rows)
    # A ledger row may lie on the day after its call started.
    whole = events | rows | {d - _DAY for d in rows}
    near = {d + n * _DAY for d in whole for n in (-1, 1)} - whole
    con.execute("CREATE OR REPLACE TEMP TABLE reach_session (session_key VARCHAR)")
    inside: list[Path] = []
    outside: list[Path] = []
    anew = set() if index else events | rows
    for path in binding.files(lake, INDEX):
        if binding.day_of(path) not in anew:
            (inside if binding.day_of(path) in whole else outside).append(path)
    repaired: set[date] = set()
    sessions = [f"SELECT session_key FROM {binding.parquet(inside)}"] if inside else []
    sessions += [query for day in sorted(anew) if (query := _sessions(lake, day))]
    if sessions:
        listed = " UNION ALL ".join(sessions)
        con.execute(f"INSERT INTO reach_session SELECT DISTINCT session_key FROM ({listed})")
    if sessions and outside:
        found = con.execute(
            f"SELECT DISTINCT date FROM {binding.parquet(outside, with_day=True)} "
            "WHERE session_key IN (SELECT session_key FROM reach_session)"
        ).fetchall()
        repaired = {row[0] for row in found}
    # Rows of a session's calls may lie on the day after them.
    repaired |= {d + _DAY for d in repaired}
    return Reach(frozenset(whole), frozenset(near), frozenset(repaired - whole - near))


def _raw_days(lake: Path) -> set[date]:
    return binding.days(lake, "raw/events") | binding.days(lake, "raw/spend_logs")


def _index(con: duckdb.DuckDBPyConnection, lake: Path, days: Iterable[date]) -> None:
    """List the sessions of *days* anew."""
    for day in sorted(days):
        if query := _sessions(lake, day):
            Lake(lake).write(con, query, Path(INDEX) / f"date={day.isoformat()}" / "sessions.parquet")


def _sessions(lake: Path, day: date) -> str:
    """The query of the sessions of a day's raw records; empty where there are none."""
    parts = []
    if events := binding.files(lake, "raw/events", [day]):
        parts.append(f"SELECT session_key FROM {binding.parquet(events)}")
    if rows := binding.files(lake, "raw/spend_logs", [day]):
        parts.append(f"SELECT {ROW_SESSION} AS session_key FROM {binding.parquet(rows)}")
    if not parts:
        return ""
    return f"SELECT DISTINCT session_key FROM ({' UNION ALL '.join(parts)}) WHERE session_key IS NOT NULL"
