"""Long histories of the prefix cache against brute force: order of eviction, pins, aborts, equal blocks."""

from __future__ import annotations

from array import array
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from deploy.local.engine.cache import Allocation, PrefixCache

BLOCK = 3
CAPACITY = 9


@dataclass
class Running:
    """A request under way: the blocks of its prompt, its other blocks, and those that it brought in."""

    allocation: Allocation
    blocks: list[int]
    private: int
    brought: set[int]


class CacheHistory(RuleBasedStateMachine):
    """Requests that come and end in any order; what the cache must know is kept in plain lists."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = PrefixCache(block_size=BLOCK, capacity_blocks=CAPACITY)
        self.running: list[Running] = []
        self.idle: list[int] = []  # oldest first
        self.evicted = 0
        self.seen: set[int] = set()

    def pinned(self) -> set[int]:
        return {block for request in self.running for block in request.blocks}

    def used(self) -> int:
        return len(self.pinned()) + sum(request.private for request in self.running)

    @rule(
        # Ids of blocks instead of real hashes: two blocks of one prompt may have the same.
        blocks=st.lists(st.integers(0, 6), max_size=5),
        rest=st.integers(0, BLOCK - 1),
        output=st.integers(1, 7),
    )
    def admit(self, blocks: list[int], rest: int, output: int) -> None:
        length = len(blocks) * BLOCK + rest
        known = self.pinned() | set(self.idle)
        hit = 0
        while hit < len(blocks) and blocks[hit] in known and (hit + 1) * BLOCK < length:
            hit += 1
        private = (length + output + BLOCK - 1) // BLOCK - len(blocks)
        fits = len(self.pinned() | set(blocks)) + self.used() - len(self.pinned()) + private <= CAPACITY
        allocation = self.cache.admit(blocks, length, output)
        assert (allocation is not None) == fits
        if allocation is None:
            return
        assert allocation.cached_tokens == hit * BLOCK
        self.running.append(Running(allocation, blocks, private, set(blocks) - known))
        self.idle = [block for block in self.idle if block not in blocks]
        while self.used() + len(self.idle) > CAPACITY:
            self.idle.pop(0)
            self.evicted += 1
        self.seen |= set(blocks)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), computed=st.none() | st.integers(0, 5 * BLOCK))
    def end(self, data: st.DataObject, computed: int | None) -> None:
        """A request ends, or is aborted in its prefill when it has *computed* so many tokens."""
        request = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        self.cache.release(request.allocation, computed_tokens=computed)
        held = self.pinned()
        reached = len(request.blocks) if computed is None else computed // BLOCK
        for block in reversed(list(dict.fromkeys(request.blocks))):  # the tail is forgotten first
            first = request.blocks.index(block)
            if block not in held and (first < reached or block not in request.brought):
                self.idle.append(block)
        self.cache.release(request.allocation)  # once more changes nothing

    @invariant()
    def agrees(self) -> None:
        assert self.cache.used_blocks == self.used()
        assert self.cache.cached_blocks == len(self.idle)
        assert self.cache.evictions == self.evicted
        assert self.cache.used_blocks + self.cache.cached_blocks <= CAPACITY
        known = self.pinned() | set(self.idle)
        every = sorted(self.seen)
        assert self.cache.contains(every) == [block in known for block in every]


TestCacheHistory = CacheHistory.TestCase
TestCacheHistory.settings = settings(max_examples=60, stateful_step_count=30)


@pytest.mark.parametrize("idle_before", [False, True])
def test_a_block_that_occurs_twice_in_a_prompt_is_held_once(idle_before: bool) -> None:
    cache = PrefixCache(block_size=BLOCK, capacity_blocks=4)
    if idle_before:
        first = cache.admit([7], BLOCK + 1, 1)
        assert first
        cache.release(first)
        assert cache.cached_blocks == 1
    twice = cache.admit([7, 7], 2 * BLOCK + 1, 1)
    assert twice
    assert cache.used_blocks == 1 + 1
    cache.release(twice)
    assert (cache.used_blocks, cache.cached_blocks) == (0, 1)


@given(
    shared=st.lists(st.integers(0, 2**32 - 1), max_size=20),
    one=st.lists(st.integers(0, 1), max_size=10),
    other=st.lists(st.integers(0, 1), max_size=10),
    size=st.integers(1, 5),
)
def test_chains_are_equal_exactly_as_far_as_the_tokens_are(
    shared: list[int], one: list[int], other: list[int], size: int
) -> None:
    cache = PrefixCache(block_size=size, capacity_blocks=1)
    a, b = shared + one, shared + other
    chains = [cache.chain(array("I", tokens)) for tokens in (a, b)]
    assert [len(chain) for chain in chains] == [len(a) // size, len(b) // size]
    for index, (x, y) in enumerate(zip(*chains, strict=False)):
        end = (index + 1) * size
        assert (x == y) == (a[:end] == b[:end])


def test_equal_blocks_at_different_places_are_different_blocks() -> None:
    chain = PrefixCache(block_size=2, capacity_blocks=1).chain(array("I", [0] * 40))
    assert len(set(chain)) == 20
