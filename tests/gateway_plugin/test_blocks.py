from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_plugin import blocks, prefix
from gateway_plugin.blocks import Reading, Readings
from tests.gateway_plugin.builders import answer, chat, result, user

SUMMARY = user("This session is being continued from a previous conversation that ran out of context.")
REMINDER = user("<system-reminder>budget 3</system-reminder>")


def chain_of(items: list[Any], *, max_bytes: int = 1 << 22) -> prefix.Chain:
    return prefix.build(chat(*items), items, seed=7, max_bytes=max_bytes)


def facts(reading: Reading) -> tuple[Any, ...]:
    """All that a turn is made of."""
    newest = reading.newest
    return (
        reading.users,
        reading.after,
        reading.first(),
        reading.ends_with_user,
        None if newest is None else (newest.has_tool_result, newest.text),
        reading.folded(with_newest=True),
        reading.folded(with_newest=False),
    )


_part = st.sampled_from(
    [
        {"type": "text", "text": "look at this"},
        {"type": "text", "text": "<system-reminder>budget</system-reminder>"},
        {"type": "tool_result", "tool_use_id": "t", "content": "out"},
        {"type": "image", "source": {}},
    ]
)
_item = st.one_of(
    st.sampled_from(["fix it", "now test it", "", SUMMARY["content"], REMINDER["content"]]).map(user),
    st.lists(_part, max_size=3).map(lambda parts: {"role": "user", "content": parts}),
    st.sampled_from(["c1", "c2"]).map(result),
    st.sampled_from(["", "done"]).map(lambda text: answer(text, "c1")),
    st.sampled_from(
        [
            {"role": "system", "content": "be brief"},
            {"role": "assistant", "content": None},
            {"type": "function_call", "call_id": "c1", "name": "read", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "x"},
            17,
        ]
    ),
)


@given(st.lists(st.lists(_item, min_size=1, max_size=6), min_size=1, max_size=5))
def test_a_reading_that_goes_on_from_a_kept_one_is_the_reading_of_the_whole(steps: list[list[Any]]) -> None:
    readings = Readings()
    items: list[Any] = []
    for step in steps:
        items = [*items, *step]
        assert facts(readings.read(items, chain_of(items))) == facts(blocks.read(items))


@given(st.lists(_item, max_size=12), st.lists(_item, max_size=12), st.integers(0, 12))
def test_an_edited_history_never_gets_the_reading_of_another(
    one: list[Any], other: list[Any], shared: int
) -> None:
    readings = Readings()
    edited = one[:shared] + other
    for items in (one, edited, one):
        assert facts(readings.read(items, chain_of(items))) == facts(blocks.read(items))


def test_a_call_of_a_loop_reads_only_what_it_adds(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    real = blocks.read

    def counted(items: list[Any], reading: Reading | None = None) -> Reading:
        read.append(len(items))
        return real(items, reading)

    monkeypatch.setattr(blocks, "read", counted)
    readings = Readings()
    items: list[Any] = [user("fix it")]
    for n in range(50):
        items = [*items, answer("", f"c{n}"), result(f"c{n}")]
        readings.read(items, chain_of(items))
    assert read[0] == 3
    assert set(read[1:]) == {2}


def test_no_text_of_a_prompt_is_kept() -> None:
    readings = Readings()
    for items in ([user("canary")], [user("canary"), answer("", "c1"), result("c1")], [REMINDER]):
        readings.read(items, chain_of(items))
    assert len(readings) == 1
    assert "canary" not in repr(readings._known._shards)


def test_readings_are_bounded() -> None:
    readings = Readings(max_readings=10)
    for n in range(50):
        items = [user(f"{n}"), answer("", "c1"), result("c1")]
        readings.read(items, chain_of(items))
    assert len(readings) == 10


def test_a_chain_that_was_cut_off_is_read_whole_and_not_kept() -> None:
    readings = Readings()
    items = [user("x" * 100), answer("", "c1"), result("c1")]
    chain = chain_of(items, max_bytes=10)
    assert chain.truncated
    assert facts(readings.read(items, chain)) == facts(blocks.read(items))
    assert len(readings) == 0
