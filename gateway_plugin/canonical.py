"""What of a request reaches the model, as bytes: order-preserving JSON without markers that move.

Canonical means order-preserving JSON of what reaches the model: key and tool order stay as sent, because they
change the rendered prompt. Cache markers (``cache_control``) are left out and a lone text block equals the
plain string, because neither changes the rendered prompt while clients move them from call to call. The
attribution block that old Claude Code versions put first in the system prompt holds a random value per
request; it is left out as well. Nothing here alters the request.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

import orjson
import xxhash

#: First system block of Claude Code that changes with every request in old versions.
_ATTRIBUTION: Final = "x-anthropic-billing-header:"


def serialise(value: object) -> tuple[bytes, bool]:
    """Return canonical bytes of *value* and whether the slow fallback was needed.

    orjson refuses integers over 64 bits, lone surrogates and nesting over 254; the standard library takes
    them (escaping surrogates). What neither takes is rendered by type name, so that the chain goes on.
    """
    try:
        return orjson.dumps(value), False
    except (TypeError, ValueError, RecursionError):
        pass
    try:
        return json.dumps(
            value, ensure_ascii=True, separators=(",", ":"), default=lambda o: type(o).__name__
        ).encode(), True
    except (TypeError, ValueError, RecursionError):
        return b"<" + type(value).__name__.encode("ascii", "replace") + b">", True


#: Cache markers are looked for this deep: a tool result's parts sit at level two, nothing known sits deeper.
_MAX_DEPTH: Final = 6


def _part(part: object, depth: int = 0) -> object:
    if not isinstance(part, dict):
        return part
    if "cache_control" in part:
        part = {k: v for k, v in part.items() if k != "cache_control"}
    if isinstance(part.get("content"), list) and depth < _MAX_DEPTH:
        return {**part, "content": _content(part["content"], depth + 1)}
    return part


def _content(content: list[Any], depth: int = 0) -> object:
    parts = [_part(p, depth) for p in content]
    if len(parts) == 1:
        only = parts[0]
        if isinstance(only, dict) and len(only) == 2 and isinstance(only.get("text"), str):
            kind = only.get("type")
            if kind == "text" or kind == "input_text":
                return only["text"]
    return parts


def _is_attribution(part: object) -> bool:
    text = part.get("text") if isinstance(part, dict) else None
    return isinstance(text, str) and text[:64].lstrip().startswith(_ATTRIBUTION)


def canonical_message(message: object) -> object:
    """Return *message* without what does not reach the model; a new object wherever something is left out."""
    if not isinstance(message, dict):
        return message
    content = message.get("content")
    if isinstance(content, list):
        out = {k: v for k, v in message.items() if k != "cache_control"}
        out["content"] = _content(content)
        return out
    if "cache_control" in message:
        return {k: v for k, v in message.items() if k != "cache_control"}
    return message


#: Content that is canonical as it is.
_PLAIN: Final = frozenset({str, type(None)})


def is_plain(items: Sequence[Any]) -> bool:
    """Return whether all *items* are messages of text alone, without a marker: canonical as they are."""
    return (
        set(map(type, items)) == {dict}
        and _PLAIN.issuperset([type(item.get("content")) for item in items])
        and True not in ["type" in item or "cache_control" in item for item in items]
    )


def canonical_system(system: object) -> object:
    """Return the system prompt without Claude Code's attribution block and without cache markers."""
    if isinstance(system, list):
        return _content(system[1:] if system and _is_attribution(system[0]) else system)
    return system


def canonical_tools(tools: Sequence[object]) -> list[object]:
    """Return the catalogue in the order sent, without cache markers."""
    return [_part(t) for t in tools]


_MARKER: Final = b'"cache_control"'


def tools_bytes(tools: list[object]) -> tuple[bytes, bool]:
    """Return canonical bytes of a catalogue and whether the slow fallback was needed."""
    raw, slow = serialise(tools)
    return serialise(canonical_tools(tools)) if slow or _MARKER in raw else (raw, slow)


def tool_set_digest(tools: Iterable[object], seed: int) -> int:
    """Return an order-free digest of a catalogue: equal for the same tools in any tool or key order."""
    total = 0
    for tool in tools:
        try:
            raw = orjson.dumps(_part(tool), option=orjson.OPT_SORT_KEYS)
        except (TypeError, ValueError, RecursionError):
            raw = serialise(tool)[0]
        total = (total + xxhash.xxh3_64_intdigest(raw, seed=seed)) & 0xFFFF_FFFF_FFFF_FFFF
    return total
