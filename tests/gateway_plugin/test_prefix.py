from __future__ import annotations

import copy
import random
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_plugin import canonical, prefix
from gateway_plugin.blocks import items_of
from gateway_plugin.prefix import Chain, Head
from tests.gateway_plugin.builders import TOOLS, answer, anthropic, chat, result, tool, user


def build(body: dict[str, Any], *, seed: int = 1, max_bytes: int = 1 << 22) -> Chain:
    return prefix.build(body, items_of(body), seed=seed, max_bytes=max_bytes)


def reason(
    before: dict[str, Any] | None, after: dict[str, Any], *, same_model: bool = True, hint: bool = False
) -> str:
    return prefix.break_reason(
        None if before is None else build(before),
        build(after),
        same_model=same_model,
        compaction_hint=hint,
        previous_tool_set=None if before is None else canonical.tool_set_digest(before.get("tools", []), 1),
        tool_set=canonical.tool_set_digest(after.get("tools", []), 1),
    )


FIRST = chat(user("fix it"), tools=TOOLS)
SECOND = chat(user("fix it"), answer("", "c1"), result("c1", "x" * 100), tools=TOOLS)
THIRD = chat(
    user("fix it"), answer("", "c1"), result("c1", "x" * 100), answer("ok"), user("more"), tools=TOOLS
)


def test_a_longer_conversation_shares_everything_that_was_sent_before() -> None:
    one, two = build(FIRST), build(SECOND)
    assert prefix.shared_bytes(one, two) == one.total_bytes
    assert prefix.shared_bytes(two, one) == one.total_bytes
    assert two.total_bytes > one.total_bytes


def test_the_shared_prefix_ends_at_the_first_difference() -> None:
    edited = copy.deepcopy(THIRD)
    edited["messages"][3]["content"] = "y" * 100
    one, two = build(THIRD), build(edited)
    shared = prefix.shared_segments(one, two)
    assert shared == 4  # tools, system, the human text and the first answer
    assert prefix.shared_bytes(one, two) == one.ends[3]


def test_another_seed_gives_other_digests_of_equal_sizes() -> None:
    one, two = build(THIRD, seed=1), build(THIRD, seed=2)
    assert list(one.digests) != list(two.digests)
    assert list(one.ends) == list(two.ends)


def test_key_order_and_tool_order_count() -> None:
    swapped = chat(user("fix it"), tools=[TOOLS[1], TOOLS[0], TOOLS[2]])
    assert prefix.shared_segments(build(FIRST), build(swapped)) == 0
    keys = chat(user("fix it"), tools=[dict(reversed(t.items())) for t in TOOLS])
    assert build(FIRST).tools_digest != build(keys).tools_digest


def test_the_order_free_digest_ignores_tool_order_and_key_order_only() -> None:
    digest = canonical.tool_set_digest(TOOLS, 1)
    assert canonical.tool_set_digest([TOOLS[2], TOOLS[0], TOOLS[1]], 1) == digest
    assert canonical.tool_set_digest([dict(reversed(t.items())) for t in TOOLS], 1) == digest
    assert canonical.tool_set_digest(TOOLS[:2], 1) != digest
    assert canonical.tool_set_digest([tool("read", "another"), *TOOLS[1:]], 1) != digest


def test_cache_markers_do_not_reach_the_model_and_do_not_break_a_prefix() -> None:
    def body(marked: int) -> dict[str, Any]:
        texts: list[dict[str, Any]] = [{"type": "text", "text": f"part {i}"} for i in range(3)]
        texts[marked]["cache_control"] = {"type": "ephemeral"}
        tools = [{"name": "t", "input_schema": {}}]
        if marked:
            tools[0]["cache_control"] = {"type": "ephemeral"}
        return anthropic({"role": "user", "content": texts}, tools=tools)

    assert list(build(body(0)).digests) == list(build(body(2)).digests)


def test_cache_markers_inside_tool_results_are_left_out() -> None:
    def body(mark: bool) -> dict[str, Any]:
        part: dict[str, Any] = {"type": "text", "text": "x"}
        if mark:
            part["cache_control"] = {"type": "ephemeral"}
        return anthropic(
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [part]}]}
        )

    assert list(build(body(True)).digests) == list(build(body(False)).digests)


def test_a_lone_text_block_equals_the_plain_string() -> None:
    block = {"role": "user", "content": [{"type": "text", "text": "fix it"}]}
    assert list(build(chat(block)).digests) == list(build(chat(user("fix it"))).digests)


@pytest.mark.parametrize("nonces", [("a", "b")])
def test_the_attribution_block_of_old_clients_is_left_out(nonces: tuple[str, str]) -> None:
    def body(nonce: str) -> dict[str, Any]:
        billing = {"type": "text", "text": f"x-anthropic-billing-header: cc_version=2.1; cch={nonce};"}
        return anthropic(user("fix it"), system=[billing, {"type": "text", "text": "sys"}])

    one, two = build(body(nonces[0])), build(body(nonces[1]))
    assert list(one.digests) == list(two.digests)
    assert one.digests == build(anthropic(user("fix it"), system="sys")).digests


