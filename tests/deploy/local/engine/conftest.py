"""A stand-in engine on a free port, in the loop of the test, and a client that speaks all of its APIs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web
from hypothesis import settings as hypothesis_settings
from prometheus_client.parser import text_string_to_metric_families

from deploy.local.engine.config import EngineConfig
from deploy.local.engine.server import Engine
from deploy.local.engine.timing import Speeds
from deploy.local.engine.tokenizer import CachingTokenizer, find_tokenizer_file

# A shared machine may pause any example for longer than the default limit.
hypothesis_settings.register_profile("no deadline", deadline=None)
hypothesis_settings.load_profile("no deadline")

PATHS = {"chat": "/v1/chat/completions", "messages": "/v1/messages", "responses": "/v1/responses"}
FAST = Speeds(speed_up=1000)
#: A mark that keeps an answer busy until its client leaves.
ENDLESS = "[[standin:slow:1000000000]]"


@dataclass
class Running:
    """A running engine, seen from inside and through HTTP."""

    engine: Engine
    url: str
    http: aiohttp.ClientSession

    async def post(self, path: str, body: Any) -> tuple[int, Any]:
        """Post JSON (or bytes as they are); return status and parsed answer."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with self.http.post(self.url + path, data=data) as answer:
            return answer.status, json.loads(await answer.read())

    async def ask(self, route: str, text: str = "hello", **fields: Any) -> Any:
        """Ask on *route* and return the answer, which must be a success."""
        status, answer = await self.post(PATHS[route], request(route, text, **fields))
        assert status == 200, answer
        return answer

    async def events(self, route: str, text: str = "hello", **fields: Any) -> list[tuple[str | None, Any]]:
        """Ask for a stream and return its events as (name, data); data is text when it is not JSON."""
        body = request(route, text, stream=True, **fields)
        async with self.http.post(self.url + PATHS[route], json=body) as answer:
            assert answer.status == 200
            assert answer.content_type == "text/event-stream"
            return list(parse_events((await answer.read()).decode()))

    async def get(self, path: str) -> bytes:
        """Get a page."""
        async with self.http.get(self.url + path) as answer:
            assert answer.status == 200
            return await answer.read()

    async def sample(self, name: str, model: str = "coder-large", **labels: str) -> float:
        """Scrape the value of one of vLLM's series."""
        wanted = {"model_name": model, "engine": "0", **labels}
        lines = (await self.get("/metrics")).decode().splitlines()
        # Parsing a whole page for one value would take most of the time of these tests.
        page = "\n".join(line for line in lines if line.startswith(f"vllm:{name}{{"))
        found = [s for family in text_string_to_metric_families(page) for s in family.samples]
        (value,) = (s.value for s in found if s.labels == wanted)
        return value

    async def until(self, condition: Callable[[], bool]) -> None:
        """Exchange small requests with the server until *condition()* holds."""
        async with asyncio.timeout(20):
            while not condition():
                await self.get("/health")


def request(route: str, text: str = "hello", **fields: Any) -> dict[str, Any]:
    """Return a small request body of *route*."""
    key = "input" if route == "responses" else "messages"
    return {"model": "coder-large", key: [{"role": "user", "content": text}], **fields}


def limit(route: str, tokens: int) -> dict[str, Any]:
    """Return the field that limits the answer's length on *route*."""
    return {"max_output_tokens" if route == "responses" else "max_tokens": tokens}


def tools(route: str, *names: str) -> dict[str, Any]:
    """Return the field that offers function tools on *route*."""
    schema = {"type": "object", "properties": {}}
    shapes: dict[str, Callable[[str], dict[str, Any]]] = {
        "chat": lambda n: {"type": "function", "function": {"name": n, "parameters": schema}},
        "responses": lambda n: {"type": "function", "name": n, "parameters": schema, "strict": False},
        "messages": lambda n: {"name": n, "input_schema": schema},
    }
    return {"tools": [shapes[route](name) for name in names]}


def parse_events(text: str) -> Iterable[tuple[str | None, Any]]:
    """Yield the server-sent events of *text*; nothing else may be in it."""
    assert text.endswith("\n\n")
    for block in text[:-2].split("\n\n"):
        *names, data = block.split("\n")
        assert len(names) <= 1
        assert all(name.startswith("event: ") for name in names)
        assert data.startswith("data: ")
        payload = data[6:]
        yield names[0][7:] if names else None, payload if payload == "[DONE]" else json.loads(payload)


@pytest.fixture(scope="session")
def tokenizer() -> CachingTokenizer:
    return CachingTokenizer(find_tokenizer_file())


Serve = Callable[..., Awaitable[Running]]


@pytest_asyncio.fixture
async def serve(tokenizer: CachingTokenizer) -> AsyncIterator[Serve]:
    """Start engines: ``await serve(block_size=4, …)``; speeds default to very fast."""
    async with AsyncExitStack() as stack:

        async def start(**config: Any) -> Running:
            engine = Engine(EngineConfig(**{"speeds": FAST, **config}), tokenizer)
            runner = engine.runner()
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            http = await stack.enter_async_context(aiohttp.ClientSession())
            return Running(engine, f"http://127.0.0.1:{runner.addresses[0][1]}", http)

        yield start
