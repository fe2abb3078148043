"""The provider receives the same bytes with the plugin on and off."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.local.proxy import ProxyService
from deploy.local.recorded_run import CONFIG, REPOSITORY
from tests.integration.conftest import Recorded

pytestmark = pytest.mark.integration

CLAUDE = {
    "x-claude-code-session-id": "0b1c2d3e-0000-4000-8000-000000000001",
    "user-agent": "claude-cli/2.1.283",
}
TOOL = {"name": "bash", "description": "Run it.", "input_schema": {"type": "object", "properties": {"c": {}}}}
CHAT_TOOL = {
    "type": "function",
    "function": {"name": "bash", "parameters": {"type": "object", "properties": {}}},
}


def _requests() -> Iterator[tuple[str, str, dict[str, Any], dict[str, str]]]:
    """Yield (name, path, body, headers); the prompt carries the name as a mark for the engine."""

    def ask(name: str) -> str:
        return f"hello [[trace:{name}]]"

    for stream in (False, True):
        kind = "stream" if stream else "whole"
        for label, metadata in (
            ("none", {}),
            ("null", {"metadata": None}),
            ("own", {"metadata": {"team": "x"}}),
        ):
            name = f"chat-{kind}-{label}"
            messages = [{"role": "system", "content": "s"}, {"role": "user", "content": ask(name)}]
            body = {
                "model": "coder-large",
                "stream": stream,
                "max_tokens": 12,
                "messages": messages,
                **metadata,
            }
            yield name, "/v1/chat/completions", body, {"x-session-id": "ses_0123456789"}
        for model in ("claude-standin", "coder-small"):
            name = f"messages-{kind}-{model}"
            body = {
                "model": model,
                "stream": stream,
                "max_tokens": 12,
                "metadata": {"user_id": "user_1_account_2_session_0b1c2d3e-0000-4000-8000-000000000001"},
                "system": [
                    {"type": "text", "text": "x-anthropic-billing-header: cch=1;"},
                    {"type": "text", "text": "s"},
                ],
                "tools": [TOOL],
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            {"type": "text", "text": ask(name), "cache_control": {"type": "ephemeral"}}
                        ],
                    }
                ],
            }
            yield name, "/v1/messages", body, CLAUDE
        name = f"responses-{kind}"
        body = {"model": "coder-large", "stream": stream, "max_output_tokens": 16, "input": ask(name)}
        yield name, "/v1/responses", body, {"session-id": "0b1c2d3e", "user-agent": "codex_cli_rs/0.50"}
    name = "chat-tools"
    body = {
        "model": "coder-large",
        "max_tokens": 12,
        "tools": [CHAT_TOOL],
        "messages": [{"role": "user", "content": ask(name)}],
        "user": "someone",
    }
    yield name, "/v1/chat/completions", body, {}


def _send(base_url: str, key: str) -> None:
    for _, path, body, headers in _requests():
        request = urllib.request.Request(
            base_url + path,
            data=json.dumps(body).encode(),
            headers={"content-type": "application/json", "authorization": f"Bearer {key}", **headers},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            answer.read()


def _bodies(recorded: Recorded) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for record in recorded.run.engine_truth():
        if record["marker"]:
            found.setdefault(record["marker"], []).append(record["body_sha256"])
    return found


def test_outbound_bodies_are_byte_identical_with_the_plugin_on_and_off(
    recorded: Recorded, tmp_path: Path
) -> None:
    config = yaml.safe_load(CONFIG.read_text(encoding="utf-8"))
    assert config["litellm_settings"].pop("callbacks") == ["gateway_plugin.callback.telemetry"]
    del config["general_settings"]["database_url"]
    without = tmp_path / "config.yaml"
    without.write_text(yaml.safe_dump(config), encoding="utf-8")
    proxy = recorded.run.stack.proxy
    _send(proxy.base_url, proxy.master_key)
    with ProxyService(
        without, tmp_path, env=recorded.run.engine.proxy_environment, cwd=REPOSITORY, name="without-plugin"
    ) as plain:
        _send(plain.base_url, plain.master_key)
    bodies = _bodies(recorded)
    assert set(bodies) == {name for name, *_ in _requests()}
    for name, digests in bodies.items():
        assert len(digests) == 2, name
        assert digests[0] == digests[1], name
