"""From a request body to prompt text segments, in the order in which a chat template renders them.

Each segment is tokenised on its own, so equal prefixes of two requests give equal token prefixes and the
cached encoding of old messages is reused. All routes render tools, then the system prompt, then messages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

_MARKER: Final = re.compile(
    r"\[\[standin:(fail-once|slow):([^\]:]+)(?::(\d{3}))?\]\]|\[\[(trace):([^\]]+)\]\]"
)
DEFAULT_OUTPUT_TOKENS: Final = 64


class BadRequest(ValueError):
    """The body is not a request of this API; the message is what the client is told."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the engine needs of a request."""

    model: str
    stream: bool
    segments: tuple[str, ...]
    output_tokens: int
    include_usage: bool
    tool: str | None
    fail_once: tuple[tuple[str, int], ...]
    slow: float
    trace: str | None


def parse(route: str, body: Any) -> Prompt:
    """Return the prompt of *body* for *route* (chat, responses or messages).

    Raises:
        BadRequest: model or conversation is missing or of the wrong type.
    """
    if not isinstance(body, dict):
        raise BadRequest("the body must be a JSON object")
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise BadRequest("model: field required")
    items = body.get("input" if route == "responses" else "messages")
    if isinstance(items, str) and route == "responses":
        items = [{"role": "user", "content": items}]
    if not isinstance(items, list) or not items:
        raise BadRequest(f"{'input' if route == 'responses' else 'messages'}: field required")
    segments = tuple(_segments(body, items))
    limit = body.get("max_completion_tokens") or body.get("max_tokens") or body.get("max_output_tokens")
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
        raise BadRequest("max_tokens must be at least 1")
    options = body.get("stream_options")
    text = "\n".join(segments[-8:])
    fails, slow, trace = _markers(text)
    return Prompt(
        model=model,
        stream=body.get("stream") is True,
        segments=segments,
        output_tokens=limit or DEFAULT_OUTPUT_TOKENS,
        include_usage=isinstance(options, Mapping) and options.get("include_usage") is True,
        tool=_first_tool(body),
        fail_once=fails,
        slow=slow,
        trace=trace,
    )


def _segments(body: Mapping[str, Any], items: list[Any]) -> Iterator[str]:
    if tools := body.get("tools"):
        yield "<|tools|>" + _flat(
            [_without_cache_marks(t) for t in tools] if isinstance(tools, list) else tools
        )
    if system := body.get("system", body.get("instructions")):
        yield "<|system|>" + _content(system)
    for item in items:
        if not isinstance(item, dict):
            raise BadRequest("every message must be an object")
        role = item.get("role") or item.get("type") or "item"
        rest = {
            k: v
            for k, v in item.items()
            if k not in ("role", "content", "cache_control", "id", "status") and v
        }
        yield f"<|{role}|>" + _content(item.get("content")) + (_flat(rest) if rest else "")


def _content(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(
            part["text"]
            if isinstance(part, dict) and isinstance(part.get("text"), str)
            else _flat(_without_cache_marks(part))
            for part in content
        )
    return "" if content is None else _flat(content)


def _without_cache_marks(part: Any) -> Any:
    return {k: v for k, v in part.items() if k != "cache_control"} if isinstance(part, dict) else part


def _flat(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _first_tool(body: Mapping[str, Any]) -> str | None:
    """Name of the tool that the answer will call: the first one offered, unless tools are switched off."""
    choice = body.get("tool_choice")
    if choice == "none" or (isinstance(choice, Mapping) and choice.get("type") == "none"):
        return None
    tools = body.get("tools")
    for tool in tools if isinstance(tools, list) else ():
        if isinstance(tool, Mapping):
            inner = tool.get("function")
            name = tool.get("name") or (inner.get("name") if isinstance(inner, Mapping) else None)
            if isinstance(name, str):
                return name
    return None


def _markers(text: str) -> tuple[tuple[tuple[str, int], ...], float, str | None]:
    fails: list[tuple[str, int]] = []
    slow, trace = 1.0, None
    for match in _MARKER.finditer(text):
        kind, value, status, is_trace, name = match.groups()
        if is_trace:
            trace = name
        elif kind == "fail-once":
            fails.append((value, int(status or 500)))
        elif kind == "slow":
            try:
                slow = max(0.0, float(value))
            except ValueError:
                raise BadRequest(f"[[standin:slow:{value}]]: not a number") from None
    return tuple(fails), slow, trace
