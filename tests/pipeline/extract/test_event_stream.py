"""Draining the stream of a real server: crashes, trimming, poison, dead consumers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from pydantic import SecretStr

from gateway_plugin.event import STREAM_FIELD, encode, new_event_id
from pipeline.errors import ConfigError, UnreachableError
from pipeline.extract.event_record import EventBatch
from pipeline.extract.event_stream import Collector, CollectReport
from pipeline.extract.redis_server import client, order, trimmed_unread
from pipeline.lake import Lake, connect
from pipeline.settings import RedisSettings


@pytest.fixture
def server(redis_settings: RedisSettings) -> Iterator[redis.Redis]:
    with client(redis_settings) as connection:
        yield connection


def record(**changes: Any) -> dict[str, Any]:
    base = {"schema": 1, "event_id": new_event_id(), "stage": "final", "outcome": "success"}
    return {**base, "started_us": 1_774_785_000_000_000, **changes}


def add(server: redis.Redis, settings: RedisSettings, count: int) -> list[str]:
    ids = []
    pipe = server.pipeline()
    for _ in range(count):
        fields = record()
        pipe.xadd(settings.stream_key, {STREAM_FIELD: encode(fields)})
        ids.append(fields["event_id"])
    pipe.execute()
    return ids


def once(server: redis.Redis, lake: Lake, settings: RedisSettings, **options: Any) -> CollectReport:
    return Collector(server, lake, settings, **options).once()


def events(lake: Lake, distinct: bool = False) -> list[str]:
    with connect() as con:
        lake.view(con, "raw/events", "e")
        what = "DISTINCT event_id" if distinct else "event_id"
        return sorted(r[0] for r in con.execute(f"SELECT {what} FROM e").fetchall())


def pending(server: redis.Redis, settings: RedisSettings) -> int:
    info: Any = server.xpending(settings.stream_key, settings.group)
    return int(info["pending"])


def test_everything_is_read_once_and_acknowledged(
    server: redis.Redis, lake: Lake, redis_settings: RedisSettings
) -> None:
    ids = add(server, redis_settings, 250)
    report = once(server, lake, redis_settings)
    assert (report.entries, report.rows, report.lost, report.lag) == (250, 250, 0, 0)
    assert events(lake) == sorted(ids)
    assert pending(server, redis_settings) == 0
    again = once(server, lake, redis_settings)
    assert (again.entries, again.lost, again.notices) == (0, 0, [])


def test_files_are_bounded_in_rows_and_bytes(
    server: redis.Redis, lake: Lake, redis_settings: RedisSettings
) -> None:
    add(server, redis_settings, 250)
    report = once(server, lake, redis_settings.model_copy(update={"max_file_rows": 100}))
    assert report.files_written == 3
    add(server, redis_settings, 250)
    report = once(server, lake, redis_settings.model_copy(update={"max_file_bytes": 1024}))
    assert report.files_written == 3  # one for each answer of the server, since each is above the bound


@pytest.mark.parametrize("moment", ["before the write", "after the rename"])
def test_a_crash_before_the_acknowledgement_repeats_and_never_loses(
    server: redis.Redis,
    lake: Lake,
    redis_settings: RedisSettings,
    monkeypatch: pytest.MonkeyPatch,
    moment: str,
) -> None:
    ids = add(server, redis_settings, 150)
    with monkeypatch.context() as patch:
        if moment == "before the write":
            patch.setattr(EventBatch, "write", _killed)
        else:
            patch.setattr(Collector, "_acknowledge", _killed)
        with pytest.raises(KeyboardInterrupt):
            once(server, lake, redis_settings)
    assert pending(server, redis_settings) == 150
    report = once(server, lake, redis_settings)
    assert report.entries == 150
    assert events(lake, distinct=True) == sorted(ids)
    assert pending(server, redis_settings) == 0
    with connect() as con:
        for day in lake.dates("raw/events"):
            lake.compact(con, "raw/events", day)
    assert events(lake) == sorted(ids)


def _killed(*_: Any) -> None:
    raise KeyboardInterrupt


def test_entries_of_a_dead_consumer_are_taken_over(
    server: redis.Redis, lake: Lake, redis_settings: RedisSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = add(server, redis_settings, 120)
    with monkeypatch.context() as patch:
        patch.setattr(Collector, "_acknowledge", _killed)
        dead = redis_settings.model_copy(update={"consumer": "pod-that-died"})
        with pytest.raises(KeyboardInterrupt):
            once(server, Lake(lake.root / "lost-disk"), dead)
    early = once(server, lake, redis_settings)
    assert early.entries == 0  # not idle for long enough: it may still be at work
    report = once(server, lake, redis_settings.model_copy(update={"claim_idle_s": 0.001}))
    assert (report.claimed, report.entries) == (120, 120)
    assert events(lake) == sorted(ids)


def test_entries_trimmed_before_they_were_read_are_counted_once(
    server: redis.Redis, lake: Lake, redis_settings: RedisSettings
) -> None:
    add(server, redis_settings, 100)
    once(server, lake, redis_settings)
    add(server, redis_settings, 50)
    server.xtrim(redis_settings.stream_key, maxlen=20, approximate=False)
    report = once(server, lake, redis_settings)
    assert (report.lost, report.entries) == (30, 20)
    assert once(server, lake, redis_settings).lost == 0
    add(server, redis_settings, 10)
    server.xtrim(redis_settings.stream_key, maxlen=0, approximate=False)
    assert once(server, lake, redis_settings).lost == 10
    assert once(server, lake, redis_settings).lost == 0
    add(server, redis_settings, 5)
    assert (once(server, lake, redis_settings).lost, len(events(lake))) == (0, 125)
    state = lake.read_state("events")
    assert state["lost_before_read"] == 40
    assert sum(state["lost_by_date"].values()) == 40


def test_entries_trimmed_before_the_first_collection_are_counted(
    server: redis.Redis, lake: Lake, redis_settings: RedisSettings
) -> None:
    add(server, redis_settings, 30)
    server.xtrim(redis_settings.stream_key, maxlen=10, approximate=False)
    report = once(server, lake, redis_settings)
    assert (report.lost, report.entries) == (20, 10)


def test_read_entries_that_are_trimmed_later_are_not_lost(
    server: redis.Redis, lake: Lake, redis_settings: RedisSettings
) -> None:
    add(server, redis_settings, 30)
    once(server, lake, redis_settings)
    server.xtrim(redis_settings.stream_key, maxlen=5, approximate=False)
    add(server, redis_settings, 3)
    assert once(server, lake, redis_settings).lost == 0


def test_pending_entries_that_are_trimmed_are_lost(
    server: redis.Redis, lake: Lake, redis_settings: RedisSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(server, redis_settings, 30)
    with monkeypatch.context() as patch:
        patch.setattr(EventBatch, "write", _killed)
        with pytest.raises(KeyboardInterrupt):
            once(server, lake, redis_settings)
    server.xtrim(redis_settings.stream_key, maxlen=10, approximate=False)
    report = once(server, lake, redis_settings)
    assert (report.lost, report.entries) == (20, 10)
    assert pending(server, redis_settings) == 0


def test_poison_is_set_aside_and_never_blocks(
    server: redis.Redis, lake: Lake, redis_settings: RedisSettings
) -> None:
    ids = add(server, redis_settings, 3)
    server.xadd(redis_settings.stream_key, {STREAM_FIELD: b"\xff not JSON"})
    server.xadd(redis_settings.stream_key, {"other": b"{}"})
    server.xadd(
        redis_settings.stream_key,
        {STREAM_FIELD: encode(record(schema=99))},
    )
    ids += add(server, redis_settings, 3)
    report = once(server, lake, redis_settings)
    assert report.rejected == {"not JSON": 1, "no payload field": 1, "unknown schema": 1}
    assert events(lake) == sorted(ids)
    assert pending(server, redis_settings) == 0
    assert len(lake.files("rejects/events")) == 1


def test_a_stream_that_vanished_is_noticed(
    server: redis.Redis, lake: Lake, redis_settings: RedisSettings
) -> None:
    add(server, redis_settings, 5)
    once(server, lake, redis_settings)
    server.delete(redis_settings.stream_key)
    ids = add(server, redis_settings, 2)
    report = once(server, lake, redis_settings)
    assert report.entries == 2
    assert report.lost_unknown
    assert "stream was deleted or moved" in report.notices[0]
    assert set(ids) <= set(events(lake))


def test_following_writes_what_arrives_until_it_is_stopped(
    server: redis.Redis, lake: Lake, redis_settings: RedisSettings
) -> None:
    stop = threading.Event()
    ids = add(server, redis_settings, 5)

    def written(report: CollectReport) -> None:
        if report.entries == 5:
            ids.extend(add(server, redis_settings, 7))
        elif report.entries == 12:
            stop.set()

    collector = Collector(server, lake, redis_settings, progress=written, should_stop=stop.is_set)
    report = collector.follow(max_wait_s=0.01)
    assert report.entries == 12
    assert events(lake) == sorted(ids)


def test_once_waits_for_a_first_entry_when_asked(
    server: redis.Redis, lake: Lake, redis_settings: RedisSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited = Collector._wait

    def arrive(self: Collector, seconds: float) -> None:
        add(server, redis_settings, 1)
        waited(self, seconds)

    monkeypatch.setattr(Collector, "_wait", arrive)
    assert Collector(server, lake, redis_settings).once(max_wait_s=30).entries == 1


def test_an_idle_stream_ends_the_wait(server: redis.Redis, lake: Lake, redis_settings: RedisSettings) -> None:
    assert Collector(server, lake, redis_settings).once(max_wait_s=0.05).entries == 0


def test_unreachable_and_refusing_servers_are_explained(
    stream_server: str, redis_settings: RedisSettings
) -> None:
    def opened(url: str | None) -> None:
        with client(RedisSettings(url=SecretStr(url) if url else None, timeout_s=1)):
            pass

    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:1 did not answer"):
        opened("redis://user:hunter2@127.0.0.1:1/0")
    with pytest.raises(UnreachableError, match="refused us") as caught:
        opened(stream_server.replace("redis://", "redis://user:hunter2@"))
    assert "hunter2" not in str(caught.value)
    with pytest.raises(ConfigError, match="not valid"):
        opened("http://127.0.0.1")
    with pytest.raises(ConfigError, match="no Redis URL"):
        opened(None)
    with pytest.raises(UnreachableError):
        opened(stream_server.replace("redis://", "rediss://"))


def test_a_key_of_another_type_is_a_settings_error(
    server: redis.Redis, lake: Lake, redis_settings: RedisSettings
) -> None:
    server.set(redis_settings.stream_key, "text")
    with pytest.raises(ConfigError, match="holds no stream"):
        once(server, lake, redis_settings)


@pytest.mark.parametrize(
    ("stream", "group", "expected"),
    [
        ({"length": 5, "entries-added": 20}, {"entries-read": 10}, 5),
        ({"length": 5, "entries-added": 20}, {"entries-read": 18}, 0),
        (
            {"length": 1, "first-entry": [b"5-0", {}], "last-generated-id": b"9-0"},
            {"last-delivered-id": b"7-0"},
            0,
        ),
        (
            {"length": 1, "first-entry": [b"8-0", {}], "last-generated-id": b"9-0"},
            {"last-delivered-id": b"7-0"},
            None,
        ),
        ({"length": 0, "first-entry": None, "last-generated-id": b"7-0"}, {"last-delivered-id": b"7-0"}, 0),
        (
            {"length": 0, "first-entry": None, "last-generated-id": b"9-0"},
            {"last-delivered-id": b"7-0"},
            None,
        ),
    ],
)
def test_loss_is_counted_or_said_to_be_unknown(
    stream: dict[str, Any], group: dict[str, Any], expected: int | None
) -> None:
    assert trimmed_unread(stream, group) == expected


def test_ids_are_ordered_as_numbers() -> None:
    assert sorted(["10-0", "9-10", "9-9"], key=order) == ["9-9", "9-10", "10-0"]
