"""What the commands do, in order: collect, extract, build, report, compact."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, Final

from pydantic import SecretStr

from gateway_plugin.event import SECRET_KEY
from pipeline.errors import ConfigError
from pipeline.extract.event_stream import Collector, CollectReport
from pipeline.extract.redis_server import client
from pipeline.lake import Lake, connect
from pipeline.runlock import writer_lock
from pipeline.settings import Settings

if TYPE_CHECKING:
    from pipeline.preview import Preview

Show = Callable[[str], None]
_COMPACTED: Final = ("raw/events", "raw/metrics", "rejects/events")


@dataclass(slots=True)
class Outcome:
    """What a run did."""

    summary: dict[str, Any] = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)
    failed_audits: list[str] = field(default_factory=list)


def collect(
    settings: Settings,
    *,
    once: bool,
    max_wait_s: float | None,
    spool: Path | None,
    stop: Callable[[], bool],
    show: Show,
) -> CollectReport:
    """Read events from the stream, or from spool files, into the lake."""
    lake = Lake(settings.lake)
    lake.prepare()

    def tell(report: CollectReport) -> None:
        show(f"{report.entries:,} entries, {report.rejected.total():,} set aside, {report.lost:,} lost")

    if spool is not None:
        from pipeline.extract import spool as spool_files

        return spool_files.collect(
            lake, spool, max_file_rows=settings.redis.max_file_rows, progress=tell, should_stop=stop
        )
    with client(settings.redis) as connection:
        collector = Collector(connection, lake, settings.redis, progress=tell, should_stop=stop)
        if once:
            return collector.once(max_wait_s or 0.0)
        return collector.follow(30.0 if max_wait_s is None else max_wait_s)


def run(
    settings: Settings,
    *,
    since: date | None,
    until: date | None,
    offline: bool,
    build: bool,
    show: Show,
    stop: Event,
) -> Outcome:
    """Bring the lake up to date, then its facts and marts.

    Raises:
        LockHeldError: another run is writing.
        UnreachableError: a configured source does not answer.
    """
    lake = Lake(settings.lake)
    lake.prepare()
    outcome = Outcome()
    with writer_lock(lake.root, "run"):
        lake.sweep()
        if not offline:
            _read_sources(settings, lake, outcome, since, until, show, stop)
        if build and not stop.is_set():
            _build(settings, outcome, since, until, show)
    return outcome


def preview(
    settings: Settings, *, since: date | None, until: date | None, offline: bool, build: bool
) -> Preview:
    """Return what :func:`run` would do now; neither the lake nor a source is changed, and no lock is taken.

    Raises:
        UnreachableError: a configured source does not answer.
    """
    from pipeline import preview as previews
    from pipeline.staging import Limits

    lake = Lake(settings.lake)
    steps: list[previews.Step] = []
    if not offline and (settings.redis.url is not None or settings.database.url is not None):
        from pipeline.extract import waiting

        if settings.redis.url is not None:
            found = waiting.entries(settings.redis)
            steps.append(previews.Step("collect", "event stream", "read", found.why, records=found.records))
        if settings.database.url is not None:
            found = asyncio.run(waiting.rows(lake, settings, since=since, until=until))
            steps.append(previews.Step("extract", "SpendLogs", "read", found.why, records=found.records))
    if not build:
        return previews.Preview(tuple(steps), 0)
    limits = Limits.of(settings.memory_gib)
    built = previews.of_lake(settings.lake, settings, since=since, until=until, limits=limits)
    return previews.Preview((*steps, *built.steps), built.buckets)


def with_secret(settings: Settings) -> Settings:
    """Add the secret that the plugin keeps in Redis when none is set."""
    if settings.hash_secret is not None or settings.redis.url is None:
        return settings
    with client(settings.redis) as connection:
        stored: Any = connection.get(SECRET_KEY)
    return settings.model_copy(update={"hash_secret": SecretStr(stored.decode())}) if stored else settings


def report(
    settings: Settings,
    out: Path,
    *,
    since: date | None,
    until: date | None,
    week: str | None = None,
    more_notes: Sequence[str] = (),
) -> list[Path]:
    """Write the report of a window into *out*; what collection lost or set aside joins *more_notes*.

    The window is *since* to *until*, or a calendar *week*, or all that the lake holds.

    Raises:
        ConfigError: there is no lake, no such week, or a week together with dates.
    """
    lake = Lake(settings.lake)
    if not lake.root.is_dir():
        raise ConfigError(f"There is no lake at {lake.root}.", next_step="agentwatt run fills it.")
    from pipeline.report import write
    from pipeline.report.week import window

    start: date | None = since
    end: date | None = until
    if week is not None:
        if since or until:
            raise ConfigError(
                "--week does not go with --since and --until.", next_step="Leave one of them out."
            )
        start, end = window(week, settings.business_time_zone, datetime.now(settings.zone).date())
    said = [*more_notes, *notes(lake)]
    return list(write(lake.root, settings, out, said, since=start, until=end, sizing=settings.sizing))


def notes(lake: Lake) -> list[str]:
    """What a reader of the figures must know about how the data got here."""
    events, spend = lake.read_state("events"), lake.read_state("spend_logs")
    found = []
    if lost := events.get("lost_before_read"):
        found.append(f"{lost:,} event records were trimmed from the stream before they were collected.")
    if rejected := sum(events.get("rejected", {}).values()):
        found.append(f"{rejected:,} event records could not be read and were set aside.")
    if rejected := sum(spend.get("rejected", {}).values()):
        found.append(f"{rejected:,} SpendLogs rows of the last extraction were set aside.")
    if missing := spend.get("missing_columns"):
        found.append(f"SpendLogs has no column {', '.join(missing)}: those values are unknown.")
    return found


def compact(settings: Settings, minimum: int, show: Show) -> list[dict[str, Any]]:
    """Merge small files, one row for each date that was touched."""
    lake = Lake(settings.lake)
    lake.prepare()
    rows = []
    with writer_lock(lake.root, "compact"), connect() as con:
        lake.sweep()
        for table in _COMPACTED:
            for day in lake.dates(table):
                show(f"{table} {day}")
                if files := lake.compact(con, table, day, minimum=minimum):
                    rows.append({"table": table, "date": day, "files_merged": files})
    return rows


def _read_sources(
    settings: Settings,
    lake: Lake,
    outcome: Outcome,
    since: date | None,
    until: date | None,
    show: Show,
    stop: Event,
) -> None:
    if settings.redis.url is not None:
        collected = collect(
            settings,
            once=True,
            max_wait_s=None,
            spool=None,
            stop=stop.is_set,
            show=lambda t: show(f"events: {t}"),
        )
        outcome.notices += collected.notices
        outcome.summary |= {"event_records": collected.entries, "lost_before_read": collected.lost}
    else:
        outcome.notices.append("No Redis URL: events were not collected.")
    if settings.database.url is not None and not stop.is_set():
        from pipeline.extract import spend_logs

        extracted = asyncio.run(
            spend_logs.extract(
                lake,
                with_secret(settings),
                since=since,
                until=until,
                progress=lambda r: show(f"SpendLogs: {r.rows_read:,} rows"),
            )
        )
        outcome.notices += extracted.notices
        outcome.summary |= {
            "spend_logs_rows": extracted.rows_written,
            "spend_logs_rejected": extracted.rejected.total(),
        }
    elif settings.database.url is None:
        outcome.notices.append("No database URL: SpendLogs was not extracted.")


def _build(settings: Settings, outcome: Outcome, since: date | None, until: date | None, show: Show) -> None:
    from pipeline.run import build
    from pipeline.staging import Limits

    result = build(
        settings.lake,
        settings,
        limits=Limits.of(settings.memory_gib),
        since=since,
        until=until,
        progress=lambda stage, done, total: show(f"{stage} {done}/{total}"),
    )
    outcome.summary |= {
        "days_built": len(result.days),
        "calls": result.calls,
        "turns": result.turns,
        "visits": result.visits,
        "audits_failed": len(result.failed_audits),
    }
    outcome.failed_audits = [f"{a.name}: {a.rows} rows ({a.meaning})" for a in result.failed_audits]
