"""Extract ``LiteLLM_SpendLogs`` into ``raw/spend_logs``: COPY by key pages, merged into one file per date.

The watermark is the key (``startTime``, ``request_id``) of the last row seen; each run starts
``lateness_s`` before it, since rows arrive in batches and late. Reading a row again replaces it: a date's
file is rewritten without the older copy and renamed over the old one, so a run can stop anywhere.
"""

from __future__ import annotations

import asyncio
import csv
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import IO, TYPE_CHECKING, Any, Final

from gateway_plugin.hashing import Hasher
from pipeline.extract.database import connection, split_url, transaction
from pipeline.extract.spend_page import SpendPages, buffer, key_of
from pipeline.extract.spend_query import SpendQuery, build
from pipeline.extract.spend_row import RowReader
from pipeline.extract.spend_staging import SpendStaging
from pipeline.lake import Lake, connect
from pipeline.settings import Settings

if TYPE_CHECKING:
    import asyncpg

# One row's metadata can exceed the reader's default limit of 128 KiB a field.
csv.field_size_limit(16 * 1024 * 1024)

STATE: Final = "spend_logs"
_OLDEST: Final = datetime(2020, 1, 1)
#: Rows staged in memory before the dates they touch are rewritten.
_FLUSH_ROWS: Final = 200_000


@dataclass(slots=True)
class ExtractReport:
    """What one extraction did."""

    rows_read: int = 0
    rows_written: int = 0
    dates: set[date] = field(default_factory=set)
    rejected: Counter[str] = field(default_factory=Counter)
    repaired: Counter[str] = field(default_factory=Counter)
    missing_columns: tuple[str, ...] = ()
    watermark: str | None = None
    notices: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return {
            "rows_read": self.rows_read,
            "rows_written": self.rows_written,
            "dates": [d.isoformat() for d in sorted(self.dates)],
            "rejected": dict(sorted(self.rejected.items())),
            "repaired": dict(sorted(self.repaired.items())),
            "missing_columns": list(self.missing_columns),
            "watermark": self.watermark,
        }


async def extract(
    lake: Lake,
    settings: Settings,
    *,
    since: date | None = None,
    until: date | None = None,
    progress: Callable[[ExtractReport], None] = lambda _: None,
) -> ExtractReport:
    """Read new and late rows into the lake.

    Args:
        lake: where to write; hold its writer lock.
        since: re-read from this UTC date instead of the watermark; the watermark then never moves back.
        until: stop before this UTC date.
        progress: called after every page.

    Raises:
        ConfigError: no URL, or the table is not there.
        UnreachableError: the database does not answer, refuses us, or a statement ran into its limit.
    """
    report = ExtractReport()
    mark = _watermark(lake)
    now = datetime.now(UTC).replace(tzinfo=None)
    low, high = _OLDEST, now + timedelta(days=1)
    if since:
        low = datetime(since.year, since.month, since.day)
    elif mark:
        low = mark[0] - timedelta(seconds=settings.database.lateness_s)
    if until:
        high = min(high, datetime(until.year, until.month, until.day))
    moves = mark is None or low <= mark[0]  # else a gap would stay unread behind the watermark
    secret = settings.hash_secret.get_secret_value() if settings.hash_secret else ""
    reader = RowReader(Hasher(secret.encode()) if secret else None, settings.user_precedence)
    async with connection(settings) as database:
        query = await discover(database, settings)
        report.missing_columns = query.missing
        if query.missing:
            report.notices.append(
                f"SpendLogs has no column {', '.join(query.missing)}: those values are null."
            )
        if not query.keyed:
            report.notices.append("SpendLogs keeps times as text: the whole table is read on every run.")
        with connect() as con:
            staging = SpendStaging(con, lake, now)
            pages = SpendPages(con, staging, reader)
            coming = asyncio.ensure_future(_page(database, settings, query, low, high, None))
            try:
                while True:
                    with await coming as page:
                        count, keys = await asyncio.to_thread(pages.load, page)
                    if not count:
                        break
                    after = key_of(keys, keyed=query.keyed)
                    # The database sends the next page while this one is worked on.
                    coming = asyncio.ensure_future(_page(database, settings, query, low, high, after))
                    await asyncio.to_thread(pages.stage)
                    report.rows_read += count
                    if isinstance(after, tuple) and moves:
                        mark = max(mark or after, after)
                    if staging.rows >= _FLUSH_ROWS:
                        await asyncio.to_thread(_flush, lake, staging, report, mark, now)
                    progress(report)
            finally:
                await _settle(coming)
            _flush(lake, staging, report, mark, now)
        if query.bounds:
            async with transaction(database, settings):
                outside = await database.fetchval(query.bounds, _OLDEST, now + timedelta(days=1))
            if outside:
                report.rejected["start_time out of range"] += outside
    report.repaired += reader.repairs
    lake.write_state(
        STATE, {**lake.read_state(STATE), "rejected": report.rejected, "repaired": report.repaired,
                "missing_columns": list(query.missing)},
    )  # fmt: skip
    return report


def _watermark(lake: Lake) -> tuple[datetime, str] | None:
    mark = lake.read_state(STATE).get("watermark")
    return (datetime.fromisoformat(mark[0]), str(mark[1])) if mark else None


def _flush(
    lake: Lake, staging: SpendStaging, report: ExtractReport, mark: tuple[datetime, str] | None, now: datetime
) -> None:
    """Write what is staged, then remember how far we are."""
    flushed = staging.flush()
    report.rows_written += flushed.rows
    report.dates |= flushed.dates
    report.rejected += flushed.rejected
    report.repaired += flushed.repaired
    state = {**lake.read_state(STATE), "updated_at": now.isoformat(timespec="seconds")}
    if mark:
        state["watermark"] = [mark[0].isoformat(), mark[1]]
        report.watermark = mark[0].isoformat()
    lake.write_state(STATE, state)


async def _settle(coming: asyncio.Future[IO[bytes]]) -> None:
    """End a request for a page that nobody waits for any more."""
    coming.cancel()
    with suppress(asyncio.CancelledError, Exception):
        (await coming).close()


async def discover(database: asyncpg.Connection, settings: Settings) -> SpendQuery:
    """Look at the table's columns and build the statements for them."""
    schema, table = settings.database.db_schema, settings.database.table
    if settings.database.url and schema == "public":
        schema = split_url(settings.database.url.get_secret_value())[1] or schema
    async with transaction(database, settings):
        found = await database.fetch(
            "SELECT column_name::text, data_type::text FROM information_schema.columns "
            "WHERE table_schema = $1 AND table_name = $2",
            schema,
            table,
        )
    return build(schema, table, {r[0]: r[1] for r in found}, settings.database.page_rows)


async def _page(
    database: asyncpg.Connection,
    settings: Settings,
    query: SpendQuery,
    low: datetime,
    high: datetime,
    after: tuple[datetime, str] | str | None,
) -> IO[bytes]:
    """One page of rows as CSV: it still holds raw identities, so it goes into no named file."""
    statement = query.first_page if after is None else query.page
    arguments: tuple[Any, ...]
    if after is None:
        arguments = (low, high) if query.keyed else ()
    else:
        arguments = (after[0], high, after[1]) if isinstance(after, tuple) else (after,)
    page = buffer()
    try:
        async with transaction(database, settings):
            await database.copy_from_query(statement, *arguments, output=page, format="csv", encoding="utf8")
    except BaseException:
        page.close()
        raise
    return page
