from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway_plugin import canonical, prefix
from gateway_plugin.blocks import items_of
from gateway_plugin.prefix import Chain
from gateway_plugin.state import Entry, SessionState
from gateway_plugin.turns import Turn
from tests.gateway_plugin.builders import TOOLS, answer, chat, result, user

SECOND = 1_000_000


class Store:
    """A session state with calls entered by their bodies."""

    def __init__(self, **limits: Any) -> None:
        values: dict[str, Any] = {"max_streams": 100, "max_bytes": 1 << 24, "heads_per_model": 4, "seed": 1}
        self.state = SessionState(**(values | limits))
        self.n = 0

    def call(
        self,
        *messages: dict[str, Any],
        at_s: float = 0,
        model: str = "m",
        session: str = "s",
        agent: str = "main",
        side: bool = False,
        tools: Any = TOOLS,
        system: str = "sys",
    ) -> Entry:
        body = chat(*messages, tools=tools, system=system)
        self.n += 1
        return self.state.begin(
            self.state.stream(session, agent),
            prefix.build(body, items_of(body), seed=1, max_bytes=1 << 22),
            body,
            model=model,
            event_id=f"e{self.n}",
            now_us=int(at_s * SECOND),
            compaction_hint=False,
            side=side,
        )

    def done(self, entry: Entry, at_s: float, *, sent: bool = True) -> None:
        self.state.end(entry, int(at_s * SECOND), sent=sent)


A, B = user("fix it"), user("and test it")


def turn(turn_id: str | None, index: int | None = None, call: int | None = None) -> Turn:
    return Turn(turn_id, index, call, "user", "E3", False, 1)


def test_the_first_call_of_a_stream_has_nothing_before_it() -> None:
    facts = Store().call(A).facts
    assert (facts.reason, facts.shared_bytes, facts.idle_ms, facts.previous_event_id) == (
        "first",
        0,
        None,
        None,
    )


def test_a_call_is_linked_to_the_previous_one_with_idle_time_and_prefix() -> None:
    store = Store()
    one = store.call(A, at_s=0)
    store.done(one, 2)
    two = store.call(A, answer("", "c"), result("c"), at_s=5)
    assert two.facts.reason == "none"
    assert two.facts.previous_event_id == one.event_id
    assert two.facts.idle_ms == 3000
    assert two.facts.steps == [(3.0, one.chain.total_bytes)]


def test_idle_time_is_zero_while_an_earlier_call_is_in_flight() -> None:
    store = Store()
    store.call(A)
    assert store.call(A, answer("x"), B, at_s=9).facts.idle_ms == 0.0


def test_a_branch_keeps_the_prefix_of_the_other_branch() -> None:
    store = Store()
    trunk = store.call(A, answer("one"), B)
    store.done(trunk, 1)
    branch = store.call(A, answer("two"), at_s=2)
    store.done(branch, 3)
    back = store.call(A, answer("one"), B, answer("three"), at_s=10)
    assert back.facts.shared_bytes == trunk.chain.total_bytes
    assert back.facts.steps[-1] == (9.0, trunk.chain.total_bytes)
    assert back.facts.steps[0][0] == 7.0


def test_prefixes_are_kept_by_model() -> None:
    store = Store()
    one = store.call(A, model="big")
    store.done(one, 1)
    other = store.call(A, answer("x"), B, model="small", at_s=2)
    assert (other.facts.reason, other.facts.shared_bytes) == ("model_switch", 0)
    store.done(other, 3)
    back = store.call(A, answer("x"), B, answer("y"), model="big", at_s=4)
    assert (back.facts.reason, back.facts.shared_bytes) == ("model_switch", one.chain.total_bytes)


def test_a_refused_call_leaves_no_prefix_and_gives_back_what_it_replaced() -> None:
    store = Store()
    one = store.call(A)
    store.done(one, 1)
    refused = store.call(A, answer("x"), B, at_s=2)
    store.done(refused, 2.1, sent=False)
    retry = store.call(A, answer("x"), B, at_s=5)
    assert retry.facts.shared_bytes == one.chain.total_bytes
    assert retry.facts.previous_event_id == one.event_id
    assert retry.facts.reason == "none"
    assert retry.facts.idle_ms == 4000


def test_a_call_beside_the_work_is_no_model_switch_and_takes_one_slot_only() -> None:
    store = Store()
    one = store.call(A)
    store.done(one, 1)
    for n in range(10):
        title = store.call(user(f"title {n}"), system="Titles.", tools=None, side=True, at_s=2)
        store.done(title, 2.5)
    two = store.call(A, answer("x"), B, at_s=4)
    assert two.facts.reason == "none"
    assert two.facts.previous_event_id == one.event_id
    assert two.facts.shared_bytes == one.chain.total_bytes


def test_a_side_call_on_a_small_model_does_not_move_the_model_of_the_work() -> None:
    store = Store()
    store.done(store.call(A, model="big"), 1)
    store.done(store.call(user("t"), model="small", system="T", tools=None, side=True, at_s=2), 2.1)
    assert store.call(A, answer("x"), B, model="big", at_s=3).facts.reason == "none"


