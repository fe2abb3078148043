"""What of a prompt was sent before: rolling digest chains, shared prefix and break reason.

A request becomes a chain of segments in the order in which providers render it: the tool catalogue as one
unit, the system prompt, then each message. Segment *i* carries the canonical bytes up to its end and a
digest of everything up to there, so two chains share exactly the segments whose rolling digests agree.

Canonical means order-preserving JSON of what reaches the model: key and tool order stay as sent, because they
change the rendered prompt. Cache markers (``cache_control``) are left out and a lone text block equals the
plain string, because neither changes the rendered prompt while clients move them from call to call. The
attribution block that old Claude Code versions put first in the system prompt holds a random value per
request; it is left out as well. Nothing here alters the request.
"""

from __future__ import annotations

import json
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
import xxhash

#: First system block of Claude Code that changes with every request in old versions.
_ATTRIBUTION: Final = "x-anthropic-billing-header:"

#: A same-model prompt that lost more than this share of the previous one's bytes was compacted
#: (arXiv 2608.00101: drop > 30 %), when the previous one was large enough to be worth compacting.
COMPACTION_DROP: Final = 0.30
COMPACTION_MIN_BYTES: Final = 40_000


@dataclass(slots=True, eq=False)
class Chain:
    """Rolling digests of one prompt. ``ends[i]`` is the byte offset after segment *i* (non-decreasing)."""

    digests: array[int] = field(default_factory=lambda: array("Q"))
    ends: array[int] = field(default_factory=lambda: array("Q"))
    tools_digest: int = 0
    system_digest: int = 0
    first_user_digest: int = 0
    tools_bytes: int = 0
    tool_count: int = 0
    #: Index of the first segment after the model's last answer: the tail that this call added.
    tail_start: int = 0
    #: Index of the first message segment (after tools and system).
    body_start: int = 0
    #: Answers of the model in the request.
    answers: int = 0
    truncated: bool = False
    fallbacks: int = 0

    @property
    def total_bytes(self) -> int:
        """Canonical bytes of the whole prompt."""
        return self.ends[-1] if self.ends else 0

    @property
    def nbytes(self) -> int:
        """Approximate memory held by the chain, bytes."""
        return 16 * len(self.digests) + 250


def serialise(value: object) -> tuple[bytes, bool]:
    """Return canonical bytes of *value* and whether the slow fallback was needed.

    orjson refuses integers over 64 bits, lone surrogates and nesting over 254; the standard library takes
    them (escaping surrogates). What neither takes is rendered by type name, so that the chain goes on.
    """
    try:
        return orjson.dumps(value), False
    except (TypeError, ValueError, RecursionError):
        pass
    try:
        return json.dumps(
            value, ensure_ascii=True, separators=(",", ":"), default=lambda o: type(o).__name__
        ).encode(), True
    except (TypeError, ValueError, RecursionError):
        return b"<" + type(value).__name__.encode("ascii", "replace") + b">", True


#: Cache markers are looked for this deep: a tool result's parts sit at level two, nothing known sits deeper.
_MAX_DEPTH: Final = 6


def _part(part: object, depth: int = 0) -> object:
    if not isinstance(part, dict):
        return part
    if "cache_control" in part:
        part = {k: v for k, v in part.items() if k != "cache_control"}
    if isinstance(part.get("content"), list) and depth < _MAX_DEPTH:
        return {**part, "content": _content(part["content"], depth + 1)}
    return part


def _content(content: list[Any], depth: int = 0) -> object:
    parts = [_part(p, depth) for p in content]
    if len(parts) == 1:
        only = parts[0]
        if isinstance(only, dict) and len(only) == 2 and isinstance(only.get("text"), str):
            kind = only.get("type")
            if kind == "text" or kind == "input_text":
                return only["text"]
    return parts


def _is_attribution(part: object) -> bool:
    text = part.get("text") if isinstance(part, dict) else None
    return isinstance(text, str) and text[:64].lstrip().startswith(_ATTRIBUTION)


