"""Planned calls: what a scenario is, before anything is sent.

A conversation is kept in one neutral form, the messages of the OpenAI chat API without the system prompt;
:mod:`deploy.local.scenario.wire` renders it for the API of the session. Ids of tool calls are *planned* ids
here; at replay time they become the ids that the model really returned.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

Message = dict[str, Any]
Tool = dict[str, Any]

#: What the client waits for before a call: the start of its session, the user, its tools, or nothing.
WaitKind = Literal["start", "human", "tool", "none"]


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """One call. ``wait_s`` is recorded time (before any speed-up) after what precedes the call.

    ``emits`` are the planned ids of the tool calls that the answer to this call contains, in order.
    ``tools_before`` names the tools whose results this call brings, with their recorded milliseconds, or
    None where the duration is that of the subagent that ran.
    """

    number: int
    agent: str
    parent_agent: str | None
    turn: int
    call_in_turn: int
    initiator: str
    special: str | None
    expected_outcome: str
    model_group: str
    system: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...]
    max_tokens: int
    wait_s: float
    wait_kind: WaitKind
    emits: tuple[str, ...]
    prompt_id: str
    agent_id: str | None = None
    agent_type: str | None = None
    tools_before: tuple[tuple[str, float | None], ...] = ()
    abort_after_events: int | None = None
    sends_session_id: bool = True
    window: int = 0


@dataclass(frozen=True, slots=True)
class Fork:
    """Subagents that run side by side; the parent's next call waits for all of them."""

    branches: tuple[tuple[PlannedCall, ...], ...]


@dataclass(frozen=True, slots=True)
class PlannedSession:
    """One session: who works with which client over which API, and its calls in order."""

    name: str
    user: str
    client: str
    route: str
    stream: bool
    hints: bool
    legacy: bool
    service: bool
    session_id: str | None
    device_id: str
    steps: tuple[PlannedCall | Fork, ...]

    def calls(self) -> Iterator[PlannedCall]:
        """Yield every call; those of a fork branch by branch."""
        for step in self.steps:
            if isinstance(step, Fork):
                for branch in step.branches:
                    yield from branch
            else:
                yield step


@dataclass(frozen=True, slots=True)
class Scenario:
    """Sessions that run concurrently. The same size and seed give the same scenario."""

    size: str
    seed: int
    sessions: tuple[PlannedSession, ...]

    def calls(self) -> Iterator[tuple[PlannedSession, PlannedCall]]:
        """Yield every call with its session."""
        for session in self.sessions:
            for call in session.calls():
                yield session, call

    @property
    def users(self) -> tuple[str, ...]:
        """Names of all users, sorted; the caller gives each of them a key."""
        return tuple(sorted({session.user for session in self.sessions}))

    @property
    def service_users(self) -> tuple[str, ...]:
        """Names of the users whose key is declared as unattended work, sorted."""
        return tuple(sorted({session.user for session in self.sessions if session.service}))
