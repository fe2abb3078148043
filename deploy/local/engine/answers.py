"""Answers in the shape of each API: one body, or a faithful sequence of server-sent events.

The content is filler of one-token words, so the number of tokens is exact; an answer to a request that offers
tools ends in a call of the first one. Each class renders one answer of one route.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

#: Output tokens that a tool call takes; a shorter answer calls no tool.
TOOL_CALL_TOKENS: Final = 8

Event = tuple[str | None, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Counts:
    """Tokens of one answer; ``details`` is False when the engine does not report cached tokens."""

    input: int
    cached: int
    output: int
    written: int
    details: bool


class Filler:
    """Deterministic text of exactly *n* tokens from words that are one token each."""

    def __init__(self, words: list[str]) -> None:
        if not words:
            raise ValueError("the tokenizer has no one-token words")
        self._words = words

    def text(self, start: int, end: int) -> str:
        """Return the tokens from *start* to *end* of the endless filler."""
        return "".join(" " + self._words[i % len(self._words)] for i in range(start, end))


class Answer:
    """Common part: ids, how much of the output is text, and the tool call at the end."""

    prefix = ""

    def __init__(self, model: str, output_tokens: int, tool: str | None, filler: Filler) -> None:
        self.model = model
        self.id = f"{self.prefix}{uuid.uuid4().hex}"
        self.created = int(time.time())
        self.tool = tool if output_tokens >= TOOL_CALL_TOKENS else None
        self.text_tokens = output_tokens - TOOL_CALL_TOKENS if self.tool else output_tokens
        self.arguments = json.dumps({"command": "true"})
        self._filler = filler

    def text(self, start: int = 0, end: int | None = None) -> str:
        """Return the text of the answer's tokens *start* to *end*, the tool call left out."""
        return self._filler.text(start, min(self.text_tokens, self.text_tokens if end is None else end))


class ChatAnswer(Answer):
    """OpenAI chat completions, with vLLM's usage details."""

    prefix = "chatcmpl-"

    def __init__(self, model: str, output_tokens: int, tool: str | None, filler: Filler) -> None:
        super().__init__(model, output_tokens, tool, filler)
        self.tool_id = f"call_{uuid.uuid4().hex[:24]}"
        self.finish = "tool_calls" if self.tool else "stop"

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

    def _call(self) -> dict[str, Any]:
        return {
            "id": self.tool_id,
            "type": "function",
            "function": {"name": self.tool, "arguments": self.arguments},
        }

    def body(self, counts: Counts) -> dict[str, Any]:
        """Return the whole answer."""
        message: dict[str, Any] = {"role": "assistant", "content": self.text()}
        if self.tool:
            message["tool_calls"] = [self._call()]
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
        """Yield what comes with the first token."""
        yield None, self._chunk({"role": "assistant", "content": ""})

    def delta(self, start: int, end: int) -> Iterator[Event]:
        """Yield the text of tokens *start* to *end*."""
        if text := self.text(start, end):
            yield None, self._chunk({"content": text})

    def closing(self, counts: Counts, include_usage: bool) -> Iterator[Event]:
        """Yield the tool call, the finish reason and, when asked for, the usage."""
        if self.tool:
            yield None, self._chunk({"tool_calls": [{"index": 0, **self._call()}]})
        yield None, self._chunk({}, self.finish)
        if include_usage:
            yield None, {**self._chunk(None), "usage": self.usage(counts)}


class MessagesAnswer(Answer):
    """Anthropic messages: ``input_tokens`` leaves cache reads and writes out."""

    prefix = "msg_"

    def __init__(self, model: str, output_tokens: int, tool: str | None, filler: Filler) -> None:
        super().__init__(model, output_tokens, tool, filler)
        self.tool_id = f"toolu_{uuid.uuid4().hex[:24]}"
        self.stop = "tool_use" if self.tool else "end_turn"

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

    def body(self, counts: Counts) -> dict[str, Any]:
        """Return the whole answer."""
        content: list[Any] = [{"type": "text", "text": self.text()}]
        if self.tool:
            content.append(
                {
                    "type": "tool_use",
                    "id": self.tool_id,
                    "name": self.tool,
                    "input": json.loads(self.arguments),
                }
            )
        return self._envelope(content, self.stop, self.usage(counts))

    def opening(self, counts: Counts) -> Iterator[Event]:
        """Yield message_start and the first content block."""
        usage = {**self.usage(counts), "output_tokens": 1}
        yield "message_start", {"type": "message_start", "message": self._envelope([], None, usage)}
        block = {"type": "text", "text": ""}
        yield "content_block_start", {"type": "content_block_start", "index": 0, "content_block": block}

    def delta(self, start: int, end: int) -> Iterator[Event]:
        """Yield the text of tokens *start* to *end*."""
        if text := self.text(start, end):
            part = {"type": "text_delta", "text": text}
            yield "content_block_delta", {"type": "content_block_delta", "index": 0, "delta": part}

    def closing(self, counts: Counts, include_usage: bool) -> Iterator[Event]:
        """Yield the end of the text, the tool block, the final usage and message_stop."""
        yield "content_block_stop", {"type": "content_block_stop", "index": 0}
        if self.tool:
            block = {"type": "tool_use", "id": self.tool_id, "name": self.tool, "input": {}}
            yield "content_block_start", {"type": "content_block_start", "index": 1, "content_block": block}
            part = {"type": "input_json_delta", "partial_json": self.arguments}
            yield "content_block_delta", {"type": "content_block_delta", "index": 1, "delta": part}
            yield "content_block_stop", {"type": "content_block_stop", "index": 1}
        end = {"stop_reason": self.stop, "stop_sequence": None}
        yield "message_delta", {"type": "message_delta", "delta": end, "usage": self.usage(counts)}
        yield "message_stop", {"type": "message_stop"}


