"""Block-level prefix cache with reference counts and LRU eviction, after vLLM's block pool.

A prompt is cut into blocks of equal size; a block is identified by its tokens and everything before it. Only
whole blocks hit, and at least one token of a prompt is always computed. Blocks of running requests are
pinned. A finished request frees its blocks tail first, so the front of a prefix survives longest.

Simpler than vLLM in two ways: the blocks of the answer are reserved when a request is admitted, so nothing is
ever preempted, and they are not shared afterwards (an answer is hit only as far as a later prompt cached it).
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field

import xxhash


@dataclass(slots=True)
class Allocation:
    """Blocks that one running request holds.

    ``cached_tokens`` were found and the rest is computed; ``fresh`` are the blocks that this request brought
    in; ``private`` counts blocks that are never shared: the unfinished last one and those of the answer.
    """

    cached_tokens: int
    hashes: list[int] = field(default_factory=list)
    fresh: frozenset[int] = frozenset()
    private: int = 0


class PrefixCache:
    """The cache of one model."""

    def __init__(self, *, block_size: int, capacity_blocks: int) -> None:
        """*capacity_blocks* bounds cached and running blocks together.

        Raises:
            ValueError: a size is not positive.
        """
        if block_size < 1 or capacity_blocks < 1:
            raise ValueError("block size and capacity must be at least 1")
        self.block_size = block_size
        self.capacity = capacity_blocks
        self._references: dict[int, int] = {}
        self._free: OrderedDict[int, None] = OrderedDict()
        self._private = 0
        self.evictions = 0

    @property
    def used_blocks(self) -> int:
        """Blocks held by running requests (what vLLM's kv_cache_usage_perc counts)."""
        return len(self._references) + self._private

    @property
    def cached_blocks(self) -> int:
        """Blocks of finished requests that can still be hit, and will be evicted when room is needed."""
        return len(self._free)

    def chain(self, tokens: array[int]) -> list[int]:
        """Return the chained hashes of the whole blocks of *tokens*."""
        raw = tokens.tobytes()
        step = self.block_size * tokens.itemsize
        value, out = 0, []
        for start in range(0, len(raw) - step + 1, step):
            value = xxhash.xxh3_64_intdigest(raw[start : start + step], seed=value)
            out.append(value)
        return out

    def admit(self, hashes: list[int], prompt_tokens: int, output_tokens: int) -> Allocation | None:
        """Take the blocks of a request; None when they do not fit beside the running ones.

        Args:
            hashes: chain of the prompt's whole blocks.
            prompt_tokens: length of the prompt.
            output_tokens: tokens that will be generated.
        """
        hit = 0
        for value in hashes[: max(0, (prompt_tokens - 1) // self.block_size)]:
            if value not in self._references and value not in self._free:
                break
            hit += 1
        private = -(-(prompt_tokens + output_tokens) // self.block_size) - len(hashes)
        fresh = frozenset(v for v in hashes if v not in self._references and v not in self._free)
        revived = {v for v in hashes if v in self._free}
        if self.used_blocks + len(fresh) + len(revived) + private > self.capacity:
            return None
        for value in revived:
            del self._free[value]
        for value in hashes:
            self._references[value] = self._references.get(value, 0) + 1
        self._private += private
        while self.used_blocks + len(self._free) > self.capacity:
            self._free.popitem(last=False)
            self.evictions += 1
        return Allocation(hit * self.block_size, list(hashes), fresh, private)

    def release(self, allocation: Allocation, *, computed_tokens: int | None = None) -> None:
        """Give back the blocks of a request; cached ones stay until evicted. Harmless when repeated.

        Args:
            allocation: what :meth:`admit` gave.
            computed_tokens: how far the prompt was computed when the request was aborted before its first
                token; blocks that it brought in beyond that hold nothing and are dropped.
        """
        known = len(allocation.hashes)
        if computed_tokens is not None:
            known = computed_tokens // self.block_size
        for index, value in reversed(list(enumerate(allocation.hashes))):
            left = self._references[value] - 1
            if left:
                self._references[value] = left
                continue
            del self._references[value]
            if index < known or value not in allocation.fresh:
                self._free[value] = None
        self._private -= allocation.private
        allocation.hashes, allocation.private = [], 0

    def contains(self, hashes: Iterable[int]) -> list[bool]:
        """Tell for each block whether it could be hit now."""
        return [value in self._references or value in self._free for value in hashes]
