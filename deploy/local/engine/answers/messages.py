"""Answers of Anthropic's messages API: ``input_tokens`` leaves cache reads and writes out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from deploy.local.engine.answers.base import Answer, Counts, Event


class MessagesAnswer(Answer):
    """One message."""

    prefix = "msg_"
    tool_prefix = "toolu_"

    @property
    def stop(self) -> str:
        """The stop reason."""
        if self.tool:
            return "tool_use"
        return "max_tokens" if self.cut else "end_turn"

    @staticmethod
    def usage(counts: Counts) -> dict[str, Any]:
        """Return usage; without details there are no cache fields and the input is the total."""
        if not counts.details:
            return {"input_tokens": counts.input, "output_tokens": counts.output}
        return {
            "input_tokens": counts.input - counts.cached - counts.written,
            "cache_read_input_tokens": counts.cached,
            "cache_creation_input_tokens": counts.written,
            "output_tokens": counts.output,
        }

    def _envelope(self, content: list[Any], stop: str | None, usage: dict[str, Any]) -> dict[str, Any]:
        return {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": content,
            "stop_reason": stop,
            "stop_sequence": None,
            "usage": usage,
        }

    def _tool_use(self, arguments: str) -> dict[str, Any]:
        return {"type": "tool_use", "id": self.tool_id, "name": self.tool, "input": json.loads(arguments)}

    def body(self, counts: Counts) -> dict[str, Any]:
        """Return the whole answer; the API knows no empty text blocks."""
        content: list[Any] = []
        if self.text_tokens:
            content.append({"type": "text", "text": self.text()})
        if self.tool:
            content.append(self._tool_use(self.arguments))
        return self._envelope(content, self.stop, self.usage(counts))

    def opening(self, counts: Counts) -> Iterator[Event]:
        """Yield message_start, the first content block and a ping."""
        usage = {**self.usage(counts), "output_tokens": 1}
        yield "message_start", {"type": "message_start", "message": self._envelope([], None, usage)}
        if self.text_tokens:
            yield self._block(0, {"type": "text", "text": ""})
        yield "ping", {"type": "ping"}

    def delta(self, start: int, end: int) -> Iterator[Event]:
        """Yield the text of tokens *start* to *end*."""
        if text := self.text(start, end):
            yield self._part(0, {"type": "text_delta", "text": text})

    def closing(self, counts: Counts, include_usage: bool) -> Iterator[Event]:
        """Yield the end of the text, the tool block, the final usage and message_stop."""
        index = 0
        if self.text_tokens:
            yield self._end(index)
            index += 1
        if self.tool:
            yield self._block(index, self._tool_use("{}"))
            yield self._part(index, {"type": "input_json_delta", "partial_json": ""})
            yield self._part(index, {"type": "input_json_delta", "partial_json": self.arguments})
            yield self._end(index)
        end = {"stop_reason": self.stop, "stop_sequence": None}
        yield "message_delta", {"type": "message_delta", "delta": end, "usage": self.usage(counts)}
        yield "message_stop", {"type": "message_stop"}

    @staticmethod
    def _block(index: int, block: dict[str, Any]) -> Event:
        kind = "content_block_start"
        return kind, {"type": kind, "index": index, "content_block": block}

    @staticmethod
    def _part(index: int, delta: dict[str, Any]) -> Event:
        kind = "content_block_delta"
        return kind, {"type": kind, "index": index, "delta": delta}

    @staticmethod
    def _end(index: int) -> Event:
        kind = "content_block_stop"
        return kind, {"type": kind, "index": index}
