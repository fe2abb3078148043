"""The real LiteLLM proxy on the real database: what it writes, and that it loses nothing when it stops.

Set `AGENTWATT_OTHER_PYTHON` to the Python of an environment with another LiteLLM release to try that as well.
"""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.local import database
from deploy.local.stack import LocalStack

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

USAGE = {
    "prompt_tokens": 120,
    "completion_tokens": 3,
    "total_tokens": 123,
    "prompt_tokens_details": {"cached_tokens": 64},
}

CONFIG = """
model_list:
  - model_name: coder
    litellm_params: {model: hosted_vllm/coder, api_base: os.environ/ENGINE_URL, api_key: none}
litellm_settings: {num_retries: 0}
router_settings: {num_retries: 0, disable_cooldowns: true}
general_settings: {proxy_batch_write_at: 1}
"""


class Upstream(http.server.BaseHTTPRequestHandler):
    """A chat endpoint that answers, streams, or fails when it is asked to."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        base = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": 1, "model": request["model"]}
        if "please fail" in json.dumps(request["messages"]):
            self.reply(500, "application/json", json.dumps({"error": {"message": "no"}}))
        elif request.get("stream"):
            base["object"] = "chat.completion.chunk"
            texts = [{"index": 0, "delta": {"content": text}, "finish_reason": None} for text in "abc"]
            choices = [*texts, {"index": 0, "delta": {}, "finish_reason": "stop"}]
            chunks = [{**base, "choices": [choice]} for choice in choices]
            chunks.append({**base, "choices": [], "usage": USAGE})
            lines = [*(json.dumps(chunk) for chunk in chunks), "[DONE]"]
            self.reply(200, "text/event-stream", "".join(f"data: {line}\n\n" for line in lines))
        else:
            message = {"role": "assistant", "content": "abc"}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            answer = {**base, "object": "chat.completion", "choices": [choice], "usage": USAGE}
            self.reply(200, "application/json", json.dumps(answer))

    def reply(self, status: int, kind: str, text: str) -> None:
        content = text.encode()
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: object) -> None:
        """Keep the test output clean."""


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def pythons() -> list[Any]:
    other = os.environ.get("AGENTWATT_OTHER_PYTHON")
    skip = pytest.mark.skipif(not other, reason="AGENTWATT_OTHER_PYTHON names no second environment")
    return [
        pytest.param(Path(sys.executable), id="this environment"),
        pytest.param(Path(other or "none"), id="other environment", marks=skip),
    ]


@pytest.fixture(scope="module", params=pythons())
def stack(
    request: pytest.FixtureRequest, upstream: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalStack]:
    work = tmp_path_factory.mktemp("stack")
    (work / "config.yaml").write_text(CONFIG)
    with pytest.MonkeyPatch.context() as environment:
        for name in ("DATABASE_URL", "REDIS_URL"):
            environment.delenv(name, raising=False)
        with LocalStack(
            work, work / "config.yaml", env={"ENGINE_URL": upstream}, python=request.param
        ) as running:
            yield running


def chat(stack: LocalStack, key: str, text: str, *, stream: bool = False) -> tuple[int, Any]:
    messages = [{"role": "user", "content": text}]
    body = {"model": "coder", "messages": messages, "stream": stream}
    return stack.proxy.request("POST", "/v1/chat/completions", body, key=key)


def group_members(group: int) -> list[str]:
    listing = subprocess.run(
        ["ps", "-e", "-o", "pgid=,stat=,args="], capture_output=True, text=True, check=True
    )
    rows = [line.split(None, 2) for line in listing.stdout.splitlines()]
    return [row[2] for row in rows if int(row[0]) == group and not row[1].startswith("Z")]


def test_every_call_becomes_a_row_and_a_stop_writes_what_is_still_queued(stack: LocalStack) -> None:
    proxy = stack.proxy
    key = proxy.create_key(key_alias="ana", models=["coder"], metadata={"desk": 4}, max_budget=5)
    assert chat(stack, key, "hello")[0] == 200
    assert "[DONE]" in chat(stack, key, "hello", stream=True)[1]
    assert chat(stack, key, "please fail")[0] == 500
    assert chat(stack, "sk-" + "0" * 48, "hello")[0] == 401
    assert proxy.wait_for_spend_rows(3) >= 3

    rows = json.loads(
        database.fetch_value(
            stack.postgres.url,
            """SELECT json_agg(row) FROM (SELECT status, prompt_tokens, jsonb_typeof(metadata) AS kind,
               (metadata #> '{usage_object,prompt_tokens_details,cached_tokens}')::int AS cached
               FROM "LiteLLM_SpendLogs" WHERE model_group = 'coder' ORDER BY "startTime") row""",
        )
    )
    successes = [row for row in rows if row["status"] == "success"]
    assert [(row["prompt_tokens"], row["cached"], row["kind"]) for row in successes] == [
        (120, 64, "object")
    ] * 2
    assert "failure" in {row["status"] for row in rows}
    stored = "SELECT jsonb_typeof(metadata) || (metadata->>'desk') FROM \"LiteLLM_VerificationToken\""
    assert database.fetch_value(stack.postgres.url, stored) == "object4"

    settled = proxy.wait_until_spend_settles(quiet_s=3)
    for number in range(20):
        assert chat(stack, key, f"call {number}", stream=bool(number % 2))[0] == 200
    group = proxy.pid
    assert any("query-engine" in program for program in group_members(group))
    proxy.stop()
    assert proxy.spend_rows() == settled + 20
    assert group_members(group) == []
