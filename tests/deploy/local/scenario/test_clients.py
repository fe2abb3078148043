from __future__ import annotations

import json
import uuid

from deploy.local import clients
from deploy.local.scenario import PlannedCall, PlannedSession, Scenario


def _headers(session: PlannedSession, call: PlannedCall) -> dict[str, str]:
    durations = [(name, 12) for name, _ in call.tools_before]
    return clients.headers(session, call, durations, 1_700_000_000_000)


def test_claude_code_names_its_session_unless_it_is_an_older_release(scenario: Scenario) -> None:
    for session, call in scenario.calls():
        if session.client != "claude-code":
            continue
        headers = _headers(session, call)
        assert headers["user-agent"].startswith("claude-cli/2.")
        assert uuid.UUID(str(session.session_id)).version == 4
        assert headers.get("x-claude-code-session-id") == (None if session.legacy else session.session_id)


def test_claude_code_names_the_agent_of_exactly_its_subagents(scenario: Scenario) -> None:
    found = set()
    for session, call in scenario.calls():
        if session.client == "claude-code":
            headers = _headers(session, call)
            assert ("x-claude-code-agent-id" in headers) is (call.parent_agent is not None)
            found.add(headers.get("x-claude-code-agent-id"))
    assert len(found) >= 2


def test_hints_follow_the_initiator_and_are_absent_where_they_are_off(scenario: Scenario) -> None:
    classes = set()
    for session, call in scenario.calls():
        headers = _headers(session, call)
        if not session.hints:
            assert not any(name.startswith("x-claude-code-prompt") for name in headers)
            continue
        kind = headers["x-claude-code-request-class"]
        classes.add(kind)
        assert (
            kind
            == {
                "auxiliary": "auxiliary",
                "compaction": "compaction",
                "user": "main",
                "agent": "subagent" if call.parent_agent else "main",
            }[call.initiator]
        )
        assert ("x-claude-code-compaction" in headers) is (call.special == "compaction")
        assert ("x-claude-code-context-compacted" in headers) is (call.special == "post_compaction")
        durations = headers.get("x-claude-code-prev-tool-durations")
        if call.initiator == "agent" and call.call_in_turn > 1:
            assert durations is not None
            assert durations.startswith("bash=12")
        else:
            assert durations is None
    assert classes == {"main", "subagent", "compaction", "auxiliary"}


def test_the_prompt_id_of_a_turn_is_shared_by_its_calls_and_by_no_other_turn(scenario: Scenario) -> None:
    for session in scenario.sessions:
        ids: dict[int, set[str]] = {}
        for call in session.calls():
            if call.parent_agent is None:
                ids.setdefault(call.turn, set()).add(call.prompt_id)
        assert all(len(values) == 1 for values in ids.values())
        assert len(set.union(*ids.values())) == len(ids)


def test_codex_tells_thread_and_turn_and_an_older_release_writes_an_underscore(scenario: Scenario) -> None:
    checked = 0
    for session, call in scenario.calls():
        if session.client != "codex":
            continue
        checked += 1
        headers = _headers(session, call)
        assert headers["session_id" if session.legacy else "session-id"] == session.session_id
        metadata = json.loads(headers["x-codex-turn-metadata"])
        child = call.parent_agent is not None
        assert (headers["thread-id"] == session.session_id) is not child
        assert (metadata["turn_id"] == call.prompt_id) is not child
        assert ("x-codex-parent-thread-id" in headers) is child
        assert metadata["turn_started_at_unix_ms"] == 1_700_000_000_000
    assert checked >= 6


def test_opencode_sends_its_session_with_every_call_but_titles_and_a_child_names_its_parent(
    scenario: Scenario,
) -> None:
    titles = 0
    for session, call in scenario.calls():
        if session.client != "opencode":
            continue
        headers = _headers(session, call)
        assert headers["user-agent"].startswith("opencode/")
        titles += call.initiator == "auxiliary"
        child = call.parent_agent is not None
        expected = None if call.initiator == "auxiliary" else call.agent_id or session.session_id
        assert headers.get("x-session-affinity") == headers.get("x-session-id") == expected
        assert clients.session_id_sent(session, call) == expected
        assert headers.get("x-parent-session-id") == (session.session_id if child else None)
    assert titles == 1


def test_plain_clients_send_no_id_unless_they_name_their_session_and_never_an_agent(
    scenario: Scenario,
) -> None:
    named = set()
    for session, call in scenario.calls():
        if session.client == "none":
            headers = _headers(session, call)
            assert set(headers) <= {"user-agent", "anthropic-version", "x-litellm-session-id"}
            assert headers.get("x-litellm-session-id") == session.session_id
            assert clients.session_id_sent(session, call) == session.session_id
            named.add((session.session_id is not None, call.parent_agent))
    assert named == {(False, None), (True, None), (True, "main")}


def test_no_header_tells_that_it_is_a_replay(scenario: Scenario) -> None:
    for session, call in scenario.calls():
        assert "agentwatt" not in str(_headers(session, call)).lower()
        assert "standin" not in str(_headers(session, call)).lower()
