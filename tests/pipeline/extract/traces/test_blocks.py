from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pipeline.extract.traces.blocks import BlockTouches, prefix_fields, runs_of

_calls = st.lists(
    st.tuples(st.lists(st.integers(0, 12), max_size=12, unique=True), st.integers(0, 5), st.integers(0, 5)),
    max_size=12,
)


@given(st.lists(st.integers(-3, 20)))
def test_runs_hold_the_same_ids_in_the_same_order(ids: list[int]) -> None:
    runs = runs_of(ids)
    assert [n for first, length in runs for n in range(first, first + length)] == ids
    assert all(a + b != c for (a, b), (c, _) in pairwise(runs))


@given(_calls)
def test_steps_equal_the_definition_on_single_blocks(calls: list[tuple[list[int], int, int]]) -> None:
    """For every retention: the longest prefix whose blocks were all touched no longer ago."""
    touches = BlockTouches()
    last: dict[int, float] = {}
    clock = 0.0
    for ids, gap, length in calls:
        clock += gap
        steps = touches.steps(runs_of(ids), clock)
        for retention in (0.0, 1.0, 4.0, 1e9):
            expected = 0
            for block in ids:
                if block not in last or max(0.0, clock - last[block]) > retention:
                    break
                expected += 1
            assert max((n for age, n in steps if age <= retention), default=0) == expected
        assert steps == sorted(steps)
        touches.touch(runs_of(ids), clock + length)
        last |= dict.fromkeys(ids, clock + length)


def test_a_prefix_is_never_longer_than_its_prompt() -> None:
    touches = BlockTouches()
    first: dict[str, Any] = prefix_fields(touches, [(0, 2)], 64, 100, 0.0, 1.0)
    again = prefix_fields(touches, [(0, 2)], 64, 100, 5.0, 6.0)
    assert (first["shared_bytes"], first["prefix_steps"]) == (0, "[]")
    assert (again["shared_bytes"], again["prefix_steps"]) == (100, "[[4.0,100]]")
