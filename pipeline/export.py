"""Writes the weekly figures and daily series into PostgreSQL, for dashboards that read SQL.

Everything of one export goes in one transaction: a reader sees the old rows or the new ones. Rows of a period
or day are replaced, so running it again changes nothing, and a late call that changed a day changes its rows.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import SecretStr

from pipeline.errors import ConfigError
from pipeline.export_tables import AGENT_DAY, AGENTS, CATALOGUE, FIGURE, TABLES, VERSION, WINDOW, Table
from pipeline.settings import Settings

if TYPE_CHECKING:
    import asyncpg

Rows = dict[str, list[tuple[Any, ...]]]
_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}")
#: Any number will do, as long as two exporters agree on it.
_LOCK: Final = 0x61_67_77_74


@dataclass(frozen=True, slots=True)
class Period:
    """Days of the business time zone, ``end`` not included."""

    start: date
    end: date

    @classmethod
    def week_of(cls, day: date) -> Period:
        """Return the ISO week (Monday to Sunday) that holds *day*."""
        start = day - timedelta(days=day.weekday())
        return cls(start, start + timedelta(days=7))


@dataclass(slots=True)
class Exported:
    """What one export wrote: rows by table, and the periods."""

    periods: list[Period] = field(default_factory=list)
    rows: dict[str, int] = field(default_factory=dict)


def export(
    settings: Settings,
    url: str,
    *,
    schema: str = "agentwatt",
    periods: Sequence[Period] = (),
    weeks: int = 2,
    notes: Sequence[str] = (),
    show: Callable[[str], None] = lambda _: None,
) -> Exported:
    """Compute the figures of each period and write them with the daily series of its days.

    Args:
        settings: the pipeline's; its lake must have been built.
        url: PostgreSQL to write to; a role that may create the schema, or the schema made for it.
        schema: schema of the tables, never ``public``.
        periods: what to export; default: the newest *weeks* calendar weeks of the lake.
        weeks: how many weeks that is.
        notes: what a reader must know, kept beside the figures.
        show: told what is being done.

    Raises:
        ConfigError: no lake, no calls, or a schema that must not be used.
        UnreachableError: the database does not let us in, or breaks off.
    """
    check_schema(schema)
    first, last = held_days(settings)
    chosen = list(periods) or [
        Period.week_of(last - timedelta(weeks=n))
        for n in range(weeks)
        if Period.week_of(last - timedelta(weeks=n)).end > first
    ]
    rows: Rows = {table.name: [] for table in TABLES}
    for period in chosen:
        show(f"{period.start} to {period.end}")
        for name, found in collect(settings, period, (first, last), notes).items():
            rows[name] += found
    asyncio.run(_write(settings, url, schema, chosen, rows))
    return Exported(chosen, {name: len(found) for name, found in rows.items()})


def check_schema(schema: str) -> None:
    """Refuse names that are none, and the schema of the proxy's own tables.

    Raises:
        ConfigError: with the reason.
    """
    if not _NAME.fullmatch(schema):
        raise ConfigError(f"{schema!r} is no schema name.", why="Lower-case letters, digits and _ are.")
    if schema == "public":
        raise ConfigError(
            "The tables do not go into the schema public.",
            why="The proxy's migrations own it, and some of them drop tables that they do not know.",
            next_step="Leave --schema out, or name another one.",
        )


def collect(settings: Settings, period: Period, held: tuple[date, date], notes: Sequence[str] = ()) -> Rows:
    """Return every table's rows of *period*; *held* are the first and last business day with calls.

    A period that begins or ends outside the lake is cut to the calls, as a report without bounds is.
    """
    from pipeline import figures

    first, last = held
    since = None if period.start <= first else _instant(settings, period.start)
    until = None if period.end > last else _instant(settings, period.end)
    computed = figures.compute(settings.lake, settings, since, until)
    rows = figure_rows(period, computed, notes)
    rows[CATALOGUE.name] = _catalogues(settings.lake, period, computed.window)
    for table, found in _daily(settings.lake, period).items():
        rows[table] = found
    return rows


def figure_rows(period: Period, computed: Any, notes: Sequence[str] = ()) -> Rows:
    """Return the rows of a period's figures; *computed* is a :class:`pipeline.figures.Figures`."""
    from pipeline.report import text

    key = (period.start, period.end)
    content, counts, window = computed.to_dict(), computed.counts, computed.window
    agents = content["agents_per_megawatt"]
    saturation, little = agents.get("saturation") or {}, agents.get("littles_law") or {}
    said = [n.text for n in text.all_notes(content, list(notes))] if window else [computed.reason or ""]
    lines = text.headlines(content) if window else []
    rows: Rows = {
        WINDOW.name: [
            (
                *key, window.start if window else None, window.end if window else None, _now(),
                *(_int(counts.get(name)) for name in ("calls", "engine_calls", "engine_attempts")),
                saturation.get("lower_bound"), saturation.get("reason"), little.get("residual"),
                "\n".join(said),
            )
        ],
        FIGURE.name: [
            (*key, line.figure, line.name, n, line.value, line.unit, line.coverage, line.reason)
            for n, line in enumerate(lines)
        ],
        AGENTS.name: [],
        AGENT_DAY.name: [],
    }  # fmt: skip
    coverage = (agents.get("coverage") or {}).get("power") or {}
    for value in agents.get("values") or ():
        cell = (value["boundary"], value["state"], value["tier"])
        low, high = value.get("measurement_interval") or (None, None)
        week = value.get("week_interval") or {}
        week_low, week_high = week.get("value") or (None, None)
        rows[AGENTS.name].append(
            (
                *key, *cell, bool(value.get("synthetic")),
                *(value.get(n) for n in ("value", "value_upper", "any_conformity", "pooled_rule")),
                low, high, week_low, week_high, week.get("reason"), value.get("agent_hours"),
                (value.get("conformant_agent_hours") or [None])[0], value.get("megawatt_hours"),
                coverage.get(value["boundary"]),
            )
        )  # fmt: skip
        rows[AGENT_DAY.name] += [
            (_date(d["day"]), *cell, bool(value.get("synthetic")), d["agent_hours"], d["megawatt_hours"])
            for d in value.get("by_day") or ()
            if period.start <= _date(d["day"]) < period.end
        ]
    return rows


