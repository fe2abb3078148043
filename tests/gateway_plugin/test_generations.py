from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_plugin.generations import Generations


def test_a_map_that_could_hold_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="holds nothing"):
        Generations(0)


@given(st.integers(1, 100), st.lists(st.integers(0, 60)))
def test_it_holds_the_newest_entries_within_its_capacity(capacity: int, keys: Sequence[int]) -> None:
    found: Generations[int, int] = Generations(capacity)
    newest: dict[int, int] = {}
    for when, key in enumerate(keys):
        found.put(key, when)
        newest.pop(key, None)
        newest[key] = when
        assert len(found) <= capacity
    part = max(1, capacity // 16)
    kept = list(newest)[-max(1, capacity - 2 * part + 1) :] if keys else []
    assert {k: found.get(k, -1) for k in kept} == {k: newest[k] for k in kept}
    assert all(found.get(k, newest[k]) == newest[k] for k in newest), "an older value came back"
    assert found.get(61, -1) == -1


def test_a_value_that_is_none_is_told_from_nothing() -> None:
    found: Generations[str, int | None] = Generations(4)
    found.put("a", None)
    assert found.get("a", 7) is None
    assert found.get("b", 7) == 7
