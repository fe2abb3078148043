"""Turn, call index and initiator of one call, from its messages alone.

The three API shapes are read as one sequence of *blocks* (:mod:`gateway_plugin.blocks`): everything a client
adds between two answers of the model is one block. A block with a tool result continues the agent's loop; a
block with human text starts a turn; a block with nothing but text that a harness injected (reminders,
budgets) continues the loop.

Evidence: E1 an id or class on the wire, E2 the call whose tool calls the newest block answers (lineage.py),
E3 this rule, E4 the session's history (side calls only), E5 nothing to go by (no messages, or only their
tail).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gateway_plugin.blocks import Reading, items_of, read, texts_of
from gateway_plugin.clients import Hints
from gateway_plugin.hashing import Hasher
from gateway_plugin.lineage import Descent
from gateway_plugin.text import is_mapping
from gateway_plugin.wording import asks_for_summary, is_side_wording


class Turn(NamedTuple):
    """What one request tells about its place in the session.

    ``turn_id`` is None when the request carries no user-initiated block (an automatic continuation after a
    compaction): the call then belongs to the turn that the stream was in.
    """

    turn_id: str | None
    turn_index: int | None
    call_index: int | None
    initiator: str
    evidence: str
    after_compaction: bool
    message_count: int
    #: The client named the turn itself.
    told: bool = False
    #: The turn is that of the call whose tool results the request carries.
    inherited: bool = False


def _system_text(body: Mapping[str, Any], items: Sequence[Any]) -> str:
    """Return the head of the system prompt, wherever the API shape keeps it; at most a few KB."""
    parts = [t[:1000] for t in texts_of(body.get("system", body.get("instructions")))][:4]
    for item in items[:2]:
        if is_mapping(item) and item.get("role") in ("system", "developer"):
            parts += [t[:1000] for t in texts_of(item.get("content"))][:4]
    return "\n".join(parts)


def is_side_call(body: Mapping[str, Any], items: Sequence[Any]) -> bool:
    """Return whether a request shows by itself that it is a title, topic or quota call beside the work.

    Conservative: no tools, no answer of the model in it, one short human text at most, and a system prompt or
    text that only such calls have, or a request for one single token.
    """
    if body.get("tools") or len(items) > 4:
        return False
    reading = read(items)
    answered = any(is_mapping(i) and i.get("role") == "assistant" for i in items)
    block = reading.newest
    if answered or block is None or block.has_tool_result or reading.users or reading.after:
        return False
    limit = body.get("max_tokens", body.get("max_completion_tokens"))
    if limit == 1 and not isinstance(limit, bool):
        return True
    system = _system_text(body, items)
    text = block.text[:500].lstrip()
    return is_side_wording(system, text)


def analyse(
    body: Mapping[str, Any],
    hints: Hints,
    hasher: Hasher,
    *,
    session_key: str | None,
    agent_id: str,
    agent_kind: str,
    side_evidence: str | None = None,
    descent: Descent | None = None,
    reading: Reading | None = None,
) -> Turn:
    """Return the turn of one call.

    ``side_evidence`` is set when the call is known to be one beside the work (a title, for one): it then is
    no turn of its own and belongs to the turn that the stream is in. ``descent`` is the call of this agent
    that the request's tool results come from: results behind the last answer go on with its turn. ``reading``
    is what is known of the request's blocks; without it they are read here.

    A turn id made here is a keyed hash over the session, the agent and the chain of human texts up to the
    current one. Tool results, reminders and cache markers do not take part, so that editing them does not
    split a turn.
    """
    items = items_of(body)
    reading = read(items) if reading is None else reading
    newest, ends_with_user = reading.newest, reading.ends_with_user
    opening = reading.first()
    continued = opening is not None and opening.continued
    own = reading.users + ends_with_user - (opening is not None and not opening.typed)
    partial = bool(body.get("previous_response_id"))
    # The request for a summary may stand in one block with the last tool results.
    summary = newest is not None and (
        (hints.compaction and ends_with_user)
        or asks_for_summary(newest.text, offers_tools=bool(body.get("tools")))
    )
    if hints.initiator is not None:
        initiator, evidence = hints.initiator, "E1"
    elif hints.compaction:
        initiator, evidence = "compaction", "E1"
    elif summary:
        initiator, evidence = "compaction", "E3"
    elif side_evidence is not None:
        initiator, evidence = "auxiliary", side_evidence
    elif descent is not None and descent.direct:
        initiator, evidence = "agent", "E2"
    else:
        initiator, evidence = _by_roles(reading, only_summary=continued and not own, agent_kind=agent_kind)
    if asked := summary and ends_with_user:
        # The harness asks for a summary inside the current turn; its request is no human text.
        own = max(0, own - 1)
    shown = own > 0 and not partial and initiator != "auxiliary"
    turn_id: str | None = hints.turn_id
    inherited = False
    if turn_id is not None:
        turn_id, evidence = hasher.keep_or_hash(turn_id), "E1"
    elif descent is not None and descent.direct and descent.origin.turn_id is not None:
        turn_id, inherited = descent.origin.turn_id, True
    elif shown:
        turn_id = hasher.digest(
            "turn", session_key or "", agent_id, reading.folded(with_newest=not asked), size=12
        )
    return Turn(
        turn_id=turn_id,
        turn_index=own if shown and not continued else None,
        call_index=_position(reading) if shown and not summary else None,
        initiator=initiator,
        evidence=evidence,
        after_compaction=hints.after_compaction or continued,
        message_count=len(items),
        told=hints.turn_id is not None,
        inherited=inherited,
    )


def _position(reading: Reading) -> int:
    """Return the 1-based number of the newest block in its turn."""
    if reading.newest is None or reading.ends_with_user:
        return 1
    return reading.after + 2


def _by_roles(reading: Reading, *, only_summary: bool, agent_kind: str) -> tuple[str, str]:
    if reading.newest is None:
        return "unknown", "E5"
    if agent_kind == "subagent":
        # No human speaks to a subagent; its first text is the parent agent's order.
        return "agent", "E3"
    return ("user" if reading.ends_with_user and not only_summary else "agent"), "E3"
