"""Extract ``LiteLLM_SpendLogs`` into ``raw/spend_logs``: COPY by key pages, merged into one file per date.

The watermark is the key (``startTime``, ``request_id``) of the last row seen; each run starts
``lateness_s`` before it, since rows arrive in batches and late. Reading a row again replaces it: a date's
file is rewritten without the older copy and renamed over the old one, so a run can stop anywhere.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any, Final

from gateway_plugin.hashing import Hasher
from pipeline.extract.database import connection, schema_of, transaction
from pipeline.extract.spend_page import Page, SpendPages
from pipeline.extract.spend_query import SpendQuery, build
from pipeline.extract.spend_row import RowReader
from pipeline.extract.spend_staging import SpendStaging
from pipeline.extract.spend_stream import SpendStream
from pipeline.lake import Lake, connect
from pipeline.settings import Settings

if TYPE_CHECKING:
    import asyncpg

STATE: Final = "spend_logs"
_OLDEST: Final = datetime(2020, 1, 1)
#: Rows staged in memory before complete dates among them are written.
_FLUSH_ROWS: Final = 50_000
#: Rows of one date staged in memory before it is written though more of it may come.
_DATE_ROWS: Final = 200_000
#: Pages that wait in memory while others are worked on: more of them gain nothing but memory.
_AHEAD: Final = 1


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
    before = mark = watermark(lake)
    now = datetime.now(UTC).replace(tzinfo=None)
    low, high = span(mark, settings, now, since=since, until=until)
    done = low
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
    with ExitStack() as held, SpendStream(settings.database) as stream:
        async with _reading(stream, query, low, high) as coming:
            con = held.enter_context(connect())  # while the first page comes: DuckDB takes its time to load
            # One page is loaded while another one is staged and the server works on a third: a statement
            # that took more than its thread would take it from them.
            con.execute("SET threads = 1")
            staging = SpendStaging(con, lake, now)
            pages = SpendPages(con, staging, reader)
            while page := await coming():
                await asyncio.to_thread(pages.stage, page)
                report.rows_read += page.rows
                if isinstance(page.key, tuple) and moves:
                    mark = max(mark or page.key, page.key)
                if staging.rows >= _FLUSH_ROWS and isinstance(page.key, tuple):
                    # Rows come by start time, so the dates before this one are complete.
                    midnight = datetime.combine(page.key[0], time())
                    if midnight > done:
                        known = max(before or (midnight, ""), (midnight, "")) if moves else before
                        await asyncio.to_thread(_flush, lake, staging, report, known, now, midnight)
                        done = midnight
                if staging.rows >= _DATE_ROWS:
                    await asyncio.to_thread(_flush, lake, staging, report, mark, now)
                progress(report)
        _flush(lake, staging, report, mark, now)
        if counting := query.outside(_OLDEST, now + timedelta(days=1)):
            counted = stream.rows(counting)
            con.register("counted", counted.capsule())
            (outside,) = con.execute("SELECT n FROM counted").fetchone() or (0,)
            if outside:
                report.rejected["start_time out of range"] += outside
    report.repaired += reader.repairs
    lake.write_state(
        STATE, {**lake.read_state(STATE), "rejected": report.rejected, "repaired": report.repaired,
                "missing_columns": list(query.missing)},
    )  # fmt: skip
    return report


def watermark(lake: Lake) -> tuple[datetime, str] | None:
    """Return start time and request id of the last row that was read; None when none was."""
    mark = lake.read_state(STATE).get("watermark")
    return (datetime.fromisoformat(mark[0]), str(mark[1])) if mark else None


def span(
    mark: tuple[datetime, str] | None,
    settings: Settings,
    now: datetime,
    *,
    since: date | None = None,
    until: date | None = None,
) -> tuple[datetime, datetime]:
    """Return the naive UTC instants from which and before which the next extraction reads start times."""
    low, high = _OLDEST, now + timedelta(days=1)
    if since:
        low = datetime.combine(since, time())
    elif mark:
        low = mark[0] - timedelta(seconds=settings.database.lateness_s)
    if until:
        high = min(high, datetime.combine(until, time()))
    return low, high


def _flush(
    lake: Lake,
    staging: SpendStaging,
    report: ExtractReport,
    mark: tuple[datetime, str] | None,
    now: datetime,
    until: datetime | None = None,
) -> None:
    """Write what is staged, or what of it starts before an instant, then remember how far we are."""
    flushed = staging.flush(until)
    report.rows_written += flushed.rows
    report.dates |= flushed.dates
    report.rejected += flushed.rejected
    report.repaired += flushed.repaired
    state = {**lake.read_state(STATE), "updated_at": now.isoformat(timespec="seconds")}
    if mark:
        state["watermark"] = [mark[0].isoformat(), mark[1]]
        report.watermark = mark[0].isoformat()
    lake.write_state(STATE, state)


@asynccontextmanager
async def _reading(
    stream: SpendStream, query: SpendQuery, low: datetime, high: datetime
) -> AsyncIterator[Callable[[], Awaitable[Page | None]]]:
    """Read pages ahead while others are worked on; give a function that waits for one, None at the end."""
    ready: asyncio.Queue[Page | Exception | None] = asyncio.Queue(_AHEAD)
    loading: asyncio.Future[Page] | None = None

    def load(after: tuple[datetime, str] | str | None) -> Page:
        return Page.of(stream.rows(query.page(low, high, after)))

    async def read() -> None:
        nonlocal loading
        after: tuple[datetime, str] | str | None = None
        try:
            while True:
                loading = asyncio.ensure_future(asyncio.to_thread(load, after))
                page = await asyncio.shield(loading)
                if not page.rows:
                    break
                await ready.put(page)
                after = page.key
        except Exception as error:  # noqa: BLE001 - told to whoever waits for the page
            await ready.put(error)
        else:
            await ready.put(None)

    async def following() -> Page | None:
        page = await ready.get()
        if isinstance(page, Exception):
            raise page
        return page

    reading = asyncio.ensure_future(read())
    try:
        await asyncio.sleep(0)  # it begins now, whatever is done before the first page is asked for
        yield following
    finally:
        reading.cancel()
        if loading and not loading.done():  # a thread works with the connection: it must end first
            stream.cancel()
            await asyncio.wait({loading})
            loading.exception()  # that it was cancelled is no news


async def discover(database: asyncpg.Connection, settings: Settings) -> SpendQuery:
    """Look at the table's columns and build the statements for them."""
    schema, table = schema_of(settings.database), settings.database.table
    async with transaction(database, settings):
        found = await database.fetch(
            "SELECT column_name::text, data_type::text FROM information_schema.columns "
            "WHERE table_schema = $1 AND table_name = $2",
            schema,
            table,
        )
    return build(schema, table, {r[0]: r[1] for r in found}, settings.database.page_rows)
