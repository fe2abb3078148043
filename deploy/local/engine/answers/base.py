"""What the answers of all APIs share.

The content is filler of one-token words, so the number of text tokens is exact. An answer to a request that
offers tools ends in a tool call, which stands for :data:`TOOL_CALL_TOKENS` tokens whatever the tool's name.
"""

from __future__ import annotations

import json
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final

#: Output tokens that a tool call takes; a shorter answer calls no tool.
TOOL_CALL_TOKENS: Final = 8

#: Name of a server-sent event (None where the API names none) and its data.
Event = tuple[str | None, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Counts:
    """Tokens of one answer.

    ``input`` includes ``cached`` (found in the cache) and ``written`` (computed and put into it); ``details``
    is False when the engine does not report either.
    """

    input: int
    cached: int
    output: int
    written: int
    details: bool


class Filler:
    """Deterministic text of exactly *n* tokens from words that are one token each."""

    def __init__(self, words: list[str]) -> None:
        """*words* are one token each with a leading space.

        Raises:
            ValueError: there are none.
        """
        if not words:
            raise ValueError("the tokenizer has no one-token words")
        self._words = words

    def text(self, start: int, end: int) -> str:
        """Return the tokens from *start* to *end* of the endless filler."""
        return "".join(" " + self._words[i % len(self._words)] for i in range(start, end))


class Answer(ABC):
    """One answer of one route: its ids, how much of it is text, and the tool call at its end.

    ``cut`` tells that the client's own limit ends the text, not the model.
    """

    prefix: ClassVar[str]
    tool_prefix: ClassVar[str] = "call_"

    def __init__(
        self, model: str, output_tokens: int, tool: str | None, filler: Filler, *, limited: bool
    ) -> None:
        self.model = model
        self.id = f"{self.prefix}{uuid.uuid4().hex}"
        self.created = int(time.time())
        self.tool = tool if output_tokens >= TOOL_CALL_TOKENS else None
        self.cut = limited and self.tool is None
        self.tool_id = f"{self.tool_prefix}{uuid.uuid4().hex[:24]}"
        self.text_tokens = output_tokens - TOOL_CALL_TOKENS if self.tool else output_tokens
        self.arguments = json.dumps({"command": "true"})
        self._filler = filler

    def text(self, start: int = 0, end: int | None = None) -> str:
        """Return the text of the answer's tokens *start* to *end*, the tool call left out."""
        return self._filler.text(start, min(self.text_tokens, self.text_tokens if end is None else end))

    @abstractmethod
    def body(self, counts: Counts) -> dict[str, Any]:
        """Return the whole answer."""

    @abstractmethod
    def opening(self, counts: Counts) -> Iterator[Event]:
        """Yield what comes with the first token."""

    @abstractmethod
    def delta(self, start: int, end: int) -> Iterator[Event]:
        """Yield the text of tokens *start* to *end*."""

    @abstractmethod
    def closing(self, counts: Counts, include_usage: bool) -> Iterator[Event]:
        """Yield the end of the text, the tool call, the reason of the end, and the usage."""
