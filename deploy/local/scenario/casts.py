"""Casts: which sessions a scenario of a given size contains.

A cast says who works, with which client and API, and which recorded tasks the turns are made of. Two sizes
are fixed: ``full`` for the demonstration (about 180 calls) and ``small`` for tests (about 55 calls); both
contain every special situation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

ToolSet = Literal["recorded", "client", "catalogue"]

MIGRATION: Final = "django__django-14500"
DBSHELL: Final = "django__django-15851"
DIAGRAM: Final = "sphinx-doc__sphinx-10614"
KUBERNETES: Final = "task_k8s_debugging"
BUDGET: Final = "task_meeting_council_budget"
INDEX: Final = "task_meeting_searchable_index"
CONFIG: Final = "task_skill_search"


@dataclass(frozen=True, slots=True)
class Subagent:
    """A child that runs *calls* calls on the steps of *task*; *kind* is what clients call its type."""

    task: str
    calls: int
    kind: str = "Explore"


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of a session.

    A turn starts *task*, or goes on with it after a short remark of the user when *follow_up* is set.
    ``fork_after`` and ``compact_after`` count answered calls of the turn. ``model`` switches the model group
    from this turn on. ``auxiliary`` adds a title-like call at the end of the turn.
    """

    task: str
    calls: int
    follow_up: bool = False
    subagents: tuple[Subagent, ...] = ()
    fork_after: int = 1
    compact_after: int | None = None
    model: str | None = None
    auxiliary: bool = False
    fail_once: bool = False
    abort: bool = False


@dataclass(frozen=True, slots=True)
class Cast:
    """One session. ``start_s`` is recorded time after the start of the replay (before any speed-up).

    ``legacy`` stands for an older release of the client, which names its session in another place.
    ``names_session`` makes a plain client send its session id, which no other header accompanies.
    """

    name: str
    user: str
    client: str
    route: str
    model: str
    turns: tuple[Turn, ...]
    start_s: float = 0.0
    stream: bool = True
    hints: bool = False
    legacy: bool = False
    names_session: bool = False
    tools: ToolSet = "client"
    service: bool = False


FULL: Final = (
    Cast(
        "migration-review",
        "alice",
        "claude-code",
        "messages",
        "claude-standin",
        (
            Turn(MIGRATION, 8, subagents=(Subagent(DIAGRAM, 3),), fork_after=4, auxiliary=True),
            Turn(MIGRATION, 3, follow_up=True),
            Turn(CONFIG, 4),
        ),
        hints=True,
    ),
    Cast(
        "meeting-index",
        "bob",
        "claude-code",
        "messages",
        "claude-standin",
        (Turn(INDEX, 8, compact_after=6), Turn(KUBERNETES, 4)),
        start_s=30,
        hints=True,
    ),
    Cast(
        "dbshell-order",
        "carol",
        "claude-code",
        "messages",
        "coder-large",
        (Turn(DBSHELL, 7), Turn(DBSHELL, 3, follow_up=True, model="coder-small"), Turn(CONFIG, 3)),
        start_s=15,
        legacy=True,
    ),
    Cast(
        "cluster-triage",
        "dave",
        "claude-code",
        "messages",
        "claude-standin",
        (
            Turn(
                KUBERNETES,
                4,
                subagents=(Subagent(DIAGRAM, 3), Subagent(MIGRATION, 2, "general-purpose")),
                fork_after=2,
            ),
            Turn(DBSHELL, 4),
            Turn(DBSHELL, 2, follow_up=True),
        ),
        start_s=120,
    ),
    Cast(
        "diagram-links",
        "erin",
        "none",
        "messages",
        "coder-small",
        (Turn(DIAGRAM, 6), Turn(CONFIG, 3)),
        start_s=60,
        stream=False,
        tools="recorded",
    ),
    Cast(
        "diagram-work",
        "alice",
        "opencode",
        "chat",
        "coder-large",
        (
            Turn(DIAGRAM, 9, subagents=(Subagent(DBSHELL, 3, "explore"),), fork_after=3, auxiliary=True),
            Turn(DIAGRAM, 4, follow_up=True),
            Turn(KUBERNETES, 3),
        ),
        start_s=180,
    ),
    Cast(
        "connected-tools",
        "bob",
        "opencode",
        "chat",
        "coder-large",
        (Turn(MIGRATION, 4), Turn(CONFIG, 3)),
        start_s=240,
        tools="catalogue",
    ),
    Cast(
        "shell-parameters",
        "carol",
        "none",
        "chat",
        "coder-large",
        (Turn(DBSHELL, 11), Turn(DBSHELL, 3, follow_up=True), Turn(KUBERNETES, 3)),
        start_s=200,
        tools="recorded",
    ),
    Cast(
        "council-budget",
        "frank",
        "opencode",
        "chat",
        "coder-large",
        (Turn(BUDGET, 10, compact_after=7), Turn(CONFIG, 3)),
        start_s=90,
    ),
    Cast(
        "transcript-search",
        "dave",
        "codex",
        "responses",
        "coder-large",
        (Turn(INDEX, 9), Turn(KUBERNETES, 4)),
        start_s=330,
    ),
    Cast(
        "pod-restarts",
        "frank",
        "codex",
        "responses",
        "coder-small",
        (Turn(KUBERNETES, 4), Turn(MIGRATION, 5, subagents=(Subagent(DBSHELL, 2),), fork_after=2)),
        start_s=260,
        legacy=True,
    ),
    Cast(
        "flaky-upstream",
        "erin",
        "none",
        "chat",
        "coder-small",
        (
            Turn(MIGRATION, 5, subagents=(Subagent(DIAGRAM, 2, "reader"),), fork_after=2),
            Turn(CONFIG, 4, fail_once=True),
        ),
        start_s=300,
        names_session=True,
    ),
    Cast(
        "interrupted",
        "carol",
        "claude-code",
        "messages",
        "claude-standin",
        (Turn(CONFIG, 4), Turn(MIGRATION, 1, abort=True)),
        start_s=350,
        hints=True,
    ),
    Cast(
        "nightly-checks",
        "ci-bot",
        "none",
        "chat",
        "coder-small",
        (Turn(CONFIG, 5),),
        start_s=10,
        stream=False,
        tools="recorded",
        service=True,
    ),
    Cast(
        "nightly-docs",
        "ci-bot",
        "none",
        "chat",
        "coder-small",
        (Turn(DIAGRAM, 10),),
        start_s=150,
        stream=False,
        tools="recorded",
        service=True,
    ),
)

