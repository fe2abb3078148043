"""What kind of piece a message or a tool catalogue is: may its count be kept, and under which key?

Two serialisations give keys. ``marshal`` tells every type apart (list and tuple, 1 and 1.0, NaN and None) and
keeps the order of keys, so equal bytes mean equal pieces; ``orjson`` is three times as fast on catalogues but
writes a tuple like a list and NaN like null. JSON text is therefore used only where that difference cannot
reach the count: messages made of strings alone, and catalogues whose read parts pass
:func:`catalogue_is_plain`.
"""

from __future__ import annotations

import math
from typing import Any, Final

_PDF_TYPE: Final = "application/pdf"
_PDF_PREFIX: Final = "data:application/pdf"

#: Keys of a tool definition whose values LiteLLM's counter reads; it renders nothing else.
_STRUCTURE: Final = frozenset({"function", "parameters", "input_schema", "properties", "items"})
_RENDERED: Final = frozenset(
    {"name", "description", "required", "type", "enum", "function_declarations", "functionDeclarations"}
)
#: Lists under these keys are only iterated or tested for membership: a tuple would count the same.
_PLAIN_LISTS: Final = frozenset({"required", "enum", "type"})

#: Words that may appear in a logged shape; any other key or value could be the client's own text.
_KNOWN_WORDS: Final = frozenset(
    {
        "arguments",
        "array",
        "assistant",
        "auto",
        "base64",
        "boolean",
        "cache_control",
        "citations",
        "content",
        "context",
        "custom",
        "data",
        "description",
        "detail",
        "developer",
        "document",
        "enum",
        "file",
        "file_data",
        "filename",
        "function",
        "function_call",
        "high",
        "id",
        "image",
        "image_url",
        "input",
        "input_schema",
        "integer",
        "is_error",
        "items",
        "low",
        "media_type",
        "name",
        "none",
        "null",
        "number",
        "object",
        "parameters",
        "properties",
        "redacted_thinking",
        "required",
        "role",
        "search_result",
        "search_results",
        "signature",
        "source",
        "string",
        "system",
        "text",
        "thinking",
        "title",
        "tool",
        "tool_call_id",
        "tool_calls",
        "tool_name",
        "tool_reference",
        "tool_result",
        "tool_use",
        "tool_use_id",
        "type",
        "url",
        "user",
    }
)


def why_stock(message: dict[str, Any], *, default_images: bool) -> str | None:
    """Return why this message must be counted the stock way every time: ``image`` or ``pdf``; else None.

    A high-detail image behind a URL is fetched to learn its size (unless the caller asked for the default
    count), so its count is not a function of the message. PDFs are parsed with an optional library.
    """
    content = message.get("content")
    if type(content) is str:
        return None
    stack: list[Any] = [content]
    while stack:
        value = stack.pop()
        if type(value) is str:
            if value.startswith(_PDF_PREFIX):
                return "pdf"
        elif type(value) is dict:
            if value.get("media_type") == _PDF_TYPE:
                return "pdf"
            url = value.get("url")
            if (
                not default_images
                and value.get("detail") == "high"
                and isinstance(url, str)
                and url.startswith(("http://", "https://"))
            ):
                return "image"
            stack.extend(value.values())
        elif type(value) is list or type(value) is tuple:
            stack.extend(value)
    return None


def catalogue_is_plain(tools: list[Any] | tuple[Any, ...]) -> bool:
    """Return whether the JSON text of *tools* determines its count.

    False when a part that the counter renders is null (NaN has the same JSON text), or holds a list or an
    object where it would be rendered whole.
    """
    stack: list[tuple[Any, bool]] = [(tool, False) for tool in tools if type(tool) is dict]
    if len(stack) != sum(isinstance(tool, dict) for tool in tools):
        return False
    while stack:
        node, is_properties = stack.pop()
        for key, value in node.items():
            if is_properties or key in _STRUCTURE:
                if type(value) is not dict:
                    return False
                stack.append((value, key == "properties" and not is_properties))
            elif key in _RENDERED and type(value) is not str:
                items = value if type(value) is list and key in _PLAIN_LISTS else (value,)
                if not all(_plain_scalar(item) for item in items):
                    return False
    return True


def _plain_scalar(value: object) -> bool:
    kind = type(value)
    return kind in (str, int, bool) or (kind is float and math.isfinite(value))  # type: ignore[arg-type]


def shape(value: object, depth: int = 5) -> str:
    """Describe *value* without its text: types, known keys, lengths. Safe to log."""
    if isinstance(value, str):
        return value if value in _KNOWN_WORDS else f"str[{len(value)}]"
    if isinstance(value, dict):
        if depth == 0:
            return f"dict[{len(value)}]"
        items = [f"{_word(k)}: {shape(v, depth - 1)}" for k, v in list(value.items())[:12]]
        return "{" + ", ".join(items) + (", …" if len(value) > 12 else "") + "}"
    if isinstance(value, (list, tuple)):
        if depth == 0:
            return f"list[{len(value)}]"
        parts = [shape(v, depth - 1) for v in value[:4]]
        return "[" + ", ".join(parts) + (f", … {len(value)}" if len(value) > 4 else "") + "]"
    return type(value).__name__


def _word(key: object) -> str:
    return key if isinstance(key, str) and key in _KNOWN_WORDS else "key"
