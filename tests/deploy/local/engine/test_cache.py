"""The prefix cache against a plain model of it, and the order in which it forgets."""

from __future__ import annotations

from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.local.engine.cache import Allocation, PrefixCache

BLOCK = 2


class PlainCache:
    """The same rules by brute force: blocks are whole prefixes, the order of forgetting is a list."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.running: list[tuple[list[tuple[int, ...]], int]] = []
        self.free: list[tuple[int, ...]] = []

    def held(self) -> set[tuple[int, ...]]:
        return {prefix for prefixes, _ in self.running for prefix in prefixes}

    def used(self) -> int:
        return len(self.held()) + sum(private for _, private in self.running)

    def admit(self, tokens: list[int], output: int) -> int | None:
        prefixes = [tuple(tokens[:end]) for end in range(BLOCK, len(tokens) + 1, BLOCK)]
        known = self.held() | set(self.free)
        hit = 0
        while hit < len(prefixes) and prefixes[hit] in known and (hit + 1) * BLOCK <= len(tokens) - 1:
            hit += 1
        blocks = (len(tokens) + output + BLOCK - 1) // BLOCK
        private = blocks - len(prefixes)
        if len(self.held() | set(prefixes)) + self.used() - len(self.held()) + private > self.capacity:
            return None
        self.running.append((prefixes, private))
        self.free = [prefix for prefix in self.free if prefix not in prefixes]
        self.free = self.free[max(0, self.used() + len(self.free) - self.capacity) :]
        return hit * BLOCK

    def release(self, index: int) -> None:
        prefixes, _ = self.running.pop(index)
        self.free += [prefix for prefix in reversed(prefixes) if prefix not in self.held()]


def admit(cache: PrefixCache, tokens: list[int], output: int = 0) -> Allocation | None:
    return cache.admit(cache.chain(array("I", tokens)), len(tokens), output)


def must(allocation: Allocation | None) -> Allocation:
    assert allocation is not None
    return allocation


def known(cache: PrefixCache, tokens: list[int]) -> list[bool]:
    return cache.contains(cache.chain(array("I", tokens)))


PROMPTS = st.lists(st.integers(0, 1), min_size=1, max_size=10)
STEPS = st.lists(st.one_of(st.tuples(PROMPTS, st.integers(0, 4)), st.integers(0, 5)), max_size=40)


@given(capacity=st.integers(1, 12), steps=STEPS)
def test_hits_refusals_and_sizes_equal_those_of_a_plain_model(capacity: int, steps: list[Any]) -> None:
    cache, plain = PrefixCache(block_size=BLOCK, capacity_blocks=capacity), PlainCache(capacity)
    running: list[Allocation] = []
    for step in steps:
        if isinstance(step, int):
            if running:
                index = step % len(running)
                cache.release(running.pop(index))
                plain.release(index)
        else:
            tokens, output = step
            allocation, expected = admit(cache, tokens, output), plain.admit(tokens, output)
            assert (allocation.cached_tokens if allocation else None) == expected
            if allocation:
                running.append(allocation)
        assert cache.used_blocks == plain.used()
        assert cache.cached_blocks == len(plain.free)
        assert cache.used_blocks + cache.cached_blocks <= capacity


@pytest.mark.parametrize(("length", "hit"), [(1, 0), (2, 0), (3, 2), (4, 2), (5, 4), (9, 8)])
def test_only_whole_blocks_hit_and_one_token_is_always_computed(length: int, hit: int) -> None:
    cache = PrefixCache(block_size=BLOCK, capacity_blocks=20)
    tokens = list(range(length))
    cache.release(must(admit(cache, tokens)))
    assert must(admit(cache, tokens)).cached_tokens == hit


def test_a_block_is_known_by_what_stands_before_it() -> None:
    cache = PrefixCache(block_size=BLOCK, capacity_blocks=20)
    cache.release(must(admit(cache, [1, 2, 3, 4, 5])))
    assert must(admit(cache, [9, 9, 3, 4, 5])).cached_tokens == 0


def test_the_tail_of_a_sequence_is_evicted_first() -> None:
    cache = PrefixCache(block_size=BLOCK, capacity_blocks=4)
    cache.release(must(admit(cache, [1, 1, 2, 2, 3, 3])))
    cache.release(must(admit(cache, [7, 7, 8, 8])))
    assert cache.evictions == 1
    assert known(cache, [1, 1, 2, 2, 3, 3]) == [True, True, False]


def test_the_least_recently_used_sequence_is_evicted_first() -> None:
    cache = PrefixCache(block_size=BLOCK, capacity_blocks=4)
    first, second = [1, 1, 2, 2], [3, 3, 4, 4]
    cache.release(must(admit(cache, first)))
    cache.release(must(admit(cache, second)))
    cache.release(must(admit(cache, first)))
    cache.release(must(admit(cache, [5, 5, 6, 6])))
    assert known(cache, first) == [True, True]
    assert known(cache, second) == [False, False]


def test_blocks_of_running_requests_are_never_evicted() -> None:
    cache = PrefixCache(block_size=BLOCK, capacity_blocks=4)
    pinned = must(admit(cache, [1, 1, 2, 2]))
    for start in range(10, 40, 10):
        cache.release(must(admit(cache, [start, start, start + 1, start + 1])))
    assert known(cache, [1, 1, 2, 2]) == [True, True]
    assert admit(cache, [50, 50, 51, 51, 52, 52]) is None
    cache.release(pinned)
    assert admit(cache, [50, 50, 51, 51, 52, 52]) is not None


def test_a_refused_request_changes_nothing() -> None:
    cache = PrefixCache(block_size=BLOCK, capacity_blocks=3)
    cache.release(must(admit(cache, [1, 1])))
    must(admit(cache, [2, 2, 3, 3]))
    assert admit(cache, [1, 1, 4, 4]) is None
    assert known(cache, [1, 1, 4, 4]) == [True, False]
    assert (cache.used_blocks, cache.cached_blocks, cache.evictions) == (2, 1, 0)


def test_the_answer_and_the_unfinished_block_are_private() -> None:
    cache = PrefixCache(block_size=BLOCK, capacity_blocks=10)
    allocation = must(admit(cache, [1, 1, 2], output=4))
    assert (len(allocation.hashes), allocation.private) == (1, 3)
    cache.release(allocation)
    assert (cache.used_blocks, cache.cached_blocks) == (0, 1)


def test_blocks_that_an_aborted_prefill_did_not_reach_are_dropped() -> None:
    cache = PrefixCache(block_size=BLOCK, capacity_blocks=10)
    cache.release(must(admit(cache, [1, 1, 2, 2])))
    longer = [1, 1, 2, 2, 3, 3, 4, 4]
    cache.release(must(admit(cache, longer)), computed_tokens=7)
    assert known(cache, longer) == [True, True, True, False]


def test_an_aborted_prefill_takes_nothing_from_requests_that_share_its_blocks() -> None:
    cache = PrefixCache(block_size=BLOCK, capacity_blocks=10)
    aborted, other = must(admit(cache, [1, 1, 2, 2, 3])), must(admit(cache, [1, 1, 2, 2, 4]))
    cache.release(aborted, computed_tokens=0)
    assert known(cache, [1, 1, 2, 2]) == [True, True]
    cache.release(other)
    assert cache.used_blocks == 0


def test_releasing_twice_is_releasing_once() -> None:
    cache = PrefixCache(block_size=BLOCK, capacity_blocks=10)
    allocation, other = must(admit(cache, [1, 1, 2])), must(admit(cache, [1, 1, 3]))
    cache.release(allocation)
    cache.release(allocation)
    assert cache.used_blocks == 2
    cache.release(other)
    assert cache.used_blocks == 0


@pytest.mark.parametrize(("size", "capacity"), [(0, 1), (1, 0), (-1, 5)])
def test_sizes_must_be_positive(size: int, capacity: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        PrefixCache(block_size=size, capacity_blocks=capacity)
