"""Turn, call index and initiator of one call, from its messages alone.

The three API shapes (chat, Anthropic messages, Responses items) are read as one sequence of *blocks*:
everything a client adds between two answers of the model is one block. A block with a tool result continues
the agent's loop; a block with human text starts a turn; a block with nothing but text that a harness injected
(reminders, budgets) continues the loop.

Evidence: E1 an id or class on the wire, E2 the call whose tool calls the newest block answers (lineage.py),
E3 this rule, E4 the session's history (side calls only), E5 nothing
to go by (no messages, or only their tail).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import xxhash

from gateway_plugin.clients import Hints
from gateway_plugin.hashing import Hasher
from gateway_plugin.lineage import Descent
from gateway_plugin.wording import asks_for_summary, is_continuation, is_injected, is_side_wording

#: Text longer than this is not searched for injections beyond its head and tail.
_SCAN_CHARS: Final = 20_000


@dataclass(frozen=True, slots=True)
class Turn:
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


@dataclass(slots=True)
class _Block:
    has_tool_result: bool = False
    injected_only: bool = True
    texts: list[str] = field(default_factory=list)

    @property
    def user_initiated(self) -> bool:
        return not self.has_tool_result and not self.injected_only

    @property
    def text(self) -> str:
        return "\x00".join(self.texts)


#: The block of nearly every step of an agent: tool results, no text. One for all of them; what goes on behind
#: the results makes a block of its own out of it.
_RESULTS: Final = _Block(has_tool_result=True)


def _texts(content: object) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for part in content:
            if isinstance(part, str):
                yield part
            elif isinstance(part, Mapping):
                text = part.get("text")
                if isinstance(text, str):
                    yield text


_NON_TEXT: Final = frozenset(
    {"image", "image_url", "input_image", "document", "file", "input_file", "input_audio", "video_url"}
)
_TOOL_RESULT: Final = frozenset({"tool_result"})


def _has_part(content: object, types: frozenset[str]) -> bool:
    if not isinstance(content, list):
        return False
    for part in content:
        kind = part.get("type") if isinstance(part, Mapping) else None
        if isinstance(kind, str) and kind in types:
            return True
    return False


_MODEL_ITEMS: Final = frozenset(
    {
        "function_call",
        "reasoning",
        "custom_tool_call",
        "local_shell_call",
        "web_search_call",
        "mcp_call",
        "tool_call",
    }
)
_RESULT_ITEMS: Final = frozenset(
    {"function_call_output", "custom_tool_call_output", "local_shell_call_output", "computer_call_output"}
)


def items_of(body: Mapping[str, Any]) -> list[Any]:
    """Return the conversation of a request: ``messages``, or Responses ``input`` (text is one user item)."""
    messages = body.get("messages")
    if isinstance(messages, list):
        return messages
    value = body.get("input")
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    return value if isinstance(value, list) else []


def _blocks(items: Sequence[Any]) -> tuple[list[_Block], int]:
    """Split *items* into blocks; also return how many blocks follow the last user-initiated one."""
    blocks: list[_Block] = []
    current: _Block | None = None
    for item in items:
        # Runs for every message of every request: the common roles are settled first.
        if not isinstance(item, dict) and not isinstance(item, Mapping):
            continue
        role = item.get("role")
        if role == "assistant":
            current = None
            continue
        if role == "tool" or role == "function":
            if current is None:
                current = _RESULTS
                blocks.append(current)
            elif current is not _RESULTS:
                current.has_tool_result = True
            continue
        kind = item.get("type")
        if not isinstance(kind, str):
            kind = None
        elif kind in _MODEL_ITEMS:
            current = None
            continue
        if role == "system" or role == "developer":
            continue
        if current is None:
            current = _Block()
            blocks.append(current)
        elif current is _RESULTS:
            current = blocks[-1] = _Block(has_tool_result=True)
        content = item.get("content")
        if kind in _RESULT_ITEMS or _has_part(content, _TOOL_RESULT):
            current.has_tool_result = True
        elif _has_part(content, _NON_TEXT):
            current.injected_only = False
        if role == "user":
            for text in _texts(content):
                if not is_injected(text):
                    current.injected_only = False
                    current.texts.append(text if len(text) <= _SCAN_CHARS else _abridged(text))
    after = 0
    for block in reversed(blocks):
        if block.user_initiated:
            break
        after += 1
    return blocks, after


def _abridged(text: str) -> str:
    return f"{text[:_SCAN_CHARS]}\x00{len(text)}"


def _system_text(body: Mapping[str, Any], items: Sequence[Any]) -> str:
    """Return the head of the system prompt, wherever the API shape keeps it; at most a few KB."""
    parts = [t[:1000] for t in _texts(body.get("system", body.get("instructions")))][:4]
    for item in items[:2]:
        if isinstance(item, Mapping) and item.get("role") in ("system", "developer"):
            parts += [t[:1000] for t in _texts(item.get("content"))][:4]
    return "\n".join(parts)


def is_side_call(body: Mapping[str, Any], items: Sequence[Any]) -> bool:
    """Return whether a request shows by itself that it is a title, topic or quota call beside the work.

    Conservative: no tools, no answer of the model in it, one short human text at most, and a system prompt or
    text that only such calls have, or a request for one single token.
    """
    if body.get("tools") or len(items) > 4:
        return False
    blocks, _ = _blocks(items)
    answered = any(isinstance(i, Mapping) and i.get("role") == "assistant" for i in items)
    if answered or len(blocks) != 1 or blocks[0].has_tool_result:
        return False
    limit = body.get("max_tokens", body.get("max_completion_tokens"))
    if limit == 1 and not isinstance(limit, bool):
        return True
    system = _system_text(body, items)
    text = blocks[0].text[:500].lstrip()
    return is_side_wording(system, text)


def first_human_text(items: Sequence[Any]) -> str:
    """Return the first text of a conversation that a human (or a parent agent) wrote, injections left out.

    Read only up to the first answer of the model, so it is the same for every call of a conversation.
    """
    for item in items:
        if not isinstance(item, Mapping):
            continue
        kind = item.get("type")
        if item.get("role") == "assistant" or (isinstance(kind, str) and kind in _MODEL_ITEMS):
            break
        if item.get("role") == "user":
            for text in _texts(item.get("content")):
                if not is_injected(text):
                    return text
    return ""


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
) -> Turn:
    """Return the turn of one call.

    ``side_evidence`` is set when the call is known to be one beside the work (a title, for one): it then is
    no turn of its own and belongs to the turn that the stream is in. ``descent`` is the call of this agent
    that the request's tool results come from: results behind the last answer go on with its turn.

    A turn id made here is a keyed hash over the session, the agent and the chain of human texts up to the
    current one. Tool results, reminders and cache markers do not take part, so that editing them does not
    split a turn.
    """
    items = items_of(body)
    blocks, after = _blocks(items)
    user_blocks = [b for b in blocks if b is not _RESULTS and b.user_initiated]
    first_text = user_blocks[0].text if user_blocks else ""
    continued = bool(user_blocks) and is_continuation(first_text)
    own = _after_summary(user_blocks) if continued else user_blocks
    partial = bool(body.get("previous_response_id"))
    # The request for a summary may stand in one block with the last tool results.
    summary = bool(blocks) and (
        (hints.compaction and blocks[-1].user_initiated)
        or asks_for_summary(blocks[-1].text, offers_tools=bool(body.get("tools")))
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
        initiator, evidence = _by_roles(blocks, only_summary=continued and not own, agent_kind=agent_kind)
    if summary and blocks[-1].user_initiated:
        # The harness asks for a summary inside the current turn; its request is no human text.
        user_blocks = user_blocks[:-1]
        own = own[:-1]
    shown = bool(own) and not partial and initiator != "auxiliary"
    turn_id: str | None = hints.turn_id
    inherited = False
    if turn_id is not None:
        turn_id, evidence = hasher.keep_or_hash(turn_id), "E1"
    elif descent is not None and descent.direct and descent.origin.turn_id is not None:
        turn_id, inherited = descent.origin.turn_id, True
    elif shown:
        turn_id = hasher.digest("turn", session_key or "", agent_id, _folded(user_blocks), size=12)
    return Turn(
        turn_id=turn_id,
        turn_index=len(own) if shown and not continued else None,
        call_index=after + 1 if shown and not summary else None,
        initiator=initiator,
        evidence=evidence,
        after_compaction=hints.after_compaction or continued,
        message_count=len(items),
        told=hints.turn_id is not None,
        inherited=inherited,
    )


def _folded(blocks: Sequence[_Block]) -> bytes:
    """Fold the human texts into 16 bytes with a fast hash; the caller's keyed hash makes an id of it."""
    fold = xxhash.xxh3_128()
    for block in blocks:
        for text in block.texts:
            raw = text.encode("utf-8", "surrogatepass")
            fold.update(len(raw).to_bytes(8, "little"))
            fold.update(raw)
        fold.update(b"\x00block")
    return fold.digest()


def _after_summary(user_blocks: Sequence[_Block]) -> list[_Block]:
    """Return the user-initiated blocks of a compacted conversation without the summary at its head.

    What was typed next, when no answer lies between, stands behind the summary in one block with it. (Some
    clients repeat earlier prompts in front of the summary; those are old.)
    """
    texts = user_blocks[0].texts
    summary = max((i for i, text in enumerate(texts) if is_continuation(text)), default=len(texts))
    typed = texts[summary + 1 :]
    head = [_Block(injected_only=False, texts=typed)] if typed else []
    return [*head, *user_blocks[1:]]


def _by_roles(blocks: Sequence[_Block], *, only_summary: bool, agent_kind: str) -> tuple[str, str]:
    if not blocks:
        return "unknown", "E5"
    if agent_kind == "subagent":
        # No human speaks to a subagent; its first text is the parent agent's order.
        return "agent", "E3"
    return ("user" if blocks[-1].user_initiated and not only_summary else "agent"), "E3"
