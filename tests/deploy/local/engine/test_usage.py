"""Tokens in every API's own form are exactly those of the tokenizer and the cache, streamed or not."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from deploy.local.engine.tokenizer import CachingTokenizer
from tests.deploy.local.engine.conftest import PATHS, Running, Serve, limit

BLOCK = 4
TEXT = "def add(a, b): return a + b  # " + "one two three four " * 20


@dataclass(frozen=True)
class Tokens:
    """What one answer says; None where it says nothing."""

    input: int
    cached: int | None
    written: int | None
    output: int


def read(route: str, usage: dict[str, Any]) -> Tokens:
    """Read a usage object by the rules of its API."""
    if route == "messages":
        cached, written = usage.get("cache_read_input_tokens"), usage.get("cache_creation_input_tokens")
        total = usage["input_tokens"] + (cached or 0) + (written or 0)
        return Tokens(total, cached, written, usage["output_tokens"])
    if route == "responses":
        details = usage["input_tokens_details"]
        assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
        cached, written = details["cached_tokens"], details["cache_write_tokens"]
        return Tokens(usage["input_tokens"], cached, written, usage["output_tokens"])
    details = usage["prompt_tokens_details"] or {}
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    cached, written = details.get("cached_tokens"), details.get("created_cache_tokens")
    return Tokens(usage["prompt_tokens"], cached, written, usage["completion_tokens"])


async def ask(running: Running, route: str, stream: bool, text: str, **fields: Any) -> Tokens:
    """Ask and return the usage of the answer; a chat stream is asked to include it."""
    if not stream:
        return read(route, (await running.ask(route, text, **fields))["usage"])
    if route == "chat":
        fields["stream_options"] = {"include_usage": True}
    events = [data for _, data in await running.events(route, text, **fields)]
    if route == "chat":
        assert events[-2]["choices"] == []
        return read(route, events[-2]["usage"])
    if route == "messages":
        (delta,) = [e for e in events if e["type"] == "message_delta"]
        start = events[0]["message"]["usage"]
        assert {**start, "output_tokens": delta["usage"]["output_tokens"]} == delta["usage"]
        return read(route, delta["usage"])
    return read(route, events[-1]["response"]["usage"])


def length(tokenizer: CachingTokenizer, text: str) -> int:
    """Tokens of a conversation of one user message."""
    return len(tokenizer.encode("<|user|>" + text))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("route", PATHS)
async def test_usage_is_exact_cold_and_warm(
    serve: Serve, tokenizer: CachingTokenizer, route: str, stream: bool
) -> None:
    running = await serve(block_size=BLOCK)
    total = length(tokenizer, TEXT)
    whole, most = total // BLOCK * BLOCK, (total - 1) // BLOCK * BLOCK
    assert total > 80
    cold = await ask(running, route, stream, TEXT, **limit(route, 9))
    warm = await ask(running, route, stream, TEXT, **limit(route, 5))
    assert cold == Tokens(total, 0, whole, 9)
    assert warm == Tokens(total, most, whole - most, 5)
    records = [json.loads(line) for line in (await running.get("/ground-truth")).splitlines()]
    assert [(r["input_tokens"], r["cached_tokens"], r["output_tokens"]) for r in records] == [
        (total, 0, 9),
        (total, most, 5),
    ]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_prompt_of_whole_blocks_computes_its_last_block_again(
    serve: Serve, tokenizer: CachingTokenizer, stream: bool
) -> None:
    text = "word"
    while length(tokenizer, text) % BLOCK:
        text += " word"
    total = length(tokenizer, text)
    running = await serve(block_size=BLOCK)
    await running.ask("messages", text)
    assert await ask(running, "messages", stream, text, max_tokens=1) == Tokens(
        total, total - BLOCK, BLOCK, 1
    )
    usage = (await running.ask("messages", text, max_tokens=1))["usage"]
    assert usage["input_tokens"] == 0


async def test_anthropics_input_leaves_out_what_was_read_and_written(
    serve: Serve, tokenizer: CachingTokenizer
) -> None:
    running = await serve(block_size=BLOCK)
    total = length(tokenizer, TEXT)
    usage = (await running.ask("messages", TEXT))["usage"]
    assert usage["input_tokens"] == total % BLOCK
    assert usage["cache_creation_input_tokens"] == total - total % BLOCK


async def test_all_routes_share_the_cache_of_a_model_and_no_other_models(serve: Serve) -> None:
    running = await serve(block_size=BLOCK)
    cold = await ask(running, "chat", False, TEXT)
    same = await ask(running, "messages", True, TEXT)
    other = await ask(running, "responses", False, TEXT, model="coder-small")
    assert (cold.cached, other.cached) == (0, 0)
    assert same.cached == (cold.input - 1) // BLOCK * BLOCK


async def test_a_conversation_that_goes_on_hits_what_it_sent_before(
    serve: Serve, tokenizer: CachingTokenizer
) -> None:
    running = await serve(block_size=BLOCK)
    messages = [{"role": "user", "content": TEXT}]
    before = read("chat", (await running.ask("chat", messages=messages))["usage"])
    messages += [{"role": "assistant", "content": "done"}, {"role": "user", "content": "go on"}]
    after = read("chat", (await running.ask("chat", messages=messages))["usage"])
    assert after.cached == before.input // BLOCK * BLOCK


async def test_an_evicted_prompt_is_computed_again_but_for_its_front(serve: Serve) -> None:
    running = await serve(block_size=BLOCK, capacity_blocks=40, max_model_len=160)
    first = await ask(running, "chat", False, TEXT, max_tokens=1)
    await ask(running, "chat", False, "other words " * 40, max_tokens=1)
    again = await ask(running, "chat", False, TEXT, max_tokens=1)
    assert again.cached is not None
    assert 0 < again.cached < (first.input - 1) // BLOCK * BLOCK


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("route", PATHS)
async def test_the_switch_leaves_cached_tokens_out_as_vllm_does(
    serve: Serve, tokenizer: CachingTokenizer, route: str, stream: bool
) -> None:
    running = await serve(block_size=BLOCK, prompt_tokens_details=False)
    total = length(tokenizer, TEXT)
    await ask(running, route, stream, TEXT, **limit(route, 3))
    silent = await ask(running, route, stream, TEXT, **limit(route, 3))
    most = (total - 1) // BLOCK * BLOCK
    known = (most, total // BLOCK * BLOCK - most)
    # vLLM reports them on the responses route whatever the switch says.
    expected = known if route == "responses" else (None, None)
    assert (silent.input, silent.cached, silent.written) == (total, *expected)
    assert await running.post("/control", {"prompt_tokens_details": True}) == (
        200,
        {"prompt_tokens_details": True},
    )
    spoken = await ask(running, route, stream, TEXT, **limit(route, 3))
    assert (spoken.input, spoken.cached, spoken.written) == (total, *known)


async def test_without_details_chat_has_null_and_messages_have_no_cache_fields(serve: Serve) -> None:
    running = await serve()
    await running.post("/control", {"prompt_tokens_details": False})
    assert (await running.ask("chat"))["usage"]["prompt_tokens_details"] is None
    assert set((await running.ask("messages"))["usage"]) == {"input_tokens", "output_tokens"}


async def test_counting_tokens_agrees_with_the_usage(serve: Serve, tokenizer: CachingTokenizer) -> None:
    running = await serve()
    body = {"model": "m", "system": "be brief", "messages": [{"role": "user", "content": TEXT}]}
    status, counted = await running.post("/v1/messages/count_tokens", body)
    usage = read("messages", (await running.post("/v1/messages", body))[1]["usage"])
    assert (status, counted) == (200, {"input_tokens": usage.input})
    assert len(running.engine.truth.records) == 1


@pytest.mark.parametrize("route", PATHS)
async def test_an_answer_without_a_limit_has_64_tokens(serve: Serve, route: str) -> None:
    running = await serve()
    assert (await ask(running, route, False, "hello")).output == 64