SMALL: Final = (
    Cast(
        "migration-review",
        "alice",
        "claude-code",
        "messages",
        "claude-standin",
        (
            Turn(MIGRATION, 4, subagents=(Subagent(DIAGRAM, 2),), fork_after=2, auxiliary=True),
            Turn(CONFIG, 2),
        ),
        hints=True,
    ),
    Cast(
        "meeting-index",
        "bob",
        "claude-code",
        "messages",
        "claude-standin",
        (Turn(INDEX, 7, compact_after=6), Turn(CONFIG, 2)),
        hints=True,
    ),
    Cast(
        "dbshell-order",
        "carol",
        "claude-code",
        "messages",
        "coder-large",
        (Turn(DBSHELL, 3), Turn(DBSHELL, 2, follow_up=True, model="coder-small")),
        start_s=5,
    ),
    Cast(
        "diagram-work",
        "dave",
        "opencode",
        "chat",
        "coder-large",
        (
            Turn(DIAGRAM, 4, subagents=(Subagent(DBSHELL, 2, "explore"),), fork_after=2, auxiliary=True),
            Turn(KUBERNETES, 2),
        ),
        start_s=5,
    ),
    Cast(
        "connected-tools",
        "bob",
        "opencode",
        "chat",
        "coder-large",
        (Turn(MIGRATION, 3),),
        start_s=10,
        tools="catalogue",
    ),
    Cast(
        "pod-restarts",
        "dave",
        "codex",
        "responses",
        "coder-large",
        (Turn(MIGRATION, 3), Turn(CONFIG, 3)),
        start_s=15,
    ),
    Cast(
        "flaky-upstream",
        "erin",
        "none",
        "chat",
        "coder-small",
        (
            Turn(DBSHELL, 3, subagents=(Subagent(DIAGRAM, 2, "reader"),)),
            Turn(CONFIG, 3, fail_once=True),
        ),
        start_s=15,
        names_session=True,
    ),
    Cast(
        "interrupted",
        "carol",
        "claude-code",
        "messages",
        "claude-standin",
        (Turn(CONFIG, 2), Turn(MIGRATION, 1, abort=True)),
        start_s=20,
        hints=True,
    ),
    Cast(
        "nightly-checks",
        "ci-bot",
        "none",
        "chat",
        "coder-small",
        (Turn(CONFIG, 3),),
        stream=False,
        tools="recorded",
        service=True,
    ),
    Cast(
        "shell-parameters",
        "alice",
        "none",
        "messages",
        "coder-small",
        (Turn(DIAGRAM, 3),),
        start_s=10,
        stream=False,
        tools="recorded",
    ),
)

SIZES: Final[dict[str, tuple[Cast, ...]]] = {"full": FULL, "small": SMALL}
