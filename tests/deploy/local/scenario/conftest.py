"""A server that imitates the three APIs, and the composed scenarios (skipped without the recordings)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer

from deploy.local.recordings import RecordingsError, data_root
from deploy.local.scenario import Scenario, compose


def _needs_recordings() -> None:
    try:
        data_root()
    except RecordingsError as error:
        pytest.skip(str(error))


@pytest.fixture
def recordings() -> None:
    _needs_recordings()


@pytest.fixture(params=["small", "full"])
def scenario(request: pytest.FixtureRequest) -> Scenario:
    _needs_recordings()
    return compose(request.param)


@pytest.fixture
def small() -> Scenario:
    _needs_recordings()
    return compose("small")


@dataclass
class Imitation:
    """Answers every request with one tool call when tools are offered, else with text."""

    url: str = ""
    requests: list[tuple[str, dict[str, str], dict[str, Any]]] = field(default_factory=list)
    issued: set[str] = field(default_factory=set)
    disconnected: asyncio.Event = field(default_factory=asyncio.Event)
    fail_path: str | None = None
    cut_path: str | None = None
    error_path: str | None = None

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.read())
        self.requests.append((request.path, dict(request.headers), body))
        call_id = f"call-{len(self.requests)}"
        if request.path == self.fail_path:
            return web.json_response(
                {"error": {"message": "boom"}}, status=500, headers={"x-litellm-call-id": call_id}
            )
        tool_id = f"issued_{len(self.requests)}" if body.get("tools") else None
        if tool_id:
            self.issued.add(tool_id)
        if not body.get("stream"):
            return web.json_response(_WHOLE[request.path](tool_id), headers={"x-litellm-call-id": call_id})
        response = web.StreamResponse(
            headers={"content-type": "text/event-stream", "x-litellm-call-id": call_id}
        )
        await response.prepare(request)
        events = _EVENTS[request.path](tool_id)
        try:
            if "[[standin:slow:" in json.dumps(body["messages"] if "messages" in body else body["input"]):
                for event in events[:2] + events[2:3] * 10:
                    await response.write(_sse(event))
                await asyncio.Event().wait()
            if request.path == self.cut_path:
                events = events[:2]
            if request.path == self.error_path:
                events = [{"type": "error", "error": {"message": "broken"}}]
            for event in events:
                await response.write(_sse(event))
        except (asyncio.CancelledError, ConnectionError):
            self.disconnected.set()
            raise
        await response.write_eof()
        return response


def _sse(event: Any) -> bytes:
    payload = event if isinstance(event, str) else json.dumps(event)
    return f"data: {payload}\n\n".encode()


def _chat_events(tool_id: str | None) -> list[Any]:
    def chunk(delta: dict[str, Any]) -> dict[str, Any]:
        return {"choices": [{"index": 0, "delta": delta}]}

    events: list[Any] = [chunk({"role": "assistant"}), chunk({"content": "a"}), chunk({"content": "b"})]
    if tool_id:
        function = {"name": "bash", "arguments": ""}
        events.append(chunk({"tool_calls": [{"index": 0, "id": tool_id, "function": function}]}))
        events.append(chunk({"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]}))
    return [*events, "[DONE]"]


def _messages_events(tool_id: str | None) -> list[Any]:
    delta = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "a"}}
    events: list[Any] = [{"type": "message_start", "message": {}}, delta, delta]
    if tool_id:
        block = {"type": "tool_use", "id": tool_id, "name": "bash"}
        events.append({"type": "content_block_start", "content_block": block})
    return [*events, {"type": "message_stop"}]


def _responses_events(tool_id: str | None) -> list[Any]:
    delta = {"type": "response.output_text.delta", "delta": "a"}
    events: list[Any] = [{"type": "response.created"}, delta, delta]
    if tool_id:
        item = {"type": "function_call", "id": "fc_1", "call_id": tool_id}
        events.append({"type": "response.output_item.added", "item": item})
        events.append({"type": "response.output_item.done", "item": item})
    return [*events, {"type": "response.incomplete"}]


def _chat_whole(tool_id: str | None) -> dict[str, Any]:
    calls = [{"id": tool_id, "type": "function"}] if tool_id else None
    return {"choices": [{"message": {"content": "a", "tool_calls": calls}}]}


def _messages_whole(tool_id: str | None) -> dict[str, Any]:
    blocks = [{"type": "tool_use", "id": tool_id}] if tool_id else [{"type": "text", "text": "a"}]
    return {"type": "message", "content": blocks}


def _responses_whole(tool_id: str | None) -> dict[str, Any]:
    items = [{"type": "function_call", "call_id": tool_id}] if tool_id else []
    return {"status": "completed", "output": items}


_EVENTS = {
    "/v1/chat/completions": _chat_events,
    "/v1/messages": _messages_events,
    "/v1/responses": _responses_events,
}
_WHOLE = {
    "/v1/chat/completions": _chat_whole,
    "/v1/messages": _messages_whole,
    "/v1/responses": _responses_whole,
}


@pytest_asyncio.fixture
async def imitation() -> AsyncIterator[Imitation]:
    server = Imitation()
    app = web.Application(client_max_size=16 * 2**20)
    app.router.add_post("/v1/{route:.*}", server.handle)
    async with TestServer(app) as test_server:
        await test_server.start_server(handler_cancellation=True)
        server.url = str(test_server.make_url("/")).rstrip("/")
        yield server
