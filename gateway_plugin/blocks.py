"""The blocks of a conversation: everything that a client adds between two answers of the model is one block.

The three API shapes (chat, Anthropic messages, Responses items) are read as one sequence of blocks. Readings
are kept (:class:`Readings`), so that a call that extends one seen before costs what it adds. A reading that
is kept holds counts and digests, no text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import xxhash

from gateway_plugin.prefix import Chain
from gateway_plugin.recent import Recent
from gateway_plugin.text import is_mapping
from gateway_plugin.wording import is_continuation, is_injected

#: Text longer than this is not searched for injections beyond its head and tail.
_SCAN_CHARS: Final = 20_000
#: Readings kept per worker (about 1 KB each), and how many messages a call may have added to one.
_READINGS_MAX: Final = 4_000
_ADDED_MAX: Final = 24


@dataclass(slots=True)
class Block:
    """What a client added between two answers of the model."""

    has_tool_result: bool = False
    injected_only: bool = True
    texts: list[str] = field(default_factory=list)

    @property
    def user_initiated(self) -> bool:
        """Whether a human's text starts a turn here: no tool result, and not only what a harness injected."""
        return not self.has_tool_result and not self.injected_only

    @property
    def text(self) -> str:
        """Its human texts."""
        return "\x00".join(self.texts)


#: The block of nearly every step of an agent: tool results, no text. One for all of them; what goes on behind
#: the results makes a block of its own out of it.
_RESULTS: Final = Block(has_tool_result=True)


def texts_of(content: object) -> Iterator[str]:
    """Yield the texts of a message's content."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for part in content:
            if isinstance(part, str):
                yield part
            elif is_mapping(part):
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
        kind = part.get("type") if is_mapping(part) else None
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


@dataclass(frozen=True, slots=True)
class Opening:
    """The first user-initiated block: whether it is the summary of a compaction, and holds text behind it."""

    continued: bool
    typed: bool

    @classmethod
    def of(cls, block: Block) -> Opening:
        """Read *block*. What was typed next, when no answer lies between, stands behind the summary in it.

        (Some clients repeat earlier prompts in front of the summary; those are old.)
        """
        if not is_continuation(block.text):
            return cls(continued=False, typed=True)
        texts = block.texts
        summary = max((i for i, text in enumerate(texts) if is_continuation(text)), default=len(texts))
        return cls(continued=True, typed=bool(texts[summary + 1 :]))


@dataclass(slots=True)
class Reading:
    """A conversation read so far: its newest block, and sums over the blocks before that one.

    ``users`` user-initiated blocks, ``after`` blocks behind the last of them, ``fold`` a fast hash over their
    texts, and ``opening`` the first of them. ``open`` says that no answer has followed the newest block, so
    that it may still grow.
    """

    users: int = 0
    after: int = 0
    fold: xxhash.xxh3_128 = field(default_factory=xxhash.xxh3_128)
    opening: Opening | None = None
    newest: Block | None = None
    open: bool = False

    @property
    def ends_with_user(self) -> bool:
        """Whether the newest block starts a turn."""
        return self.newest is not None and self.newest.user_initiated

    def first(self) -> Opening | None:
        """Return the first user-initiated block, the newest included; None without any."""
        if self.opening is None and self.newest is not None and self.newest.user_initiated:
            return Opening.of(self.newest)
        return self.opening

    def folded(self, *, with_newest: bool) -> bytes:
        """Fold the human texts into 16 bytes; the caller's keyed hash makes an id of it."""
        if not with_newest or self.newest is None or not self.newest.user_initiated:
            return self.fold.digest()
        fold = self.fold.copy()
        _add(fold, self.newest)
        return fold.digest()

    def begin(self, block: Block) -> None:
        """Take *block* as the newest; the one before it is complete."""
        before, self.newest = self.newest, block
        if before is None:
            return
        if not before.user_initiated:
            self.after += 1
            return
        if self.opening is None:
            self.opening = Opening.of(before)
        self.users += 1
        self.after = 0
        _add(self.fold, before)

    def kept(self) -> Reading | None:
        """Return what may be kept of the reading; None while its newest block holds text."""
        newest = self.newest
        if newest is None or newest.texts or newest.user_initiated:
            return None
        if newest.has_tool_result:
            newest = _RESULTS
        elif self.open:
            return None  # an injected text that the next message may stand beside
        return Reading(self.users, self.after, self.fold, self.opening, newest, self.open)

    def resumed(self) -> Reading:
        """Return a reading that goes on from this one."""
        return Reading(self.users, self.after, self.fold.copy(), self.opening, self.newest, self.open)


