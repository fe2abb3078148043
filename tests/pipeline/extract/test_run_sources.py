"""The command ``run`` over both ways out of the proxy at once, against real servers."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from datetime import datetime
from pathlib import Path

import asyncpg
import redis
from pydantic import SecretStr

from gateway_plugin.event import SECRET_KEY, STREAM_FIELD, encode
from gateway_plugin.hashing import Hasher
from pipeline.lake import Lake, connect
from pipeline.settings import RedisSettings
from tests.pipeline.extract.conftest import SPEND_LOGS_1_106

ROOT = Path(__file__).parents[3]


def environment_for(redis_settings: RedisSettings, lake: Lake) -> dict[str, str]:
    assert isinstance(redis_settings.url, SecretStr)
    return {
        **{k: v for k, v in os.environ.items() if not k.startswith("AGENTWATT_")},
        "PYTHONPATH": str(ROOT),
        "REDIS_URL": redis_settings.url.get_secret_value(),
        "AGENTWATT_REDIS__STREAM_KEY": redis_settings.stream_key,
        "AGENTWATT_LAKE": str(lake.root),
    }


async def test_run_reads_stream_and_rows_and_names_people_by_the_plugins_secret(
    database: tuple[asyncpg.Connection, str], redis_settings: RedisSettings, lake: Lake, tmp_path: Path
) -> None:
    connection, url = database
    await connection.execute(SPEND_LOGS_1_106)
    await connection.execute(
        'INSERT INTO "LiteLLM_SpendLogs" (request_id, call_type, "startTime", "endTime", end_user) '
        "VALUES ('r1', 'acompletion', $1, $1, 'alice@corp.example')",
        datetime(2026, 3, 29, 12),
    )
    assert isinstance(redis_settings.url, SecretStr)
    address = redis_settings.url.get_secret_value()
    record = {"schema": 1, "event_id": "e", "stage": "final", "outcome": "success"}
    with redis.Redis.from_url(address) as server:
        server.set(SECRET_KEY, b"made by the plugin")
        payload = encode({**record, "started_us": 1_774_785_600_000_000})
        server.xadd(redis_settings.stream_key, {STREAM_FIELD: payload})
    environment = environment_for(redis_settings, lake) | {"DATABASE_URL": url}
    summaries = []
    for _ in range(2):
        process = await asyncio.create_subprocess_exec(
            *[sys.executable, "-m", "pipeline.cli", "run", "--no-build"],
            env=environment, cwd=tmp_path, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, _ = await process.communicate()
        assert process.returncode == 0
        summaries.append(json.loads(out))
    assert summaries[0] == {
        "event_records": 1,
        "lost_before_read": 0,
        "spend_logs_rows": 1,
        "spend_logs_rejected": 0,
    }
    assert summaries[1]["event_records"] == 0
    with connect() as con:
        lake.view(con, "raw/events", "e")
        lake.view(con, "raw/spend_logs", "s")
        assert con.execute("SELECT event_id FROM e").fetchall() == [("e",)]
        assert con.execute("SELECT request_id, user_hash FROM s").fetchall() == [
            ("r1", Hasher(b"made by the plugin").digest("user", "alice@corp.example"))
        ]


async def test_a_signal_writes_and_acknowledges_what_a_follower_holds_in_memory(
    redis_settings: RedisSettings, lake: Lake, tmp_path: Path
) -> None:
    environment = environment_for(redis_settings, lake)
    key, group = redis_settings.stream_key, redis_settings.group
    with redis.Redis.from_url(environment["REDIS_URL"]) as server:
        for n in range(3):
            record = {"schema": 1, "event_id": f"e{n}", "stage": "final", "outcome": "success"}
            server.xadd(key, {STREAM_FIELD: encode({**record, "started_us": 1_774_785_600_000_000})})
        process = await asyncio.create_subprocess_exec(
            *[sys.executable, "-m", "pipeline.cli", "collect", "--follow", "--max-wait", "3600"],
            env=environment, cwd=tmp_path, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        deadline = time.monotonic() + 30
        while not (
            server.exists(key) and server.xinfo_groups(key) and server.xpending(key, group)["pending"] == 3
        ):
            assert time.monotonic() < deadline
        process.send_signal(signal.SIGTERM)
        out, _ = await process.communicate()
        assert process.returncode == 0
        assert json.loads(out)["rows"] == 3
        assert server.xpending(key, group)["pending"] == 0
    assert len(lake.files("raw/events")) == 1