def _catalogues(lake: Path, period: Period, window: Any) -> list[tuple[Any, ...]]:
    """Return the rows of the tool catalogues of the calls in *window*, none without one."""
    import duckdb

    from pipeline.figures import catalogue

    if window is None:
        return []
    with duckdb.connect() as con:
        found = catalogue.advice(con, lake, window.start, window.end, by="client", keep=catalogue.KEEP_TOOLS)
    return [
        (
            period.start, period.end, a.name or "unknown", a.calls, a.calls_with_tools, a.catalogues,
            a.tools_per_call, a.catalogue_tokens_per_call, a.catalogue_tokens_total, a.source,
            a.catalogue_ms_per_call, a.keep, a.saved_tokens_total, a.saved_ms_per_call,
        )
        for a in found
    ]  # fmt: skip


def held_days(settings: Settings) -> tuple[date, date]:
    """Return the first and the last business day on which a call started.

    Raises:
        ConfigError: there is no call, or the marts were never built.
    """
    import duckdb

    from pipeline.sql import binding

    lake = settings.lake
    row = None
    files = binding.files(lake, binding.FACTS["fct_call"])
    if files and binding.files(lake, "marts/call_day"):
        with duckdb.connect() as con:
            calls = con.read_parquet([str(path) for path in files])
            row = calls.aggregate("MIN(start_at), MAX(start_at)").fetchone()
    if not row or row[0] is None:
        raise ConfigError(
            f"The lake at {lake} holds no figures to export.",
            why="Its marts are missing or without calls.",
            next_step="agentwatt run builds them; --lake names another lake.",
        )
    first, last = (instant.replace(tzinfo=UTC).astimezone(settings.zone).date() for instant in row)
    return first, last


