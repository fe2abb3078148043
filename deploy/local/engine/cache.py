"""Block-level prefix cache with reference counts and LRU eviction, after vLLM's block pool.

A prompt is cut into blocks of equal size; a block is identified by its tokens and everything before it. Only
whole blocks hit, and at least one token of a prompt is always computed. Blocks of running requests are
pinned. A finished request frees its blocks tail first, so the front of a prefix survives longest.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from dataclasses import dataclass, field

import xxhash


@dataclass(slots=True)
class Allocation:
    """Blocks that one running request holds; ``cached_tokens`` were found, the rest is computed."""

    cached_tokens: int
    hashes: list[int] = field(default_factory=list)
    anonymous: int = 0


class PrefixCache:
    """Prefix cache of one engine; models are told apart by *namespace*."""

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
        self._anonymous = 0
        self.evictions = 0

    @property
    def used_blocks(self) -> int:
        """Blocks held by running requests (what vLLM's kv_cache_usage_perc counts)."""
        return len(self._references) + self._anonymous

    @property
    def cached_blocks(self) -> int:
        """Blocks of finished requests that can still be hit, and will be evicted when room is needed."""
        return len(self._free)

    def chain(self, namespace: str, tokens: array[int]) -> list[int]:
        """Return the chained hashes of the whole blocks of *tokens*."""
        raw = tokens.tobytes()
        step = self.block_size * tokens.itemsize
        value = xxhash.xxh3_64_intdigest(namespace.encode())
        out = []
        for start in range(0, len(raw) - step + 1, step):
            value = xxhash.xxh3_64_intdigest(raw[start : start + step], seed=value)
            out.append(value)
        return out

    def admit(self, hashes: list[int], prompt_tokens: int, output_tokens: int) -> Allocation | None:
        """Take the blocks of a request; None when they do not fit beside the running ones.

        Args:
            hashes: chain of the prompt's whole blocks.
            prompt_tokens: length of the prompt.
            output_tokens: tokens that will be generated; their blocks are never shared.
        """
        hit = 0
        for value in hashes[: max(0, (prompt_tokens - 1) // self.block_size)]:
            if value not in self._references and value not in self._free:
                break
            hit += 1
        total = -(-(prompt_tokens + output_tokens) // self.block_size)
        anonymous = total - len(hashes)
        distinct = set(hashes)
        fresh = [v for v in distinct if v not in self._references and v not in self._free]
        revived = [v for v in distinct if v in self._free]
        if self.used_blocks + len(fresh) + len(revived) + anonymous > self.capacity:
            return None
        for value in revived:
            del self._free[value]
        for value in hashes:
            self._references[value] = self._references.get(value, 0) + 1
        self._anonymous += anonymous
        while self.used_blocks + len(self._free) > self.capacity:
            self._free.popitem(last=False)
            self.evictions += 1
        return Allocation(hit * self.block_size, list(hashes), anonymous)

    def release(self, allocation: Allocation) -> None:
        """Give back the blocks of a finished or aborted request; cached ones stay until evicted."""
        for value in reversed(allocation.hashes):
            left = self._references[value] - 1
            if left:
                self._references[value] = left
            else:
                del self._references[value]
                self._free[value] = None
        self._anonymous -= allocation.anonymous
        allocation.hashes, allocation.anonymous = [], 0
