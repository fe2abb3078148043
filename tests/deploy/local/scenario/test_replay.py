from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from pathlib import Path
from typing import Any, Protocol

import pytest

from deploy.local import truth
from deploy.local.replay import KeysError, ReplayResult, UnreachableError, main, replay
from deploy.local.scenario import Cast, Scenario, Turn, compose_casts
from deploy.local.scenario.casts import CONFIG, KUBERNETES

FAST = 100_000.0


class Server(Protocol):
    url: str
    requests: list[tuple[str, dict[str, str], dict[str, Any]]]
    issued: set[str]
    disconnected: asyncio.Event
    fail_path: str | None
    cut_path: str | None
    error_path: str | None


def _keys(scenario: Scenario) -> dict[str, str]:
    return {user: f"sk-{user}" for user in scenario.users}


async def _play(scenario: Scenario, server: Server) -> ReplayResult:
    return await replay(scenario, server.url, _keys(scenario), speed_up=FAST)


async def test_every_planned_call_is_sent_once_and_ends_as_expected(
    small: Scenario, imitation: Server
) -> None:
    result = await _play(small, imitation)
    assert [str(failure) for failure in result.failures] == []
    assert [call.call for call in result.calls] == sorted(call.number for _, call in small.calls())
    assert len(imitation.requests) == len(result.calls)
    assert {call.litellm_call_id for call in result.calls} == {
        f"call-{n}" for n in range(1, len(result.calls) + 1)
    }


async def test_the_truth_repeats_the_plan_and_its_instants_are_in_order(
    small: Scenario, imitation: Server
) -> None:
    result = await _play(small, imitation)
    planned = {call.number: (session, call) for session, call in small.calls()}
    for record in result.calls:
        session, call = planned[record.call]
        assert (record.session, record.user, record.route) == (session.name, session.user, session.route)
        assert (record.turn, record.call_in_turn) == (call.turn, call.call_in_turn)
        assert record.tool_count == len(call.tools)
        assert record.first_byte_us is not None
        assert record.sent_us <= record.first_byte_us <= record.done_us
    for calls in truth.streams(result.calls).values():
        assert [c.call for c in calls] == sorted(c.call for c in calls)


async def test_a_parent_waits_for_its_subagents_which_run_after_the_call_that_started_them(
    small: Scenario, imitation: Server
) -> None:
    result = await _play(small, imitation)
    forked = 0
    for calls in truth.sessions(result.calls).values():
        children = [call for call in calls if call.parent_agent]
        if not children:
            continue
        forked += 1
        start, end = children[0].sent_us, max(call.done_us for call in children)
        for call in calls:
            assert call.parent_agent or call.done_us <= start or call.sent_us >= end
    assert forked == 3


async def test_the_history_uses_the_ids_that_the_server_issued(small: Scenario, imitation: Server) -> None:
    await _play(small, imitation)
    checked = 0
    for _, _, body in imitation.requests:
        for first_id in _first_tool_ids(body):
            assert first_id in imitation.issued
            checked += 1
    assert checked > 50


def _first_tool_ids(body: dict[str, Any]) -> list[str]:
    """The first tool call of every assistant message: the imitation issues one id per answer."""
    if "input" in body:
        items = [item["type"] for item in body["input"]]
        return [
            item["call_id"]
            for index, item in enumerate(body["input"])
            if item["type"] == "function_call" and items[index - 1] != "function_call"
        ]
    firsts = []
    for message in body["messages"]:
        calls = [call["id"] for call in message.get("tool_calls") or ()]
        if isinstance(message["content"], list):
            calls = [block["id"] for block in message["content"] if block["type"] == "tool_use"]
        firsts += calls[:1]
    return firsts


async def test_the_aborted_call_is_disconnected_in_the_middle_of_its_stream(
    small: Scenario, imitation: Server
) -> None:
    result = await _play(small, imitation)
    aborted = [call for call in result.calls if call.expected_outcome == "aborted"]
    assert len(aborted) == 1
    assert aborted[0].status == 200
    await asyncio.wait_for(imitation.disconnected.wait(), timeout=10)


