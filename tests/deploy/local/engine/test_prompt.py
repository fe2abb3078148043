"""From bodies to prompts: order, equal prefixes, limits, tools, marks and bad requests."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.local.engine.errors import BadRequest
from deploy.local.engine.prompt import Prompt, parse
from tests.deploy.local.engine.conftest import PATHS, request, tools


def prompt(route: str, body: Any) -> Prompt:
    return parse(route, json.dumps(body).encode())


@pytest.mark.parametrize("route", PATHS)
def test_tools_come_before_the_system_prompt_and_the_messages(route: str) -> None:
    system = {"chat": {}, "messages": {"system": "be brief"}, "responses": {"instructions": "be brief"}}
    body = request(route, "hello", **system[route], **tools(route, "bash"))
    if route == "chat":
        body["messages"].insert(0, {"role": "system", "content": "be brief"})
    first, second, third = prompt(route, body).segments
    assert first.startswith("<|tools|>")
    assert "bash" in first
    assert (second, third) == ("<|system|>be brief", "<|user|>hello")


@pytest.mark.parametrize("route", PATHS)
def test_a_longer_conversation_begins_with_the_shorter_one(route: str) -> None:
    body = request(route, "hello", **tools(route, "bash", "read"))
    longer = json.loads(json.dumps(body))
    longer["input" if route == "responses" else "messages"] += [
        {"role": "assistant", "content": "hi"},
        {"role": "user", "content": "go on"},
    ]
    short, long = prompt(route, body).segments, prompt(route, longer).segments
    assert long[: len(short)] == short
    assert len(long) == len(short) + 2


def test_cache_marks_that_move_do_not_change_the_prompt() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "done"}]}
    tool = {"name": "bash", "input_schema": {}}

    def body(m: dict[str, Any]) -> dict[str, Any]:
        inner = {**result, "content": [{**result["content"][0], **m}], **m}  # type: ignore[dict-item]
        return {
            "model": "m",
            "system": [{"type": "text", "text": "s", **m}],
            "tools": [{**tool, **m}],
            "messages": [{"role": "user", "content": [{"type": "text", "text": "hi", **m}, inner]}],
        }

    assert prompt("messages", body(mark)).segments == prompt("messages", body({})).segments


@pytest.mark.parametrize("change", ["tools", "system", "order", "arguments", "result"])
def test_what_a_template_renders_changes_the_prompt(change: str) -> None:
    def body(c: str) -> dict[str, Any]:
        function = {"name": "bash", "arguments": '{"c": 2}' if c == "arguments" else '{"c": 1}'}
        call = {"id": "c1", "type": "function", "function": function}
        names = {"tools": ("bash", "write"), "order": ("read", "bash")}.get(c, ("bash", "read"))
        return {
            "model": "m",
            **tools("chat", *names),
            "messages": [
                {"role": "system", "content": "other" if c == "system" else "system"},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c1", "content": "x" if c == "result" else "y"},
            ],
        }

    assert prompt("chat", body(change)).segments != prompt("chat", body("")).segments


def test_an_empty_text_adds_nothing_and_other_parts_are_rendered_as_they_are() -> None:
    def content(*parts: Any) -> dict[str, Any]:
        return {"model": "m", "messages": [{"role": "user", "content": list(parts)}]}

    text = {"type": "text", "text": "hi"}
    picture = {"type": "image_url", "image_url": {"url": "data:,x"}}
    with_empty = prompt("chat", content({"type": "text", "text": ""}, text)).segments
    assert with_empty == prompt("chat", content(text)).segments == ("<|user|>hi",)
    (rendered,) = prompt("chat", content(text, picture)).segments
    assert rendered == '<|user|>hi{"type":"image_url","image_url":{"url":"data:,x"}}'


@pytest.mark.parametrize(
    ("content", "rendered"),
    [(None, ""), (7, "7"), ([7], "7"), ([{"text": 7}], '{"text":7}'), ({"é": 1}, '{"é":1}')],
)
def test_odd_contents_are_rendered_as_their_json(content: Any, rendered: str) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": content}]}
    assert prompt("chat", body).segments == ("<|user|>" + rendered,)


@pytest.mark.parametrize(
    "tools", ["bash", [None], ["bash"], [{"type": "function", "function": {"name": ""}}]]
)
def test_tools_without_a_name_are_not_called(tools: Any) -> None:
    assert prompt("chat", request("chat", tools=tools)).tool is None


@pytest.mark.parametrize(("status", "usable"), [(399, False), (400, True), (599, True), (600, False)])
def test_a_marked_failure_has_an_error_status(status: int, usable: bool) -> None:
    body = request("chat", f"[[standin:fail-once:a:{status}]]")
    if usable:
        assert prompt("chat", body).fail_once == (("a", status),)
    else:
        with pytest.raises(BadRequest, match="not an error status"):
            prompt("chat", body)


@pytest.mark.parametrize(("length", "usable"), [(256, True), (257, False)])
def test_a_models_name_has_at_most_256_characters(length: int, usable: bool) -> None:
    body = {**request("chat"), "model": "x" * length}
    if usable:
        assert prompt("chat", body).model == "x" * length
    else:
        with pytest.raises(BadRequest, match="256 characters"):
            prompt("chat", body)


def test_a_responses_text_input_is_one_user_message() -> None:
    text = {"model": "m", "input": "hello"}
    assert prompt("responses", text).segments == prompt("responses", request("responses")).segments


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, None),
        ({"max_tokens": 7}, 7),
        ({"max_completion_tokens": 9}, 9),
        ({"max_output_tokens": 3}, 3),
        ({"max_tokens": None}, None),
        ({"max_tokens": 7, "max_completion_tokens": 9}, 9),
    ],
)
def test_the_output_limit_is_the_requests(fields: dict[str, Any], expected: int | None) -> None:
    assert prompt("chat", request("chat", **fields)).output_limit == expected


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, "bash"),
        ("auto", "bash"),
        ("required", "bash"),
        ("none", None),
        ({"type": "none"}, None),
        ({"type": "auto"}, "bash"),
        ({"type": "tool", "name": "read"}, "read"),
        ({"type": "function", "function": {"name": "read"}}, "read"),
        ({"type": "function", "name": "unheard-of"}, "bash"),
    ],
)
@pytest.mark.parametrize("route", PATHS)
def test_the_answer_calls_the_first_tool_unless_told_otherwise(
    route: str, choice: Any, expected: str | None
) -> None:
    body = request(route, tool_choice=choice, **tools(route, "bash", "read"))
    assert prompt(route, body).tool == expected


def test_tools_that_a_provider_runs_are_not_called() -> None:
    search = {"type": "web_search_20250305", "name": "web_search"}
    body = request("messages", tools=[search, *tools("messages", "bash")["tools"]])
    assert prompt("messages", body).tool == "bash"
    assert prompt("messages", request("messages", tools=[search])).tool is None


def test_marks_are_found_anywhere_in_the_prompt() -> None:
    body = request("chat", "[[trace:old]] do it [[standin:fail-once:a:503]][[standin:fail-once:b:429]]")
    body["messages"] += [{"role": "assistant", "content": str(n)} for n in range(30)]
    body["messages"].insert(0, {"role": "system", "content": "[[trace:older]]"})
    found = prompt("chat", body)
    assert found.fail_once == (("a", 503), ("b", 429))
    assert found.trace == "old"


def test_only_the_newest_user_text_makes_an_answer_slow() -> None:
    body = request("messages", "go [[standin:slow:20]]")
    assert prompt("messages", body).slow == 20.0
    result = {"type": "tool_result", "tool_use_id": "t", "content": "ok"}
    body["messages"] += [{"role": "assistant", "content": "x"}, {"role": "user", "content": [result]}]
    assert prompt("messages", body).slow == 20.0
    body["messages"] += [{"role": "user", "content": [{"type": "text", "text": "next"}]}]
    assert prompt("messages", body).slow == 1.0


@pytest.mark.parametrize(
    "mark",
    ["standin:slow:fast", "standin:slow:-1", "standin:slow:nan", "standin:slow:inf", "standin:slow:0",
     "standin:fail-once:a:200", "standin:fail-once:a:99", "standin:fail-once:a:999"],
)  # fmt: skip
def test_marks_that_make_no_sense_are_refused(mark: str) -> None:
    with pytest.raises(BadRequest, match="standin"):
        prompt("chat", request("chat", f"[[{mark}]]"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"model": None}, {"model": ""}, {"model": 3}, {"model": "\ud800"}, {"model": "x" * 300},
        {"messages": None}, {"messages": []}, {"messages": "text"}, {"messages": ["text"]},
        {"max_tokens": 0}, {"max_tokens": -1}, {"max_tokens": True}, {"max_tokens": "5"},
        {"max_tokens": 1.5}, {"n": 2}, {"previous_response_id": "resp_1"},
    ],
)  # fmt: skip
def test_bad_fields_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadRequest):
        prompt("chat", {**request("chat"), **wrong})


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b'"text"', b"null", b"\xff\xfe\xfd", b"[" * 100_000])
def test_bodies_that_are_no_json_object_are_refused(raw: bytes) -> None:
    with pytest.raises(BadRequest):
        parse("chat", raw)


KEYS = st.sampled_from(["text", "type", "name", "function", "content", "cache_control", "include_usage"])
SCALARS = st.sampled_from(
    [None, True, False, 0, 1, -5, 0.5, 10**30, "", "user", "none", "\ud800", "[[trace:x]]"]
)
PARTS = st.one_of(SCALARS, st.lists(SCALARS, max_size=2), st.dictionaries(KEYS, SCALARS, max_size=3))
JSON = st.one_of(PARTS, st.lists(PARTS, max_size=3), st.dictionaries(KEYS, PARTS, max_size=3))
FIELDS = ("model", "messages", "input", "tools", "tool_choice", "system", "instructions", "stream_options",
          "max_tokens", "stream", "n")  # fmt: skip
BODIES = st.dictionaries(st.sampled_from(FIELDS), JSON)
MESSAGES = st.lists(
    st.fixed_dictionaries({}, optional={"role": JSON, "content": JSON, "type": JSON, "tool_calls": JSON}),
    min_size=1,
    max_size=3,
)


@given(route=st.sampled_from(sorted(PATHS)), body=BODIES, messages=MESSAGES)
def test_any_json_gives_a_prompt_or_a_clear_refusal(
    route: str, body: dict[str, Any], messages: list[Any]
) -> None:
    given_body = {"model": "m", "messages": messages, "input": messages, **body}
    with suppress(BadRequest):
        assert prompt(route, given_body).segments


def test_what_is_said_is_known_again_in_the_form_of_another_api() -> None:
    said = {"system": "Be brief.", "messages": [
        {"role": "user", "content": [{"type": "text", "text": "Look at  a.py"}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "read", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "x = 1"}]},
    ]}  # fmt: skip
    carried = {"messages": [
        {"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
        {"role": "user", "content": "Look at a.py"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "t1", "function": {"name": "read"}}]},
        {"role": "tool", "tool_call_id": "t1", "content": "x = 1"},
    ]}  # fmt: skip
    flat = {"instructions": "Be brief.", "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "Look at a.py"}]},
        {"type": "function_call", "call_id": "t1", "name": "read", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "t1", "output": "x = 1"},
    ]}  # fmt: skip
    digests = {
        parse(route, json.dumps(body | {"model": "m"}).encode()).words_sha256
        for route, body in (("messages", said), ("chat", carried), ("responses", flat))
    }
    other = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Look at b.py"}]}).encode()
    assert len(digests) == 1
    assert parse("chat", other).words_sha256 not in digests
