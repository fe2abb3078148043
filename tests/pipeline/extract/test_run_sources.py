"""The command ``run`` over both ways out of the proxy at once, against real servers."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from datetime import datetime
from pathlib import Path

import asyncpg
import redis
from pydantic import SecretStr

from gateway_plugin.event import STREAM_FIELD, encode
from gateway_plugin.hashing import Hasher
from pipeline.lake import Lake, connect
from pipeline.settings import RedisSettings
from pipeline.workflow import SECRET_KEY
from tests.pipeline.extract.conftest import SPEND_LOGS_1_106

ROOT = Path(__file__).parents[3]


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
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith("AGENTWATT_")},
        "PYTHONPATH": str(ROOT),
        "REDIS_URL": address,
        "DATABASE_URL": url,
        "AGENTWATT_REDIS__STREAM_KEY": redis_settings.stream_key,
        "AGENTWATT_LAKE": str(lake.root),
    }
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
