"""Tool-call lineage: whose answer the results in a request belong to (evidence E2).

A model names every tool call with an id, and the client sends the id back with the result. The ids of an
answer are remembered with the place of the call that gave it, so that a later request that names no session
or turn is known by the results it carries: whatever became of its head or its history, it goes on where that
call stood.

Some engines only number their tool calls (``functions.read:0``), so an id that looks numbered is not used,
and one that two sessions of a user were given is never used again. Ids are kept as seeded 64-bit digests
together with the user, so no user's id finds another's session. The memory is this worker's and bounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

import xxhash

from gateway_plugin.answers import MAX_PARTS, field_of, parts_of
from gateway_plugin.recent import Recent
from gateway_plugin.text import is_mapping

#: Ids remembered per worker (about 250 bytes each): an hour of ten calls a second.
MAX_IDS: Final = 50_000
#: A request is read back this many messages and results, no further.
_MAX_MESSAGES: Final = 200
_MAX_RESULTS: Final = 16
_MAX_ID_CHARS: Final = 512
#: A counter behind a name, or a word: the same id is given again in other sessions.
_NUMBERED: Final = re.compile(r".*[_.:#/-]\d{1,4}|[a-z_.:-]*\d{0,4}", re.DOTALL)
#: Items of the Responses API by which the model calls a tool of the client.
_CALL_ITEMS: Final = frozenset({"function_call", "custom_tool_call", "local_shell_call", "computer_call"})


class Origin(NamedTuple):
    """Where the call stood whose answer named a tool call."""

    session_key: str
    session_id: str | None
    agent_id: str
    agent_kind: str
    turn_id: str | None


class Descent(NamedTuple):
    """The call that a request goes on from.

    ``direct`` says that the results stand behind the last answer in the request, so that the request goes on
    with the very turn of *origin*; else they are part of its history and tell session and agent only.
    """

    origin: Origin
    direct: bool


class Lineage:
    """Bounded memory of tool-call ids. Single-threaded: used on the event loop only."""

    def __init__(self, seed: int, max_ids: int = MAX_IDS) -> None:
        self._seed = seed
        #: None stands for an id that more than one session was given.
        self._origins: Recent[int, Origin | None] = Recent(max_ids)

    def __len__(self) -> int:
        return len(self._origins)

    def remember(self, user: str, ids: Iterable[str], origin: Origin) -> None:
        """Remember the *ids* of the tool calls in an answer given to *user*."""
        for value in islice(ids, MAX_PARTS):
            if len(value) > _MAX_ID_CHARS or _NUMBERED.fullmatch(value):
                continue
            key = self._key(user, value)
            known = self._origins.get(key, origin)
            shared = known is None or known.session_key != origin.session_key
            self._origins.put(key, None if shared else origin)

    def descent(self, user: str, items: Sequence[Any]) -> Descent | None:
        """Return what the newest tool results of a known origin in *items* tell, None without any."""
        if not len(self._origins):
            return None
        for value, direct in islice(_result_ids(items), _MAX_RESULTS):
            if len(value) <= _MAX_ID_CHARS:
                origin = self._origins.get(self._key(user, value), None)
                if origin is not None:
                    return Descent(origin, direct)
        return None

    def _key(self, user: str, value: str) -> int:
        raw = f"{len(user)}:{user}{value}".encode("utf-8", "surrogatepass")
        return xxhash.xxh3_64_intdigest(raw, self._seed)


def _result_ids(items: Sequence[Any]) -> Iterator[tuple[str, bool]]:
    """Yield the ids of the tool results in *items*, newest first, and whether no answer follows them."""
    direct = True
    for item in islice(reversed(items), _MAX_MESSAGES):
        if not is_mapping(item):
            continue
        role = item.get("role")
        kind = item.get("type")
        if role == "assistant" or (isinstance(kind, str) and (kind in _CALL_ITEMS or kind == "reasoning")):
            direct = False
            continue
        if role == "tool" or (isinstance(kind, str) and kind.endswith("_call_output")):
            value = item.get("tool_call_id") if role == "tool" else item.get("call_id")
            if isinstance(value, str):
                yield value, direct
            continue
        content = item.get("content")
        if role == "user" and isinstance(content, list):
            for part in reversed(content):
                if is_mapping(part) and part.get("type") == "tool_result":
                    value = part.get("tool_use_id")
                    if isinstance(value, str):
                        yield value, direct


def tool_call_ids(answer: object) -> tuple[str, ...]:
    """Return the ids of the tool calls in an answer of any of the three APIs, as object or as dict.

    Never raises on an odd answer: what is not there is not returned.
    """
    found = []
    # A missing field costs an object of a library an exception, so the commonest shape is settled first.
    if choices := parts_of(field_of(answer, "choices")):
        for choice in choices:
            for call in parts_of(field_of(field_of(choice, "message"), "tool_calls")):
                found.append(field_of(call, "id"))
    else:
        answer = field_of(answer, "response") or answer  # the closing event of a Responses stream
        for block in parts_of(field_of(answer, "content")):
            if field_of(block, "type") == "tool_use":
                found.append(field_of(block, "id"))
        for item in parts_of(field_of(answer, "output")):
            if field_of(item, "type") in _CALL_ITEMS:
                found.append(field_of(item, "call_id"))
    return tuple(value for value in found[:MAX_PARTS] if isinstance(value, str) and value)
