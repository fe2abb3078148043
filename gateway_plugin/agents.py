"""Which agent of a session made a call whose client names no agent, and whether it is beside the work.

Parallel subagents share their parent's session id in clients that send no agent id. A call belongs to the
main agent when its system prompt or its first human text is one that the main agent of the session has used;
otherwise a short conversation is a subagent, named by its head. A short call without tools in a session whose
main agent works with tools is a call beside the work (a title, a topic), not a subagent.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from gateway_plugin.prefix import Chain
from gateway_plugin.recent import Recent

_PER_SESSION: Final = 32
#: A conversation this short can be a new one; a longer one with an unknown head is an edited old one.
_NEW_MESSAGES: Final = 4
#: A call beside the work carries at most this much text.
_SIDE_BYTES: Final = 16_384

#: A side call may quote only the head of the opening text.
_QUOTED_CHARS: Final = 200

MAIN: Final = "main"


@dataclass(slots=True)
class _Known:
    """Heads by which the agents of one session are told apart."""

    main_systems: set[int] = field(default_factory=set)
    main_first_users: set[int] = field(default_factory=set)
    main_tools: bool = False
    subagents: OrderedDict[int, str] = field(default_factory=OrderedDict)


class Agents:
    """Bounded memory of the agents of each session. Single-threaded: used on the event loop only."""

    def __init__(self, max_sessions: int) -> None:
        self._known: Recent[str, _Known] = Recent(max_sessions)
        self._openings: Recent[tuple[str, int], tuple[str, str | None]] = Recent(max_sessions)

    def _session(self, session_key: str) -> _Known:
        known = self._known.use(session_key)
        if known is None:
            known = _Known()
            self._known.put(session_key, known)
        return known

    def is_beside(self, session_key: str, chain: Chain, message_count: int) -> bool:
        """Return whether a call that shows no answer and no tool is beside the work of its session.

        Good evidence only: the main agent works with tools; this call has none, brings another system prompt,
        holds no answer of the model and is short. (Its text may well be the main agent's: titles are.)
        """
        known = self._known.get(session_key)
        return (
            known is not None
            and known.main_tools
            and chain.tool_count == 0
            and message_count <= _NEW_MESSAGES
            and chain.answers == 0
            and chain.total_bytes <= _SIDE_BYTES
            and chain.system_digest not in known.main_systems
        )

    def agent_of(self, session_key: str, chain: Chain, message_count: int) -> str:
        """Return ``main`` or an inferred subagent id, and remember the head of the call."""
        known = self._session(session_key)
        if known.main_systems:
            same = chain.system_digest in known.main_systems or (
                chain.first_user_digest != 0 and chain.first_user_digest in known.main_first_users
            )
            # A main agent that was first seen without tools was no agent yet.
            starts_work = chain.tool_count > 0 and not known.main_tools
            if not same and not starts_work:
                head = chain.system_digest ^ chain.first_user_digest
                if head in known.subagents or message_count <= _NEW_MESSAGES:
                    agent = f"sub-{head:016x}"
                    self._add_subagent(known, head, agent)
                    self._add_subagent(known, chain.system_digest, agent)
                    return agent
                if (latest := known.subagents.get(chain.system_digest)) is not None:
                    return latest  # a subagent whose first message was edited or dropped
        self._learn_main(known, chain)
        return MAIN

    def learn_main(self, session_key: str, chain: Chain) -> None:
        """Remember the head of a call that is known to be the main agent's."""
        self._learn_main(self._session(session_key), chain)

    @staticmethod
    def _learn_main(known: _Known, chain: Chain) -> None:
        if len(known.main_systems) < _PER_SESSION:
            known.main_systems.add(chain.system_digest)
        if chain.first_user_digest and len(known.main_first_users) < _PER_SESSION:
            known.main_first_users.add(chain.first_user_digest)
        known.main_tools = known.main_tools or chain.tool_count > 0

    def link(self, user: str, opening: str, session: tuple[str, str | None]) -> None:
        """Remember (session key, id) of *user*'s conversation that starts with *opening*."""
        self._openings.put((user, hash(opening[:_QUOTED_CHARS])), session)

    def linked(self, user: str, opening: str) -> tuple[str, str | None] | None:
        """Return the session of *user* that starts with *opening*, when this worker saw it.

        Some clients send side calls (titles) without the session's headers; the quoted text is the only tie.
        """
        return self._openings.get((user, hash(opening[:_QUOTED_CHARS])))

    @staticmethod
    def _add_subagent(known: _Known, head: int, agent: str) -> None:
        known.subagents[head] = agent
        known.subagents.move_to_end(head)
        while len(known.subagents) > 2 * _PER_SESSION:
            known.subagents.popitem(last=False)
