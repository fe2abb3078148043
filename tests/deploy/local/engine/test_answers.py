"""Answers as the real clients read them: OpenAI's library, and the rules of Anthropic's stream."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from deploy.local.engine.tokenizer import CachingTokenizer
from tests.deploy.local.engine.conftest import PATHS, Running, Serve, limit, request, tools

ARGUMENTS = {"command": "true"}


def client(running: Running) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=running.url + "/v1", api_key="none", max_retries=0)


# -- what OpenAI's own library makes of it


async def test_openais_library_reads_a_chat_completion(serve: Serve, tokenizer: CachingTokenizer) -> None:
    async with client(await serve()) as api:
        answer = await api.chat.completions.create(**request("chat", max_tokens=20), **tools("chat", "bash"))
    (choice,) = answer.choices
    assert answer.id.startswith("chatcmpl-")
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is not None
    assert len(tokenizer.encode(choice.message.content)) == 20 - 8
    (call,) = choice.message.tool_calls or ()
    assert call.type == "function"
    assert (call.function.name, json.loads(call.function.arguments)) == ("bash", ARGUMENTS)
    assert call.id.startswith("call_")


@pytest.mark.parametrize("include_usage", [False, True])
async def test_openais_library_reads_a_chat_stream(serve: Serve, include_usage: bool) -> None:
    running = await serve()
    body = request("chat", max_tokens=50, stream_options={"include_usage": include_usage})
    async with client(running) as api:
        stream = await api.chat.completions.create(**body, **tools("chat", "bash"), stream=True)
        chunks = [chunk async for chunk in stream]
        whole = await api.chat.completions.create(**body, **tools("chat", "bash"))
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    assert len({chunk.id for chunk in chunks}) == 1
    assert deltas[0].role == "assistant"
    assert "".join(delta.content or "" for delta in deltas) == whole.choices[0].message.content
    calls = [call for delta in deltas for call in delta.tool_calls or ()]
    assert [call.index for call in calls] == [0, 0]
    assert calls[0].function
    assert calls[0].function.name == "bash"
    arguments = "".join(call.function.arguments or "" for call in calls if call.function)
    assert json.loads(arguments) == ARGUMENTS
    reasons = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices]
    assert (reasons[-1], set(reasons[:-1])) == ("tool_calls", {None})
    usages = [chunk.usage for chunk in chunks if chunk.usage]
    assert len(usages) == int(include_usage)
    if include_usage:
        assert usages[0].completion_tokens == 50


@pytest.mark.parametrize("with_tools", [False, True])
async def test_openais_library_reads_a_response_and_its_stream(serve: Serve, with_tools: bool) -> None:
    running = await serve()
    body = request("responses", max_output_tokens=40)
    if with_tools:
        body |= tools("responses", "bash")
    async with client(running) as api:
        whole = await api.responses.create(**body)
        stream = await api.responses.create(**body, stream=True)
        events = [event async for event in stream]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type for event in events]
    deltas = kinds.count("response.output_text.delta")
    text = [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        *["response.output_text.delta"] * deltas,
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
    ]
    call = [
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
    ]
    end = "response.completed" if with_tools else "response.incomplete"
    assert kinds == [*text, *(call if with_tools else ()), end]
    final = events[-1].response  # type: ignore[union-attr]
    joined = "".join(e.delta for e in events if e.type == "response.output_text.delta")
    assert joined == whole.output_text == final.output_text
    assert final.status == whole.status == end.removeprefix("response.")
    if with_tools:
        item = whole.output[-1]
        assert item.type == "function_call"
        assert (item.name, json.loads(item.arguments)) == ("bash", ARGUMENTS)
        assert item.call_id.startswith("call_")
        assert final.incomplete_details is None
    else:
        assert final.incomplete_details.reason == "max_output_tokens"


async def test_openais_library_raises_the_errors_that_the_engine_means(serve: Serve) -> None:
    running = await serve(max_model_len=64, capacity_blocks=10)
    async with client(running) as api:
        with pytest.raises(openai.BadRequestError, match="maximum context length is 64 tokens"):
            await api.chat.completions.create(**request("chat", "word " * 100))
        with pytest.raises(openai.RateLimitError):
            await api.chat.completions.create(**request("chat", "[[standin:fail-once:x:429]]"))
        models = await api.models.list()
        vectors = await api.embeddings.create(model="e", input=["one", "two"])
    assert [m.id for m in models.data] == ["coder-large", "coder-small", "claude-standin"]
    assert len(vectors.data) == 2


# -- Anthropic's stream


def replay(events: list[tuple[str | None, Any]]) -> dict[str, Any]:
    """Build the message that a stream carries; every rule of its order is asserted."""
    assert all(name == data["type"] for name, data in events)
    kinds = [name for name, _ in events]
    assert (kinds[0], kinds[-2:]) == ("message_start", ["message_delta", "message_stop"])
    assert kinds.count("message_start") == kinds.count("message_delta") == kinds.count("message_stop") == 1
    message: dict[str, Any] = events[0][1]["message"]
    assert (message["content"], message["stop_reason"]) == ([], None)
    open_block: dict[str, Any] | None = None
    arguments = ""
    for kind, data in events[1:-2]:
        if kind == "content_block_start":
            assert open_block is None
            assert data["index"] == len(message["content"])
            open_block = data["content_block"]
            message["content"].append(open_block)
            arguments = ""
        elif kind in {"content_block_delta", "content_block_stop"}:
            assert open_block is not None
            assert data["index"] == len(message["content"]) - 1
            if kind == "content_block_stop":
                if open_block["type"] == "tool_use":
                    open_block["input"] = json.loads(arguments)
                open_block = None
            elif data["delta"]["type"] == "text_delta":
                open_block["text"] += data["delta"]["text"]
            else:
                assert (data["delta"]["type"], open_block["type"]) == ("input_json_delta", "tool_use")
                arguments += data["delta"]["partial_json"]
        else:
            assert kind == "ping"
    assert open_block is None
    end = events[-2][1]
    return {**message, **end["delta"], "usage": end["usage"]}


@pytest.mark.parametrize("with_tools", [False, True])
@pytest.mark.parametrize("tokens", [1, 7, 8, 9, 40])
async def test_an_anthropic_stream_carries_the_same_message_as_the_whole_answer(
    serve: Serve, with_tools: bool, tokens: int
) -> None:
    running = await serve()
    fields = {"max_tokens": tokens, **(tools("messages", "bash") if with_tools else {})}
    streamed = replay(await running.events("messages", **fields))
    whole = await running.ask("messages", **fields)
    for message in (streamed, whole):
        assert message.pop("id").startswith("msg_")
        for block in message["content"]:
            if block["type"] == "tool_use":
                assert block.pop("id").startswith("toolu_")
    streamed.pop("usage")
    whole.pop("usage")
    assert streamed == whole


# -- finish reasons and tool calls on all routes


def ending(route: str, answer: dict[str, Any]) -> tuple[str, list[str]]:
    """Return the reason of the end and the ids of the tool calls of a whole answer."""
    if route == "chat":
        (choice,) = answer["choices"]
        return choice["finish_reason"], [c["id"] for c in choice["message"].get("tool_calls", ())]
    if route == "messages":
        return answer["stop_reason"], [b["id"] for b in answer["content"] if b["type"] == "tool_use"]
    return answer["status"], [i["call_id"] for i in answer["output"] if i["type"] == "function_call"]


REASONS = {
    "chat": ("stop", "length", "tool_calls"),
    "messages": ("end_turn", "max_tokens", "tool_use"),
    "responses": ("completed", "incomplete", "completed"),
}


@pytest.mark.parametrize("route", PATHS)
async def test_the_reason_of_the_end_says_what_ended_the_answer(serve: Serve, route: str) -> None:
    running = await serve()
    stop, cut, tool = REASONS[route]
    offered = tools(route, "bash")
    assert ending(route, await running.ask(route)) == (stop, [])
    assert ending(route, await running.ask(route, **limit(route, 20))) == (cut, [])
    assert ending(route, await running.ask(route, **limit(route, 7), **offered)) == (cut, [])
    none = await running.ask(route, **limit(route, 20), **offered, tool_choice="none")
    assert ending(route, none) == (cut, [])
    for fields in ({}, limit(route, 20), limit(route, 8)):
        reason, calls = ending(route, await running.ask(route, **fields, **offered))
        assert (reason, len(calls)) == (tool, 1)


@pytest.mark.parametrize("route", PATHS)
async def test_ids_are_unique(serve: Serve, route: str) -> None:
    running = await serve()
    answers = [await running.ask(route, **limit(route, 20), **tools(route, "bash")) for _ in range(5)]
    assert len({answer["id"] for answer in answers}) == 5
    assert len({ending(route, answer)[1][0] for answer in answers}) == 5


@pytest.mark.parametrize("route", PATHS)
async def test_the_text_has_as_many_tokens_as_asked_for(
    serve: Serve, tokenizer: CachingTokenizer, route: str
) -> None:
    running = await serve()
    texts = {
        "chat": lambda a: a["choices"][0]["message"]["content"],
        "messages": lambda a: a["content"][0]["text"],
        "responses": lambda a: a["output"][0]["content"][0]["text"],
    }
    for tokens in (1, 33, 500):
        answer = await running.ask(route, **limit(route, tokens))
        assert len(tokenizer.encode(texts[route](answer))) == tokens


async def test_a_tool_call_alone_has_no_empty_text(serve: Serve) -> None:
    running = await serve()
    chat = await running.ask("chat", max_tokens=8, **tools("chat", "bash"))
    assert chat["choices"][0]["message"]["content"] is None
    message = await running.ask("messages", max_tokens=8, **tools("messages", "bash"))
    assert [block["type"] for block in message["content"]] == ["tool_use"]
    response = await running.ask("responses", max_output_tokens=8, **tools("responses", "bash"))
    assert [item["type"] for item in response["output"]] == ["function_call"]


async def test_only_a_chat_stream_ends_with_done(serve: Serve) -> None:
    running = await serve()
    for route in PATHS:
        events = await running.events(route, **limit(route, 3))
        assert ((None, "[DONE]") in events) == (route == "chat")
        assert (events[-1] == (None, "[DONE]")) == (route == "chat")
