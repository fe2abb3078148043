"""Builds facts and marts over the raw lake: incremental by day, idempotent, audited.

A run looks at which raw files are new or changed since the last one. Their days are built again from all raw
records of all sessions on them; on other days that these sessions touch, the sessions are built again and
everything else stays. Files are written under a hidden name and renamed, so a reader sees a whole day or the
old one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pipeline import engine, facts, publishing, reach
from pipeline.manifest import NAME, Manifest, fact_conventions, lost, raw_files, within
from pipeline.sql import binding, models, parameters
from pipeline.staging import FOLDER, Limits

if TYPE_CHECKING:
    import duckdb

Progress = Callable[[str, int, int], None]
MANIFEST: Final = NAME


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
    #: business days whose part of the marts was built
    parts: tuple[date, ...] = ()

    @property
    def failed_audits(self) -> tuple[models.Audit, ...]:
        """Audits of severity error that returned rows."""
        return tuple(a for a in self.audits if a.failed)


def build(
    lake: Path,
    settings: parameters.Conventions,
    *,
    since: date | None = None,
    until: date | None = None,
    progress: Progress | None = None,
    marts: bool = True,
    limits: Limits | None = None,
) -> RunResult:
    """Bring facts and marts up to date with the raw records.

    Args:
        lake: root of the lake.
        settings: the conventions that facts depend on; a change of them rebuilds every day.
        since: first UTC day to build; earlier days stay as they are.
        until: day after the last one to build.
        progress: called with a stage's name, steps done and steps in all.
        marts: also publish the marts, those parts of them whose facts, metrics or conventions changed.
        limits: memory that the run may take.

    Returns:
        What was built. A run that finds nothing new builds no day and returns the last audits.
    """
    began = time.monotonic()
    report = progress or (lambda stage, done, total: None)
    before = Manifest.read(lake)
    conventions = fact_conventions(settings)
    found = raw_files(lake)
    fresh = before.conventions != conventions or lost(before.files, found)
    known = {} if fresh else before.files
    new = {n: s for n, s in found.items() if known.get(n) != s and within(n, since, until)}
    limits = limits or Limits()
    con = connect(lake, limits)
    try:
        values = parameters.bind_conventions(con, settings)
        days: list[date] = []
        counts = (0, 0, 0)
        audits = [models.Audit(**{**a, "samples": tuple(a["samples"])}) for a in before.audits]
        if new:
            report("sessions", 0, 1)
            reached = reach.everything(con, lake) if fresh else reach.of(con, lake, new)

            def wanted(day: date) -> bool:
                return (since is None or day >= since) and (until is None or day < until)

            days, audits = facts.build(con, lake, reached, wanted, values, limits, report)
            counts = facts.counts(con, lake, days)
            if fresh and since is None and until is None:
                facts.drop_other_days(lake, days)
        audits = [a for a in audits if a.name != _STRAY] + _stray(lake)
        made = before.marts
        parts: tuple[date, ...] = ()
        if marts:
            made, parts = publishing.publish(con, lake, settings, before.marts, report)
        Manifest(
            conventions=conventions,
            files={n: s for n, s in known.items() if n in found} | new,
            audits=[asdict(a) for a in audits],
            marts=made,
            built_at=datetime.now().astimezone().isoformat(timespec="seconds"),
        ).write(lake)
    finally:
        con.close()
    published = tuple(models.PUBLISHED) if parts else ()
    return RunResult(
        tuple(days), len(new), *counts, tuple(audits), published, time.monotonic() - began, parts
    )


def last_audits(lake: Path) -> list[dict[str, Any]]:
    """Return what the audits of the last building run found."""
    return Manifest.read(lake).audits


def connect(lake: Path, limits: Limits | None = None) -> duckdb.DuckDBPyConnection:
    """Open an in-memory engine that spills into the lake's temporary folder; *limits* bound its memory."""
    con = engine.connect()
    con.execute("SET temp_directory = " + _quoted(lake / FOLDER))
    if limits is not None:
        con.execute("SET preserve_insertion_order = false")
        # The models name the wide side of a join first and the side to look up second. Behind a range of
        # times the engine thinks calls are few, and would keep them all to look up the visits.
        con.execute("SET disabled_optimizers = 'build_side_probe_side'")
        con.execute(f"SET memory_limit = '{int(limits.engine_gib * 1024)}MiB'")
        if limits.threads:
            con.execute(f"SET threads = {limits.threads}")
    return con


_STRAY: Final = "stray_folder"


def _stray(lake: Path) -> list[models.Audit]:
    """Files of the raw tables that belong to no day: they are not read, and say so."""
    found = binding.stray(lake)
    meaning = "folders of raw tables that name no day (date=YYYY-MM-DD); their files are not read."
    return (
        [models.Audit(_STRAY, "warning", len(found), tuple(found[: models.SAMPLES]), meaning)]
        if found
        else []
    )


def _quoted(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"
