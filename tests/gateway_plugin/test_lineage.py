from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_plugin.call import Ending
from gateway_plugin.identity import Auth
from gateway_plugin.lineage import Lineage, Origin, tool_call_ids
from tests.gateway_plugin.builders import (
    AUTH,
    CLAUDE_OLD,
    TOOLS,
    Recording,
    answer,
    anthropic,
    arrival,
    chat,
    result,
    user,
)

FIRST, SECOND, THIRD = "call_aB3dE5gH7jK9", "toolu_01XyZ98vUtSr", "call_Zz00Yy11Xx22"


def origin(session: str = "s1", agent: str = "main", turn: str | None = "t1") -> Origin:
    return Origin(session, session, agent, "main" if agent == "main" else "subagent", turn)


def memory(*ids: str, user: str = "ada", of: Origin | None = None, **options: Any) -> Lineage:
    lineage = Lineage(7, **options)
    lineage.remember(user, ids, of or origin())
    return lineage


def play(
    recording: Recording, body: dict[str, Any], *ids: str, outcome: str = "success", **extra: Any
) -> dict[str, Any]:
    """Begin and end one call whose answer names the tool calls *ids*; return its final record."""
    call = recording.begin(arrival(body, **extra))
    final = recording.finish(call, Ending(outcome, tool_call_ids=ids))
    assert final is not None
    return dict(final)


# -- ids of an answer