def canonical_message(message: object) -> object:
    """Return *message* without what does not reach the model; a new object wherever something is left out."""
    if not isinstance(message, dict):
        return message
    content = message.get("content")
    if isinstance(content, list):
        out = {k: v for k, v in message.items() if k != "cache_control"}
        out["content"] = _content(content)
        return out
    if "cache_control" in message:
        return {k: v for k, v in message.items() if k != "cache_control"}
    return message


def canonical_system(system: object) -> object:
    """Return the system prompt without Claude Code's attribution block and without cache markers."""
    if isinstance(system, list):
        return _content(system[1:] if system and _is_attribution(system[0]) else system)
    return system


def canonical_tools(tools: Sequence[object]) -> list[object]:
    """Return the catalogue in the order sent, without cache markers."""
    return [_part(t) for t in tools]


_MARKER: Final = b'"cache_control"'
_ANSWER_TYPES: Final = frozenset({"function_call", "reasoning", "custom_tool_call"})


def _tools_bytes(tools: list[object]) -> tuple[bytes, bool]:
    raw, slow = serialise(tools)
    return serialise(canonical_tools(tools)) if slow or _MARKER in raw else (raw, slow)


def build(
    body: Mapping[str, Any], items: Sequence[object], *, seed: int, max_bytes: int, opening: str = ""
) -> Chain:
    """Return the chain of one request.

    Args:
        body: the request body; ``tools``, ``system`` or ``instructions`` are read from it.
        items: its messages or Responses items, in order.
        seed: secret seed of the in-memory hash, equal in all workers that share state.
        max_bytes: size cut-off; a larger prompt gives a chain marked ``truncated`` that ends there.
        opening: what the person said first. Its digest is of the text, not of the message: harnesses add and
            drop injected parts beside it from call to call.
    """
    chain = Chain(first_user_digest=text_digest(opening, seed))
    rolling = xxhash.xxh3_64(seed=seed)
    # The loop below runs once per message of every request, so it holds no call that it can do without. JSON
    # objects, lists and strings end themselves, so their texts are joined without lengths.
    update, intdigest, dumps = rolling.update, rolling.intdigest, orjson.dumps
    push_digest, push_end = chain.digests.append, chain.ends.append
    total = 0
    tools = body.get("tools")
    if isinstance(tools, list) and tools:
        raw, slow = _tools_bytes(tools)
        chain.fallbacks += slow
        chain.tools_digest = xxhash.xxh3_64_intdigest(raw, seed=seed)
        chain.tools_bytes, chain.tool_count = len(raw), len(tools)
        update(raw)
        total = len(raw)
        push_digest(intdigest())
        push_end(total)
    system = body.get("system", body.get("instructions"))
    if system:
        raw, slow = serialise(canonical_system(system))
        chain.fallbacks += slow
        chain.system_digest = xxhash.xxh3_64_intdigest(raw, seed=seed)
        update(raw)
        total += len(raw)
        push_digest(intdigest())
        push_end(total)
    chain.body_start = chain.tail_start = len(chain.digests)
    leading = not system
    for item in items:
        if total > max_bytes:
            chain.truncated = True
            break
        role = kind = None
        raw = b""
        if isinstance(item, dict):
            get = item.get
            role, kind = get("role"), get("type")
            if type(get("content")) is str and "cache_control" not in item:
                try:
                    raw = dumps(item)
                except (TypeError, ValueError, RecursionError):
                    raw = b""
        if not raw:
            raw, slow = serialise(canonical_message(item))
            chain.fallbacks += slow
            if not isinstance(item, (dict, list, str)):
                raw += b"\n"  # a number does not end itself
        update(raw)
        total += len(raw)
        push_digest(intdigest())
        push_end(total)
        if leading:
            if role == "system" or role == "developer":
                chain.system_digest = xxhash.xxh3_64_intdigest(raw, seed=chain.system_digest or seed)
                chain.body_start = chain.tail_start = len(chain.digests)
                continue
            leading = False
        if role == "assistant" or (kind is not None and type(kind) is str and kind in _ANSWER_TYPES):
            chain.tail_start = len(chain.digests)
            chain.answers += 1
    return chain


def text_digest(text: str, seed: int) -> int:
    """Return an in-memory digest of *text*, never 0; 0 stands for no text."""
    return xxhash.xxh3_64_intdigest(text.encode("utf-8", "surrogatepass"), seed=seed) or 1 if text else 0


