from __future__ import annotations

import json
from typing import Any

import pytest

from deploy.local.scenario import PlannedCall, PlannedSession, Scenario, wire


def _bodies(scenario: Scenario, route: str) -> list[tuple[PlannedSession, PlannedCall, dict[str, Any]]]:
    return [
        (session, call, wire.body(session, call, {}))
        for session, call in scenario.calls()
        if session.route == route
    ]


def test_anthropic_roles_alternate_and_begin_with_the_user(scenario: Scenario) -> None:
    for _, _, body in _bodies(scenario, "messages"):
        roles = [message["role"] for message in body["messages"]]
        assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"]


def test_every_anthropic_tool_result_answers_a_tool_use_of_the_message_before_it(scenario: Scenario) -> None:
    for _, _, body in _bodies(scenario, "messages"):
        used: list[str] = []
        for message in body["messages"]:
            results = [b["tool_use_id"] for b in message["content"] if b["type"] == "tool_result"]
            if message["role"] == "user":
                assert sorted(results) == sorted(used)
            used = [b["id"] for b in message["content"] if b["type"] == "tool_use"]


def test_anthropic_blocks_are_never_empty_and_results_come_before_text(scenario: Scenario) -> None:
    for _, _, body in _bodies(scenario, "messages"):
        for message in body["messages"]:
            assert message["content"]
            kinds = [block["type"] for block in message["content"]]
            assert all(block["text"] for block in message["content"] if block["type"] == "text")
            if "tool_result" in kinds and "text" in kinds:
                assert kinds.index("text") > kinds.index("tool_result")


def test_cache_marks_stand_on_the_system_and_the_last_two_user_messages(scenario: Scenario) -> None:
    for _, _, body in _bodies(scenario, "messages"):
        assert "cache_control" in body["system"][-1]
        users = [message for message in body["messages"] if message["role"] == "user"]
        marked = [m for m in body["messages"] if any("cache_control" in b for b in m["content"])]
        assert marked == users[-2:]
        assert str(body).count("cache_control") <= 4


def test_rendering_a_call_twice_gives_the_same_body(scenario: Scenario) -> None:
    for session, call in scenario.calls():
        assert wire.body(session, call, {}) == wire.body(session, call, {})


def test_claude_code_names_itself_and_its_session_in_the_body(scenario: Scenario) -> None:
    checked = 0
    for session, _, body in _bodies(scenario, "messages"):
        if session.client != "claude-code":
            assert "metadata" not in body
            continue
        checked += 1
        assert body["system"][0]["text"].startswith("x-anthropic-billing-header: cc_version=2.")
        user_id = body["metadata"]["user_id"]
        if session.legacy:
            assert user_id.endswith(f"_session_{session.session_id}")
        else:
            assert json.loads(user_id)["session_id"] == session.session_id
    assert checked > 10


def test_every_chat_tool_message_answers_the_assistant_message_before_it(scenario: Scenario) -> None:
    for _, _, body in _bodies(scenario, "chat"):
        assert body["messages"][0]["role"] == "system"
        open_ids: set[str] = set()
        for message in body["messages"]:
            if message["role"] == "tool":
                assert message["tool_call_id"] in open_ids
                open_ids.remove(message["tool_call_id"])
                continue
            assert not open_ids
            open_ids = {call["id"] for call in message.get("tool_calls") or ()}
        assert not open_ids


def test_every_function_call_output_answers_a_function_call(scenario: Scenario) -> None:
    for session, _, body in _bodies(scenario, "responses"):
        calls: set[str] = set()
        for item in body["input"]:
            if item["type"] == "function_call":
                calls.add(item["call_id"])
            elif item["type"] == "function_call_output":
                assert item["call_id"] in calls
        assert body["instructions"]
        assert body["prompt_cache_key"] == session.session_id
        assert body["store"] is False


@pytest.mark.parametrize("route", ["chat", "messages", "responses"])
def test_every_body_names_its_model_length_and_tools(scenario: Scenario, route: str) -> None:
    length = {"chat": "max_tokens", "messages": "max_tokens", "responses": "max_output_tokens"}[route]
    bodies = _bodies(scenario, route)
    assert bodies
    for session, call, body in bodies:
        assert body["model"] == call.model_group
        assert body[length] == call.max_tokens > 0
        assert len(body.get("tools", [])) == len(call.tools)
        assert body.get("stream", False) is session.stream


def test_returned_ids_replace_planned_ids_everywhere_in_the_history(scenario: Scenario) -> None:
    for session in scenario.sessions:
        calls = list(session.calls())
        ids = {tool_id: f"real-{tool_id}" for call in calls for tool_id in call.emits}
        body = json.dumps(wire.body(session, calls[-1], ids))
        assert all(body.count(f'"{planned}"') == 0 for planned in ids)
        used = [planned for planned in ids if any(planned in str(m) for m in calls[-1].messages)]
        assert all(body.count(f'"real-{planned}"') == 2 for planned in used)


def test_no_body_names_the_product(scenario: Scenario) -> None:
    for session, call in scenario.calls():
        assert "agentwatt" not in json.dumps(wire.body(session, call, {})).lower()
