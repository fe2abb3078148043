"""Route × stream × outcome on the oldest and the newest supported LiteLLM: one open, one final record.

The oldest release runs where ``AGENTWATT_OTHER_PYTHON`` names an environment that has it (`make test` does).
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import pytest
import redis
import yaml

from deploy.local.engine_process import EngineProcess
from deploy.local.recorded_run import CONFIG, REPOSITORY
from deploy.local.stack import LocalStack
from gateway_plugin.event import STREAM_FIELD, STREAM_KEY
from tests.integration.conftest import until

pytestmark = pytest.mark.integration

OTHER = os.environ.get("AGENTWATT_OTHER_PYTHON")
RELEASES = [
    pytest.param(Path(sys.executable), id="newest"),
    pytest.param(
        Path(OTHER) if OTHER else None,
        id="oldest",
        marks=pytest.mark.skipif(not OTHER, reason="AGENTWATT_OTHER_PYTHON names no second environment"),
    ),
]

ROUTES = {
    "chat": ("/v1/chat/completions", "coder-large"),
    "messages": ("/v1/messages", "claude-standin"),
    "bridged": ("/v1/messages", "coder-small"),
    "responses": ("/v1/responses", "coder-large"),
}


@dataclass
class Proxy:
    """A running proxy with what the cells need."""

    stack: LocalStack
    engine: EngineProcess
    key: str
    slow_key: str

    def records(self, call_id: str) -> list[dict[str, Any]]:
        """Our records of one call, in order."""
        with redis.Redis.from_url(self.stack.redis.url) as connection:
            entries: Any = connection.xrange(STREAM_KEY)
        found = [json.loads(fields[STREAM_FIELD.encode()]) for _, fields in entries]
        return [r for r in found if r.get("litellm_call_id") == call_id]

    def final(self, call_id: str) -> dict[str, Any]:
        """The one final record, once it is there, and nothing but one open record beside it."""
        until(lambda: any(r["stage"] == "final" for r in self.records(call_id)), timeout_s=30)
        records = self.records(call_id)
        assert Counter(r["stage"] for r in records) == {"open": 1, "final": 1}, records
        assert len({r["event_id"] for r in records}) == 1
        return next(r for r in records if r["stage"] == "final")


def _config(folder: Path, engine: EngineProcess) -> Path:
    config = yaml.safe_load(CONFIG.read_text(encoding="utf-8"))
    dead = {"model": "hosted_vllm/coder-large", "api_base": f"{engine.url}/nowhere/v1", "api_key": "none"}
    config["model_list"] += [
        {"model_name": "dead", "litellm_params": dead},
        {"model_name": "dead-with-fallback", "litellm_params": dead},
        {
            "model_name": "embedder",
            "litellm_params": {
                "model": "hosted_vllm/embedder",
                "api_base": "os.environ/ENGINE_OPENAI_BASE",
                "api_key": "none",
            },
        },
    ]
    config["litellm_settings"] |= {"cache": True, "cache_params": {"type": "local", "mode": "default_off"}}
    config["router_settings"] = {"fallbacks": [{"dead-with-fallback": ["coder-small"]}]}
    config["litellm_settings"]["num_retries"] = 1  # each retry waits a second or more
    config["general_settings"]["proxy_batch_write_at"] = 1
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return path


@pytest.fixture(scope="module", params=RELEASES)
def proxy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    folder = tmp_path_factory.mktemp("outcomes")
    with (
        EngineProcess(folder, speed_up=20) as engine,
        LocalStack(
            folder,
            _config(folder, engine),
            env={**engine.proxy_environment, "AGENTWATT_PLUGIN__LEFT_GRACE_S": "2"},
            python=request.param,
            cwd=REPOSITORY,
        ) as stack,
    ):
        yield Proxy(
            stack,
            engine,
            key=stack.proxy.create_key(key_alias="cells", user_id="cells"),
            slow_key=stack.proxy.create_key(key_alias="slow", user_id="slow", rpm_limit=1),
        )


def body_of(route: str, *, stream: bool, text: str, model: str | None = None, **more: Any) -> dict[str, Any]:
    body: dict[str, Any] = {"model": model or ROUTES[route][1], "stream": stream, **more}
    if route == "responses":
        return {**body, "input": text, "max_output_tokens": 24}
    return {**body, "messages": [{"role": "user", "content": text}], "max_tokens": 24}


async def send(
    proxy: Proxy, path: str, body: dict[str, Any], *, key: str | None = None, leave_after: int | None = None
) -> tuple[str, int]:
    """Send one request; return (call id, status). *leave_after* chunks the client hangs up (0: at once)."""
    call_id = str(uuid.uuid4())
    headers = {"authorization": f"Bearer {key or proxy.key}", "x-litellm-call-id": call_id}
    async with aiohttp.ClientSession(base_url=proxy.stack.proxy.base_url) as session:
        exchange = session.post(path, json=body, headers=headers)
        if leave_after == 0:
            try:
                async with asyncio.timeout(0.7), exchange as answer:
                    await answer.read()
            except TimeoutError:
                return call_id, 0
            raise AssertionError("the answer came before the client left")
        async with exchange as answer:
            if leave_after is None:
                await answer.read()
            else:
                for _ in range(leave_after):
                    await answer.content.readany()
            return call_id, answer.status


def row_of(proxy: Proxy, event_id: str) -> dict[str, Any] | None:
    async def fetch() -> Any:
        connection = await asyncpg.connect(proxy.stack.postgres.url)
        try:
            return await connection.fetchrow(
                """SELECT status, session_id, metadata->'spend_logs_metadata'->'agentwatt' AS ours
                   FROM "LiteLLM_SpendLogs"
                   WHERE metadata->'spend_logs_metadata'->'agentwatt'->>'event_id' = $1""",
                event_id,
            )
        finally:
            await connection.close()

    row = asyncio.run(fetch())
    return None if row is None else {**dict(row), "ours": json.loads(row["ours"])}


def assert_row(proxy: Proxy, final: dict[str, Any], status: str) -> None:
    until(lambda: row_of(proxy, final["event_id"]) is not None, timeout_s=30)
    row = row_of(proxy, final["event_id"])
    assert row is not None
    assert row["status"] == status
    assert row["ours"]["outcome"] == final["outcome"]
    assert len(json.dumps(row["ours"])) <= 1100  # Postgres prints jsonb with spaces; 1,024 without


STREAMS = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
EVERY_ROUTE = pytest.mark.parametrize("route", list(ROUTES))


@EVERY_ROUTE
@STREAMS
def test_success_is_one_call_with_provider_usage(proxy: Proxy, route: str, stream: bool) -> None:
    body = body_of(route, stream=stream, text=f"say it {uuid.uuid4()}")
    call_id, status = asyncio.run(send(proxy, ROUTES[route][0], body))
    final = proxy.final(call_id)
    assert status == 200
    assert (final["outcome"], final["attempts"], final["stream"]) == ("success", 1, stream)
    assert final["route"] == ("messages" if route == "bridged" else route)
    assert final["usage_source"] == "provider"
    assert final["output_tokens"] == 24
    assert (final.get("ttft_ms") is not None) == stream
    assert_row(proxy, final, "success")


@EVERY_ROUTE
@STREAMS
def test_a_repeated_prompt_reports_the_cached_tokens_of_the_engine(
    proxy: Proxy, route: str, stream: bool
) -> None:
    text = f"{uuid.uuid4()} " + "many words follow here " * 100
    for _ in range(2):
        call_id, _ = asyncio.run(send(proxy, ROUTES[route][0], body_of(route, stream=stream, text=text)))
    final = proxy.final(call_id)
    assert final["cached_tokens"] > 300
    assert final["cached_tokens"] < final["input_tokens"]


@EVERY_ROUTE
def test_a_retried_upstream_failure_is_one_successful_call_with_two_attempts(
    proxy: Proxy, route: str
) -> None:
    text = f"[[standin:fail-once:{uuid.uuid4()}:500]] try"
    call_id, status = asyncio.run(send(proxy, ROUTES[route][0], body_of(route, stream=False, text=text)))
    final = proxy.final(call_id)
    assert (status, final["outcome"], final["attempts"]) == (200, "success", 2)
    assert_row(proxy, final, "success")


@EVERY_ROUTE
@STREAMS
def test_an_upstream_failure_is_one_failed_call(proxy: Proxy, route: str, stream: bool) -> None:
    text = "".join(f"[[standin:fail-once:{uuid.uuid4()}:500]]" for _ in range(12))
    call_id, status = asyncio.run(send(proxy, ROUTES[route][0], body_of(route, stream=stream, text=text)))
    final = proxy.final(call_id)
    assert (status, final["outcome"]) == (500, "failure")
    assert final["attempts"] >= 2
    assert final["status_code"] == 500
    assert_row(proxy, final, "failure")


@pytest.mark.parametrize("route", ["chat", "bridged"])
def test_a_fallback_is_one_successful_call(proxy: Proxy, route: str) -> None:
    body = body_of(route, stream=False, text="fall back", model="dead-with-fallback")
    call_id, status = asyncio.run(send(proxy, ROUTES[route][0], body))
    final = proxy.final(call_id)
    assert (status, final["outcome"]) == (200, "success")
    assert final["attempts"] >= 2
    assert final["model_group"] == "dead-with-fallback"


@EVERY_ROUTE
def test_a_call_over_its_rate_limit_is_rejected_before_the_engine(proxy: Proxy, route: str) -> None:
    path, body = ROUTES[route][0], body_of(route, stream=False, text="limit")
    for _ in range(4):
        call_id, status = asyncio.run(send(proxy, path, body, key=proxy.slow_key))
        if status == 429:
            break
    assert status == 429
    final = proxy.final(call_id)
    assert (final["outcome"], final["attempts"], final["status_code"]) == ("rejected", 0, 429)


def test_a_refused_key_is_a_rejected_call(proxy: Proxy) -> None:
    before = proxy_rejected(proxy)
    _, status = asyncio.run(
        send(proxy, "/v1/chat/completions", body_of("chat", stream=False, text="x"), key="sk-no")
    )
    assert status == 401
    until(lambda: proxy_rejected(proxy) == before + 1, timeout_s=20)


def proxy_rejected(proxy: Proxy) -> int:
    with redis.Redis.from_url(proxy.stack.redis.url) as connection:
        entries: Any = connection.xrange(STREAM_KEY)
    found = [json.loads(fields[STREAM_FIELD.encode()]) for _, fields in entries]
    return sum(
        r["stage"] == "final" and r["outcome"] == "rejected" and r.get("status_code") == 401 for r in found
    )


@EVERY_ROUTE
def test_a_client_that_leaves_mid_stream_is_an_aborted_call(proxy: Proxy, route: str) -> None:
    text = f"[[standin:slow:200]] {uuid.uuid4()}"
    call_id, _ = asyncio.run(
        send(proxy, ROUTES[route][0], body_of(route, stream=True, text=text), leave_after=2)
    )
    final = proxy.final(call_id)
    assert final["outcome"] == "aborted"
    assert final.get("cached_tokens") is None


@EVERY_ROUTE
def test_a_client_that_leaves_before_the_first_token_is_an_aborted_call(proxy: Proxy, route: str) -> None:
    text = f"[[standin:hold:3]] {uuid.uuid4()}"
    call_id, _ = asyncio.run(
        send(proxy, ROUTES[route][0], body_of(route, stream=True, text=text), leave_after=0)
    )
    assert proxy.final(call_id)["outcome"] == "aborted"


def test_a_response_cache_hit_is_marked_and_counts_no_engine_work(proxy: Proxy) -> None:
    body = body_of("chat", stream=False, text=f"again {uuid.uuid4()}", cache={"use-cache": True})
    asyncio.run(send(proxy, "/v1/chat/completions", body))
    call_id, _ = asyncio.run(send(proxy, "/v1/chat/completions", body))
    final = proxy.final(call_id)
    assert (final["outcome"], final["response_cache_hit"]) == ("success", True)


def test_a_body_with_no_log_has_an_event_and_no_row(proxy: Proxy) -> None:
    body = {**body_of("chat", stream=False, text="quiet"), "no-log": True}
    call_id, _ = asyncio.run(send(proxy, "/v1/chat/completions", body))
    final = proxy.final(call_id)
    assert final["outcome"] == "success"
    later, _ = asyncio.run(send(proxy, "/v1/chat/completions", body_of("chat", stream=False, text="loud")))
    assert_row(proxy, proxy.final(later), "success")
    assert row_of(proxy, final["event_id"]) is None


def test_embeddings_are_calls_of_their_own_route(proxy: Proxy) -> None:
    call_id, status = asyncio.run(send(proxy, "/v1/embeddings", {"model": "embedder", "input": ["a", "b"]}))
    final = proxy.final(call_id)
    assert (status, final["route"], final["outcome"]) == (200, "embeddings", "success")


def test_the_release_is_recorded(proxy: Proxy) -> None:
    call_id, _ = asyncio.run(send(proxy, "/v1/chat/completions", body_of("chat", stream=False, text="which")))
    version = proxy.final(call_id)["litellm_version"]
    assert version in {"1.108.7", "1.102.4"}