def test_ids_are_read_from_answers_of_all_three_apis_as_dicts_and_objects() -> None:
    calls = [{"id": FIRST}, {"id": SECOND}]
    space = SimpleNamespace
    assert tool_call_ids({"choices": [{"message": {"tool_calls": calls}}]}) == (FIRST, SECOND)
    assert tool_call_ids(space(choices=[space(message=space(tool_calls=[space(id=FIRST)]))])) == (FIRST,)
    assert tool_call_ids({"content": [{"type": "text"}, {"type": "tool_use", "id": SECOND}]}) == (SECOND,)
    items = [{"type": "reasoning", "id": "rs"}, {"type": "function_call", "id": "fc", "call_id": THIRD}]
    assert tool_call_ids({"output": items}) == (THIRD,)
    assert tool_call_ids({"type": "response.completed", "response": {"output": items}}) == (THIRD,)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["choices", "message", "tool_calls", "content", "output", "type", "role"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(_JSON)
def test_no_answer_and_no_history_however_odd_raises(value: Any) -> None:
    tool_call_ids(value)
    memory(FIRST).descent("ada", value if isinstance(value, list) else [value])


# -- memory


@pytest.mark.parametrize(
    "items",
    [
        [user("x"), answer("", FIRST), result(FIRST)],
        [user("x"), {"role": "user", "content": [{"type": "tool_result", "tool_use_id": FIRST}]}],
        [{"type": "function_call", "call_id": FIRST}, {"type": "function_call_output", "call_id": FIRST}],
    ],
    ids=["chat", "messages", "responses"],
)
def test_a_result_leads_to_the_call_that_asked_for_it_in_every_api(items: list[Any]) -> None:
    found = memory(FIRST).descent("ada", items)
    assert found is not None
    assert found.origin == origin()
    assert found.direct


def test_a_result_before_the_last_answer_tells_the_session_but_not_the_turn() -> None:
    items = [user("x"), answer("", FIRST), result(FIRST), answer("done"), user("next")]
    found = memory(FIRST).descent("ada", items)
    assert found is not None
    assert not found.direct


def test_the_newest_known_result_wins_over_older_ones() -> None:
    lineage = memory(FIRST, of=origin(turn="old"))
    lineage.remember("ada", [SECOND], origin(turn="new"))
    items = [answer("", FIRST), result(FIRST), answer("", SECOND), result(SECOND), result(THIRD)]
    found = lineage.descent("ada", items)
    assert found is not None
    assert found.origin.turn_id == "new"


def test_an_id_of_one_user_says_nothing_about_another_user() -> None:
    assert memory(FIRST, user="ada").descent("bob", [result(FIRST)]) is None


@pytest.mark.parametrize("value", ["call_0", "functions.read:12", "functions.Bash:0", "tool", "7", "x" * 600])
def test_numbered_and_oversized_ids_are_not_used(value: str) -> None:
    assert len(memory(value)) == 0


def test_an_id_that_two_sessions_were_given_is_never_used_again() -> None:
    lineage = memory(FIRST)
    lineage.remember("ada", [FIRST], origin("s2"))
    lineage.remember("ada", [FIRST], origin("s1"))
    assert lineage.descent("ada", [result(FIRST)]) is None


def test_the_memory_is_bounded_and_forgets_the_oldest() -> None:
    lineage = memory(FIRST, SECOND, THIRD, max_ids=2)
    assert len(lineage) == 2
    assert lineage.descent("ada", [result(FIRST)]) is None
    assert lineage.descent("ada", [result(THIRD)]) is not None


# -- calls


def test_results_keep_session_and_turn_when_the_history_was_replaced_without_any_id() -> None:
    recording = Recording()
    first = play(recording, chat(user("Fix the parser."), tools=TOOLS), FIRST)
    compacted = chat(
        user("This session is being continued from a previous conversation. Fix the parser."),
        answer("", FIRST),
        result(FIRST),
        tools=TOOLS,
    )
    second = play(recording, compacted)
    assert (first["session_evidence"], second["session_evidence"]) == ("E4", "E2")
    assert second["session_source"] == "tool_call_lineage"
    assert second["session_key"] == first["session_key"]
    assert (second["turn_id"], second["turn_evidence"], second["initiator"]) == (
        first["turn_id"],
        "E2",
        "agent",
    )


def test_a_prompt_after_results_starts_a_turn_by_its_role_in_the_session_of_the_results() -> None:
    recording = Recording()
    first = play(recording, chat(user("Fix the parser."), tools=TOOLS), FIRST)
    edited = chat(
        user("Fix the lexer."), answer("", FIRST), result(FIRST), answer("Done."), user("Go on."), tools=TOOLS
    )
    second = play(recording, edited)
    assert second["session_key"] == first["session_key"]
    assert (second["session_evidence"], second["turn_evidence"], second["initiator"]) == ("E2", "E3", "user")
    assert second["turn_id"] != first["turn_id"]


def test_an_id_on_the_wire_is_never_overruled_by_lineage() -> None:
    recording = Recording()
    play(recording, chat(user("Fix the parser."), tools=TOOLS), FIRST)
    resumed = anthropic(
        user("Fix the parser."),
        {"role": "assistant", "content": [{"type": "tool_use", "id": FIRST, "name": "read", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": FIRST, "content": "x"}]},
    )
    second = play(recording, resumed, headers=CLAUDE_OLD)
    assert second["session_source"] == "x-claude-code-session-id"
    assert (second["session_evidence"], second["turn_evidence"]) == ("E1", "E3")


def test_a_named_session_keeps_its_evidence_while_the_turn_follows_the_results() -> None:
    recording = Recording()
    first = play(
        recording, chat(user("Fix it."), tools=TOOLS), FIRST, headers={"x-session-id": "session-one"}
    )
    body = chat(user("Fix it."), answer("", FIRST), result(FIRST), tools=TOOLS)
    second = play(recording, body, headers={"x-session-id": "session-one"})
    assert (second["session_evidence"], second["turn_evidence"]) == ("E1", "E2")
    assert second["turn_id"] == first["turn_id"]


def test_a_late_result_of_an_earlier_turn_goes_back_to_it_without_moving_the_session() -> None:
    recording = Recording()
    named: dict[str, Any] = {"headers": {"x-session-id": "session-one"}}
    first = play(recording, chat(user("One."), tools=TOOLS), FIRST, **named)
    new = play(recording, chat(user("One."), answer("ok"), user("Two."), tools=TOOLS), SECOND, **named)
    late = play(recording, chat(user("One."), answer("", FIRST), result(FIRST), tools=TOOLS), **named)
    after = play(
        recording,
        chat(user("One."), answer("ok"), user("Two."), answer("", SECOND), result(SECOND), tools=TOOLS),
        **named,
    )
    assert new["turn_id"] != first["turn_id"]
    assert late["turn_id"] == first["turn_id"]
    assert after["turn_id"] == new["turn_id"]


def test_a_results_agent_is_the_subagent_that_asked_for_them_though_its_head_changed() -> None:
    recording = Recording()
    named: dict[str, Any] = {"headers": {"x-session-id": "session-one"}}
    play(recording, chat(user("Fix the parser."), tools=TOOLS), FIRST, **named)
    child = play(
        recording, chat(user("Look at one file."), system="A subagent.", tools=TOOLS), SECOND, **named
    )
    edited = chat(
        user("Shortened."),
        *[answer("thinking"), user("<system-reminder>go</system-reminder>")] * 3,
        answer("", SECOND),
        result(SECOND),
        system="Another system prompt.",
        tools=TOOLS,
    )
    again = play(recording, edited, **named)
    assert child["agent_kind"] == "subagent"
    assert (again["agent_id"], again["agent_kind"]) == (child["agent_id"], "subagent")


def test_another_key_that_replays_the_same_results_gets_a_session_of_its_own() -> None:
    recording = Recording()
    first = play(recording, chat(user("Fix it."), tools=TOOLS), FIRST)
    body = chat(user("Fix it."), answer("", FIRST), result(FIRST), tools=TOOLS)
    other = play(recording, body, auth=Auth(key_hash="o" * 64, user_id="bob"))
    assert AUTH.user_id != "bob"
    assert other["session_key"] != first["session_key"]
    assert other["session_evidence"] == "E4"
