"""What waits in the sources is counted as the next run would read it, and stays where it is."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import asyncpg
import redis
from pydantic import SecretStr

from gateway_plugin.event import STREAM_FIELD, encode
from pipeline.extract import spend_logs, waiting
from pipeline.extract.event_stream import Collector
from pipeline.lake import Lake
from pipeline.settings import RedisSettings
from tests.pipeline.extract.conftest import SPEND_LOGS_1_106, settings_for

NOON = datetime(2026, 3, 29, 12)


def send(settings: RedisSettings, *names: str) -> None:
    assert isinstance(settings.url, SecretStr)
    with redis.Redis.from_url(settings.url.get_secret_value()) as server:
        for name in names:
            record = {"schema": 1, "event_id": name, "stage": "final", "outcome": "success"}
            payload = encode({**record, "started_us": 1_774_785_600_000_000})
            server.xadd(settings.stream_key, {STREAM_FIELD: payload})


def test_entries_are_counted_without_a_group_after_a_collection_and_while_unacknowledged(
    redis_settings: RedisSettings, lake: Lake
) -> None:
    assert waiting.entries(redis_settings) == waiting.Waiting(0, "there is no stream yet")
    send(redis_settings, "a", "b")
    found = waiting.entries(redis_settings)
    assert (found.records, found.why) == (2, "the whole stream: it was never read")
    assert isinstance(redis_settings.url, SecretStr)
    key, group = redis_settings.stream_key, redis_settings.group
    with redis.Redis.from_url(redis_settings.url.get_secret_value(), protocol=2) as server:
        assert server.xinfo_groups(key) == []
        lake.prepare()
        assert Collector(server, lake, redis_settings).once().entries == 2
        send(redis_settings, "c", "d", "e")
        server.xreadgroup(group, "someone", {key: ">"}, count=1)
        found = waiting.entries(redis_settings)
        assert (found.records, found.why) == (3, "2 new entries; 1 delivered and not acknowledged")
        assert server.xpending(key, group)["pending"] == 1


async def test_rows_are_counted_from_the_watermark_less_the_lateness_on(
    database: tuple[asyncpg.Connection, str], lake: Lake
) -> None:
    connection, url = database
    await connection.execute(SPEND_LOGS_1_106)

    async def add(name: str, at: datetime) -> None:
        await connection.execute(
            'INSERT INTO "LiteLLM_SpendLogs" (request_id, call_type, "startTime", "endTime") '
            "VALUES ($1, 'acompletion', $2, $2)",
            name,
            at,
        )

    settings = settings_for(url, lateness_s=3600)
    for hour in range(4):
        await add(f"r{hour}", NOON + timedelta(hours=hour))
    await add("future", datetime.now(UTC).replace(tzinfo=None) + timedelta(days=9))
    found = await waiting.rows(lake, settings)
    assert (found.records, found.why) == (4, "all rows: none was read before")
    report = await spend_logs.extract(lake, settings)
    assert report.rows_read == found.records
    await add("new", NOON + timedelta(hours=5))
    before = lake.read_state(spend_logs.STATE)
    found = await waiting.rows(lake, settings)
    assert (found.records, found.why) == (3, "rows since 2026-03-29 14:00:00, late ones among them")
    assert lake.read_state(spend_logs.STATE) == before
    assert (await spend_logs.extract(lake, settings)).rows_read == found.records
    day = await waiting.rows(lake, settings, since=date(2026, 3, 29), until=date(2026, 3, 30))
    assert (day.records, day.why) == (5, "rows from 2026-03-29 on")


async def test_a_table_with_times_as_text_is_read_whole(
    database: tuple[asyncpg.Connection, str], lake: Lake
) -> None:
    connection, url = database
    await connection.execute('CREATE TABLE "LiteLLM_SpendLogs" (request_id text, "startTime" text)')
    await connection.execute("INSERT INTO \"LiteLLM_SpendLogs\" VALUES ('a', 'noon'), ('b', 'one')")
    found = await waiting.rows(lake, settings_for(url))
    assert (found.records, found.why) == (2, "the whole table: its times are text")
