from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_plugin import prefix
from gateway_plugin.beginnings import Beginnings
from gateway_plugin.blocks import items_of
from gateway_plugin.prefix import Chain
from tests.gateway_plugin.builders import TOOLS, answer, anthropic, chat, result, user

_MAX = 1 << 22


def digest(body: dict[str, Any], known: Beginnings | None, max_bytes: int = _MAX) -> Chain:
    return prefix.build(body, items_of(body), seed=7, max_bytes=max_bytes, beginnings=known)


def facts(chain: Chain) -> tuple[Any, ...]:
    return (
        list(chain.digests),
        list(chain.ends),
        chain.tools_digest,
        chain.system_digest,
        chain.tail_start,
        chain.body_start,
        chain.answers,
        chain.truncated,
        chain.fallbacks,
    )


def steps(count: int, text: str = "x") -> list[dict[str, Any]]:
    messages = [user("fix it")]
    for n in range(count):
        messages += [answer(f"step {n}", f"c{n}"), result(f"c{n}", f"{text} {n} " * 20)]
    return messages


def block(text: str, *, marked: bool = False) -> dict[str, Any]:
    part: dict[str, Any] = {"type": "tool_result", "tool_use_id": "t", "content": text}
    if marked:
        part["cache_control"] = {"type": "ephemeral"}
    return {"role": "user", "content": [part]}