def test_building_a_chain_changes_nothing_in_the_request() -> None:
    body = anthropic(
        {"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]},
        system=[{"type": "text", "text": "x-anthropic-billing-header: cch=1"}, {"type": "text", "text": "s"}],
        tools=[{"name": "t", "cache_control": {"type": "ephemeral"}}],
    )
    before = copy.deepcopy(body)
    build(body)
    assert body == before


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (None, FIRST, "first"),
        (FIRST, SECOND, "none"),
        (SECOND, SECOND, "none"),
        (FIRST, {**SECOND, "tools": [TOOLS[1], TOOLS[0], TOOLS[2]]}, "tool_reorder"),
        (FIRST, {**SECOND, "tools": TOOLS[:2]}, "tools_changed"),
        (FIRST, {**SECOND, "tools": [*TOOLS, tool("new")]}, "tools_changed"),
        (FIRST, chat(user("fix it"), tools=TOOLS, system="Another."), "system_changed"),
        (
            THIRD,
            chat(user("fix IT"), answer("", "c1"), result("c1"), answer("ok"), user("more"), tools=TOOLS),
            "history_edited",
        ),
        (
            chat(user("fix it"), answer("ok"), user("retrieved text and a question"), tools=TOOLS),
            chat(user("fix it"), answer("ok"), user("a question"), answer("ok"), user("next"), tools=TOOLS),
            "retrieved_context",
        ),
    ],
)
def test_each_break_has_its_reason(before: Any, after: dict[str, Any], expected: str) -> None:
    assert reason(before, after) == expected


def test_a_model_switch_wins_over_any_change_of_text() -> None:
    assert reason(FIRST, {**SECOND, "tools": TOOLS[:1]}, same_model=False) == "model_switch"


def test_a_large_prompt_that_lost_a_third_was_compacted() -> None:
    big = chat(*[m for i in range(60) for m in (user(f"{i} " + "w" * 1000), answer("ok"))], user("go"))
    small = chat(user("summary " + "s" * 2000), answer("ok"), user("go on"))
    assert reason(big, small) == "compaction"
    assert reason(FIRST, chat(user("other"), tools=TOOLS), hint=True) == "compaction"


def test_a_chain_that_was_cut_gives_no_reason_it_cannot_know() -> None:
    body = chat(*[user("w" * 1000) for _ in range(10)])
    cut = build(body, max_bytes=3000)
    assert cut.truncated
    assert len(cut.digests) < 10
    kinds = {"same_model": True, "compaction_hint": False, "previous_tool_set": None, "tool_set": None}
    assert prefix.break_reason(cut, build(FIRST), **kinds) == "unknown"  # type: ignore[arg-type]


def test_steps_tell_the_prefix_within_any_retention() -> None:
    old, new = build(SECOND), build(FIRST)
    heads = [Head(old, 1_000_000), Head(new, 50_000_000)]
    points = prefix.steps(heads, build(THIRD), 60_000_000)
    assert points == [(10.0, new.total_bytes), (59.0, old.total_bytes)]


def test_steps_leave_out_older_and_shorter_prefixes_and_count_in_flight_as_now() -> None:
    long, short = build(SECOND), build(FIRST)
    assert prefix.steps([Head(long, None), Head(short, 1)], build(THIRD), 10_000_000) == [
        (0.0, long.total_bytes)
    ]
    assert prefix.steps([], build(THIRD), 1) == []
    assert prefix.steps([Head(build(chat(user("x"), system="y")), 1)], build(THIRD), 2) == []


def test_a_clock_that_went_back_gives_age_zero() -> None:
    assert prefix.steps([Head(build(FIRST), 100_000_000)], build(SECOND), 1)[0][0] == 0.0


@given(st.integers(0, 2**32), st.integers(1, 12), st.integers(0, 12))
def test_shared_bytes_equal_a_comparison_segment_by_segment(seed: int, length: int, cut: int) -> None:
    rng = random.Random(seed)
    messages = [user(f"{i} " + "w" * rng.randrange(50)) for i in range(length)]
    other = [*messages[:cut], *[user(f"other {i}") for i in range(rng.randrange(4))]]
    one, two = build(chat(*messages)), build(chat(*other))
    same = 0
    for a, b in zip(one.digests, two.digests, strict=False):
        if a != b:
            break
        same += 1
    assert prefix.shared_segments(one, two) == same
    assert prefix.shared_bytes(one, two) == (one.ends[same - 1] if same else 0)


def test_values_that_the_fast_serialiser_refuses_are_counted_and_go_on() -> None:
    chain = build(
        chat(
            user("half an emoji \ud83d"),
            {"role": "user", "content": 1 << 70},
            {"role": "user", "content": object()},
        )
    )
    assert chain.fallbacks == 3
    assert len(chain.digests) == 4


def test_lone_surrogates_hash_the_same_twice() -> None:
    body = chat(user("\ud83d\x00"))
    assert list(build(body).digests) == list(build(copy.deepcopy(body)).digests)


def test_deep_nesting_neither_raises_nor_ends_the_chain() -> None:
    deep: Any = "x"
    for _ in range(5000):
        deep = [{"type": "tool_result", "content": [deep]}]
    body = chat(user("a"), {"role": "user", "content": deep}, user("b"), tools=[{"x": deep}])
    assert len(build(body).digests) == 5


def test_thousands_of_tools_and_megabytes_of_text_take_well_under_a_second() -> None:
    body = chat(user("w" * 10_000_000), tools=[tool(f"tool_{i}", "d" * 500) for i in range(5000)])
    started = time.process_time()
    chain = build(body, max_bytes=1 << 24)
    canonical.tool_set_digest(body["tools"], 1)
    assert time.process_time() - started < 1.0
    assert chain.tool_count == 5000


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(alphabet=st.characters(), max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["role", "content", "type", "text", "cache_control", "x"]), inner, max_size=4
        )
    ),
    max_leaves=10,
)


@given(_json, _json, _json)
def test_any_json_gives_a_chain_and_stays_as_it_was(messages: Any, system: Any, tools: Any) -> None:
    body = {"messages": messages, "system": system, "tools": tools}
    before = copy.deepcopy(body)
    chain = build(body)
    assert repr(body) == repr(before)
    assert len(chain.digests) == len(chain.ends)
    assert list(chain.ends) == sorted(chain.ends)
    if isinstance(tools, list):
        canonical.tool_set_digest(tools, 1)