def shared_segments(a: Chain, b: Chain) -> int:
    """Return how many leading segments two chains share.

    Rolling digests make agreement monotone: if segment *i* agrees so do all before it, hence a binary search.
    """
    n = min(len(a.digests), len(b.digests))
    if n == 0 or a.digests[0] != b.digests[0]:
        return 0
    if a.digests[n - 1] == b.digests[n - 1]:
        return n  # one extends the other: nearly every call of a conversation
    return bisect_right(range(1, n + 1), False, key=lambda k: a.digests[k - 1] != b.digests[k - 1])


def shared_bytes(a: Chain, b: Chain) -> int:
    """Return the bytes of the common prefix of two chains, in whole segments."""
    n = shared_segments(a, b)
    return a.ends[n - 1] if n else 0


def tool_set_digest(tools: Iterable[object], seed: int) -> int:
    """Return an order-free digest of a catalogue: equal for the same tools in any tool or key order."""
    total = 0
    for tool in tools:
        try:
            raw = orjson.dumps(_part(tool), option=orjson.OPT_SORT_KEYS)
        except (TypeError, ValueError, RecursionError):
            raw = serialise(tool)[0]
        total = (total + xxhash.xxh3_64_intdigest(raw, seed=seed)) & 0xFFFF_FFFF_FFFF_FFFF
    return total


def break_reason(
    previous: Chain | None,
    current: Chain,
    *,
    same_model: bool,
    compaction_hint: bool,
    previous_tool_set: int | None,
    tool_set: int | None,
) -> str:
    """Name why *current* does not extend *previous* (the stream's previous call), or ``none`` when it does.

    The first that applies: first · model_switch · none · compaction (hint) · tool_reorder · tools_changed ·
    system_changed · compaction (size) · retrieved_context (only what the previous call's tail had added
    changed: text that the client shows once and does not keep) · history_edited.
    """
    if previous is None:
        return "first"
    if not same_model:
        return "model_switch"
    if previous.truncated or current.truncated or not previous.digests or not current.digests:
        return "unknown"
    shared = shared_segments(previous, current)
    if shared == len(previous.digests):
        return "none"
    if compaction_hint:
        return "compaction"
    if previous.tools_digest != current.tools_digest:
        same_set = (
            tool_set is not None
            and tool_set == previous_tool_set
            and current.tool_count == previous.tool_count
        )
        return "tool_reorder" if same_set else "tools_changed"
    if previous.system_digest != current.system_digest:
        return "system_changed"
    lost = 1 - current.total_bytes / previous.total_bytes if previous.total_bytes else 0.0
    if previous.total_bytes >= COMPACTION_MIN_BYTES and lost > COMPACTION_DROP:
        return "compaction"
    if shared >= previous.tail_start:
        return "retrieved_context"
    return "history_edited"


@dataclass(slots=True, eq=False)
class Head:
    """One kept chain of a stream and when it was last touched.

    ``touched_us`` is UTC microseconds of the end of the latest call that contained it, None while such a call
    is in flight; ``side`` marks the chain of a call beside the work.
    """

    chain: Chain
    touched_us: int | None
    side: bool = False


def steps(heads: Iterable[Head], current: Chain, now_us: int) -> list[tuple[float, int]]:
    """Return the shared prefix as a step function of age: [(age s, bytes), …] by rising age and bytes.

    The prefix available within a retention r is the bytes of the last step whose age is ≤ r. A chain still in
    flight counts as touched now.
    """
    points: list[tuple[float, int]] = []
    for head in heads:
        if size := shared_bytes(head.chain, current):
            age = 0.0 if head.touched_us is None else max(0.0, (now_us - head.touched_us) / 1e6)
            points.append((age, size))
    return union_of_steps(points, [])


def union_of_steps(one: list[tuple[float, int]], other: list[tuple[float, int]]) -> list[tuple[float, int]]:
    """Return the step function that is the larger of two at every age."""
    out: list[tuple[float, int]] = []
    for age, size in sorted([*one, *other]):
        if not out or size > out[-1][1]:
            if out and out[-1][0] == age:
                out[-1] = (age, size)
            else:
                out.append((age, size))
    return out
