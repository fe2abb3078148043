"""The potential prefix out of block ids: which of a prompt's leading blocks earlier calls held, and when.

A trace without text names the blocks of every prompt by ids: equal ids hold equal text. The potential prefix
of a call is the longest prefix whose blocks were all touched by earlier calls of its stream, where touched
means the end of the latest call that held the block. Sizes are in tokens instead of bytes (``prompt_bytes`` =
input tokens), so no rounding comes in.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from typing import Any

import orjson

Run = tuple[int, int]


def runs_of(ids: Iterable[int]) -> list[Run]:
    """Return *ids* as runs [(first id, how many consecutive ids), …], in their order."""
    runs: list[Run] = []
    first = length = 0
    for number in ids:
        if length and number == first + length:
            length += 1
            continue
        if length:
            runs.append((first, length))
        first, length = number, 1
    if length:
        runs.append((first, length))
    return runs


def prefix_fields(
    touches: BlockTouches, runs: Sequence[Run], block: int, tokens: int, start_s: float, end_s: float
) -> dict[str, Any]:
    """Return the prefix fields of a call and record that it held its blocks.

    Args:
        touches: of the call's stream.
        runs: its blocks.
        block: tokens of a block; the last block of a prompt may hold fewer, so a prefix is at most *tokens*.
        tokens: of the whole prompt.
        start_s: when it started, seconds on any clock.
        end_s: when it ended, on the same clock.
    """
    steps = [(age, min(blocks * block, tokens)) for age, blocks in touches.steps(runs, start_s)]
    touches.touch(runs, end_s)
    return {
        "prompt_bytes": tokens,
        "shared_bytes": steps[-1][1] if steps else 0,
        "prefix_steps": orjson.dumps(steps).decode(),
    }


class BlockTouches:
    """When each block id of a stream was last touched, kept as runs of equal instants."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._runs: list[tuple[int, int, float]] = []  # [first, past the last), instant; disjoint, rising

    def steps(self, runs: Sequence[Sequence[int]], now: float) -> list[tuple[float, int]]:
        """Return [(age in seconds, blocks)], rising: how much of the prefix *runs* is no older than each age.

        A block that a call still in flight touched has age 0.
        """
        steps: list[tuple[float, int]] = []
        oldest, length = 0.0, 0
        for first, count in runs:
            position, stop = first, first + count
            while position < stop:
                index = bisect.bisect_right(self._starts, position) - 1
                if index < 0 or self._runs[index][1] <= position:
                    return steps
                _, end, instant = self._runs[index]
                age = max(0.0, now - instant)
                length += min(end, stop) - position
                if steps and age <= oldest:
                    steps[-1] = (oldest, length)
                else:
                    oldest = age
                    steps.append((age, length))
                position = min(end, stop)
        return steps

    def touch(self, runs: Sequence[Sequence[int]], instant: float) -> None:
        """Record that a call that ended at *instant* held the blocks *runs*."""
        for first, count in runs:
            self._cover(first, first + count, instant)

    def _cover(self, first: int, stop: int, instant: float) -> None:
        low = bisect.bisect_right(self._starts, first) - 1
        if low < 0 or self._runs[low][1] <= first:
            low += 1
        high = low
        kept: list[tuple[int, int, float]] = []
        while high < len(self._runs) and self._runs[high][0] < stop:
            begin, end, old = self._runs[high]
            if begin < first:
                kept.append((begin, first, old))
            if end > stop:
                kept.append((stop, end, old))
            high += 1
        replacement = sorted([*kept, (first, stop, instant)])
        self._runs[low:high] = replacement
        self._starts[low:high] = [run[0] for run in replacement]
