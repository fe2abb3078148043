"""Builds facts and marts over the raw lake: incremental by day, idempotent, audited.

A run looks at which raw files are new or changed since the last one. Their days, and every day that a session
of those days touches, are built again from all raw records of all sessions on them; other days stay as they
are. Files are written under a temporary name and renamed, so a reader sees a whole day or the old one.
"""

# ruff: noqa: S608 - relation names and columns are our own; paths are quoted; values are parameters

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pipeline.lake import Lake, write_text
from pipeline.sql import binding, models, parameters

if TYPE_CHECKING:
    import duckdb

Progress = Callable[[str, int, int], None]
MANIFEST: Final = "facts/_manifest.json"
_MANIFEST_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a run built: days, row counts of those days, what its audits found, and how long it took."""

    days: tuple[date, ...]
    new_files: int
    calls: int
    turns: int
    visits: int
    audits: tuple[models.Audit, ...]
    marts: tuple[str, ...]
    seconds: float

    @property
    def failed_audits(self) -> tuple[models.Audit, ...]:
        """Audits of severity error that returned rows."""
        return tuple(a for a in self.audits if a.failed)


@dataclass(slots=True)
class _Manifest:
    """What the facts in the lake were built from."""

    version: int = _MANIFEST_VERSION
    conventions: str = ""
    files: dict[str, list[int]] = field(default_factory=dict)
    audits: list[dict[str, Any]] = field(default_factory=list)
    published: str = ""
    built_at: str = ""

    @classmethod
    def read(cls, lake: Path) -> _Manifest:
        try:
            content = json.loads((lake / MANIFEST).read_text(encoding="utf-8"))
            return cls(**content) if content.get("version") == _MANIFEST_VERSION else cls()
        except (OSError, ValueError, TypeError, AttributeError):
            return cls()  # absent or unreadable: everything is built again

    def write(self, lake: Path) -> None:
        write_text(lake / MANIFEST, json.dumps(asdict(self)))


def build(
    lake: Path,
    settings: parameters.Conventions,
    *,
    since: date | None = None,
    until: date | None = None,
    progress: Progress | None = None,
    marts: bool = True,
) -> RunResult:
    """Bring facts and marts up to date with the raw records.

    Args:
        lake: root of the lake.
        settings: the conventions that facts depend on; a change of them rebuilds every day.
        since: first UTC day to build; earlier days stay as they are.
        until: day after the last one to build.
        progress: called with a stage's name, steps done and steps in all.
        marts: also publish the marts over the whole lake, where records or conventions changed.

    Returns:
        What was built. A run that finds nothing new builds no day and returns the last audits.
    """
    began = time.monotonic()
    report = progress or (lambda stage, done, total: None)
    manifest = _Manifest.read(lake)
    conventions = _fingerprint(settings)
    found = {
        str(p.relative_to(lake)): [p.stat().st_size, p.stat().st_mtime_ns]
        for folder in ("raw/events", "raw/spend_logs")
        for p in binding.files(lake, folder)
    }
    fresh = manifest.conventions != conventions or _lost(manifest.files, found)
    known = {} if fresh else manifest.files
    new = {n: s for n, s in found.items() if known.get(n) != s and _wanted(n, since, until)}
    con = connect(lake)
    try:
        values = parameters.bind_conventions(con, settings)
        days: tuple[date, ...] = ()
        counts = (0, 0, 0)
        audits = tuple(models.Audit(**{**a, "samples": tuple(a["samples"])}) for a in manifest.audits)
        if new:
            report("sessions", 0, 1)
            touched = {binding.day_of(Path(n)) for n in new}
            write_days, read_days = _reach(con, lake, touched)
            days = tuple(
                sorted(d for d in write_days if (not since or d >= since) and (not until or d < until))
            )
            for relation in ("raw_event", "raw_spend_log"):
                binding.bind_raw(con, relation, binding.files(lake, binding.RAW[relation][0], read_days))
            steps = (*models.STAGING, *models.FACTS)
            for number, name in enumerate(steps):
                report(name, number, len(steps))
                models.run(con, (name,), values)
            counts = _write_facts(con, lake, days, report)
            report("audits", 0, 1)
            audits = tuple(models.audit(con))
            if fresh and since is None and until is None:
                _drop_other_days(lake, days)
        kept = {n: s for n, s in known.items() if n in found} | new
        published = repr(
            (conventions, _mart_conventions(settings), sorted(kept.items()), _metric_files(lake))
        )
        published = hashlib.blake2b(published.encode(), digest_size=16).hexdigest()
        done: tuple[str, ...] = ()
        if marts and published != manifest.published:
            done = _publish(lake, settings, report)
        _Manifest(
            conventions=conventions,
            files=kept,
            audits=[asdict(a) for a in audits],
            published=published if marts else manifest.published,
            built_at=datetime.now().astimezone().isoformat(timespec="seconds"),
        ).write(lake)
    finally:
        con.close()
    return RunResult(days, len(new), *counts, audits, done, time.monotonic() - began)


def last_audits(lake: Path) -> list[dict[str, Any]]:
    """Return what the audits of the last building run found."""
    return _Manifest.read(lake).audits


def connect(lake: Path) -> duckdb.DuckDBPyConnection:
    """Open an in-memory engine that spills into the lake's own temporary folder."""
    import duckdb

    con = duckdb.connect()
    con.execute("SET TimeZone = 'UTC'")
    con.execute("SET enable_progress_bar = false")
    con.execute("SET temp_directory = " + _quoted(lake / ".spill"))
    return con


