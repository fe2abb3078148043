"""Publishes marts: one part a business day, so that a new day costs itself, whatever the lake holds.

A part holds the rows of its day. Rows add up over parts (a UTC day may have rows in two parts where the
business time zone is another one). A part reads the facts of its day, the calls of its sessions on the two
days before and the day after, and calls still in flight when it began. What it was made of is remembered, and
only parts that would come out differently are built again.
"""

# ruff: noqa: S608 - relation names and columns are our own; paths are quoted; values are parameters

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

from pipeline import manifest
from pipeline.lake import Lake
from pipeline.power import places
from pipeline.sql import binding, models, parameters

if TYPE_CHECKING:
    import duckdb

Progress = Callable[[str, int, int], None]
#: How far before its day a part looks for the calls of its sessions.
LOOK_BACK: Final = timedelta(days=2)
_DAY: Final = timedelta(days=1)
_MART: Final = re.compile(r"\b(?:FROM|JOIN)\s+(mart_\w+)")


def parts(
    con: duckdb.DuckDBPyConnection, lake: Path, settings: parameters.Conventions
) -> dict[date, parameters.Window]:
    """Return the business days on which the lake holds facts, with their bounds in naive UTC.

    The first part begins with the first call and the last one ends with the last call, as the window of the
    figures does: power before and after nobody's work is nobody's.
    """
    zone = ZoneInfo(settings.business_time_zone)
    days = sorted(binding.days(lake, binding.FACTS["fct_call"]))
    found: dict[date, parameters.Window] = {}
    for day in days:
        start = datetime.combine(day, time())
        for name, begin, end in parameters.business_days(parameters.Window(start, start + _DAY), zone):
            found[name] = parameters.Window(begin, end)
    if not days:
        return found
    edges: list[datetime] = []
    last = "MAX(GREATEST(COALESCE(end_at, start_at), start_at + INTERVAL 1 MICROSECOND))"
    for some, edge in ((days[:1], "MIN(start_at)"), (days[-3:], last)):
        files = binding.parquet(binding.files(lake, binding.FACTS["fct_call"], some))
        row = con.execute(f"SELECT {edge} FROM {files}").fetchone()
        assert row is not None  # an aggregate without GROUP BY always returns one row
        edges.append(row[0])
    cut = {d: parameters.Window(max(w.start, edges[0]), min(w.end, edges[1])) for d, w in found.items()}
    return {d: w for d, w in cut.items() if w.start < w.end}


def publish(
    con: duckdb.DuckDBPyConnection,
    lake: Path,
    settings: parameters.Conventions,
    known: dict[str, str],
    report: Progress,
) -> tuple[dict[str, str], tuple[date, ...]]:
    """Build the parts that are not what *known* says, and remove those that nothing supports any more.

    Returns:
        What every part was made of, and the days whose parts were built.
    """
    # Every mart opens the same files.
    con.execute("SET parquet_metadata_cache = true")
    # Joins by range with short tables of conventions: a loop is cheaper than sorting the calls.
    con.execute("SET nested_loop_join_threshold = 64")
    windows = parts(con, lake, settings)
    made = _made(lake, settings, windows)
    changed = [d for d in windows if known.get(d.isoformat()) != made[d.isoformat()]]
    if changed:
        parameters.relation(con, "prm_metric_day", day=("DATE", sorted(binding.days(lake, "raw/metrics"))))
    for number, day in enumerate(changed):
        report("marts", number, len(changed))
        _build(con, lake, settings, day, windows[day])
    _drop_others(lake, windows)
    return made, tuple(changed)


def stale(
    con: duckdb.DuckDBPyConnection, lake: Path, settings: parameters.Conventions, known: dict[str, str]
) -> set[date]:
    """Return the days whose parts are not what *known* says, over the facts as they stand."""
    made = _made(lake, settings, parts(con, lake, settings))
    return {date.fromisoformat(day) for day, digest in made.items() if known.get(day) != digest}


def _made(
    lake: Path, settings: parameters.Conventions, windows: dict[date, parameters.Window]
) -> dict[str, str]:
    """Return of every part what it would be made of now."""
    listing, conventions = _Listing(lake), manifest.mart_conventions(settings)
    return {day.isoformat(): _made_of(listing, conventions, w) for day, w in windows.items()}


