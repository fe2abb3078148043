"""Values that others chose: which are mappings, and text made fit to be stored (bounded, nothing refused)."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, TypeGuard


def is_mapping(value: object) -> TypeGuard[Mapping[str, Any]]:
    """Return whether *value* is a mapping; asking the abstract class each time costs ten times that."""
    kind: type = type(value)
    return kind is dict or _is_mapping_type(kind)


@functools.lru_cache(maxsize=512)
def _is_mapping_type(kind: type) -> bool:
    return issubclass(kind, Mapping)


def storable(value: object, limit: int = 128) -> str | None:
    """Return *value* cut to *limit* characters, U+FFFD for NUL, control characters and lone surrogates.

    Postgres refuses U+0000 in JSON and UTF-8 has no lone surrogates: one of either in a model name or a call
    id would lose the whole row or record. None for what is no text or empty.
    """
    if not isinstance(value, str) or not value:
        return None
    text = value[:limit]
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c.isprintable() else "\ufffd" for c in text)
