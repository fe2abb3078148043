"""Keyed digests of everything that is stored, and the shape test for ids that may be kept as they are.

An unkeyed hash of a prompt or a user name can be reversed by guessing, so every stored digest is a BLAKE2b
keyed with one secret that all workers and the pipeline share.
"""

from __future__ import annotations

import functools
import hashlib
import re
from typing import Final

_ID_SHAPE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{7,127}")

#: Digests of persons and sessions that are remembered.
_LASTING_MAX: Final = 4_096


class Hasher:
    """BLAKE2b keyed with a shared secret; equal secrets give equal digests in every process."""

    __slots__ = ("_bases", "_key", "lasting")

    def __init__(self, secret: bytes) -> None:
        if not secret:
            raise ValueError("the hashing secret is empty")
        self._key = hashlib.blake2b(secret, digest_size=32, person=b"agentwatt-key").digest()
        self._bases: dict[tuple[str, int], hashlib.blake2b] = {}
        #: As :meth:`digest`, for what comes with every call of a person or a session.
        self.lasting = functools.lru_cache(maxsize=_LASTING_MAX)(self.digest)

    def digest(self, domain: str, *parts: str | bytes, size: int = 8) -> str:
        """Return *size* bytes as hex over *parts* in the given *domain*.

        Parts are length-prefixed, so ("ab", "c") and ("a", "bc") differ. Lone surrogates are hashed as they
        are (surrogatepass) instead of raising.
        """
        base = self._bases.get((domain, size))
        if base is None:
            # Absorbing the key costs more than most inputs: once per domain. Domains are literals, so few.
            base = hashlib.blake2b(key=self._key, digest_size=size, person=domain.encode()[:16])
            self._bases[domain, size] = base
        h = base.copy()
        for part in parts:
            raw = part if isinstance(part, bytes) else part.encode("utf-8", "surrogatepass")
            h.update(len(raw).to_bytes(8, "big"))
            h.update(raw)
        return h.hexdigest()

    def keep_or_hash(self, value: str) -> str:
        """Return *value* when it looks like a machine-made id, else a 16-byte digest of it.

        A client may put anything into an id field, an e-mail address for one; ``@``, spaces and non-ASCII
        characters never pass.
        """
        if _ID_SHAPE.fullmatch(value):
            return value
        return "h:" + self.digest("free-text-id", value, size=16)
