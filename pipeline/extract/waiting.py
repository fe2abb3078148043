"""What waits in the sources to be read: counted, not taken."""

# ruff: noqa: S608 - identifiers are quoted; values travel as parameters

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from redis.exceptions import ResponseError

from pipeline.extract.database import connection, schema_of, transaction
from pipeline.extract.redis_server import client, text
from pipeline.extract.spend_logs import discover, span, watermark
from pipeline.extract.spend_query import quote
from pipeline.lake import Lake
from pipeline.settings import RedisSettings, Settings


@dataclass(frozen=True, slots=True)
class Waiting:
    """Records that a source holds for the next run, None where it cannot tell, and which they are."""

    records: int | None
    why: str


def entries(settings: RedisSettings) -> Waiting:
    """Return what the next collection would read from the stream; no group is made, nothing delivered.

    Raises:
        ConfigError: no URL, or it is none.
        UnreachableError: the server does not answer.
    """
    with client(settings) as connection_:
        try:
            stream: Any = connection_.xinfo_stream(settings.stream_key)
            groups: Any = connection_.xinfo_groups(settings.stream_key)
        except ResponseError as error:
            if "no such key" in str(error):
                return Waiting(0, "there is no stream yet")
            raise
    group = next((g for g in groups if text(g["name"]) == settings.group), None)
    if group is None:
        return Waiting(int(stream["length"]), "the whole stream: it was never read")
    pending, lag = int(group["pending"]), group.get("lag")
    told = f"{pending:,} delivered and not acknowledged"
    if lag is None:
        return Waiting(None, f"entries that the server does not count; {told}")
    return Waiting(int(lag) + pending, f"{int(lag):,} new entries; {told}")


async def rows(
    lake: Lake, settings: Settings, *, since: date | None = None, until: date | None = None
) -> Waiting:
    """Return what the next extraction would read from SpendLogs, from its watermark less the lateness on.

    Raises:
        ConfigError: no URL, or the table is not there.
        UnreachableError: the database does not answer, or counting ran into its limit.
    """
    mark = watermark(lake)
    low, high = span(mark, settings, datetime.now(UTC).replace(tzinfo=None), since=since, until=until)
    why = "all rows: none was read before"
    if since:
        why = f"rows from {since.isoformat()} on"
    elif mark:
        why = f"rows since {low.isoformat(sep=' ', timespec='seconds')}, late ones among them"
    place = f"{quote(schema_of(settings.database))}.{quote(settings.database.table)}"
    async with connection(settings) as database:
        keyed = (await discover(database, settings)).keyed
        async with transaction(database, settings):
            if keyed:
                start = quote("startTime")
                inside = f"{start} >= $1::timestamp AND {start} < $2::timestamp"
                found = await database.fetchval(f"SELECT count(*) FROM {place} WHERE {inside}", low, high)
            else:
                found, why = (
                    await database.fetchval(f"SELECT count(*) FROM {place}"),
                    "the whole table: its times are text",
                )
    return Waiting(int(found), why)
