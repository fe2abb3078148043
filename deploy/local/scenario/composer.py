"""Composer: recorded tasks and a cast become a scenario with known truth.

The recordings hold one user turn each. What real sessions have beyond that is composed here: several turns
with human gaps, subagents inside a turn, an automatic compaction, a model switch, a large tool catalogue, an
upstream failure, an interrupted stream. Everything is drawn from generators seeded with the seed, the size
and the name of the session, so that a session does not change when another one is added.
"""

from __future__ import annotations

import hashlib
import random
import uuid
from dataclasses import dataclass, field, replace
from typing import Any, Final

import orjson

from deploy.local.recordings import Message, Step, Task, load_task
from deploy.local.scenario import catalogue, texts
from deploy.local.scenario.casts import SIZES, Cast, Subagent, Turn
from deploy.local.scenario.plan import Fork, PlannedCall, PlannedSession, Scenario, Tool, WaitKind

#: Longest answer that a planned call asks for: two recorded answers of 3,500 and 6,400 tokens would make
#: their sessions last longer than all others together.
OUTPUT_CAP: Final = 512
#: Recorded seconds between the end of a turn and the next prompt of the user.
HUMAN_GAP_S: Final = (15.0, 45.0)
#: Length and slowness of the answer that the client interrupts, and after how many events it does so.
ABORTED_OUTPUT: Final = 300
ABORTED_SLOWNESS: Final = 20
ABORT_AFTER_EVENTS: Final = 6
COMPACTION_OUTPUT: Final = 300


def compose(size: str = "full", seed: int = 1) -> Scenario:
    """Compose the scenario of a fixed *size* (``full`` or ``small``).

    Raises:
        ValueError: unknown size.
        deploy.local.recordings.RecordingsError: the recordings are absent.
    """
    if size not in SIZES:
        raise ValueError(f"unknown size {size!r}; sizes are {', '.join(SIZES)}")
    return compose_casts(SIZES[size], seed, size)


def compose_casts(casts: tuple[Cast, ...], seed: int, size: str = "custom") -> Scenario:
    """Compose a scenario of any casts; call numbers are unique and follow the order of the casts.

    Raises:
        ValueError: two casts share a name, or a turn asks for more calls than its task has.
        deploy.local.recordings.RecordingsError: the recordings are absent.
    """
    names = [cast.name for cast in casts]
    if len(set(names)) != len(names):
        raise ValueError("two sessions of a scenario share a name")
    sessions: list[PlannedSession] = []
    number = 1
    for cast in casts:
        rng = random.Random(f"{seed}/{size}/{cast.name}")
        composer = _SessionComposer(cast, rng, number, f"{seed}-{size}-{cast.name}")
        sessions.append(composer.run())
        number = composer.number
    return Scenario(size, seed, tuple(sessions))


@dataclass
class _Stream:
    """State of one (session, agent) stream while it is composed."""

    agent: str
    parent: str | None
    system: str
    tools: tuple[Tool, ...]
    agent_id: str | None = None
    agent_type: str | None = None
    history: list[Message] = field(default_factory=list)
    turn: int = 0
    call_in_turn: int = 0
    window: int = 0


