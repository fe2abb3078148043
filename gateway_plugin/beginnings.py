"""Conversations digested before: a prompt that repeats one takes its digests over, and adds what is new.

To digest a message is to serialise and hash it by itself, which for the hundreds of messages of an agent's
call is most of what the plugin costs. A call repeats the one before it almost always, and *that* many
messages serialise and hash together at a third of the price. So the digest of a conversation's JSON up to
shortly before its end is kept with its chain, and a later prompt whose own JSON up to there has the same
digest has the same chain up to there.

The last messages are left out of what is kept: clients move cache markers over them from call to call. Kept
are digests and sizes, no text.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import orjson
import xxhash

#: Messages at the end of a prompt that the next call may show otherwise.
_UNSETTLED: Final = 4
#: Shorter conversations are digested as they come.
_MIN_MESSAGES: Final = 16
#: Messages that tell one conversation from others of the same system prompt.
_TELLING: Final = 2
#: Messages serialised at a time, at most, and their bytes, about: more than that leave the processor's cache.
_AT_ONCE: Final = 32
_BYTES_AT_ONCE: Final = 1 << 16
#: Prompts above this size are digested as they come: to read one twice would hold up the event loop.
_PROMPT_BYTES: Final = 2 << 20
#: Messages that a conversation grows by before its beginning is kept anew.
_GROWN: Final = 8
#: Branches of one conversation that are kept, and conversations.
_BRANCHES: Final = 3
_CONVERSATIONS: Final = 2_000
#: Approximate memory of a branch beside its chain, bytes.
_BRANCH_BYTES: Final = 1_200


class Digested(Protocol):
    """What is needed of a chain (see :class:`gateway_plugin.prefix.Chain`)."""

    digests: array[int]
    ends: array[int]
    tail_start: int
    answers: int
    truncated: bool
    fallbacks: int

    @property
    def nbytes(self) -> int:
        """Approximate memory, bytes."""
        ...


@dataclass(slots=True, eq=False)
class Beginning:
    """The first *count* messages of a conversation: the digest of their JSON, and where they lead."""

    count: int
    text: int
    chain: Digested
    segments: int
    tail_start: int
    answers: int
    rolling: xxhash.xxh3_64

    def hand_over(self, chain: Digested) -> xxhash.xxh3_64:
        """Give *chain* the digests of these messages; return the rolling hash to go on with."""
        chain.digests = self.chain.digests[: self.segments]
        chain.ends = self.chain.ends[: self.segments]
        chain.tail_start, chain.answers = self.tail_start, self.answers
        return self.rolling.copy()


class Conversation:
    """The messages of one prompt, read as far as they are settled."""

    __slots__ = ("_items", "_position", "_read", "_start", "_text", "key", "settled")

    def __init__(self, chain: Digested, items: Sequence[Any], start: int, seed: int) -> None:
        """Read what tells the conversation, the messages from *start* on behind the segments of *chain*.

        Raises:
            TypeError, ValueError, RecursionError: a message is no plain JSON, or they are too large.
        """
        self._items, self._start, self._position, self._read = items, start, start, 0
        self._text = xxhash.xxh3_128(seed=seed)
        #: Messages that are settled, counted like those of a :class:`Beginning`.
        self.settled = len(items) - start - _UNSETTLED
        last = chain.digests[-1] if chain.digests else 0
        self.key = (len(chain.digests), last, self.digest(_TELLING))

    def digest(self, count: int) -> int:
        """Return the digest of the JSON of the first *count* messages, which only grow from call to call.

        Raises:
            TypeError, ValueError, RecursionError: a message is no plain JSON, or they are too large.
        """
        update, items, end = self._text.update, self._items, self._start + count
        while self._position < end:
            done = self._position - self._start
            # At the size of those so far; the first are read one by one, for a file may be in them.
            some = min(_AT_ONCE, _BYTES_AT_ONCE * done // (self._read + 1) or 1)
            stop = min(self._position + some, end)
            raw = orjson.dumps(items[self._position : stop])
            update(memoryview(raw)[1:-1])
            update(b",")
            self._position = stop
            self._read += len(raw)
            if self._read > _PROMPT_BYTES:
                raise ValueError("the conversation is too large")
        return self._text.intdigest()


class Beginnings:
    """Bounded memory of conversations by what tells them apart. Used on the event loop only."""

    def __init__(self, max_bytes: int, seed: int) -> None:
        self._known: OrderedDict[tuple[int, int, int], list[Beginning]] = OrderedDict()
        self._max_bytes = max_bytes
        self._seed = seed
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._known)

    @property
    def nbytes(self) -> int:
        """Approximate memory, bytes, with chains that are also kept elsewhere."""
        return self._bytes

    def find(
        self, chain: Digested, items: Sequence[Any], start: int
    ) -> tuple[Conversation | None, Beginning | None]:
        """Return the conversation of *items* from *start* on, and the longest beginning of it that is known.

        None and None for a short one, one that is not plain JSON, and one that is large.
        """
        if len(items) - start < _MIN_MESSAGES:
            return None, None
        found = None
        try:
            conversation = Conversation(chain, items, start, self._seed)
            for known in self._known.get(conversation.key, ()):
                if known.count <= conversation.settled and conversation.digest(known.count) == known.text:
                    found = known
        except (TypeError, ValueError, RecursionError):
            return None, None
        return conversation, found

    @staticmethod
    def has_grown(conversation: Conversation, found: Beginning | None) -> bool:
        """Return whether enough of *conversation* is settled behind what was *found* to keep it anew."""
        return found is None or conversation.settled - found.count >= _GROWN

    def keep(self, conversation: Conversation, chain: Digested, rolling: xxhash.xxh3_64) -> None:
        """Keep what is settled of *conversation*: its digests end *chain*, *rolling* stands behind them."""
        if chain.truncated or chain.fallbacks or chain.ends[-1] > _PROMPT_BYTES:
            return
        count = conversation.settled
        try:
            text = conversation.digest(count)
        except (TypeError, ValueError, RecursionError):
            return
        beginning = Beginning(
            count, text, chain, len(chain.digests), chain.tail_start, chain.answers, rolling.copy()
        )
        known = self._known.pop(conversation.key, ())
        # One that this goes on from is covered by it; they stand in the order of their lengths.
        branches = [b for b in known if not _covers(beginning, b)][-_BRANCHES + 1 :]
        branches.append(beginning)
        if len(branches) > 1:
            branches.sort(key=lambda b: b.count)
        self._known[conversation.key] = branches
        self._bytes += _size(branches) - _size(known)
        while len(self._known) > 1 and (self._bytes > self._max_bytes or len(self._known) > _CONVERSATIONS):
            self._bytes -= _size(self._known.popitem(last=False)[1])


def _size(branches: Sequence[Beginning]) -> int:
    return sum(_BRANCH_BYTES + b.chain.nbytes for b in branches)


def _covers(longer: Beginning, shorter: Beginning) -> bool:
    n = shorter.segments
    return n <= longer.segments and longer.chain.digests[n - 1] == shorter.chain.digests[n - 1]
