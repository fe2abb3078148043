"""A small provider for the outcome tests: answers, fails, hangs or breaks off as the model name asks."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from typing import Any

from aiohttp import web

USAGE = {
    "prompt_tokens": 100,
    "completion_tokens": 3,
    "total_tokens": 103,
    "prompt_tokens_details": {"cached_tokens": 64},
}
RESPONSES_USAGE = {
    "input_tokens": 100,
    "input_tokens_details": {"cached_tokens": 64},
    "output_tokens": 3,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 103,
}
ANTHROPIC_USAGE = {"input_tokens": 36, "cache_read_input_tokens": 64, "cache_creation_input_tokens": 0}


class Upstream:
    """Serves on a free port from a thread of its own; ``bodies`` holds the raw request bodies by path."""

    def __init__(self) -> None:
        self.bodies: list[tuple[str, bytes]] = []
        self.seen: Counter[str] = Counter()
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._over = asyncio.Event()
        self.port = 0

    def __enter__(self) -> Upstream:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._start())
        self._ready.set()
        self._loop.run_forever()
        self._loop.run_until_complete(self._runner.cleanup())
        self._loop.close()

    async def _start(self) -> None:
        app = web.Application(client_max_size=1 << 27)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post("/v1/messages", self._messages)
        app.router.add_post("/v1/responses", self._responses)
        app.router.add_post("/v1/embeddings", self._embeddings)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]

    async def _body(self, request: web.Request) -> dict[str, Any]:
        raw = await request.read()
        self.bodies.append((request.path, raw))
        body: dict[str, Any] = json.loads(raw)
        self.seen[str(body.get("model"))] += 1
        return body

    async def _odd(self, body: dict[str, Any]) -> web.Response | None:
        """Return the refusal that the model name asks for; hang for ever when it asks for that."""
        model = str(body.get("model"))
        if "fails" in model or ("flaky" in model and self.seen[model] % 2 == 1):
            return web.json_response({"error": {"message": "boom", "type": "server_error"}}, status=500)
        if "busy" in model:
            return web.json_response(
                {"error": {"message": "slow down", "type": "rate_limit_error"}}, status=429
            )
        if "slow" in model:
            await asyncio.sleep(1.5)
        return None

    async def _stream(
        self, request: web.Request, body: dict[str, Any], events: list[bytes]
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for number, event in enumerate(events):
            if "hangs" in str(body.get("model")):
                await self._silence()
            await response.write(event)
            await asyncio.sleep(0.02)
            if number == 2 and "breaks" in str(body.get("model")):
                assert request.transport is not None
                request.transport.close()
                return response
            if number == 2 and "stalls" in str(body.get("model")):
                await self._silence()
        return response

    async def _silence(self) -> None:
        await self._over.wait()
        raise ConnectionResetError

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = await self._body(request)
        if (odd := await self._odd(body)) is not None:
            return odd
        base = {"id": f"c{sum(self.seen.values())}", "created": 1, "model": body["model"]}
        if not body.get("stream"):
            message = {"role": "assistant", "content": "hi"}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            return web.json_response(
                {**base, "object": "chat.completion", "choices": [choice], "usage": USAGE}
            )
        base["object"] = "chat.completion.chunk"
        texts = [
            {
                **base,
                "choices": [
                    {"index": 0, "delta": {"role": "assistant", "content": f"x{n}"}, "finish_reason": None}
                ],
            }
            for n in range(4)
        ]
        last = {**base, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
        usage = {**base, "choices": [], "usage": USAGE}
        events = [f"data: {json.dumps(e)}\n\n".encode() for e in (*texts, last, usage)]
        return await self._stream(request, body, [*events, b"data: [DONE]\n\n"])

    async def _messages(self, request: web.Request) -> web.StreamResponse:
        body = await self._body(request)
        if (odd := await self._odd(body)) is not None:
            return odd
        message = {
            "id": f"m{sum(self.seen.values())}",
            "type": "message",
            "role": "assistant",
            "model": body["model"],
        }
        if not body.get("stream"):
            content = [{"type": "text", "text": "hi"}]
            usage = {**ANTHROPIC_USAGE, "output_tokens": 3}
            return web.json_response(
                {**message, "content": content, "stop_reason": "end_turn", "usage": usage}
            )
        start = {
            **message,
            "content": [],
            "stop_reason": None,
            "usage": {**ANTHROPIC_USAGE, "output_tokens": 1},
        }
        deltas = [
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": f"x{n}"}}
            for n in range(3)
        ]
        block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
        end = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}}
        parts: list[dict[str, Any]] = [
            {"type": "message_start", "message": start},
            block,
            *deltas,
            {"type": "content_block_stop", "index": 0},
            end,
            {"type": "message_stop"},
        ]
        events = [f"event: {p['type']}\ndata: {json.dumps(p)}\n\n".encode() for p in parts]
        return await self._stream(request, body, events)

    async def _responses(self, request: web.Request) -> web.StreamResponse:
        body = await self._body(request)
        if (odd := await self._odd(body)) is not None:
            return odd
        content = [{"type": "output_text", "text": "hi", "annotations": []}]
        item = {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": content,
        }
        response = {
            "id": f"resp_{sum(self.seen.values())}",
            "object": "response",
            "created_at": 1,
            "model": body["model"],
            "status": "completed",
            "output": [item],
            "usage": RESPONSES_USAGE,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "temperature": 1.0,
            "top_p": 1.0,
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "metadata": {},
        }
        if not body.get("stream"):
            return web.json_response(response)
        begun = {**response, "status": "in_progress", "output": [], "usage": None}
        deltas = [
            {
                "type": "response.output_text.delta",
                "item_id": "msg_1",
                "output_index": 0,
                "content_index": 0,
                "delta": f"x{n}",
            }
            for n in range(4)
        ]
        parts: list[dict[str, Any]] = [
            {"type": "response.created", "response": begun},
            *deltas,
            {"type": "response.completed", "response": response},
        ]
        events = [
            f"event: {p['type']}\ndata: {json.dumps(p | {'sequence_number': n})}\n\n".encode()
            for n, p in enumerate(parts)
        ]
        return await self._stream(request, body, events)

    async def _embeddings(self, request: web.Request) -> web.StreamResponse:
        body = await self._body(request)
        if (odd := await self._odd(body)) is not None:
            return odd
        data = [{"object": "embedding", "index": 0, "embedding": [0.1, 0.2]}]
        return web.json_response(
            {
                "object": "list",
                "data": data,
                "model": body["model"],
                "usage": {"prompt_tokens": 5, "total_tokens": 5},
            }
        )
