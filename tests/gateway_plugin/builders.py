"""Builders of requests and recorders for the plugin's tests."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from gateway_plugin.call import Arrival, now_us
from gateway_plugin.hashing import Hasher
from gateway_plugin.identity import Auth
from gateway_plugin.recorder import Recorder
from gateway_plugin.settings import PluginSettings

HASHER = Hasher(b"a secret for tests")
AUTH = Auth(key_hash="k" * 64, key_alias="alias", user_id="ada", team_id="team-1")
CLAUDE_SESSION = "11111111-2222-3333-4444-555555555555"
CLAUDE_OLD = {"user-agent": "claude-cli/2.0.76 (external, cli)", "x-claude-code-session-id": CLAUDE_SESSION}

_serial = itertools.count()


def tool(name: str, description: str = "does a thing") -> dict[str, Any]:
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
        },
    }


TOOLS = [tool("read"), tool("write"), tool("run")]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def answer(text: str = "", *calls: str) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = [
            {"id": c, "type": "function", "function": {"name": "read", "arguments": "{}"}} for c in calls
        ]
    return message


def result(call: str, text: str = "output") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call, "content": text}


def chat(
    *messages: dict[str, Any], system: str | None = "You are a coding agent.", tools: Any = None, **extra: Any
) -> dict[str, Any]:
    head = [] if system is None else [{"role": "system", "content": system}]
    body: dict[str, Any] = {"model": "coder", "messages": [*head, *messages], **extra}
    if tools is not None:
        body["tools"] = tools
    return body


def anthropic(
    *messages: dict[str, Any], system: Any = "You are a coding agent.", **extra: Any
) -> dict[str, Any]:
    return {"model": "claude", "max_tokens": 100, "system": system, "messages": list(messages), **extra}


def arrival(
    body: Mapping[str, Any],
    headers: object = None,
    *,
    metadata: Mapping[str, Any] | None = None,
    auth: Auth = AUTH,
    received_us: int | None = None,
    route: str = "chat",
    **extra: Any,
) -> Arrival:
    values: dict[str, Any] = {
        "body": body,
        "headers": {} if headers is None else headers,
        "client_metadata": metadata or {},
        "auth": auth,
        "proxy_session": None,
        "route": route,
        "call_type": "acompletion",
        "litellm_call_id": f"call-{next(_serial)}",
        "received_us": now_us() if received_us is None else received_us,
        "queue_ms": None,
    }
    return Arrival(**(values | extra))


class Recording:
    """A recorder whose records are kept in a list."""

    def __init__(self, **settings: Any) -> None:
        self.records: list[dict[str, Any]] = []
        self.recorder = Recorder(
            PluginSettings(**settings), HASHER, emit=self.records.append, versions=("1.0", "0.1"), seed=7
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self.recorder, name)

    @property
    def last(self) -> dict[str, Any]:
        return self.records[-1]
