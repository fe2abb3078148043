"""Text that others chose, made fit to be stored: bounded, and without what databases or encoders refuse."""

from __future__ import annotations


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