def taken_over(known: Beginnings, body: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> int:
    """Digest *body* and return how many of its messages were taken over."""
    found: list[int] = []
    find = known.find

    def spy(*args: Any) -> Any:
        conversation, beginning = find(*args)
        found.append(beginning.count if beginning is not None else 0)
        return conversation, beginning

    with monkeypatch.context() as patch:
        patch.setattr(known, "find", spy)
        digest(body, known)
    return found[0]


def test_a_call_that_goes_on_takes_over_all_but_the_last_messages_of_the_one_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = Beginnings(_MAX, 7)
    assert taken_over(known, chat(*steps(20), tools=TOOLS), monkeypatch) == 0
    for count in (21, 22, 23, 24):
        assert taken_over(known, chat(*steps(count), tools=TOOLS), monkeypatch) == 41 - 4
    # It is kept anew once it has grown by eight messages.
    assert taken_over(known, chat(*steps(25), tools=TOOLS), monkeypatch) == 49 - 4


def test_cache_markers_that_move_over_the_last_messages_leave_the_beginning_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = Beginnings(_MAX, 7)

    def marked(count: int) -> dict[str, Any]:
        messages: list[dict[str, Any]] = [user("fix it")]
        for n in range(count):
            messages += [answer(f"step {n}"), block(f"result {n}", marked=n >= count - 2)]
        return anthropic(*messages)

    for count in (20, 22, 24):
        body = marked(count)
        assert facts(digest(body, known)) == facts(digest(body, None))
    assert taken_over(known, marked(25), monkeypatch) == 49 - 4


@pytest.mark.parametrize("place", range(0, 41, 5))
def test_an_edit_anywhere_gives_the_chain_of_the_edited_conversation(place: int) -> None:
    known = Beginnings(_MAX, 7)
    digest(chat(*steps(20)), known)
    edited = steps(20)
    edited[place]["content"] = "something else"
    chain = digest(chat(*edited), known)
    assert facts(chain) == facts(digest(chat(*edited), None))
    assert facts(digest(chat(*steps(21)), known)) == facts(digest(chat(*steps(21)), None))


def test_another_system_prompt_or_catalogue_is_another_conversation(monkeypatch: pytest.MonkeyPatch) -> None:
    known = Beginnings(_MAX, 7)
    digest(chat(*steps(20), tools=TOOLS), known)
    assert taken_over(known, chat(*steps(21), tools=TOOLS[:2]), monkeypatch) == 0
    assert taken_over(known, chat(*steps(21), tools=TOOLS, system="Another."), monkeypatch) == 0
    assert taken_over(known, chat(*steps(21), tools=TOOLS), monkeypatch) == 37


def test_branches_of_one_conversation_are_known_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    known = Beginnings(_MAX, 7)
    one, two = steps(20), [*steps(15), *steps(8, "y")[1:]]
    for messages in (one, two):
        digest(chat(*messages), known)
    assert taken_over(known, chat(*one, answer("more"), result("c", "z")), monkeypatch) == 37
    assert taken_over(known, chat(*two, answer("more"), result("c", "z")), monkeypatch) == 43
    assert len(known) == 1


def test_what_is_known_is_kept_apart_from_the_chain_that_takes_it_over() -> None:
    known = Beginnings(_MAX, 7)
    first = digest(chat(*steps(20)), known)
    before = facts(first)
    digest(chat(*steps(25)), known)
    assert facts(first) == before


def test_a_message_that_the_serialiser_refuses_is_digested_as_without_a_memory() -> None:
    known = Beginnings(_MAX, 7)
    messages = steps(20)
    messages[10]["content"] = "lone \ud800"
    for body in (chat(*messages), chat(*messages, user("more"))):
        chain = digest(body, known)
        assert facts(chain) == facts(digest(body, None))
        assert chain.fallbacks == 1
    assert len(known) == 0


def test_short_conversations_are_not_kept() -> None:
    known = Beginnings(_MAX, 7)
    digest(chat(*steps(6)), known)
    assert len(known) == 0


def test_a_prompt_above_the_cut_off_ends_there_with_and_without_a_memory() -> None:
    whole = digest(chat(*steps(40)), None).total_bytes
    for limit in (whole - 1, whole // 2, whole // 20, 1):
        known = Beginnings(_MAX, 7)
        for count in (20, 40, 41):
            body = chat(*steps(count))
            assert facts(digest(body, known, limit)) == facts(digest(body, None, limit))
        assert digest(chat(*steps(41)), known, limit).truncated


@pytest.mark.parametrize(("size", "kept"), [(60_000, 1), (200_000, 0)])
def test_a_large_prompt_is_digested_once_and_not_kept(size: int, kept: int) -> None:
    known = Beginnings(1 << 26, 7)
    body = chat(*(user(f"{n}" + "x" * size) for n in range(20)))
    assert facts(digest(body, known)) == facts(digest(body, None))
    assert len(known) == kept


def test_memory_is_bounded_by_conversations_and_by_bytes() -> None:
    known = Beginnings(20_000, 7)
    for n in range(50):
        digest(chat(user(f"task {n}"), *steps(20)[1:]), known)
    assert 1 < len(known) < 12
    assert known.nbytes <= 20_000


_ODD = ({}, 5, "text", None, ["a"], {"content": [{"text": "t"}]})


@st.composite
def _conversations(draw: st.DrawFn) -> list[dict[str, Any]]:
    """A line of requests of one conversation: growing, edited, cut, with markers and odd messages."""
    made: list[dict[str, Any]] = []
    messages = steps(10)
    for n in range(draw(st.integers(2, 6))):
        change = draw(st.sampled_from(["grow", "grow", "edit", "cut", "mark", "odd"]))
        messages = copy.deepcopy(messages)
        place = draw(st.integers(0, len(messages) - 1))
        if change == "grow":
            messages += steps(draw(st.integers(1, 4)), f"call {n}")[1:]
        elif change == "edit":
            messages[place] = user(f"edited {n}")
        elif change == "cut":
            del messages[place + 1 :]
        elif change == "mark":
            messages[place] = {**user("marked"), "cache_control": {"type": "ephemeral"}}
        else:
            messages[place] = draw(
                st.sampled_from([{}, 5, "text", None, ["a"], {"content": [{"text": "t"}]}])
            )
        made.append({"messages": messages})
    return made


@given(_conversations(), st.sampled_from([_MAX, 3_000, 1_500]))
def test_the_chain_is_the_same_with_and_without_a_memory(bodies: list[dict[str, Any]], limit: int) -> None:
    known = Beginnings(_MAX, 7)
    for body in bodies:
        assert facts(digest(body, known, limit)) == facts(digest(body, None, limit))
