"""LiteLLM's own day by day sums (``LiteLLM_Daily…Spend``) and the ledger's rows, counted in the database."""

# ruff: noqa: S608 - identifiers are quoted by quote(); values travel as parameters

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, datetime, time
from typing import TYPE_CHECKING, Final

from pipeline.errors import ConfigError
from pipeline.extract.database import connection, schema_of, transaction
from pipeline.extract.spend_query import quote
from pipeline.settings import Settings

if TYPE_CHECKING:
    import asyncpg

#: What a daily table is kept by -> the ledger's column that says so; None: every request is in it.
ENTITIES: Final[dict[str, str | None]] = {
    "Global": None,
    "User": "user",
    "Team": "team_id",
    "Organization": "organization_id",
    "EndUser": "end_user",
}
_SUMS: Final = ("prompt_tokens", "completion_tokens", "spend")
_TEXT_TYPES: Final = frozenset({"text", "character varying", "character"})


@dataclass(slots=True)
class DayRows:
    """Rows of the ledger that started on one UTC day."""

    rows: int = 0
    cache_hits: int = 0
    sums: dict[str, float] = field(default_factory=dict)
    #: name of a daily table's entity -> rows that name one
    named: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class DailyTable:
    """One of LiteLLM's daily tables: requests and sums by day."""

    name: str
    entity: str
    requests: dict[date, int] = field(default_factory=dict)
    sums: dict[date, dict[str, float]] = field(default_factory=dict)


@dataclass(slots=True)
class Ledger:
    """What the database says about a window."""

    days: dict[date, DayRows]
    tables: list[DailyTable]
    #: tables that were found and cannot be compared, with the reason
    skipped: dict[str, str]


async def read(settings: Settings, since: date, until: date) -> Ledger:
    """Count the ledger's rows and read the daily tables of the UTC days in ``[since, until)``.

    Columns are looked up first: what a version of the proxy lacks is left out.

    Raises:
        ConfigError: no URL, or the ledger's table is not there.
        UnreachableError: the database does not answer.
    """
    schema = schema_of(settings.database)
    async with connection(settings) as database, transaction(database, settings):
        found = await database.fetch(
            "SELECT table_name::text, column_name::text, data_type::text FROM information_schema.columns "
            "WHERE table_schema = $1 AND (table_name = $2 OR table_name LIKE 'LiteLLM\\_Daily%Spend')",
            schema,
            settings.database.table,
        )
        columns: dict[str, dict[str, str]] = {}
        for table, column, kind in found:
            columns.setdefault(table, {})[column] = kind
        ledger = columns.pop(settings.database.table, None)
        if ledger is None or "startTime" not in ledger:
            raise ConfigError(
                f"The table {schema}.{settings.database.table} cannot be read.",
                why="It is absent, not granted, or has no column startTime.",
                next_step="agentwatt doctor",
            )
        days = await _rows(
            database, f"{quote(schema)}.{quote(settings.database.table)}", ledger, since, until
        )
        tables: list[DailyTable] = []
        skipped: dict[str, str] = {}
        for name, held in sorted(columns.items()):
            entity = name.removeprefix("LiteLLM_Daily").removesuffix("Spend")
            if entity not in ENTITIES:
                skipped[name] = "a call counts several times or not at all in it"
            elif not {"date", "api_requests"} <= held.keys():
                skipped[name] = "this version counts no requests in it"
            else:
                tables.append(await _daily(database, schema, name, entity, held, since, until))
    return Ledger(days, tables, skipped)


async def _rows(
    database: asyncpg.Connection, place: str, columns: dict[str, str], since: date, until: date
) -> dict[date, DayRows]:
    kind = columns["startTime"]
    start = quote("startTime")
    if kind in _TEXT_TYPES:
        day, low, high = f"left({start}, 10)", since.isoformat(), until.isoformat()
        where, arguments = f"{start} >= $1 AND {start} < $2", (low, high)
    else:
        zone = " AT TIME ZONE 'UTC'" if kind == "timestamp with time zone" else ""
        day = f"({start}{zone})::date::text"
        where = f"{start} >= $1::timestamp{zone} AND {start} < $2::timestamp{zone}"
        arguments = (datetime.combine(since, time()), datetime.combine(until, time()))  # type: ignore[assignment]
    hit = "count(*) FILTER (WHERE lower(cache_hit::text) = 'true')" if "cache_hit" in columns else "0"
    sums = [name for name in _SUMS if name in columns]
    named = {e: c for e, c in ENTITIES.items() if c is not None and c in columns}
    selected = [day, "count(*)", hit]
    selected += [f"coalesce(sum({quote(name)}), 0)::float8" for name in sums]
    selected += [f"count(*) FILTER (WHERE coalesce({quote(c)}::text, '') <> '')" for c in named.values()]
    found: dict[date, DayRows] = {}
    for row in await database.fetch(
        f"SELECT {', '.join(selected)} FROM {place} WHERE {where} GROUP BY 1", *arguments
    ):
        values = list(row)
        found[date.fromisoformat(values[0])] = DayRows(
            values[1],
            values[2],
            dict(zip(sums, values[3 : 3 + len(sums)], strict=True)),
            dict(zip(named, values[3 + len(sums) :], strict=True)),
        )
    return found


async def _daily(
    database: asyncpg.Connection,
    schema: str,
    name: str,
    entity: str,
    columns: dict[str, str],
    since: date,
    until: date,
) -> DailyTable:
    sums = [s for s in _SUMS if s in columns]
    selected = ['left("date"::text, 10)', "coalesce(sum(api_requests), 0)::bigint"]
    selected += [f"coalesce(sum({quote(s)}), 0)::float8" for s in sums]
    rows = await database.fetch(
        f"SELECT {', '.join(selected)} FROM {quote(schema)}.{quote(name)} "
        'WHERE left("date"::text, 10) >= $1 AND left("date"::text, 10) < $2 GROUP BY 1',
        since.isoformat(),
        until.isoformat(),
    )
    table = DailyTable(name, entity)
    for row in rows:
        values = list(row)
        day = date.fromisoformat(values[0])
        table.requests[day] = int(values[1])
        table.sums[day] = dict(zip(sums, values[2:], strict=True))
    return table
