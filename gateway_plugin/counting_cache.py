"""Counts of prompt pieces, keyed by an order-preserving digest and bounded in bytes.

The store never holds text: an entry is a 16-byte digest and a number. It keeps two generations instead of a
queue of uses, so a hit is one dictionary look-up without a lock: new entries go into the young generation,
and when that is full it becomes the old one and the previous old one is dropped. An entry of the old
generation that is asked for again moves to the young one.

Digests are 128-bit XXH3 with a random seed per kind and process. That is not a cryptographic hash: equal
digests of different pieces are as unlikely as 2^-128 by chance, and nobody outside the process knows the
seed. The continuous self-check (:mod:`gateway_plugin.counting_check`) watches for what must not happen.
"""

from __future__ import annotations

import secrets
import threading
from typing import Final

import xxhash

#: Memory of one entry: bytes object of 16 (64), int (32), its share of a dictionary that has just grown.
ENTRY_BYTES: Final = 224

#: Instead of a count: this piece is always counted the stock way (it needs the network, or is a PDF).
ALWAYS_STOCK: Final = -1
#: Instead of a count: JSON text does not determine the count of this piece; look under the exact key.
LOOK_EXACT: Final = -2


class Kind:
    """The counts of one kind of piece under one tokenizer and one set of options."""

    __slots__ = ("old", "seed", "young")

    def __init__(self) -> None:
        self.seed = secrets.randbits(64)
        self.young: dict[bytes, int] = {}
        self.old: dict[bytes, int] = {}

    def key(self, raw: bytes) -> bytes:
        """Digest *raw*: 16 bytes."""
        return xxhash.xxh3_128_digest(raw, self.seed)


class PieceStore:
    """All kinds together, bounded by *max_bytes* (an upper estimate: entries × :data:`ENTRY_BYTES`)."""

    def __init__(self, max_bytes: int) -> None:
        """Make an empty store; raises ValueError when *max_bytes* cannot hold two entries."""
        self._half = max_bytes // ENTRY_BYTES // 2
        if self._half < 1:
            raise ValueError(f"max_bytes must be at least {2 * ENTRY_BYTES}, not {max_bytes}")
        self.max_bytes = max_bytes
        self._lock = threading.Lock()
        self._kinds: list[Kind] = []
        self._young_entries = 0
        self.rotations = 0

    def new_kinds(self, number: int) -> tuple[Kind, ...]:
        """Add *number* empty kinds."""
        kinds = tuple(Kind() for _ in range(number))
        with self._lock:
            self._kinds.extend(kinds)
        return kinds

    def drop(self, kinds: tuple[Kind, ...]) -> None:
        """Forget *kinds* for good."""
        with self._lock:
            for kind in kinds:
                self._kinds.remove(kind)
                self._young_entries -= len(kind.young)

    def put(self, kind: Kind, key: bytes, count: int) -> None:
        """Remember *count* under *key*."""
        with self._lock:
            if key not in kind.young:
                if self._young_entries >= self._half:
                    self._rotate()
                self._young_entries += 1
            kind.young[key] = count

    def get(self, kind: Kind, key: bytes) -> int | None:
        """Return the remembered number, or None; a number below zero is a mark, not a count."""
        count = kind.young.get(key)
        return self.recall(kind, key) if count is None else count

    def recall(self, kind: Kind, key: bytes) -> int | None:
        """Look into the old generation only, and move what is found into the young one."""
        count = kind.old.get(key)
        if count is not None:
            self.put(kind, key, count)
        return count

    def _rotate(self) -> None:
        for kind in self._kinds:
            kind.old, kind.young = kind.young, {}
        self._young_entries = 0
        self.rotations += 1

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            for kind in self._kinds:
                kind.young, kind.old = {}, {}
            self._young_entries = 0

    @property
    def entries(self) -> int:
        """Entries held now, both generations."""
        with self._lock:
            return sum(len(kind.young) + len(kind.old) for kind in self._kinds)

    @property
    def bytes(self) -> int:
        """Upper estimate of the memory held now, bytes."""
        return self.entries * ENTRY_BYTES