class ResponsesAnswer(Answer):
    """OpenAI responses."""

    prefix = "resp_"

    def __init__(self, model: str, output_tokens: int, tool: str | None, filler: Filler) -> None:
        super().__init__(model, output_tokens, tool, filler)
        self.tool_id = f"call_{uuid.uuid4().hex[:24]}"
        self.message_id = f"msg_{uuid.uuid4().hex[:24]}"
        self.call_item_id = f"fc_{uuid.uuid4().hex[:24]}"
        self._sequence = 0

    @staticmethod
    def usage(counts: Counts) -> dict[str, Any]:
        """Return usage; vLLM reports cached tokens on this route whatever the switch says."""
        return {
            "input_tokens": counts.input,
            "input_tokens_details": {"cached_tokens": counts.cached},
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
            "incomplete_details": None,
            "instructions": None,
            "metadata": {},
            "usage": usage,
        }

    def _output(self) -> list[Any]:
        output = [self._message("completed", self.text())]
        if self.tool:
            output.append(self._function("completed", self.arguments))
        return output

    def body(self, counts: Counts) -> dict[str, Any]:
        """Return the whole answer."""
        return self._response("completed", self._output(), self.usage(counts))

    def _event(self, kind: str, **fields: Any) -> Event:
        number = self._sequence
        self._sequence += 1
        return kind, {"type": kind, "sequence_number": number, **fields}

    def opening(self, counts: Counts) -> Iterator[Event]:
        """Yield the response's creation and its first text part."""
        started = self._response("in_progress", [], None)
        yield self._event("response.created", response=started)
        yield self._event("response.in_progress", response=started)
        yield self._event(
            "response.output_item.added", output_index=0, item=self._message("in_progress", None)
        )
        part = {"type": "output_text", "text": "", "annotations": []}
        yield self._event(
            "response.content_part.added", item_id=self.message_id, output_index=0, content_index=0, part=part
        )

    def delta(self, start: int, end: int) -> Iterator[Event]:
        """Yield the text of tokens *start* to *end*."""
        if text := self.text(start, end):
            yield self._event(
                "response.output_text.delta",
                item_id=self.message_id,
                output_index=0,
                content_index=0,
                delta=text,
            )

    def closing(self, counts: Counts, include_usage: bool) -> Iterator[Event]:
        """Yield the end of the text, the function call, and the completed response with its usage."""
        place = {"item_id": self.message_id, "output_index": 0, "content_index": 0}
        text = self.text()
        yield self._event("response.output_text.done", **place, text=text)
        part = {"type": "output_text", "text": text, "annotations": []}
        yield self._event("response.content_part.done", **place, part=part)
        yield self._event("response.output_item.done", output_index=0, item=self._message("completed", text))
        if self.tool:
            where = {"item_id": self.call_item_id, "output_index": 1}
            yield self._event(
                "response.output_item.added", output_index=1, item=self._function("in_progress", "")
            )
            yield self._event("response.function_call_arguments.delta", **where, delta=self.arguments)
            yield self._event("response.function_call_arguments.done", **where, arguments=self.arguments)
            done = self._function("completed", self.arguments)
            yield self._event("response.output_item.done", output_index=1, item=done)
        yield self._event(
            "response.completed", response=self._response("completed", self._output(), self.usage(counts))
        )


ANSWERS: Final[dict[str, type[ChatAnswer] | type[MessagesAnswer] | type[ResponsesAnswer]]] = {
    "chat": ChatAnswer,
    "messages": MessagesAnswer,
    "responses": ResponsesAnswer,
}
