"""HTTP server of the stand-in engine."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from array import array
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing
from typing import Final

from aiohttp import web

from deploy.local.engine.answers import ANSWERS, Answer, Counts, Event, Filler
from deploy.local.engine.config import EngineConfig
from deploy.local.engine.embeddings import embed
from deploy.local.engine.errors import BadRequest, Refusal, error_body
from deploy.local.engine.metrics import EngineMetrics
from deploy.local.engine.power import PowerModel
from deploy.local.engine.prompt import DEFAULT_OUTPUT_TOKENS, Prompt, parse
from deploy.local.engine.scheduler import Job, Scheduler
from deploy.local.engine.tokenizer import CachingTokenizer
from deploy.local.engine.truth import Served, TruthLog, now_us

MAX_BODY_BYTES: Final = 64 << 20
#: What the ground truth says of a client that left before it was answered (nobody receives this status).
CLIENT_LEFT: Final = 499
#: Seconds that a running request may take to notice that the server stops.
STOP_GRACE_S: Final = 0.5
ENGINE_FAILED: Final = "the engine failed; see its log"

_LOG: Final = logging.getLogger(__name__)
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Engine:
    """One engine with its server; ``runner()`` gives the server that is ready to be bound."""

    def __init__(self, config: EngineConfig, tokenizer: CachingTokenizer) -> None:
        self.config = config
        self.tokenizer = tokenizer
        self.power = PowerModel(boards=config.boards, slots=config.max_running)
        self.metrics = EngineMetrics(
            block_size=config.block_size, blocks=config.capacity_blocks, max_model_len=config.max_model_len
        )
        self.truth = TruthLog()
        self.scheduler = Scheduler(
            self.metrics,
            self.power,
            self.truth,
            config.speeds,
            block_size=config.block_size,
            capacity_blocks=config.capacity_blocks,
            max_running=config.max_running,
        )
        for model in config.models:
            self.metrics.of(model)
        self.details = config.prompt_tokens_details
        self._filler = Filler(tokenizer.single_token_words())
        self._failed: set[str] = set()

    def runner(self) -> web.AppRunner:
        """Return the server; a client that disconnects cancels its request at once."""
        return web.AppRunner(
            self.app(), handler_cancellation=True, access_log=None, shutdown_timeout=STOP_GRACE_S
        )

    def app(self) -> web.Application:
        """Return the application with every route."""
        app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[_in_api_shape])
        for path, route in (
            ("/v1/chat/completions", "chat"),
            ("/v1/responses", "responses"),
            ("/v1/messages", "messages"),
        ):
            app.router.add_post(path, self._generation(route))
        app.router.add_post("/v1/messages/count_tokens", self._count_tokens)
        app.router.add_post("/v1/embeddings", self._embeddings)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/health", self._health)
        app.router.add_get("/metrics", self._exposition)
        app.router.add_get("/ground-truth", self._ground_truth)
        app.router.add_get("/ground-truth/summary", self._summary)
        app.router.add_get("/ground-truth/energy", self._energy)
        app.router.add_post("/control", self._control)
        return app

    # -- generation

    def _generation(self, route: str) -> _Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            raw = await request.read()
            served = self.truth.open(route, hashlib.sha256(raw).hexdigest())
            try:
                return await self._generate(request, route, raw, served)
            except Refusal as refusal:
                served.status = refusal.status
                raise
            except (asyncio.CancelledError, ConnectionError):
                served.aborted = True
                served.status = served.status or CLIENT_LEFT
                raise
            except Exception:
                served.status = 500
                raise
            finally:
                served.ended_us = now_us()

        return handle

    async def _generate(
        self, request: web.Request, route: str, raw: bytes, served: Served
    ) -> web.StreamResponse:
        prompt = parse(route, raw)
        served.model, served.stream, served.marker = prompt.model, prompt.stream, prompt.trace
        served.words_sha256 = prompt.words_sha256
        for name, status in prompt.fail_once:
            if name not in self._failed:
                self._failed.add(name)
                raise Refusal(status, "the stand-in engine was told to fail once")
        tokens = await asyncio.get_running_loop().run_in_executor(None, self._encode, prompt.segments)
        output = self._output_tokens(route, len(tokens), prompt.output_limit)
        limited = prompt.output_limit is not None
        answer = ANSWERS[route](prompt.model, output, prompt.tool, self._filler, limited=limited)
        served.request_id = answer.id
        job = self.scheduler.job(
            served, prompt.model, tokens, output, limited=answer.cut, slow=prompt.slow, hold_s=prompt.hold_s
        )
        if prompt.stream:
            return await self._stream(request, route, prompt, job, answer)
        async with aclosing(self.scheduler.run(job)) as steps:
            async for _ in steps:
                pass
        served.status = 200
        return web.json_response(answer.body(self._counts(job)))

    async def _stream(
        self, request: web.Request, route: str, prompt: Prompt, job: Job, answer: Answer
    ) -> web.StreamResponse:
        response = web.StreamResponse(
            headers={"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
        )
        await response.prepare(request)
        job.served.status = 200
        try:
            async with aclosing(self._events(prompt, job, answer)) as steps:
                async for events in steps:
                    if piece := _sse(events):
                        await response.write(piece)
            if route == "chat":
                await response.write(b"data: [DONE]\n\n")
        except ConnectionError:
            raise
        except Exception:  # noqa: BLE001 - the status is sent already: the stream itself has to tell
            _LOG.exception("a stream of %s failed", request.path)
            body = error_body(request.path, 500, ENGINE_FAILED)
            await response.write(_sse([("error" if route == "messages" else None, body)]))
        await response.write_eof()
        return response

    async def _events(
        self, prompt: Prompt, job: Job, answer: Answer
    ) -> AsyncGenerator[Iterable[Event], None]:
        """Run *job* and yield the events of every step."""
        sent = 0
        async with aclosing(self.scheduler.run(job)) as steps:
            async for done in steps:
                if sent == 0:
                    yield answer.opening(self._counts(job))
                yield answer.delta(sent, done)
                sent = done
        yield answer.closing(self._counts(job), prompt.include_usage)

    def _encode(self, segments: tuple[str, ...]) -> array[int]:
        tokens = array("I")
        for segment in segments:
            tokens.extend(self.tokenizer.encode(segment))
        return tokens

    def _output_tokens(self, route: str, prompt_tokens: int, limit: int | None) -> int:
        """Return the length of the answer.

        Raises:
            BadRequest: prompt and answer are longer than the model can take.
        """
        most = self.config.max_model_len
        wanted = limit or 1
        if prompt_tokens + wanted > most:
            if route == "messages":
                total = prompt_tokens if prompt_tokens >= most else prompt_tokens + wanted
                raise BadRequest(f"prompt is too long: {total} tokens > {most} maximum")
            raise BadRequest(
                f"This model's maximum context length is {most} tokens. However, you requested {wanted} "
                f"output tokens and your prompt contains {prompt_tokens} input tokens, for a total of "
                f"{prompt_tokens + wanted} tokens. Please reduce the length of the input prompt or the "
                "number of requested output tokens.",
                "input_tokens",
            )
        return limit or min(DEFAULT_OUTPUT_TOKENS, most - prompt_tokens)

    def _counts(self, job: Job) -> Counts:
        cached, size = job.served.cached_tokens, self.config.block_size
        written = job.prompt_tokens // size * size - cached
        return Counts(job.prompt_tokens, cached, job.output_tokens, written, self.details)

    # -- the other routes

    async def _count_tokens(self, request: web.Request) -> web.Response:
        prompt = parse("messages", await request.read())
        tokens = await asyncio.get_running_loop().run_in_executor(None, self._encode, prompt.segments)
        return web.json_response({"input_tokens": len(tokens)})

    async def _embeddings(self, request: web.Request) -> web.Response:
        raw = await request.read()
        loop = asyncio.get_running_loop()
        return web.json_response(await loop.run_in_executor(None, embed, raw, self.tokenizer.encode))

    async def _models(self, request: web.Request) -> web.Response:
        length = self.config.max_model_len
        data = [
            {
                "id": name,
                "object": "model",
                "created": 0,
                "owned_by": "stand-in",
                "root": name,
                "parent": None,
                "max_model_len": length,
            }
            for name in self.config.models
        ]
        return web.json_response({"object": "list", "data": data})

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response()

    async def _exposition(self, request: web.Request) -> web.Response:
        self.scheduler.publish()
        text = self.metrics.text() + self.power.exposition().encode()
        return web.Response(body=text, headers={"content-type": "text/plain; version=0.0.4; charset=utf-8"})

    async def _ground_truth(self, request: web.Request) -> web.Response:
        return web.Response(body=self.truth.lines(), content_type="application/jsonl")

    async def _summary(self, request: web.Request) -> web.Response:
        return web.json_response(self.truth.summary(self.power.board_joules() * self.power.boards))

    async def _energy(self, request: web.Request) -> web.Response:
        return web.json_response(self.power.history())

    async def _control(self, request: web.Request) -> web.Response:
        try:
            body = json.loads(await request.read())
        except (ValueError, RecursionError):
            body = None
        details = body.get("prompt_tokens_details") if isinstance(body, dict) else None
        if not isinstance(details, bool):
            raise BadRequest("prompt_tokens_details must be true or false", "prompt_tokens_details")
        self.details = details
        return web.json_response({"prompt_tokens_details": self.details})


@web.middleware
async def _in_api_shape(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Answer every error in the shape of the API that was called."""
    headers = None
    try:
        return await handler(request)
    except Refusal as refusal:
        status, message, param = refusal.status, refusal.message, refusal.param
    except web.HTTPException as error:
        status, message, param = error.status, error.reason, None
        headers = {"allow": error.headers["Allow"]} if "Allow" in error.headers else None
    except ConnectionError:
        raise  # the client has left: there is nobody to answer
    except Exception:  # noqa: BLE001 - whatever failed, the client gets an answer and the log the cause
        _LOG.exception("%s %s failed", request.method, request.path)
        status, message, param = 500, ENGINE_FAILED, None
    return web.json_response(error_body(request.path, status, message, param), status=status, headers=headers)


def _sse(events: Iterable[Event]) -> bytes:
    """Return server-sent events; the name line only where the API has one."""
    out = []
    for name, data in events:
        if name:
            out.append(f"event: {name}\n")
        out.append(f"data: {json.dumps(data, separators=(',', ':'))}\n\n")
    return "".join(out).encode()
