"""What of a prompt was sent before: rolling digest chains, shared prefix and break reason.

A request becomes a chain of segments in the order in which providers render it: the tool catalogue as one
unit, the system prompt, then each message. Segment *i* carries the canonical bytes up to its end and a
digest of everything up to there, so two chains share exactly the segments whose rolling digests agree.

What is canonical is told in :mod:`gateway_plugin.canonical`.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
import xxhash

from gateway_plugin.beginnings import Beginnings
from gateway_plugin.canonical import (
    canonical_message,
    canonical_system,
    is_plain,
    serialise,
    tools_bytes,
)

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

    def append(self, rolling: xxhash.xxh3_64, raw: bytes) -> None:
        """Append a segment of canonical bytes, which end themselves: JSON objects, lists and strings do."""
        rolling.update(raw)
        total = self.total_bytes + len(raw)
        self.digests.append(rolling.intdigest())
        self.ends.append(total)

    def ends_at(self, max_bytes: int) -> bool:
        """Return whether the chain is larger than *max_bytes*; it is marked as truncated then."""
        self.truncated = self.total_bytes > max_bytes
        return self.truncated


_ANSWER_TYPES: Final = frozenset({"function_call", "reasoning", "custom_tool_call"})
_SYSTEM_ROLES: Final = ("system", "developer")


def build(
    body: Mapping[str, Any],
    items: Sequence[object],
    *,
    seed: int,
    max_bytes: int,
    opening: str = "",
    beginnings: Beginnings | None = None,
) -> Chain:
    """Return the chain of one request.

    Args:
        body: the request body; ``tools``, ``system`` or ``instructions`` are read from it.
        items: its messages or Responses items, in order.
        seed: secret seed of the in-memory hash, equal in all workers that share state.
        max_bytes: size cut-off; a larger prompt gives a chain marked ``truncated`` that ends there.
        opening: what the person said first. Its digest is of the text, not of the message: harnesses add and
            drop injected parts beside it from call to call.
        beginnings: conversations digested before with this seed and size; this one is added to them. The
            chain is the same with and without them.
    """
    chain = Chain(first_user_digest=text_digest(opening, seed))
    rolling = xxhash.xxh3_64(seed=seed)
    tools = body.get("tools")
    if isinstance(tools, list) and tools:
        raw, slow = tools_bytes(tools)
        chain.fallbacks += slow
        chain.tools_digest = xxhash.xxh3_64_intdigest(raw, seed=seed)
        chain.tools_bytes, chain.tool_count = len(raw), len(tools)
        chain.append(rolling, raw)
    system = body.get("system", body.get("instructions"))
    if system:
        raw, slow = serialise(canonical_system(system))
        chain.fallbacks += slow
        chain.system_digest = xxhash.xxh3_64_intdigest(raw, seed=seed)
        chain.append(rolling, raw)
    chain.body_start = chain.tail_start = len(chain.digests)
    start = 0
    if not system:
        while start < len(items) and _role_of(items[start]) in _SYSTEM_ROLES and not chain.ends_at(max_bytes):
            raw = _append_item(chain, rolling, items[start])
            chain.system_digest = xxhash.xxh3_64_intdigest(raw, seed=chain.system_digest or seed)
            chain.body_start = chain.tail_start = len(chain.digests)
            start += 1
    if beginnings is not None and chain.total_bytes <= max_bytes:
        conversation, found = beginnings.find(chain, items, start)
        if conversation is not None:
            settled = start + conversation.settled
            if found is not None:
                rolling = found.hand_over(chain)
                start += found.count
            if beginnings.has_grown(conversation, found):
                _append_items(chain, rolling, items[start:settled], max_bytes)
                beginnings.keep(conversation, chain, rolling)
                start = settled
    _append_items(chain, rolling, items[start:], max_bytes)
    return chain


def _append_items(chain: Chain, rolling: xxhash.xxh3_64, items: Sequence[object], max_bytes: int) -> None:
    """Append *items* up to the size cut-off and note where the model's answers are among them."""
    for item in items[_append_plain(chain, rolling, items, max_bytes) :]:
        if chain.ends_at(max_bytes):
            break
        _append_item(chain, rolling, item)
        kind = item.get("type") if isinstance(item, dict) else None
        if _role_of(item) == "assistant" or (type(kind) is str and kind in _ANSWER_TYPES):
            chain.tail_start = len(chain.digests)
            chain.answers += 1


def _role_of(item: object) -> object:
    return item.get("role") if isinstance(item, dict) else None


def _append_item(chain: Chain, rolling: xxhash.xxh3_64, item: object) -> bytes:
    """Append any item in its canonical form; return its bytes."""
    raw, slow = serialise(canonical_message(item))
    chain.fallbacks += slow
    if not isinstance(item, (dict, list, str)):
        raw += b"\n"  # a number does not end itself
    chain.append(rolling, raw)
    return raw


def _append_plain(chain: Chain, rolling: xxhash.xxh3_64, items: Sequence[Any], max_bytes: int) -> int:
    """Append *items* when all of them are messages of text alone, which are canonical as they are.

    They are most of most requests and come by the hundred, so the loop holds no call that it can do without.

    Returns:
        How many were appended: fewer than all when one of them needs another form or the size is reached.
    """
    if not is_plain(items) or chain.total_bytes > max_bytes:
        return 0
    update, intdigest = rolling.update, rolling.intdigest
    push_digest, push_end = chain.digests.append, chain.ends.append
    total, before = chain.total_bytes, len(chain.digests)
    try:
        for raw in map(orjson.dumps, items):
            update(raw)
            total += len(raw)
            push_digest(intdigest())
            push_end(total)
            if total > max_bytes:
                break
    except (TypeError, ValueError, RecursionError):
        pass  # the one that comes next is left to the caller
    done = len(chain.digests) - before
    roles = [item.get("role") for item in items[:done]]
    if answers := roles.count("assistant"):
        roles.reverse()
        chain.tail_start = len(chain.digests) - roles.index("assistant")
        chain.answers += answers
    return done


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
