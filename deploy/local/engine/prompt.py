"""From a request body to prompt text segments, in the order in which a chat template renders them.

Each segment is tokenised on its own, so equal prefixes of two requests give equal token prefixes and the
cached encoding of old messages is reused. All routes render tools, then the system prompt, then messages.
Cache marks of a client are not part of the prompt.

Marks in the prompt's text steer the engine: ``[[standin:fail-once:<id>:<status>]]`` fails the first request
that carries the id, ``[[standin:slow:<factor>]]`` in the newest user text multiplies the decode time,
``[[standin:hold:<seconds>]]`` there keeps the first token back for real seconds whatever the speed-up, and
``[[trace:<x>]]`` is copied into the ground truth (the last one of the prompt).
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from deploy.local.engine.errors import BadRequest

DEFAULT_OUTPUT_TOKENS: Final = 64
MAX_MODEL_NAME: Final = 256

_FAIL: Final = re.compile(r"\[\[standin:fail-once:([^\]:]+):(\d+)\]\]")
_SLOW: Final = re.compile(r"\[\[standin:slow:([^\]]+)\]\]")
_HOLD: Final = re.compile(r"\[\[standin:hold:([^\]]+)\]\]")
_TRACE: Final = re.compile(r"\[\[trace:([^\]]+)\]\]")
_LIMITS: Final = ("max_completion_tokens", "max_tokens", "max_output_tokens")
#: Fields of a message that a template does not render.
_UNRENDERED: Final = frozenset({"role", "content", "cache_control", "id", "status"})


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the engine needs of a request; ``output_limit`` is None when the client set none."""

    model: str
    stream: bool
    segments: tuple[str, ...]
    output_limit: int | None
    include_usage: bool
    tool: str | None
    fail_once: tuple[tuple[str, int], ...]
    slow: float
    hold_s: float
    trace: str | None
    words_sha256: str


def parse(route: str, raw: bytes) -> Prompt:
    """Return the prompt of the JSON body *raw* for *route* (chat, responses or messages).

    Raises:
        BadRequest: not JSON, or a field is missing or of the wrong type.
    """
    try:
        body = json.loads(raw)
        return _parse(route, body)
    except RecursionError:
        raise BadRequest("the body is nested too deeply") from None
    except ValueError as error:
        raise BadRequest(f"the body is not JSON: {error}") from None


def _parse(route: str, body: Any) -> Prompt:
    if not isinstance(body, dict):
        raise BadRequest("the body must be a JSON object")
    field = "input" if route == "responses" else "messages"
    items = body.get(field)
    if isinstance(items, str) and route == "responses":
        items = [{"role": "user", "content": items}]
    if not isinstance(items, list) or not items:
        raise BadRequest(f"{field}: field required", field)
    if body.get("n") not in (None, 1):
        raise BadRequest("n must be 1: this engine gives one answer", "n")
    if body.get("previous_response_id") is not None:
        raise BadRequest("previous_response_id: this engine stores no responses", "previous_response_id")
    segments = tuple(_segments(body, items))
    text = "\n".join(segments)
    newest = _newest_user_text(items)
    options = body.get("stream_options")
    return Prompt(
        model=model_name(body),
        stream=body.get("stream") is True,
        segments=segments,
        output_limit=_output_limit(body),
        include_usage=isinstance(options, Mapping) and options.get("include_usage") is True,
        tool=_tool(body),
        fail_once=_fail_once(text),
        slow=_number(_SLOW, newest, 1.0),
        hold_s=_number(_HOLD, newest, 0.0),
        trace=traces[-1] if (traces := _TRACE.findall(text)) else None,
        words_sha256=_words_digest(body, items),
    )


def model_name(body: Mapping[str, Any]) -> str:
    """Return the model that *body* asks for; any name will do that can be a metric's label.

    Raises:
        BadRequest: it has none, or one that is not text.
    """
    model = body.get("model")
    if not isinstance(model, str) or not 0 < len(model) <= MAX_MODEL_NAME:
        raise BadRequest(f"model: a name of 1 to {MAX_MODEL_NAME} characters is required", "model")
    try:
        model.encode()
    except UnicodeEncodeError:
        raise BadRequest("model: not valid Unicode", "model") from None
    return model


