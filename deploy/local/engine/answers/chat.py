"""Answers of OpenAI's chat completions, with vLLM's usage details."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from deploy.local.engine.answers.base import Answer, Counts, Event


class ChatAnswer(Answer):
    """One chat completion."""

    prefix = "chatcmpl-"

    @property
    def finish(self) -> str:
        """The finish reason."""
        if self.tool:
            return "tool_calls"
        return "length" if self.cut else "stop"

    @staticmethod
    def usage(counts: Counts) -> dict[str, Any]:
        """Return usage; without details the field is null, as vLLM leaves it."""
        details = (
            {"cached_tokens": counts.cached, "created_cache_tokens": counts.written}
            if counts.details
            else None
        )
        return {
            "prompt_tokens": counts.input,
            "completion_tokens": counts.output,
            "total_tokens": counts.input + counts.output,
            "prompt_tokens_details": details,
        }

    def _call(self, arguments: str) -> dict[str, Any]:
        return {
            "id": self.tool_id,
            "type": "function",
            "function": {"name": self.tool, "arguments": arguments},
        }

    def body(self, counts: Counts) -> dict[str, Any]:
        """Return the whole answer; its content is null when there is nothing but a tool call."""
        message: dict[str, Any] = {"role": "assistant", "content": self.text() or None}
        if self.tool:
            message["tool_calls"] = [self._call(self.arguments)]
        return {
            "id": self.id,
            "object": "chat.completion",
            "created": self.created,
            "model": self.model,
            "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": self.finish}],
            "usage": self.usage(counts),
        }

    def _chunk(self, delta: dict[str, Any] | None, finish: str | None = None) -> dict[str, Any]:
        choices = (
            [] if delta is None else [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]
        )
        return {
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": self.created,
            "model": self.model,
            "choices": choices,
        }

    def opening(self, counts: Counts) -> Iterator[Event]:
        """Yield the role."""
        yield None, self._chunk({"role": "assistant", "content": ""})

    def delta(self, start: int, end: int) -> Iterator[Event]:
        """Yield the text of tokens *start* to *end*."""
        if text := self.text(start, end):
            yield None, self._chunk({"content": text})

    def closing(self, counts: Counts, include_usage: bool) -> Iterator[Event]:
        """Yield the tool call (name first, then arguments), the finish reason and, when asked, the usage."""
        if self.tool:
            yield None, self._chunk({"tool_calls": [{"index": 0, **self._call("")}]})
            more = {"index": 0, "function": {"arguments": self.arguments}}
            yield None, self._chunk({"tool_calls": [more]})
        yield None, self._chunk({}, self.finish)
        if include_usage:
            yield None, {**self._chunk(None), "usage": self.usage(counts)}
