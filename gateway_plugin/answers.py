"""Reading an answer of any of the three APIs, as an object of a library or as a dict. Nothing here raises."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from gateway_plugin.text import is_mapping

#: An answer is read this many parts and tool calls, no further.
MAX_PARTS: Final = 128


def field_of(value: object, name: str) -> Any:
    """Return the field *name* of an object or a dict, None where it has none."""
    return value.get(name) if is_mapping(value) else getattr(value, name, None)


def parts_of(value: object) -> Sequence[Any]:
    """Return the first parts of a list, at most :data:`MAX_PARTS`; nothing of what is no list."""
    return value[:MAX_PARTS] if isinstance(value, (list, tuple)) else ()