def _output_limit(body: Mapping[str, Any]) -> int | None:
    for name in _LIMITS:
        if (limit := body.get(name)) is not None:
            if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
                raise BadRequest(f"{name} must be a whole number of at least 1", name)
            return limit
    return None


# -- rendering


def _segments(body: Mapping[str, Any], items: list[Any]) -> Iterator[str]:
    if tools := body.get("tools"):
        yield "<|tools|>" + _flat(tools)
    if system := body.get("system", body.get("instructions")):
        yield "<|system|>" + _content(system)
    for item in items:
        if not isinstance(item, dict):
            raise BadRequest("every message must be an object")
        role = item.get("role")
        rest = {k: v for k, v in item.items() if k not in _UNRENDERED and v and not (role and k == "type")}
        name = role or item.get("type") or "item"
        yield f"<|{name}|>" + _content(item.get("content")) + (_flat(rest) if rest else "")


def _content(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(_flat(part) if (text := _text(part)) is None else text for part in content)
    return "" if content is None else _flat(content)


def _text(part: Any) -> str | None:
    """Return the text of a text part."""
    text = part.get("text") if isinstance(part, dict) else None
    return text if isinstance(text, str) else None


def _flat(value: Any) -> str:
    return json.dumps(_without_cache_marks(value), ensure_ascii=False, separators=(",", ":"))


def _without_cache_marks(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_cache_marks(v) for k, v in value.items() if k != "cache_control"}
    if isinstance(value, list):
        return [_without_cache_marks(v) for v in value]
    return value


def _words_digest(body: Mapping[str, Any], items: list[Any]) -> str:
    """Digest of what system prompt and conversation say, without white space.

    The same before and after a proxy that carries a request from one API to another, so the engine's log and
    the client's can be laid side by side by it.
    """
    digest = hashlib.sha256()
    for text in _said([body.get("system", body.get("instructions")), *items]):
        digest.update("".join(text.split()).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _said(part: Any) -> Iterator[str]:
    if isinstance(part, str):
        yield part
    elif isinstance(part, list):
        for one in part:
            yield from _said(one)
    elif isinstance(part, dict):
        for name in ("text", "content", "output"):
            yield from _said(part.get(name))


# -- tools and marks


def _tool(body: Mapping[str, Any]) -> str | None:
    """Name of the tool that the answer will call, if any.

    It is the one that the request forces, else the first that the client itself would run.
    """
    choice = body.get("tool_choice")
    forced: Any = None
    if isinstance(choice, Mapping):
        if choice.get("type") == "none":
            return None
        inner = choice.get("function")
        forced = inner.get("name") if isinstance(inner, Mapping) else choice.get("name")
    elif choice == "none":
        return None
    tools = body.get("tools")
    names = [name for tool in (tools if isinstance(tools, list) else ()) if (name := _tool_name(tool))]
    return forced if forced in names else next(iter(names), None)


def _tool_name(tool: Any) -> str | None:
    """Name of a function tool; tools that a provider runs itself (search, code) have none."""
    if not isinstance(tool, Mapping):
        return None
    inner = tool.get("function")
    if isinstance(inner, Mapping):
        tool = inner
    elif "input_schema" not in tool and tool.get("type") != "function":
        return None
    name = tool.get("name")
    return name if isinstance(name, str) and name else None


def _fail_once(text: str) -> tuple[tuple[str, int], ...]:
    fails = []
    for name, digits in _FAIL.findall(text):
        if len(digits) != 3 or not 400 <= int(digits) <= 599:
            raise BadRequest(f"[[standin:fail-once:{name}:{digits}]]: not an error status")
        fails.append((name, int(digits)))
    return tuple(fails)


def _number(mark: re.Pattern[str], text: str, default: float) -> float:
    found = mark.search(text)
    if not found:
        return default
    try:
        value = float(found[1])
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise BadRequest(f"{found[0]}: not a positive number")
    return value


def _newest_user_text(items: list[Any]) -> str:
    """Text of the last message that a person (not a tool) wrote: later turns are not slow as well."""
    for item in reversed(items):
        if item.get("role") == "user":
            content = item.get("content")
            parts = content if isinstance(content, list) else ()
            text = content if isinstance(content, str) else "\n".join(filter(None, map(_text, parts)))
            if text:
                return text
    return ""
