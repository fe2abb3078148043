"""Classes of tool calls: by name, by verb, and out of the answers of all three APIs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_plugin import tools
from gateway_plugin.call import Ending
from gateway_plugin.event import FIELD_NAMES, row_object
from gateway_plugin.tools import ToolCalls, class_of, tool_calls_of
from tests.gateway_plugin.builders import Recording, anthropic, arrival, user

COUNTS = ("tool_reads", "tool_edits", "tool_runs", "tool_others")


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("read", "Read Grep Glob LS WebFetch read list webfetch read_file"),
        ("read", "grep_search file_search list_dir view_image"),
        ("read", "mcp__github__get_issue mcp__docs__searchPages functions.read"),
        ("read", "tracker_v2:list_tickets find-symbol"),
        ("edit", "Edit Write MultiEdit NotebookEdit edit apply_patch"),
        ("edit", "replace_string_in_file create_file write_file"),
        ("edit", "mcp__filesystem__write_file mcp__fs__editLines"),
        ("edit", "str_replace_based_edit_tool apply_patch_call"),
        ("run", "Bash bash shell exec_command container.exec"),
        ("run", "local_shell_call run_in_terminal run_terminal_cmd"),
        ("run", "mcp__sandbox__executeCode mcp__db__run-migration"),
        ("run", "get_terminal_output BashOutput runTests"),
        ("other", "Task TodoWrite todowrite update_plan"),
        ("other", "manage_todo_list mcp__tracker__create_issue make_tea"),
    ],
)  # fmt: skip
def test_a_name_is_of_one_class_by_the_table_or_by_its_verb(kind: str, names: str) -> None:
    assert {name: class_of(name) for name in names.split()} == dict.fromkeys(names.split(), kind)


def test_no_name_stands_in_two_classes_and_every_name_is_folded() -> None:
    words = [w for table in (tools._NAMES, tools._VERBS) for text in table.values() for w in text.split()]
    assert set(tools.NAMES.values()) == set(tools.CLASSES)
    assert len(tools.NAMES) + len(tools.VERBS) == len(words)
    assert all(tools._folded(word) == word for word in words)
    assert all(class_of(word) == kind for word, kind in tools.NAMES.items())


@given(st.none() | st.integers() | st.text(max_size=300) | st.lists(st.text(max_size=3), max_size=2))
def test_any_name_however_odd_has_a_class(name: Any) -> None:
    assert class_of(name) in tools.CLASSES


# -- answers


def _chat(*names: str | None) -> dict[str, Any]:
    calls = [{"id": str(n), "function": {"name": name, "arguments": "{}"}} for n, name in enumerate(names)]
    return {
        "choices": [{"finish_reason": "tool_calls" if calls else "stop", "message": {"tool_calls": calls}}]
    }


def test_tool_calls_are_counted_in_answers_of_all_three_apis_as_dicts_and_objects() -> None:
    assert tool_calls_of(_chat("Read", "Read", "Bash", "Task")) == ToolCalls(2, 0, 1, 1)
    space = SimpleNamespace
    call = space(id="a", function=space(name="apply_patch"))
    chat = space(choices=[space(finish_reason="tool_calls", message=space(tool_calls=[call]))])
    assert tool_calls_of(chat) == ToolCalls(edit=1)
    blocks = [
        {"type": "text", "text": "on it"},
        {"type": "tool_use", "name": "Edit"},
        {"type": "tool_use", "name": "LS"},
    ]
    assert tool_calls_of({"content": blocks, "stop_reason": "tool_use"}) == ToolCalls(read=1, edit=1)
    items = [
        {"type": "reasoning"},
        {"type": "message", "content": []},
        {"type": "function_call", "name": "read_file"},
        {"type": "custom_tool_call", "name": "apply_patch"},
        {"type": "local_shell_call", "action": {"command": ["ls"]}},
        {"type": "apply_patch_call"},
        {"type": "web_search_call"},
        {"type": "mcp_call", "name": "create_issue"},
    ]
    expected = ToolCalls(read=2, edit=2, run=1, other=1)
    assert tool_calls_of({"output": items, "status": "completed"}) == expected
    assert tool_calls_of(space(output=[space(**item) for item in items], status="completed")) == expected
    assert tool_calls_of({"type": "response.completed", "response": {"output": items}}) == expected


def test_an_answer_without_tool_calls_makes_none_of_them() -> None:
    assert tool_calls_of(_chat()) == ToolCalls()
    assert (
        tool_calls_of({"content": [{"type": "text", "text": "hi"}], "stop_reason": "end_turn"}) == ToolCalls()
    )
    assert tool_calls_of({"output": [{"type": "message"}], "status": "completed"}) == ToolCalls()


@pytest.mark.parametrize(
    "answer",
    [
        None,
        {"text": "redacted-by-litellm"},
        {"data": [{"embedding": [0.1]}]},
        {"choices": []},
        {"choices": [{"delta": {"content": "piece"}}]},
        {"choices": [{"finish_reason": "tool_calls", "message": {"content": "names are missing"}}]},
        {"content": [{"type": "text"}], "stop_reason": "tool_use"},
        {"content": b"audio"},
        {"output": [], "status": "in_progress"},
    ],
)  # fmt: skip
def test_what_does_not_tell_its_tool_calls_is_unknown_and_not_without_any(answer: Any) -> None:
    assert tool_calls_of(answer) is None


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["choices", "message", "tool_calls", "function", "name", "content", "output", "type",
                 "response", "finish_reason", "status"]
            ),
            inner | st.sampled_from(["tool_use", "function_call", "tool_calls", "x_call"]),
            max_size=4,
        )
    ),
    max_leaves=12,
)  # fmt: skip


@given(_JSON)
def test_no_answer_however_odd_raises_or_counts_below_nothing(value: Any) -> None:
    found = tool_calls_of(value)
    assert found is None or min(found) >= 0


# -- records


def _final(ending: Ending) -> dict[str, Any]:
    recording = Recording()
    final = recording.finish(recording.begin(arrival(anthropic(user("go")))), ending)
    assert final is not None
    return dict(final)


def test_a_final_record_and_its_row_carry_the_counts_and_no_name() -> None:
    final = _final(
        Ending("success", tool_calls=tool_calls_of(_chat("Read", "mcp__vault__read_secret", "Bash")))
    )
    assert [final[name] for name in COUNTS] == [2, 0, 1, 0]
    assert set(final) <= FIELD_NAMES
    assert {name: row_object(final).get(name) for name in COUNTS} == {name: final[name] for name in COUNTS}
    assert "vault" not in repr(final)


def test_a_call_without_a_known_answer_has_no_counts() -> None:
    for ending in (Ending("failure"), Ending("aborted"), Ending("success")):
        assert [_final(ending).get(name) for name in COUNTS] == [None] * 4
