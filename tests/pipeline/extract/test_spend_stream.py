"""The bulk connection: what a URL means, limits of statements, and that nothing can be written over it."""

from __future__ import annotations

import asyncio
from datetime import datetime
from urllib.parse import parse_qsl, urlsplit

import asyncpg
import duckdb
import pytest
from pydantic import SecretStr

from pipeline.errors import ConfigError, UnreachableError
from pipeline.extract import spend_logs
from pipeline.extract.spend_query import build, literal
from pipeline.extract.spend_stream import SpendStream, parameters
from pipeline.lake import Lake
from pipeline.settings import DatabaseSettings

from .conftest import SPEND_LOGS_1_106, settings_for

Database = tuple[asyncpg.Connection, str]
SLOW = """CREATE VIEW "Slow" AS SELECT request_id, "startTime", pg_sleep(60)::text AS model
FROM "LiteLLM_SpendLogs";
INSERT INTO "LiteLLM_SpendLogs" (request_id, call_type, "startTime", "endTime")
VALUES ('r', 'x', '2026-03-02', '2026-03-02')"""


def fetched(stream: SpendStream, statement: str) -> list[tuple[object, ...]]:
    rows = stream.rows(statement)
    with duckdb.connect() as con:
        con.register("found", rows.capsule())
        return con.execute("SELECT * FROM found").fetchall()


def settings(url: str, **limits: float) -> DatabaseSettings:
    return settings_for(url, **limits).database


async def test_a_statement_has_the_limits_and_a_transaction_that_only_reads(database: Database) -> None:
    _, url = database
    shown = ", ".join(
        f"current_setting('{name}') AS \"{name}\""
        for name in ("statement_timeout", "lock_timeout", "transaction_read_only", "TimeZone")
    )
    with SpendStream(settings(url, statement_timeout_s=7, lock_timeout_s=3)) as stream:
        assert fetched(stream, f"SELECT {shown}") == [("7s", "3s", "on", "UTC")]
        assert fetched(
            stream, "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction'"
        ) == [(0,)]


async def test_a_server_that_is_told_to_write_refuses(database: Database) -> None:
    connection, url = database
    await connection.execute(SPEND_LOGS_1_106 + SLOW)
    with SpendStream(settings(url)) as stream:
        with pytest.raises(UnreachableError, match="broke off"):
            fetched(stream, """DELETE FROM "LiteLLM_SpendLogs" RETURNING 1""")
        assert fetched(stream, 'SELECT count(*) FROM "LiteLLM_SpendLogs"') == [(1,)], "it goes on after that"


async def test_a_statement_beyond_its_limit_says_what_to_change(database: Database, lake: Lake) -> None:
    connection, url = database
    await connection.execute(SPEND_LOGS_1_106 + SLOW)
    limited = settings_for(url, table="Slow", statement_timeout_s=1)
    with pytest.raises(UnreachableError, match="time limit") as error:
        await spend_logs.extract(lake, limited)
    assert "database.page_rows" in str(error.value.next_step)


async def test_a_lock_that_somebody_holds_is_not_waited_for(database: Database, lake: Lake) -> None:
    connection, url = database
    await connection.execute(SPEND_LOGS_1_106)
    async with connection.transaction():
        await connection.execute('LOCK TABLE "LiteLLM_SpendLogs"')
        with pytest.raises(UnreachableError, match="broke off"):
            await spend_logs.extract(lake, settings_for(url, lock_timeout_s=1))


async def test_a_run_that_is_given_up_ends_its_statement(database: Database, lake: Lake) -> None:
    connection, url = database
    await connection.execute(SPEND_LOGS_1_106 + SLOW)
    running = asyncio.ensure_future(spend_logs.extract(lake, settings_for(url, table="Slow")))
    asleep = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
    while not await connection.fetchval(asleep):
        assert not running.done()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await connection.fetchval(asleep) == 0


async def test_a_table_without_rows_is_read_without_complaint(database: Database, lake: Lake) -> None:
    connection, url = database
    await connection.execute(SPEND_LOGS_1_106)
    report = await spend_logs.extract(lake, settings_for(url))
    assert (report.rows_read, report.rows_written, report.watermark) == (0, 0, None)


@pytest.mark.parametrize("text", ["it's", "back\\slash", "\\'; DROP TABLE x; --", "zeile\nünï", "$1"])
async def test_any_request_id_can_end_a_page(database: Database, text: str) -> None:
    _, url = database
    with SpendStream(settings(url)) as stream:
        assert fetched(stream, f"SELECT {literal(text)}") == [(text,)]


async def test_the_server_can_have_any_encoding_and_escapes(database: Database) -> None:
    connection, url = database
    name = await connection.fetchval("SELECT current_database()")
    await connection.execute(f'ALTER DATABASE "{name}" SET standard_conforming_strings = off')
    await connection.execute(f'ALTER DATABASE "{name}" SET client_encoding = latin1')
    told = "ü\\n"
    with SpendStream(settings(url)) as stream:
        assert fetched(stream, f"SELECT {literal(told)}, chr(252)") == [(told, "ü")]


def test_parameters_that_libpq_does_not_know_are_settings_of_the_server() -> None:
    url = parameters("postgresql://u:p%40@h:5/db?sslmode=require&search_path=a%20b&options=-c%20x%3D1", 0.5)
    assert urlsplit(url)[:3] == ("postgresql", "u:p%40@h:5", "/db")
    told = dict(parse_qsl(urlsplit(url).query))
    assert told["sslmode"] == "require"
    assert told["options"] == "-c x=1 -c search_path=a\\ b"
    assert (told["connect_timeout"], told["client_encoding"]) == ("2", "utf8")
    assert parse_qsl(urlsplit(parameters("postgresql://h/d?connect_timeout=9", 30)).query)[0] == (
        "connect_timeout",
        "9",
    )


def test_a_database_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match="no database URL"):
        SpendStream(DatabaseSettings())
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1 did not let us in"):
        SpendStream(DatabaseSettings(url=SecretStr("postgresql://nobody@127.0.0.1:1/none")))


def test_rows_outside_of_the_window_are_counted_only_where_times_are_times() -> None:
    low, high = datetime(2026, 1, 1), datetime(2027, 1, 1)
    columns = {"request_id": "text", "startTime": "text"}
    assert build("public", "t", columns, 100).outside(low, high) is None
    counting = build("public", "t", columns | {"startTime": "timestamp with time zone"}, 100).outside(
        low, high
    )
    assert counting is not None
    assert "TIMESTAMP '2026-01-01 00:00:00' AT TIME ZONE 'UTC'" in counting