class _SessionComposer:
    """Composes one session; :attr:`number` is the next free call number afterwards."""

    def __init__(self, cast: Cast, rng: random.Random, number: int, label: str) -> None:
        self.cast = cast
        self.rng = rng
        self.number = number
        self.label = label
        self.steps: list[PlannedCall | Fork] = []
        self.model = cast.model
        self.pointer: dict[str, int] = {}
        self.prompt_id = ""
        self.children = 0
        self.session_id = _session_id(cast, rng)

    def run(self) -> PlannedSession:
        """Compose every turn of the cast."""
        cast = self.cast
        first = load_task(cast.turns[0].task)
        main = _Stream("main", None, self._main_system(first), self._main_tools(first))
        for turn in cast.turns:
            self._turn(main, turn)
        return PlannedSession(
            name=cast.name,
            user=cast.user,
            client=cast.client,
            route=cast.route,
            stream=cast.stream,
            hints=cast.hints,
            legacy=cast.legacy,
            service=cast.service,
            session_id=self.session_id,
            device_id=hashlib.sha256(f"device of {cast.user}".encode()).hexdigest(),
            steps=tuple(self.steps),
        )

    # -- one turn of the main stream

    def _turn(self, main: _Stream, turn: Turn) -> None:
        task = load_task(turn.task)
        first_turn = main.turn == 0
        main.turn += 1
        main.call_in_turn = 0
        self.prompt_id = _uuid(self.rng)
        switched = turn.model is not None and turn.model != self.model
        self.model = turn.model or self.model
        main.history.append(self._prompt(task, turn))
        start = self.pointer.get(turn.task, 0) if turn.follow_up else 0
        if start + turn.calls > len(task.steps):
            raise ValueError(f"{self.cast.name}: {turn.task} has no {start + turn.calls} calls")
        wait = self.cast.start_s if first_turn else self.rng.uniform(*HUMAN_GAP_S)
        kind: WaitKind = "start" if first_turn else "human"
        tools_before: tuple[tuple[str, float | None], ...] = ()
        special = _first_special(turn, switched)
        for index in range(turn.calls):
            step = task.steps[start + index]
            last = index == turn.calls - 1
            added, emits = ([], ()) if last else self._answer(step.added)
            fork = self._fork(turn, index, added) if not last else None
            if fork:
                emits = (*emits, *fork.ids)
            call = self._call(
                main,
                initiator="user" if index == 0 else "agent",
                messages=_request(main.history, step),
                special=special,
                max_tokens=min(step.output_tokens, OUTPUT_CAP),
                wait=(wait, kind),
                emits=emits,
                tools_before=tools_before,
            )
            if turn.abort:
                call = replace(
                    call,
                    expected_outcome="aborted",
                    max_tokens=ABORTED_OUTPUT,
                    abort_after_events=ABORT_AFTER_EVENTS,
                )
            self.steps.append(call)
            if fork:
                self.steps.append(Fork(tuple(self._child(main, child, c) for child, c in fork.children)))
            special = None
            if last:
                main.history.append({"role": "assistant", "content": self.rng.choice(texts.CLOSINGS)})
                break
            main.history.extend(added)
            wait, kind = step.tool_delay_ms / 1000, "tool"
            tools_before = _durations(added, step, set(fork.ids) if fork else set())
            if turn.compact_after == index + 1:
                self._compaction(main, added, wait)
                wait, kind, special = 0.2, "none", "post_compaction"
        self.pointer[turn.task] = start + turn.calls - 1
        if turn.auxiliary:
            self._auxiliary(main, task)

    def _prompt(self, task: Task, turn: Turn) -> Message:
        text = self.rng.choice(texts.FOLLOW_UPS) if turn.follow_up else str(task.prompt["content"])
        if turn.fail_once:
            text += f"\n\n[[standin:fail-once:{self.label}:500]]"
        if turn.abort:
            text += f"\n\n[[standin:slow:{ABORTED_SLOWNESS}]]"
        return {"role": "user", "content": text}

    def _compaction(self, main: _Stream, last: list[Message], wait: float) -> None:
        """Add the summarising call, and put the summary and the last messages in place of the history."""
        call = self._call(
            main,
            initiator="compaction",
            messages=(*main.history, {"role": "user", "content": texts.summary_request(self.cast.client)}),
            special="compaction",
            max_tokens=COMPACTION_OUTPUT,
            wait=(wait, "tool"),
        )
        if self.cast.client == "opencode":
            call = replace(call, tools=())
        self.steps.append(call)
        main.history = [{"role": "user", "content": texts.summary(self.cast.client, main.history)}, *last]
        main.window += 1

    def _auxiliary(self, main: _Stream, task: Task) -> None:
        """Add a title call: another system prompt, no tools, no part of the history."""
        call = self._call(
            main,
            initiator="auxiliary",
            messages=({"role": "user", "content": str(task.prompt["content"])[:600]},),
            special=None,
            max_tokens=16,
            wait=(0.1, "none"),
        )
        # OpenCode sends its title calls without the session's headers.
        sends = self.cast.client != "opencode"
        self.steps.append(
            replace(call, system=texts.title_system(self.cast.client), tools=(), sends_session_id=sends)
        )

    # -- subagents

    def _fork(self, turn: Turn, index: int, added: list[Message]) -> _Fork | None:
        """Add the subagent tool calls and their results to *added* when this call starts subagents."""
        if not turn.subagents or turn.fork_after != index + 1:
            return None
        fork = _Fork()
        assistant = added[0] = {**added[0], "tool_calls": list(added[0]["tool_calls"])}
        for child in turn.subagents:
            topic = str(load_task(child.task).prompt["content"])[:400]
            prompt = texts.CHILD_PROMPT.format(topic=topic)
            tool_id = self._tool_id()
            arguments = {"description": f"Look into {child.task}", "prompt": prompt, "kind": child.kind}
            assistant["tool_calls"].append(
                {
                    "id": tool_id,
                    "type": "function",
                    "function": {
                        "name": catalogue.subagent_tool_name(self.cast.client),
                        "arguments": orjson.dumps(arguments).decode(),
                    },
                }
            )
            report = f"Report on {child.task}: {self.rng.choice(texts.CLOSINGS)}"
            added.append({"role": "tool", "tool_call_id": tool_id, "content": report})
            fork.ids = (*fork.ids, tool_id)
            fork.children.append((child, prompt))
        return fork

    def _child(self, main: _Stream, child: Subagent, prompt: str) -> tuple[PlannedCall, ...]:
        task = load_task(child.task)
        if child.calls > len(task.steps):
            raise ValueError(f"{self.cast.name}: {child.task} has no {child.calls} calls")
        self.children += 1
        stream = _Stream(
            agent=f"{child.kind.lower()}-{self.children}",
            parent=main.agent,
            system=texts.CHILD_SYSTEM.format(kind=child.kind),
            tools=(*task.tools, *catalogue.child_tools()),
            agent_id=_new_id(self.cast.client, self.rng),
            agent_type=child.kind,
            history=[{"role": "user", "content": prompt}],
            turn=1,
        )
        calls = []
        wait, kind = 0.05, "none"
        tools_before: tuple[tuple[str, float | None], ...] = ()
        for index in range(child.calls):
            step = task.steps[index]
            last = index == child.calls - 1
            added, emits = ([], ()) if last else self._answer(step.added)
            calls.append(
                self._call(
                    stream,
                    initiator="agent",
                    messages=tuple(stream.history),
                    special=None,
                    max_tokens=min(step.output_tokens, OUTPUT_CAP),
                    wait=(wait, kind),
                    emits=emits,
                    tools_before=tools_before,
                )
            )
            if last:
                break
            stream.history.extend(added)
            wait, kind = step.tool_delay_ms / 1000, "tool"
            tools_before = _durations(added, step, set())
        return tuple(calls)

    # -- shared parts

    def _call(
        self,
        stream: _Stream,
        *,
        initiator: str,
        messages: tuple[Message, ...],
        special: str | None,
        max_tokens: int,
        wait: tuple[float, Any],
        emits: tuple[str, ...] = (),
        tools_before: tuple[tuple[str, float | None], ...] = (),
    ) -> PlannedCall:
        stream.call_in_turn += 1
        number, self.number = self.number, self.number + 1
        if special is None and initiator in {"user", "agent"} and self._offers_catalogue(stream):
            special = "tool_catalogue_200"
        return PlannedCall(
            number=number,
            agent=stream.agent,
            parent_agent=stream.parent,
            turn=stream.turn,
            call_in_turn=stream.call_in_turn,
            initiator=initiator,
            special=special,
            expected_outcome="success",
            model_group=self.model,
            system=stream.system,
            messages=messages,
            tools=stream.tools,
            max_tokens=max_tokens,
            wait_s=wait[0],
            wait_kind=wait[1],
            emits=emits,
            prompt_id=self.prompt_id,
            agent_id=stream.agent_id,
            agent_type=stream.agent_type,
            tools_before=tools_before,
            window=stream.window,
        )

    def _offers_catalogue(self, stream: _Stream) -> bool:
        return self.cast.tools == "catalogue" and stream.parent is None

    def _answer(self, added: tuple[Message, ...]) -> tuple[list[Message], tuple[str, ...]]:
        """Return *added* with tool-call ids of this session, and the ids that the answer emits."""
        ids: dict[str, str] = {}
        messages = []
        for message in added:
            if message["role"] == "assistant":
                calls = []
                for call in message.get("tool_calls") or ():
                    ids[call["id"]] = self._tool_id()
                    calls.append(
                        {"id": ids[call["id"]], "type": "function", "function": dict(call["function"])}
                    )
                content = message.get("content") or ""
                messages.append({"role": "assistant", "content": content, "tool_calls": calls})
            else:
                messages.append({**message, "tool_call_id": ids[message["tool_call_id"]]})
        return messages, tuple(ids.values())

    def _tool_id(self) -> str:
        prefix = "toolu_01" if self.cast.route == "messages" else "call_"
        return prefix + "".join(self.rng.choices(_ALPHABET, k=22))

    def _main_system(self, task: Task) -> str:
        if self.cast.client == "none":
            return task.system
        folder = f"/home/{self.cast.user}/work/{self.cast.name}"
        return f"{task.system}\n\n<environment>\nWorking folder: {folder}\nPlatform: linux\n</environment>"

    def _main_tools(self, task: Task) -> tuple[Tool, ...]:
        if self.cast.tools == "recorded":
            return task.tools
        if self.cast.tools == "catalogue":
            return catalogue.full_catalogue(task.tools)
        return (*task.tools, *catalogue.client_tools(self.cast.client))