class _Listing:
    """Sizes and times of the files of days: parts overlap, and every day is listed once for all of them."""

    def __init__(self, lake: Path) -> None:
        self._lake = lake
        self._known: dict[tuple[str, date], manifest.Stamps] = {}

    def of(self, folder: str, days: Iterable[date]) -> manifest.Stamps:
        """Return the stamps of the files of *days* in *folder*."""
        found: manifest.Stamps = {}
        for day in days:
            if (folder, day) not in self._known:
                self._known[folder, day] = manifest.stamps(
                    self._lake, binding.files(self._lake, folder, [day])
                )
            found |= self._known[folder, day]
        return found


def _made_of(listing: _Listing, conventions: str, window: parameters.Window) -> str:
    """A digest of everything that a part depends on."""
    stamps = listing.of("raw/metrics", _metric_days(window))
    for folder in binding.FACTS.values():
        stamps |= listing.of(folder, fact_days(window))
    return manifest.digest((conventions, window, *sorted(stamps.items())))


def _core_days(window: parameters.Window) -> list[date]:
    last = (window.end - timedelta(microseconds=1)).date()
    return [window.start.date() + n * _DAY for n in range((last - window.start.date()).days + 1)]


def fact_days(window: parameters.Window) -> list[date]:
    """Return the UTC days whose facts the part of *window* reads."""
    core = _core_days(window)
    first = core[0] - LOOK_BACK
    return [first + n * _DAY for n in range((core[-1] - first).days + 2)]


def _metric_days(window: parameters.Window) -> list[date]:
    core = _core_days(window)
    return [core[0] - _DAY, *core, core[-1] + _DAY]


def _build(
    con: duckdb.DuckDBPyConnection,
    lake: Path,
    settings: parameters.Conventions,
    day: date,
    window: parameters.Window,
) -> None:
    """Build one part of every published mart."""
    _bind(con, lake, window)
    binding.bind_raw(con, "raw_metric", binding.files(lake, "raw/metrics", _metric_days(window)))
    values = parameters.bind_conventions(con, settings) | parameters.bind_window(con, settings, window)
    places.bind(con, settings, window)
    done = _last_readers()
    for name in needed():
        if name in _WITHOUT_POWER and _is_empty(con, "mart_energy_island"):
            sql = models.load(name).sql
            used = {key: values[key] for key in models.load(name).parameters}
            con.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT * FROM ({sql}) LIMIT 0", used or None)
        else:
            models.run(con, (name,), values)
        if name in models.PUBLISHED:
            columns = [row[0] for row in con.execute(f"DESCRIBE {name}").fetchall()]
            where = f" WHERE business_day = DATE '{day.isoformat()}'" if "business_day" in columns else ""
            target = Path("marts") / name.removeprefix("mart_") / f"date={day.isoformat()}" / "part.parquet"
            Lake(lake).write(con, f"SELECT * FROM {name}{where}", target)
        for read in done[name]:
            con.execute(f"DROP {'VIEW' if read in models.VIEWS else 'TABLE'} {read}")
    con.execute("DROP VIEW fct_call")


#: Marts of agents per megawatt that have no row without measured power.
_WITHOUT_POWER: Final = frozenset({"mart_turn_conformity", "mart_agent_interval", "mart_pooled_hour"})


def _is_empty(con: duckdb.DuckDBPyConnection, relation: str) -> bool:
    return con.execute(f"SELECT 1 FROM {relation} LIMIT 1").fetchone() is None


@cache
def needed() -> tuple[str, ...]:
    """Return the published marts and those they are made of, in the order in which they are built."""
    wanted = set(models.PUBLISHED)
    order = (*models.CALL_MARTS, *models.METRIC_MARTS)
    for name in reversed(order):
        if name in wanted:
            wanted |= set(_MART.findall(models.load(name).sql))
    return tuple(n for n in order if n in wanted)


@cache
def _last_readers() -> dict[str, tuple[str, ...]]:
    """Return of every mart that is built those which nothing after it reads, itself among them."""
    last: dict[str, str] = {}
    for name in needed():
        reads = {name, *_MART.findall(models.load(name).sql)}
        if name in _WITHOUT_POWER:
            reads.add("mart_energy_island")
        for view in reads & models.VIEWS:  # read whenever the view is
            reads |= set(_MART.findall(models.load(view).sql))
        last |= dict.fromkeys(reads, name)
    return {name: tuple(r for r, reader in last.items() if reader == name) for name in needed()}


