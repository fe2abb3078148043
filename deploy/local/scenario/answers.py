"""Answers: what a client takes from a response of one of the three APIs.

A reader sees the bytes of a stream as they arrive and keeps the ids of the tool calls in it, the number of
events that carried generated content, whether the stream came to its proper end, and an error event.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

_RESPONSES_ENDS: Final = frozenset({"response.completed", "response.incomplete"})
_RESPONSES_CONTENT: Final = frozenset(
    {
        "response.output_text.delta",
        "response.function_call_arguments.delta",
        "response.reasoning_text.delta",
        "response.reasoning_summary_text.delta",
    }
)


class AnswerReader:
    """Reads one answer of *route* (``chat``, ``messages`` or ``responses``)."""

    def __init__(self, route: str) -> None:
        self._route = route
        self._rest = b""
        self._ids: dict[str, None] = {}
        self.content_events = 0
        self.finished = False
        self.error: str | None = None

    @property
    def tool_ids(self) -> tuple[str, ...]:
        """Ids of the tool calls of the answer, in order."""
        return tuple(self._ids)

    def feed(self, data: bytes) -> None:
        """Take the next bytes of an event stream; a line may be split anywhere."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                self._data(line[5:].strip())

    def whole(self, data: bytes) -> None:
        """Take a complete answer that is not a stream."""
        try:
            answer = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            self.error = f"the answer is not JSON: {error}"
            return
        if self._route == "chat":
            for choice in answer.get("choices") or ():
                self._add(call.get("id") for call in choice.get("message", {}).get("tool_calls") or ())
            self.finished = bool(answer.get("choices"))
        elif self._route == "messages":
            blocks = answer.get("content") or ()
            self._add(block.get("id") for block in blocks if block.get("type") == "tool_use")
            self.finished = answer.get("type") == "message"
        else:
            items = answer.get("output") or ()
            self._add(item.get("call_id") for item in items if item.get("type") == "function_call")
            self.finished = answer.get("status") in {"completed", "incomplete"}
        if not self.finished:
            self.error = "the answer is not a complete object of its API"

    def _data(self, payload: bytes) -> None:
        if payload == b"[DONE]":
            # Ends a chat stream; some servers end the other streams with it as well, which proves nothing.
            self.finished = self.finished or self._route == "chat"
            return
        try:
            event = orjson.loads(payload)
        except orjson.JSONDecodeError as error:
            self.error = f"an event of the stream is not JSON: {error}"
            return
        if event.get("error") is not None or event.get("type") == "error":
            self.error = f"error event in the stream: {payload[:300].decode(errors='replace')}"
        elif self._route == "chat":
            self._chat(event)
        elif self._route == "messages":
            self._messages(event)
        else:
            self._responses(event)

    def _chat(self, event: dict[str, Any]) -> None:
        for choice in event.get("choices") or ():
            delta = choice.get("delta") or {}
            calls = delta.get("tool_calls") or ()
            self._add(call.get("id") for call in calls)
            if delta.get("content") or delta.get("reasoning_content") or calls:
                self.content_events += 1

    def _messages(self, event: dict[str, Any]) -> None:
        kind = event.get("type")
        if kind == "content_block_start" and event["content_block"].get("type") == "tool_use":
            self._add((event["content_block"].get("id"),))
        elif kind == "content_block_delta":
            self.content_events += 1
        elif kind == "message_stop":
            self.finished = True

    def _responses(self, event: dict[str, Any]) -> None:
        kind = event.get("type")
        if kind in {"response.output_item.added", "response.output_item.done"}:
            if event["item"].get("type") == "function_call":
                self._add((event["item"].get("call_id"),))
        elif kind in _RESPONSES_CONTENT:
            self.content_events += 1
        elif kind in _RESPONSES_ENDS:
            self.finished = True
        elif kind == "response.failed":
            self.error = "the response failed"

    def _add(self, ids: Any) -> None:
        for value in ids:
            if value:
                self._ids.setdefault(value)