def _add(fold: xxhash.xxh3_128, block: Block) -> None:
    for text in block.texts:
        raw = text.encode("utf-8", "surrogatepass")
        fold.update(len(raw).to_bytes(8, "little"))
        fold.update(raw)
    fold.update(b"\x00block")


def read(items: Sequence[Any], reading: Reading | None = None) -> Reading:
    """Read *items*, on from *reading*, which is changed and returned."""
    reading = Reading() if reading is None else reading
    current = reading.newest if reading.open else None
    for item in items:
        # Runs for every message of every request: the common roles are settled first.
        if not isinstance(item, dict) and not is_mapping(item):
            continue
        role = item.get("role")
        if role == "assistant":
            current = None
            continue
        if role == "tool" or role == "function":
            if current is None:
                current = _RESULTS
                reading.begin(current)
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
            current = Block()
            reading.begin(current)
        elif current is _RESULTS:
            current = reading.newest = Block(has_tool_result=True)
        content = item.get("content")
        if kind in _RESULT_ITEMS or _has_part(content, _TOOL_RESULT):
            current.has_tool_result = True
        elif _has_part(content, _NON_TEXT):
            current.injected_only = False
        if role == "user":
            for text in texts_of(content):
                if not is_injected(text):
                    current.injected_only = False
                    current.texts.append(text if len(text) <= _SCAN_CHARS else _abridged(text))
    reading.open = current is not None
    return reading


def _abridged(text: str) -> str:
    return f"{text[:_SCAN_CHARS]}\x00{len(text)}"


class Readings:
    """Bounded memory of readings, by the digest of all that they have read. Used on the event loop only."""

    def __init__(self, max_readings: int = _READINGS_MAX) -> None:
        self._known: Recent[int, Reading] = Recent(max_readings)

    def __len__(self) -> int:
        return len(self._known)

    def read(self, items: Sequence[Any], chain: Chain) -> Reading:
        """Read *items*, whose prompt is *chain*: on from the latest reading that they extend, if any."""
        before = len(chain.digests) - len(items)  # segments of tools and system prompt
        if chain.truncated or before < 0 or not items:
            return read(items)
        for position in range(len(items), max(0, len(items) - _ADDED_MAX), -1):
            if (known := self._known.get(chain.digests[before + position - 1])) is not None:
                reading = read(items[position:], known.resumed())
                break
        else:
            reading = read(items)
        if (kept := reading.kept()) is not None:
            self._known.put(chain.digests[-1], kept)
        return reading


def items_of(body: Mapping[str, Any]) -> list[Any]:
    """Return the conversation of a request: ``messages``, or Responses ``input`` (text is one user item)."""
    messages = body.get("messages")
    if isinstance(messages, list):
        return messages
    value = body.get("input")
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    return value if isinstance(value, list) else []


def first_human_text(items: Sequence[Any]) -> str:
    """Return the first text of a conversation that a human (or a parent agent) wrote, injections left out.

    Read only up to the first answer of the model, so it is the same for every call of a conversation.
    """
    for item in items:
        if not is_mapping(item):
            continue
        kind = item.get("type")
        if item.get("role") == "assistant" or (isinstance(kind, str) and kind in _MODEL_ITEMS):
            break
        if item.get("role") == "user":
            for text in texts_of(item.get("content")):
                if not is_injected(text):
                    return text
    return ""