async def test_every_user_sends_its_own_key_and_each_client_its_own_headers(
    small: Scenario, imitation: Server
) -> None:
    result = await _play(small, imitation)
    by_id = truth.by_litellm_call_id(result.calls)
    agents: dict[str, set[str]] = defaultdict(set)
    for number, (_, headers, body) in enumerate(imitation.requests, start=1):
        record = by_id[f"call-{number}"]
        lower = {name.lower(): value for name, value in headers.items()}
        assert lower["authorization"] == f"Bearer sk-{record.user}"
        if record.session_header is not None:
            assert record.session_header in lower.values() or record.session_header in str(body["metadata"])
        agents[record.client].add(lower["user-agent"].split("/")[0])
    assert agents == {
        "claude-code": {"claude-cli"},
        "codex": {"codex_cli_rs"},
        "opencode": {"opencode"},
        "none": {"OpenAI", "Anthropic"},
    }


def _one_session(route: str, *, stream: bool = True) -> Scenario:
    turns = (Turn(CONFIG, 2), Turn(KUBERNETES, 1))
    return compose_casts((Cast("a", "alice", "none", route, "coder-small", turns, stream=stream),), 1)


PATHS = {"chat": "/v1/chat/completions", "messages": "/v1/messages", "responses": "/v1/responses"}


@pytest.mark.usefixtures("recordings")
@pytest.mark.parametrize("route", sorted(PATHS))
async def test_answers_that_are_not_streams_are_read_as_well(route: str, imitation: Server) -> None:
    result = await _play(_one_session(route, stream=False), imitation)
    assert result.failures == []
    assert _first_tool_ids(imitation.requests[-1][2])[0] in imitation.issued


@pytest.mark.usefixtures("recordings")
@pytest.mark.parametrize("route", sorted(PATHS))
async def test_a_failed_call_is_listed_and_neither_repeated_nor_the_end_of_its_session(
    route: str, imitation: Server
) -> None:
    imitation.fail_path = PATHS[route]
    result = await _play(_one_session(route), imitation)
    assert len(imitation.requests) == len(result.failures) == len(result.calls) == 3
    assert {call.status for call in result.calls} == {500}
    assert result.calls[0].litellm_call_id == "call-1"
    assert "boom" in str(result.failures[0])
    assert f"turn 1, call 1, {route}" in str(result.failures[0])


@pytest.mark.usefixtures("recordings")
@pytest.mark.parametrize("route", sorted(PATHS))
async def test_a_stream_without_its_end_or_with_an_error_event_is_a_failure(
    route: str, imitation: Server
) -> None:
    imitation.cut_path = PATHS[route]
    cut = await _play(_one_session(route), imitation)
    assert "closing event" in cut.failures[0].reason
    imitation.cut_path, imitation.error_path = None, PATHS[route]
    broken = await _play(_one_session(route), imitation)
    assert "error event" in broken.failures[0].reason


@pytest.mark.usefixtures("recordings")
async def test_a_user_without_a_key_and_an_address_where_nothing_listens_are_refused(
    imitation: Server, unused_tcp_port: int
) -> None:
    scenario = _one_session("chat")
    with pytest.raises(KeysError, match="alice"):
        await replay(scenario, imitation.url, {"bob": "sk-1"})
    with pytest.raises(UnreachableError):
        await replay(scenario, f"http://127.0.0.1:{unused_tcp_port}", _keys(scenario))
    assert imitation.requests == []


async def test_the_command_writes_the_truth_and_ends_with_zero(
    small: Scenario, imitation: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps(_keys(small)))
    out = tmp_path / "deep" / "truth.jsonl"
    options = ["--base-url", imitation.url, "--keys", str(keys), "--size", "small", "--speed-up", str(FAST)]
    code = await asyncio.to_thread(main, [*options, "--out", str(out)])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    assert captured.out == ""
    assert len(truth.read(out)) == len(imitation.requests)
    imitation.fail_path = "/v1/responses"
    assert await asyncio.to_thread(main, [*options, "--out", str(out)]) == 1
    assert "status 500" in capsys.readouterr().err


@pytest.mark.usefixtures("recordings")
def test_the_command_tells_usage_errors_from_an_unreachable_proxy(
    tmp_path: Path, unused_tcp_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = tmp_path / "keys.json"
    url = f"http://127.0.0.1:{unused_tcp_port}"
    options = ["--base-url", url, "--keys", str(keys), "--size", "small", "--out", "-"]
    assert main(options) == 2
    for text in ("{broken", "[]", "{}"):
        keys.write_text(text)
        assert main(options) == 2
    assert main(["--list-users", "--size", "small"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed["service_users"] == ["ci-bot"]
    keys.write_text(json.dumps(dict.fromkeys(listed["users"], "sk-1")))
    assert main(options) == 3
    with pytest.raises(SystemExit) as caught:
        main([*options, "--speed-up", "0"])
    assert caught.value.code == 2