def test_streams_are_bounded_by_number_and_the_least_used_goes() -> None:
    store = Store(max_streams=3)
    for name in ("a", "b", "c"):
        store.done(store.call(A, session=name), 1)
    store.state.stream("a", "main")
    store.call(A, session="d")
    assert len(store.state) == 3
    assert store.state.evicted == 1
    assert store.call(A, answer("x"), B, session="a").facts.reason == "none"
    assert store.call(A, answer("x"), B, session="b").facts.reason == "first"


def test_streams_are_bounded_by_bytes() -> None:
    store = Store(max_bytes=20_000)
    for n in range(100):
        store.call(*[user(f"{i}") for i in range(50)], session=f"s{n}")
        assert store.state.nbytes <= 20_000
    assert store.state.evicted > 80


def test_very_many_branches_are_cut_and_counted() -> None:
    store = Store(heads_per_model=2)
    for n in range(5):
        store.done(store.call(user(f"{n}")), n)
    assert store.state.heads_cut == 3


@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 5), st.booleans(), st.booleans()), min_size=5, max_size=40
    )
)
def test_the_account_of_bytes_is_exact_whatever_happens(steps: list[tuple[int, int, bool, bool]]) -> None:
    store = Store(max_streams=2, heads_per_model=2)
    open_entries: list[Entry] = []
    for session, length, side, sent in steps:
        open_entries.append(
            store.call(*[user(f"{i}") for i in range(length)], session=str(session), side=side)
        )
        if len(open_entries) > 2:
            store.done(open_entries.pop(0), 1, sent=sent)
    # Ends of calls whose stream was evicted meanwhile must not disturb the account of the others.
    for entry in open_entries:
        store.done(entry, 2, sent=False)
    kept = [stream for shard in store.state._streams._shards for stream in shard.values()]
    assert store.state.nbytes == sum(stream.nbytes for stream in kept)


def test_prefix_equals_the_definition_on_random_branching_conversations() -> None:
    """Brute force: the longest prefix of whole segments that any earlier call of the stream sent."""
    import random

    rng = random.Random(5)
    store = Store(heads_per_model=32)
    sent: list[Chain] = []
    history: list[dict[str, Any]] = [A]
    for step in range(60):
        if rng.random() < 0.2 and len(history) > 2:
            del history[rng.randrange(1, len(history)) :]
        history.append(user(f"message {rng.randrange(3)}"))
        entry = store.call(*history, at_s=step)
        expected = max((prefix.shared_bytes(c, entry.chain) for c in sent), default=0)
        assert entry.facts.shared_bytes == expected
        sent.append(entry.chain)
        store.done(entry, step + 0.5)


def test_a_call_without_human_text_of_its_own_stays_in_the_turn() -> None:
    stream = Store().state.stream("s", "main")
    assert SessionState.settle_turn(stream, turn("t1", 1, 1)) == ("t1", 1, 1)
    assert SessionState.settle_turn(stream, turn("t1", 1, 2)) == ("t1", 1, 2)
    assert SessionState.settle_turn(stream, turn(None)) == ("t1", 1, 3)
    assert SessionState.settle_turn(stream, turn("t2", 2, 1)) == ("t2", 2, 1)


def test_the_call_index_counts_calls_beside_the_work_and_repeats() -> None:
    stream = Store().state.stream("s", "main")
    SessionState.settle_turn(stream, turn("t1", 1, 1))
    assert SessionState.settle_turn(stream, turn(None), side=True) == ("t1", 1, 2)
    assert SessionState.settle_turn(stream, turn("t1", 1, 2)) == ("t1", 1, 3)
    assert SessionState.settle_turn(stream, turn("t1", 1, 9)) == ("t1", 1, 9)


def test_a_call_beside_the_work_never_opens_a_turn() -> None:
    stream = Store().state.stream("s", "main")
    SessionState.settle_turn(stream, turn("t1", 4, 1))
    assert SessionState.settle_turn(stream, turn("other", 1, 1), side=True) == ("t1", 4, 2)
    assert SessionState.settle_turn(stream, turn("t1", 4, 2)) == ("t1", 4, 3)


def test_a_turn_of_unknown_number_follows_the_last_known() -> None:
    stream = Store().state.stream("s", "main")
    SessionState.settle_turn(stream, turn("t1", 3, 1))
    assert SessionState.settle_turn(stream, turn("t2", None, 1)) == ("t2", 4, 1)


def test_an_order_free_digest_is_computed_once_per_catalogue(monkeypatch: Any) -> None:
    runs = []
    real = canonical.tool_set_digest
    monkeypatch.setattr(canonical, "tool_set_digest", lambda tools, seed: runs.append(1) or real(tools, seed))
    store = Store()
    for n in range(5):
        store.call(user(f"{n}"), session=f"s{n}")
    assert len(runs) == 1
