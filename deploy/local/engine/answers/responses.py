"""Answers of OpenAI's responses API."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

from deploy.local.engine.answers.base import Answer, Counts, Event, Filler


class ResponsesAnswer(Answer):
    """One response; text and tool call are items of its output."""

    prefix = "resp_"

    def __init__(
        self, model: str, output_tokens: int, tool: str | None, filler: Filler, *, limited: bool
    ) -> None:
        super().__init__(model, output_tokens, tool, filler, limited=limited)
        self.message_id = f"msg_{uuid.uuid4().hex[:24]}"
        self.call_item_id = f"fc_{uuid.uuid4().hex[:24]}"
        self.status = "incomplete" if self.cut else "completed"
        self._sequence = 0

    @staticmethod
    def usage(counts: Counts) -> dict[str, Any]:
        """Return usage; vLLM reports cached tokens on this route whatever the switch says."""
        return {
            "input_tokens": counts.input,
            "input_tokens_details": {
                "cached_tokens": counts.cached,
                "cache_write_tokens": counts.written,
            },
            "output_tokens": counts.output,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": counts.input + counts.output,
        }

    def _message(self, status: str, text: str | None) -> dict[str, Any]:
        content = [] if text is None else [{"type": "output_text", "text": text, "annotations": []}]
        return {
            "type": "message",
            "id": self.message_id,
            "role": "assistant",
            "status": status,
            "content": content,
        }

    def _function(self, status: str, arguments: str) -> dict[str, Any]:
        return {
            "type": "function_call",
            "id": self.call_item_id,
            "call_id": self.tool_id,
            "name": self.tool,
            "arguments": arguments,
            "status": status,
        }

    def _response(self, status: str, output: list[Any], usage: dict[str, Any] | None) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "model": self.model,
            "output": output,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "temperature": 1.0,
            "top_p": 1.0,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "instructions": None,
            "metadata": {},
            "usage": usage,
        }

    def _output(self) -> list[Any]:
        output = []
        if self.text_tokens:
            output.append(self._message(self.status, self.text()))
        if self.tool:
            output.append(self._function("completed", self.arguments))
        return output

    def body(self, counts: Counts) -> dict[str, Any]:
        """Return the whole answer."""
        return self._response(self.status, self._output(), self.usage(counts))

    def _event(self, kind: str, **fields: Any) -> Event:
        number = self._sequence
        self._sequence += 1
        return kind, {"type": kind, "sequence_number": number, **fields}

    @property
    def _place(self) -> dict[str, Any]:
        return {"item_id": self.message_id, "output_index": 0, "content_index": 0}

    def opening(self, counts: Counts) -> Iterator[Event]:
        """Yield the response's creation and its first text part."""
        started = self._response("in_progress", [], None)
        yield self._event("response.created", response=started)
        yield self._event("response.in_progress", response=started)
        if self.text_tokens:
            item = self._message("in_progress", None)
            yield self._event("response.output_item.added", output_index=0, item=item)
            part = {"type": "output_text", "text": "", "annotations": []}
            yield self._event("response.content_part.added", **self._place, part=part)

    def delta(self, start: int, end: int) -> Iterator[Event]:
        """Yield the text of tokens *start* to *end*."""
        if text := self.text(start, end):
            yield self._event("response.output_text.delta", **self._place, delta=text, logprobs=[])

    def closing(self, counts: Counts, include_usage: bool) -> Iterator[Event]:
        """Yield the end of the text, the function call, and the whole response with its usage."""
        index = 0
        if self.text_tokens:
            text = self.text()
            yield self._event("response.output_text.done", **self._place, text=text, logprobs=[])
            part = {"type": "output_text", "text": text, "annotations": []}
            yield self._event("response.content_part.done", **self._place, part=part)
            item = self._message(self.status, text)
            yield self._event("response.output_item.done", output_index=index, item=item)
            index += 1
        if self.tool:
            where = {"item_id": self.call_item_id, "output_index": index}
            begun, done = self._function("in_progress", ""), self._function("completed", self.arguments)
            yield self._event("response.output_item.added", output_index=index, item=begun)
            yield self._event("response.function_call_arguments.delta", **where, delta=self.arguments)
            yield self._event(
                "response.function_call_arguments.done", **where, name=self.tool, arguments=self.arguments
            )
            yield self._event("response.output_item.done", output_index=index, item=done)
        whole = self._response(self.status, self._output(), self.usage(counts))
        yield self._event(f"response.{self.status}", response=whole)