def _reach(con: duckdb.DuckDBPyConnection, lake: Path, touched: set[date]) -> tuple[set[date], set[date]]:
    """Return the days to write and the days to read for the days whose raw files changed.

    A ledger row may lie on the day after its call started, so the day before each is touched too.
    """
    touched = touched | {d - timedelta(days=1) for d in touched}
    sources = []
    events = binding.files(lake, "raw/events")
    if events:
        sources.append(f"SELECT session_key, date FROM {binding.parquet(events, with_day=True)}")
    rows = binding.files(lake, "raw/spend_logs")
    if rows:
        object_ = "TRY_CAST(aw AS JSON)"
        key = (
            f"COALESCE({object_} ->> '$.session_key', "
            f"TRY_CAST({object_} ->> '$' AS JSON) ->> '$.session_key')"
        )
        sources.append(f"SELECT {key} AS session_key, date FROM {binding.parquet(rows, with_day=True)}")
    con.execute("CREATE OR REPLACE TEMP TABLE session_day AS SELECT DISTINCT session_key, date FROM ("
                + " UNION ALL ".join(sources) + ") WHERE session_key IS NOT NULL")  # fmt: skip

    def spread(days: set[date]) -> set[date]:
        found = con.execute(
            "SELECT DISTINCT date FROM session_day WHERE session_key IN "
            "(SELECT session_key FROM session_day WHERE date IN (SELECT UNNEST(CAST($days AS DATE[]))))",
            {"days": sorted(days)},
        ).fetchall()
        return days | {row[0] for row in found}

    write_days = spread(touched)
    read_days = spread(write_days)
    return write_days, read_days | {d + timedelta(days=n) for d in read_days for n in (-1, 1)}