@dataclass
class _Fork:
    """Ids of the tool calls that start subagents, and the subagents with their prompts."""

    ids: tuple[str, ...] = ()
    children: list[tuple[Subagent, str]] = field(default_factory=list)


_ALPHABET: Final = "ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz23456789"


def _uuid(rng: random.Random) -> str:
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


def _new_id(client: str, rng: random.Random) -> str:
    if client == "opencode":
        return "ses_" + "".join(rng.choices(_ALPHABET, k=26))
    return _uuid(rng)


def _session_id(cast: Cast, rng: random.Random) -> str | None:
    return _new_id(cast.client, rng) if cast.client != "none" or cast.names_session else None


def _first_special(turn: Turn, switched: bool) -> str | None:
    if turn.abort:
        return "aborted"
    if turn.fail_once:
        return "upstream_retry"
    return "model_switch" if switched else None


def _request(history: list[Message], step: Step) -> tuple[Message, ...]:
    return (*history, step.notice) if step.notice is not None else tuple(history)


def _durations(added: list[Message], step: Step, forks: set[str]) -> tuple[tuple[str, float | None], ...]:
    """Name the tools that ran after an answer; recorded tools share the recorded delay evenly."""
    calls = added[0].get("tool_calls") or []
    recorded = sum(1 for call in calls if call["id"] not in forks)
    return tuple(
        (call["function"]["name"], None if call["id"] in forks else step.tool_delay_ms / recorded)
        for call in calls
    )