def _bind(con: duckdb.DuckDBPyConnection, lake: Path, window: parameters.Window) -> None:
    """Bind the facts that a part reads.

    Calls of its days stay in their files: marts read few columns of them each, and a copy of all would cost
    more than reading them again. Calls beside its days are few, out of large files, and are copied.
    """
    days, core = fact_days(window), _core_days(window)
    inside = binding.files(lake, binding.FACTS["fct_call"], core)
    outside = binding.files(lake, binding.FACTS["fct_call"], set(days) - set(core))
    stored = {
        name: kind
        for name, kind, *_ in con.execute(
            f"DESCRIBE SELECT * FROM {binding.parquet(inside or outside)}"
        ).fetchall()
    }
    bare = not binding.files(lake, "raw/metrics", _metric_days(window))
    wide = _words(n for n in needed() if looks_beside(n) and not (bare and n in _WITHOUT_POWER)) | _ALWAYS
    columns = [c for c in stored if c in _words(needed()) | _ALWAYS]
    names = ", ".join(columns)
    start = f"TIMESTAMP '{window.start.isoformat(sep=' ')}'"
    flying = f"end_at > {start}"
    parts = []
    if outside:
        beside = binding.parquet(outside)
        sessions = [f"SELECT session_key FROM {beside} WHERE {flying} AND start_at < {start}"]
        if inside:
            sessions.append(f"SELECT session_key FROM {binding.parquet(inside)}")
        con.execute(
            "CREATE OR REPLACE TEMP TABLE part_session AS SELECT DISTINCT session_key FROM ("
            + " UNION ALL ".join(sessions)
            + ") WHERE session_key IS NOT NULL"
        )
        read = ", ".join(c if c in wide else f"CAST(NULL AS {stored[c]}) AS {c}" for c in columns)
        con.execute(
            f"CREATE OR REPLACE TEMP TABLE part_beside AS SELECT {read} FROM {beside} "
            "WHERE session_key IN (SELECT session_key FROM part_session) "
            f"OR (session_key IS NULL AND {flying})"
        )
        parts.append(f"SELECT {names} FROM part_beside")
    if inside:
        parts.append(f"SELECT {names} FROM {binding.parquet(inside)}")
    con.execute(f"CREATE OR REPLACE TEMP VIEW fct_call AS {' UNION ALL '.join(parts)}")
    for relation in ("fct_turn", "fct_session", "fct_potential"):
        binding.bind_fact(con, relation, binding.files(lake, binding.FACTS[relation], days))


_COMMENT: Final = re.compile(r"--[^\n]*")
_ALWAYS: Final = frozenset({"call_id", "session_key", "start_at", "end_at"})
#: How marts name the calls of their window, or of its business days.
_IN_WINDOW: Final = re.compile(
    r"start_at >= CAST\(\$window_start AS TIMESTAMP\) "
    r"AND (?:\w+\.)?start_at < CAST\(\$window_end AS TIMESTAMP\)"
    r"|FROM fct_call AS c\s+JOIN prm_business_day AS d "
    r"ON c\.start_at >= d\.start_at AND c\.start_at < d\.end_at"
)


def _words(names: Iterable[str]) -> set[str]:
    """The words of models, comments left out: columns that are not among them are not read."""
    return {w for n in names for w in re.findall(r"\w+", _COMMENT.sub("", models.load(n).sql))}


def looks_beside(name: str) -> bool:
    """Whether a mart reads calls beside its window, so that these must carry what it names."""
    sql = _COMMENT.sub("", models.load(name).sql)
    return "fct_call" in sql and _IN_WINDOW.search(sql) is None


def _drop_others(lake: Path, days: Iterable[date]) -> None:
    kept = {d.isoformat() for d in days}
    names = {n.removeprefix("mart_") for n in models.PUBLISHED}
    root = lake / "marts"
    for path in sorted(root.glob("*")):
        if path.is_file() or path.name not in names:  # of an earlier layout, or no longer published
            shutil.rmtree(path) if path.is_dir() else path.unlink()
            continue
        for part in path.glob("date=*"):
            if part.name.removeprefix("date=") not in kept:
                shutil.rmtree(part)
        if not any(path.iterdir()):
            path.rmdir()


__all__ = ["LOOK_BACK", "fact_days", "looks_beside", "needed", "parts", "publish", "stale"]
