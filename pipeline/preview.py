"""What a run would do, and why: read from the lake and its sources without changing either.

It follows the run's own rules: which raw files are new (:mod:`pipeline.manifest`), how far they reach
(:mod:`pipeline.reach`), which parts of the marts would come out differently (:mod:`pipeline.publishing`).
"""

# ruff: noqa: S608 - relation names are our own; paths are quoted

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from pipeline import engine, publishing, reach
from pipeline.lake import Lake
from pipeline.manifest import Manifest, fact_conventions, lost, raw_files, within
from pipeline.sql import binding, parameters
from pipeline.staging import Limits

if TYPE_CHECKING:
    import duckdb

_DAY: Final = timedelta(days=1)
_RAW: Final = ("raw/events", "raw/spend_logs")
_SESSIONS: Final = "sessions with new records reach into it"


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that a run would do.

    Args:
        stage: collect, extract, facts or marts.
        name: the source, the UTC day, or the business day.
        action: read, build (a day from all its records), repair (its sessions that new records touch; files
            are written only if they come out differently), drop (a day that no record supports any more),
            or publish.
        why: what makes it necessary.
        files: raw files to read; None where it is not known before.
        records: records in them.
        bytes: their size.
    """

    stage: str
    name: str
    action: str
    why: str
    files: int | None = None
    records: int | None = None
    bytes: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the step as plain values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Preview:
    """The steps of a run over the lake as it stands, and into how many buckets it would cut the records."""

    steps: tuple[Step, ...]
    buckets: int

    def sentences(self) -> list[str]:
        """Return what the steps come to, in words."""
        if not self.steps:
            return ["Nothing to do: no source to read, and facts and marts are up to date."]
        of = Counter(step.action for step in self.steps if step.stage in ("facts", "marts"))
        read = [step for step in self.steps if step.stage == "facts"]
        records, size = sum(s.records or 0 for s in read), sum(s.bytes or 0 for s in read)
        told = [
            f"Facts: {of['build']} days to build, {of['repair']} to repair, {of['drop']} to drop, in about "
            f"{self.buckets} bucket{'' if self.buckets == 1 else 's'} of sessions; {records:,} raw records "
            f"({size:,} bytes) to read. Marts: {of['publish']} parts to publish."
        ]
        if any(step.stage in ("collect", "extract") for step in self.steps):
            told.append("Note: days of records that still wait in a source are not listed.")
        return told


def of_lake(
    lake: Path,
    settings: parameters.Conventions,
    *,
    since: date | None = None,
    until: date | None = None,
    limits: Limits | None = None,
) -> Preview:
    """Return what :func:`pipeline.run.build` would do now; nothing is written.

    Args:
        lake: root of the lake; it may be absent.
        settings: the conventions of the run.
        since: first UTC day to build.
        until: day after the last one to build.
        limits: memory that the run may take.
    """
    if not lake.is_dir():
        return Preview((), 0)
    con = engine.connect()
    try:
        con.execute("SET temp_directory = ''")
        steps, read = _facts(con, lake, settings, since, until)
        built = [date.fromisoformat(s.name) for s in steps if s.action in ("build", "repair")]
        dropped = [date.fromisoformat(s.name) for s in steps if s.action == "drop"]
        steps += _marts(con, lake, settings, built, dropped)
    finally:
        con.close()
    size = (limits or Limits()).bucket_records
    return Preview(tuple(steps), -(-read // size))


def _facts(
    con: duckdb.DuckDBPyConnection,
    lake: Path,
    settings: parameters.Conventions,
    since: date | None,
    until: date | None,
) -> tuple[list[Step], int]:
    """Return the steps of the facts, and how many records are read in full."""
    before, found = Manifest.read(lake), raw_files(lake)
    changed = before.conventions != fact_conventions(settings)
    gone = lost(before.files, found)
    known = {} if changed or gone else before.files
    new = [n for n, s in found.items() if known.get(n) != s and within(n, since, until)]
    if not new:
        return [], 0
    touched: set[date] = set()
    if changed or gone:
        span = reach.Reach(frozenset(d for f in _RAW for d in binding.days(lake, f)))
        reason = (
            "first run" if not before.files
            else "settings or models changed" if changed
            else "raw files vanished"
        )  # fmt: skip
        why = dict.fromkeys(span.whole, reason)
    else:
        span = reach.of(con, lake, new, index=False)
        why = _reasons(before.files, new, span)
        touched = {day for day in span.near if _is_tied(con, lake, day)}
        why |= dict.fromkeys(touched, _SESSIONS)
    steps = []
    held = {d for folder in (*_RAW, *binding.FACTS.values()) for d in binding.days(lake, folder)}
    for day in (d for d in span.days if d in held):
        build = day in span.whole
        if (since and day < since) or (until and day >= until):
            action, told = "read", f"{why[day]}; outside --since and --until"
        else:
            action = "build" if build else "read" if day in span.near - touched else "repair"
            told = why[day]
        steps.append(Step("facts", day.isoformat(), action, told, *_sizes(con, lake, [day])))
    if (changed or gone) and since is None and until is None:
        steps += [
            Step("facts", day.isoformat(), "drop", "no raw record of it is left", 0, 0, 0)
            for day in sorted(held - span.whole)
        ]
    return steps, _sizes(con, lake, span.whole | span.near)[1]


def _reasons(known: Iterable[str], new: Iterable[str], span: reach.Reach) -> dict[date, str]:
    """Say why each day of *span* is read: new records, late ones, or a neighbour's or a session's."""
    built = {binding.day_of(Path(name)) for name in known}
    fresh: dict[date, int] = {}
    for name in new:
        day = binding.day_of(Path(name))
        fresh[day] = fresh.get(day, 0) + 1
    why: dict[date, str] = {}
    for day in span.days:
        if day in fresh:
            kind = "late or changed" if day in built else "new"
            why[day] = f"{kind} records in {fresh[day]} file{'s' if fresh[day] > 1 else ''}"
        elif day in span.whole:
            why[day] = "ledger rows of its calls may lie on the day after"
        elif day in span.near:
            why[day] = "ledger rows of a neighbouring day's calls may lie here"
        else:
            why[day] = _SESSIONS
    return why


def _is_tied(con: duckdb.DuckDBPyConnection, lake: Path, day: date) -> bool:
    """Whether a session with new records lies on *day* too."""
    paths = binding.files(lake, reach.INDEX, [day])
    tied = "session_key IN (SELECT session_key FROM reach_session)"
    return bool(paths) and bool(
        con.execute(f"SELECT 1 FROM {binding.parquet(paths)} WHERE {tied} LIMIT 1").fetchone()
    )


def _marts(
    con: duckdb.DuckDBPyConnection,
    lake: Path,
    settings: parameters.Conventions,
    built: list[date],
    dropped: list[date],
) -> list[Step]:
    """Return the parts of the marts that would be published after the facts of *built* days."""
    zone = ZoneInfo(settings.business_time_zone)
    days = (binding.days(lake, binding.FACTS["fct_call"]) | set(built)) - set(dropped)
    windows: dict[date, parameters.Window] = {}
    for day in sorted(days):
        start = datetime.combine(day, time())
        for name, begin, end in parameters.business_days(parameters.Window(start, start + _DAY), zone):
            windows[name] = parameters.Window(begin, end)
    moved = {*built, *dropped}
    stale = publishing.stale(con, lake, settings, Manifest.read(lake).marts)
    steps = []
    for name, window in windows.items():
        if moved & set(publishing.fact_days(window)):
            why = "facts that it reads are built anew"
        elif name in stale:
            why = "facts, metrics, settings or models changed"
        else:
            continue
        steps.append(Step("marts", name.isoformat(), "publish", why))
    return steps


def _sizes(con: duckdb.DuckDBPyConnection, lake: Path, days: Iterable[date]) -> tuple[int, int, int]:
    """Return the number of raw files of *days*, of the records in them, and their bytes."""
    wanted = sorted(days)
    paths = [p for table in _RAW for day in wanted for p in Lake(lake).day_files(table, day)]
    if not paths:
        return 0, 0, 0
    row = con.execute(
        "SELECT SUM(num_rows) FROM parquet_file_metadata($paths)", {"paths": [str(p) for p in paths]}
    ).fetchone()
    return len(paths), int(row[0]) if row else 0, sum(p.stat().st_size for p in paths)


__all__ = ["Preview", "Step", "of_lake"]
