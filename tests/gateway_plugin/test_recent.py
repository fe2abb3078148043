from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_plugin.recent import Recent


def test_a_map_that_could_hold_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="holds nothing"):
        Recent(0)


Step = tuple[str, int]
STEPS = st.lists(st.tuples(st.sampled_from(["put", "use", "get", "forget"]), st.integers(0, 30)))


@given(st.integers(1, 20), STEPS)
def test_a_small_map_forgets_exactly_the_entry_that_was_used_longest_ago(
    capacity: int, steps: Sequence[Step]
) -> None:
    recent: Recent[int, str] = Recent(capacity)
    model: OrderedDict[int, str] = OrderedDict()
    for number, (step, key) in enumerate(steps):
        if step == "put":
            old = model.popitem(last=False)[1] if key not in model and len(model) == capacity else None
            model[key] = str(number)
            model.move_to_end(key)
            assert recent.put(key, str(number)) == old
        elif step == "use":
            if key in model:
                model.move_to_end(key)
            assert recent.use(key) == model.get(key)
        elif step == "forget" and model:
            assert recent.forget() == model.popitem(last=False)[1]
        assert recent.get(key) == model.get(key)
        assert len(recent) == len(model)


def test_a_large_map_keeps_its_bound_and_what_was_used_lately() -> None:
    recent: Recent[int, int] = Recent(3_200)
    for key in range(10_000):
        recent.put(key, key)
        recent.use(7)
    assert len(recent) <= 3_200
    assert recent.get(7) == 7
    assert all(recent.get(key) == key for key in range(10_000 - 1_600, 10_000))
    assert recent.get(8) is None


def test_an_empty_map_has_nothing_to_forget() -> None:
    with pytest.raises(KeyError):
        Recent[int, int](3).forget()


def test_a_value_that_is_none_is_told_from_nothing_by_the_default() -> None:
    recent: Recent[str, str | None] = Recent(4)
    recent.put("a", None)
    assert recent.get("a", "default") is None
    assert recent.get("b", "default") == "default"
