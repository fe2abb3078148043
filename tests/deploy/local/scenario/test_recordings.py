from __future__ import annotations

from typing import Any

import pytest

from deploy.local import recordings
from deploy.local.recordings import MINI_SET, RecordingsError, build_task, load_task, task_names


def _call(*messages: tuple[str, str], delay: float = 100.0, tokens: int = 7) -> dict[str, Any]:
    return {
        "messages": [{"role": role, "content": content} for role, content in messages],
        "tools": [{"type": "function"}],
        "target_output_tokens": tokens,
        "simulated_tool_delay_ms_after": delay,
    }


HEAD = (("system", "s"), ("user", "do it"))


def test_a_step_holds_what_its_answer_added_and_the_last_one_holds_nothing() -> None:
    task = build_task("t", [_call(*HEAD), _call(*HEAD, ("assistant", "a"), ("tool", "r"), delay=5, tokens=9)])
    assert task.system == "s"
    assert task.prompt["content"] == "do it"
    assert [message["role"] for message in task.steps[0].added] == ["assistant", "tool"]
    assert task.steps[1].added == ()
    assert (task.steps[1].tool_delay_ms, task.steps[1].output_tokens) == (5.0, 9)


def test_a_message_of_the_harness_is_kept_apart_from_the_history() -> None:
    notice = ("user", "Tool-call turn 1 of 100. Remaining turns: 99.")
    task = build_task("t", [_call(*HEAD, notice), _call(*HEAD, ("assistant", "a"), ("tool", "r"))])
    assert task.steps[0].notice == {"role": "user", "content": notice[1]}
    assert [message["role"] for message in task.steps[0].added] == ["assistant", "tool"]
    assert task.steps[1].notice is None


def test_a_prompt_that_quotes_the_notice_is_not_a_notice() -> None:
    quoting = ("user", "It printed 'Tool-call turn 1 of 100. Remaining turns: 99.' and stopped")
    assert build_task("t", [_call(("system", "s"), quoting)]).steps[0].notice is None


@pytest.mark.parametrize(
    ("calls", "message"),
    [
        ([], "empty trace"),
        ([_call(("user", "x"))], "starts with one system"),
        ([_call(*HEAD), _call(("system", "s"), ("user", "another"))], "does not extend"),
    ],
)
def test_a_trace_that_is_not_one_growing_task_is_refused(calls: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(RecordingsError, match=message):
        build_task("t", calls)


def test_the_missing_package_is_named_together_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recordings, "PACKAGE", "a_package_that_nobody_installed")
    with pytest.raises(RecordingsError, match=r"pip install --no-deps .*agentperf-local==0\.3\.4"):
        task_names()


@pytest.mark.usefixtures("recordings")
def test_every_bundled_task_can_be_read() -> None:
    lengths = {name: len(load_task(name).steps) for name in task_names()}
    assert sorted(lengths.values()) == [5, 5, 9, 20, 21, 28, 40, 40]
    assert lengths["django__django-14500"] == 40
    assert [len(load_task(name, MINI_SET).steps) for name in task_names(MINI_SET)] == [6]


@pytest.mark.usefixtures("recordings")
def test_only_the_repository_tasks_carry_notices_and_they_carry_one_per_call() -> None:
    for name in task_names():
        notices = [step.notice is not None for step in load_task(name).steps]
        assert all(notices) if "__" in name else not any(notices), name


@pytest.mark.usefixtures("recordings")
def test_unknown_tasks_and_sets_are_refused() -> None:
    with pytest.raises(RecordingsError, match="no recorded task"):
        load_task("nothing")
    with pytest.raises(RecordingsError, match="no traces"):
        task_names("nothing")