def _daily(lake: Path, period: Period) -> Rows:
    import duckdb

    from pipeline.sql import binding

    rows: Rows = {}
    with duckdb.connect() as con:
        for table in TABLES:
            if not table.source:
                continue
            mart = table.source.split("FROM mart_")[1].split()[0]
            parts = binding.files(lake, f"marts/{mart}")
            if not parts:
                rows[table.name] = []
                continue
            con.read_parquet([str(path) for path in parts]).create_view(f"mart_{mart}", replace=True)
            columns = ", ".join(table.columns)
            query = f"SELECT {columns} FROM ({table.source})"  # noqa: S608 - constants of export_tables
            rows[table.name] = con.execute(query, {"first": period.start, "last": period.end}).fetchall()
    return rows


async def _write(
    settings: Settings, url: str, schema: str, periods: Sequence[Period], rows: Mapping[str, Iterable[Any]]
) -> None:
    from pipeline.extract import database

    target = settings.database.model_copy(update={"url": SecretStr(url)})
    async with (
        database.connection(settings.model_copy(update={"database": target})) as connection,
        connection.transaction(),
    ):
        await connection.execute(
            f"SET LOCAL lock_timeout = {int(target.lock_timeout_s * 1000)}; SET LOCAL TimeZone = 'UTC'"
        )
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
        await _prepare(connection, schema)
        for table in TABLES:
            for period in periods:
                await _forget(connection, schema, table, period)
            await connection.copy_records_to_table(
                table.name, schema_name=schema, columns=list(table.columns), records=list(rows[table.name])
            )


async def _prepare(connection: asyncpg.Connection, schema: str) -> None:
    """Create what is missing and nothing else, so that a role without CREATE can use what was made for it."""
    if not await connection.fetchval("SELECT to_regnamespace($1) IS NOT NULL", schema):
        await connection.execute(f"CREATE SCHEMA {schema}")
    known = await connection.fetchval("SELECT to_regclass($1) IS NOT NULL", f"{schema}.agentwatt_version")
    if known:
        version = await connection.fetchval(f"SELECT version FROM {schema}.agentwatt_version")  # noqa: S608
        if version != VERSION:
            raise ConfigError(
                f"The tables in schema {schema} are of version {version}, this program writes {VERSION}.",
                next_step="Use another --schema, or drop that schema: every row can be exported anew.",
            )
    else:
        await connection.execute(
            f"CREATE TABLE {schema}.agentwatt_version (version integer PRIMARY KEY);"  # noqa: S608
            f"INSERT INTO {schema}.agentwatt_version VALUES ({VERSION})"
        )
    for table in TABLES:
        if not await connection.fetchval("SELECT to_regclass($1) IS NOT NULL", f"{schema}.{table.name}"):
            columns = ", ".join(f"{name} {kind}" for name, kind in table.columns.items())
            meaning = table.meaning.replace("'", "''")
            await connection.execute(
                f"CREATE TABLE {schema}.{table.name} ({columns}, PRIMARY KEY ({', '.join(table.key)}));"
                f"COMMENT ON TABLE {schema}.{table.name} IS '{meaning}'"
            )


async def _forget(connection: asyncpg.Connection, schema: str, table: Table, period: Period) -> None:
    name = f"{schema}.{table.name}"
    if table.time_column == "day":
        await connection.execute(
            f"DELETE FROM {name} WHERE day >= $1 AND day < $2",  # noqa: S608
            period.start,
            period.end,
        )
    else:
        await connection.execute(
            f"DELETE FROM {name} WHERE period_start = $1 AND period_end = $2",  # noqa: S608
            period.start,
            period.end,
        )


def _instant(settings: Settings, day: date) -> datetime:
    """Midnight of a business day as naive UTC."""
    return datetime.combine(day, time(), settings.zone).astimezone(UTC).replace(tzinfo=None)


def _now() -> datetime:
    return datetime.now(UTC).replace(tzinfo=None, microsecond=0)


def _date(value: date | str) -> date:
    return value if isinstance(value, date) else date.fromisoformat(value)


def _int(value: Any) -> int | None:
    return None if value is None else int(value)
