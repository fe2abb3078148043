"""HTTP server of the stand-in engine."""

from __future__ import annotations

import asyncio
import hashlib
import json
from array import array
from collections.abc import Awaitable, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

from aiohttp import web

from deploy.local.engine.answers import ANSWERS, Counts, Event, Filler
from deploy.local.engine.cache import PrefixCache
from deploy.local.engine.metrics import EngineMetrics
from deploy.local.engine.power import PowerModel
from deploy.local.engine.prompt import BadRequest, Prompt, parse
from deploy.local.engine.scheduler import Job, PromptTooLong, Scheduler, Speeds
from deploy.local.engine.tokenizer import CachingTokenizer
from deploy.local.engine.truth import Served, TruthLog

MAX_BODY_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Sizes and speeds of one engine."""

    models: tuple[str, ...] = ("coder-large", "coder-small", "claude-standin")
    block_size: int = 32
    capacity_blocks: int = 40_000
    max_running: int = 32
    max_model_len: int = 131_072
    boards: int = 2
    prompt_tokens_details: bool = True
    speeds: Speeds = field(default_factory=Speeds)


class Engine:
    """One engine with its server; ``app()`` gives the aiohttp application."""

    def __init__(self, config: EngineConfig, tokenizer: CachingTokenizer) -> None:
        self.config = config
        self.tokenizer = tokenizer
        self.power = PowerModel(boards=config.boards, slots=config.max_running)
        self.metrics = EngineMetrics(
            config.models, self.power, block_size=config.block_size, blocks=config.capacity_blocks
        )
        self.truth = TruthLog()
        self.cache = PrefixCache(block_size=config.block_size, capacity_blocks=config.capacity_blocks)
        self.scheduler = Scheduler(
            self.cache,
            self.metrics,
            self.power,
            self.truth,
            config.speeds,
            max_running=config.max_running,
            max_model_len=config.max_model_len,
        )
        self.details = config.prompt_tokens_details
        self._filler = Filler(tokenizer.single_token_words())
        self._failed: set[str] = set()

    def app(self) -> web.Application:
        """Return the application with every route."""
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        for path, route in (
            ("/v1/chat/completions", "chat"),
            ("/v1/responses", "responses"),
            ("/v1/messages", "messages"),
        ):
            app.router.add_post(path, self._generate(route))
        app.router.add_post("/v1/messages/count_tokens", self._count_tokens)
        app.router.add_post("/v1/embeddings", self._embeddings)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/health", self._health)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/ground-truth", self._ground_truth)
        app.router.add_get("/ground-truth/summary", self._summary)
        app.router.add_post("/control", self._control)
        return app

    # -- generation

    def _generate(self, route: str) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handle(request: web.Request) -> web.StreamResponse:
            raw = await request.read()
            digest = hashlib.sha256(raw).hexdigest()
            try:
                prompt = parse(route, json.loads(raw))
            except (BadRequest, ValueError, RecursionError) as error:
                served = self.truth.open(route, "", False, digest, None)
                return self._refuse(served, route, 400, str(error)[:500])
            served = self.truth.open(route, prompt.model, prompt.stream, digest, prompt.trace)
            for name, status in prompt.fail_once:
                if name not in self._failed:
                    self._failed.add(name)
                    return self._refuse(served, route, status, "the stand-in engine was told to fail once")
            tokens = await asyncio.get_running_loop().run_in_executor(None, self._encode, prompt.segments)
            try:
                job = self.scheduler.job(served, prompt.model, tokens, prompt.output_tokens, prompt.slow)
            except PromptTooLong as error:
                return self._refuse(served, route, 400, str(error))
            served.status = 200
            if prompt.stream:
                return await self._stream(request, route, prompt, job)
            return await self._whole(request, route, prompt, job)

        return handle

    def _encode(self, segments: tuple[str, ...]) -> array[int]:
        tokens = array("I")
        for segment in segments:
            tokens.extend(self.tokenizer.encode(segment))
        return tokens

    def _counts(self, job: Job) -> Counts:
        cached = job.served.cached_tokens
        whole = job.prompt_tokens // self.cache.block_size * self.cache.block_size
        return Counts(job.prompt_tokens, cached, job.output_tokens, max(0, whole - cached), self.details)

    async def _whole(self, request: web.Request, route: str, prompt: Prompt, job: Job) -> web.Response:
        answer = ANSWERS[route](prompt.model, job.output_tokens, prompt.tool, self._filler)
        job.served.request_id = answer.id
        async with aclosing(self.scheduler.run(job)) as steps:
            async for _ in steps:
                if request.transport is None or request.transport.is_closing():
                    # The client has left: leaving the iteration aborts the job.
                    raise asyncio.CancelledError
        return web.json_response(answer.body(self._counts(job)))

    async def _stream(self, request: web.Request, route: str, prompt: Prompt, job: Job) -> web.StreamResponse:
        answer = ANSWERS[route](prompt.model, job.output_tokens, prompt.tool, self._filler)
        job.served.request_id = answer.id
        response = web.StreamResponse(
            headers={"content-type": "text/event-stream", "cache-control": "no-cache"}
        )
        await response.prepare(request)
        sent = 0
        async with aclosing(self.scheduler.run(job)) as steps:
            async for done in steps:
                if sent == 0:
                    await response.write(_sse(answer.opening(self._counts(job))))
                await response.write(_sse(answer.delta(sent, done)))
                sent = done
        include_usage = prompt.include_usage or route != "chat"
        await response.write(_sse(answer.closing(self._counts(job), include_usage)))
        if route == "chat":
            await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response

    def _refuse(self, served: Served, route: str, status: int, message: str) -> web.Response:
        served.status = status
        served.ended_us = served.started_us
        kind = "BadRequestError" if status == 400 else "InternalServerError"
        if route == "messages":
            kind = "invalid_request_error" if status == 400 else "api_error"
            return web.json_response(
                {"type": "error", "error": {"type": kind, "message": message}}, status=status
            )
        error = {"message": message, "type": kind, "param": None, "code": status}
        return web.json_response({"error": error}, status=status)

    # -- the other routes

    async def _count_tokens(self, request: web.Request) -> web.Response:
        try:
            prompt = parse("messages", await request.json())
        except (BadRequest, ValueError) as error:
            body = {"type": "error", "error": {"type": "invalid_request_error", "message": str(error)[:500]}}
            return web.json_response(body, status=400)
        tokens = await asyncio.get_running_loop().run_in_executor(None, self._encode, prompt.segments)
        return web.json_response({"input_tokens": len(tokens)})

    async def _embeddings(self, request: web.Request) -> web.Response:
        body = await request.json()
        texts = body.get("input") if isinstance(body, dict) else None
        texts = [texts] if isinstance(texts, str) else texts
        if not isinstance(texts, list) or not all(isinstance(t, str) for t in texts):
            error = {"message": "input: text or a list of texts", "type": "BadRequestError", "code": 400}
            return web.json_response({"error": error}, status=400)
        counts = [len(self.tokenizer.encode(text)) for text in texts]
        data = [
            {
                "object": "embedding",
                "index": i,
                "embedding": [round((n % 97) / 97, 6), round((n % 89) / 89, 6)],
            }
            for i, n in enumerate(counts)
        ]
        usage = {"prompt_tokens": sum(counts), "total_tokens": sum(counts)}
        return web.json_response({"object": "list", "model": body.get("model"), "data": data, "usage": usage})

    async def _models(self, request: web.Request) -> web.Response:
        data = [
            {"id": name, "object": "model", "created": 0, "owned_by": "stand-in"}
            for name in self.config.models
        ]
        return web.json_response({"object": "list", "data": data})

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response()

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(body=self.metrics.text(), headers={"content-type": "text/plain; version=0.0.4"})

    async def _ground_truth(self, request: web.Request) -> web.Response:
        return web.Response(body=self.truth.lines(), content_type="application/jsonl")

    async def _summary(self, request: web.Request) -> web.Response:
        return web.json_response(self.truth.summary(self.power.board_joules() * self.power.boards))

    async def _control(self, request: web.Request) -> web.Response:
        body = await request.json()
        details = body.get("prompt_tokens_details") if isinstance(body, dict) else None
        if not isinstance(details, bool):
            return web.json_response({"error": "prompt_tokens_details must be true or false"}, status=400)
        self.details = details
        return web.json_response({"prompt_tokens_details": self.details})


def _sse(events: Iterable[Event]) -> bytes:
    """Return server-sent events; the name line only where the API has one."""
    out = []
    for name, data in events:
        if name:
            out.append(f"event: {name}\n")
        out.append(f"data: {json.dumps(data, separators=(',', ':'))}\n\n")
    return "".join(out).encode()