def _write_facts(
    con: duckdb.DuckDBPyConnection, lake: Path, days: tuple[date, ...], report: Progress
) -> tuple[int, int, int]:
    con.execute(
        "CREATE OR REPLACE TEMP VIEW fct_potential_day AS SELECT p.*, c.start_date FROM fct_potential AS p "
        "JOIN fct_call AS c ON c.call_id = p.call_id"
    )
    orders = {
        "fct_call": ("fct_call", "start_at, call_id"),
        "fct_turn": ("fct_turn", "start_at, session_key, agent_id, turn_key"),
        "fct_session": ("fct_session", "start_at, session_key, visit_number"),
        "fct_potential": ("fct_potential_day", "call_id, retention"),
    }
    filled = {row[0] for row in con.execute("SELECT DISTINCT start_date FROM fct_call").fetchall()}
    for number, day in enumerate(days):
        report("facts", number, len(days))
        if day not in filled:
            _drop_day(lake, day)
            continue
        for relation, (source, order) in orders.items():
            folder = Path(binding.FACTS[relation]) / f"date={day.isoformat()}"
            query = f"SELECT * FROM {source} WHERE start_date = DATE '{day.isoformat()}'"
            Lake(lake).write(con, query, folder / "part-0.parquet", order)
    counted = [
        con.execute(
            f"SELECT COUNT(*) FROM {relation} WHERE start_date IN (SELECT UNNEST(CAST($days AS DATE[])))",
            {"days": list(days)},
        ).fetchone()
        for relation in ("fct_call", "fct_turn", "fct_session")
    ]
    calls, turns, visits = (int(row[0]) if row else 0 for row in counted)
    return calls, turns, visits


def _drop_day(lake: Path, day: date) -> None:
    for folder in binding.FACTS.values():
        shutil.rmtree(lake / folder / f"date={day.isoformat()}", ignore_errors=True)


def _drop_other_days(lake: Path, days: Iterable[date]) -> None:
    """After a full build, remove days of facts that no raw record supports any more."""
    kept = {f"date={d.isoformat()}" for d in days}
    for folder in binding.FACTS.values():
        for old in (lake / folder).glob("date=*"):
            if old.name not in kept:
                shutil.rmtree(old)


def _publish(lake: Path, settings: parameters.Conventions, report: Progress) -> tuple[str, ...]:
    """Write the marts over everything in the lake."""
    from pipeline import figures

    con = connect(lake)
    try:
        if figures.bind(con, lake, settings) is None:
            return ()
        for number, name in enumerate(models.PUBLISHED):
            report("marts", number, len(models.PUBLISHED))
            target = Path("marts") / f"{name.removeprefix('mart_')}.parquet"
            Lake(lake).write(con, f"SELECT * FROM {name}", target, "ALL")
    finally:
        con.close()
    return tuple(models.PUBLISHED)


def _lost(known: dict[str, list[int]], found: dict[str, list[int]]) -> bool:
    """Whether records vanished: a file is gone and nothing new (as a merged file) stands in its folder."""
    renewed = {Path(n).parent for n in found if n not in known}
    return any(Path(n).parent not in renewed for n in known if n not in found)


def _wanted(name: str, since: date | None, until: date | None) -> bool:
    day = binding.day_of(Path(name))
    return (since is None or day >= since) and (until is None or day < until)


def _mart_conventions(settings: parameters.Conventions) -> tuple[object, ...]:
    """What marts depend on beside facts and metrics."""
    power = settings.power
    return (
        settings.business_time_zone,
        list(settings.idle_caps_s),
        list(settings.tool_caps_s),
        [parameters.tier_label(t) for t in settings.slo_tiers],
        [repr(s) for s in power.sources],
        list(power.presets),
        power.max_gap_s,
        sorted((group, sorted(targets)) for group, targets in power.model_groups.items()),
        [repr(p) for p in power.pools],
        models.fingerprint((*models.CALL_MARTS, *models.METRIC_MARTS)),
    )


def _metric_files(lake: Path) -> list[tuple[str, int, int]]:
    found = binding.files(lake, "raw/metrics")
    return [(str(p), p.stat().st_size, p.stat().st_mtime_ns) for p in found]


def _fingerprint(settings: parameters.Conventions) -> str:
    """Everything that facts depend on beside raw records, as text."""
    power = settings.power
    parts = (
        models.fingerprint(),
        settings.visit_gap_s,
        sorted(parameters.retention_label(s) for s in settings.retentions_s),
        sorted(settings.service_keys),
        parameters.powered_groups(power),
        sorted(power.external_model_groups),
        sorted(power.external_providers),
    )
    return repr(parts)


def _quoted(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"
