"""Keyed hashes of identities: what leaves the database instead of names, e-mail addresses and free text."""

from __future__ import annotations

import hashlib
import re
from typing import Final

#: Shape of an id that may be kept as it is: no spaces, no ``@``, no free text.
_ID_SHAPED: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:\-]{7,127}")


def keyed_hash(secret: str, value: str) -> str:
    """Return 32 hex digits of BLAKE2b keyed with *secret* (an unkeyed hash could be reversed by guessing)."""
    key = secret.encode()
    if len(key) > hashlib.blake2b.MAX_KEY_SIZE:
        key = hashlib.blake2b(key).digest()
    return hashlib.blake2b(value.encode("utf-8", "surrogatepass"), key=key, digest_size=16).hexdigest()


def safe_id(secret: str | None, value: str | None) -> str | None:
    """Return *value* when it is shaped like an id, else its keyed hash (null without a secret)."""
    if not value:
        return None
    if _ID_SHAPED.fullmatch(value):
        return value
    return keyed_hash(secret, value) if secret else None
