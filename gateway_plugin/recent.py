"""A bounded map of what was used last, which never holds up the event loop.

A dict that keeps being added to must be laid anew now and then, which takes 4 ms at 44,000 entries and 7 ms
for two maps of 20,000: longer than anything of ours may take. A large map is spread over sixteen small ones.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_SHARDS: Final = 16
#: Below this many entries a shard would be too small to forget the oldest of all, even roughly.
_SHARD_MIN: Final = 100


class Recent(Generic[K, V]):
    """At most *capacity* entries; a full map forgets an old one, and the oldest of all when it is small.

    Raises:
        ValueError: a capacity below 1.
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"a map of {capacity} entries holds nothing")
        shards = _SHARDS if capacity >= _SHARDS * _SHARD_MIN else 1
        self._size = capacity // shards
        self._count = shards
        self._shards: list[OrderedDict[K, V]] = [OrderedDict() for _ in range(shards)]

    def __len__(self) -> int:
        return sum(map(len, self._shards))

    def get(self, key: K, default: V | None = None) -> V | None:
        """Return the value of *key*, *default* where there is none; does not count as a use."""
        return self._shards[hash(key) % self._count].get(key, default)

    def use(self, key: K) -> V | None:
        """Return the value of *key* and count it as used; None where there is none."""
        shard = self._shards[hash(key) % self._count]
        value = shard.get(key)
        if value is not None:
            shard.move_to_end(key)
        return value

    def put(self, key: K, value: V) -> V | None:
        """Set *key* as used just now; return the value that was forgotten for it, if any."""
        shard = self._shards[hash(key) % self._count]
        forgotten = None
        if key in shard:
            shard.move_to_end(key)
        elif len(shard) >= self._size:
            _, forgotten = shard.popitem(last=False)
        shard[key] = value
        return forgotten

    def forget(self) -> V:
        """Forget an old entry and return its value.

        Raises:
            KeyError: the map is empty.
        """
        return max(self._shards, key=len).popitem(last=False)[1]
