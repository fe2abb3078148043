"""The truth that a recorded run is held against, on calls small enough to work out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from deploy.local import agents_truth
from deploy.local.truth import TruthCall, TruthError

START = 1_772_409_600_000_000  # 2026-03-02T00:00:00
SECOND = 1_000_000
CALL = TruthCall(
    call=1, litellm_call_id="id", session="s", session_header=None, client="none", agent="main",
    parent_agent=None, turn=1, call_in_turn=1, initiator="user", route="chat", stream=True,
    model_group="coder", user="alice", expected_outcome="success", special=None, tool_count=0,
    sent_us=START, first_byte_us=START + SECOND, done_us=START + 10 * SECOND, status=200, words_sha256="1",
)  # fmt: skip


def call(number: int, start_s: float, end_s: float, **changes: Any) -> TruthCall:
    fields: dict[str, Any] = {"call": number, "words_sha256": str(number)}
    fields |= {"sent_us": START + int(start_s * SECOND), "done_us": START + int(end_s * SECOND)}
    fields["first_byte_us"] = fields["sent_us"] + SECOND
    return replace(CALL, **fields | changes)


def served(one: TruthCall, later_s: float = 1.0, **changes: Any) -> dict[str, Any]:
    """The engine begins *later_s* after the client and ends as much before it."""
    begun = one.sent_us + int(later_s * SECOND)
    return {
        "words_sha256": one.words_sha256,
        "started_us": begun,
        "first_token_us": begun + SECOND // 10,
        "ended_us": one.done_us - int(later_s * SECOND),
        "output_tokens": 1000,
        "status": 200,
    } | changes


#: One session: a turn of two calls with a tool gap, a pause, a turn of one call. A second one: one call.
CALLS = [
    call(1, 0, 10),
    call(2, 20, 30, call_in_turn=2, initiator="agent"),
    call(3, 60, 80, turn=2),
    call(4, 10, 40, session="t"),
]
#: 1000 W for the first minute, then 2000 W.
ENERGY = [(START - SECOND, 0.0), (START + 60 * SECOND, 61_000.0), (START + 200 * SECOND, 341_000.0)]


def report(**figure: Any) -> dict[str, Any]:
    row = {"boundary": "board", "tier": "20 tok/s, 10 s", "value": 1.0, "any_conformity": 1.0,
           "measurement_interval": [0.0, 1e9], "any_conformity_interval": [0.0, 1e9]}  # fmt: skip
    values = [row | {"state": state} for state in ("in_turn", "open", "llm_active")]
    boundary = {"boundary": "board", "megawatt_hours": 100_000 / 3.6e9, "accuracy_percent": 5.0}
    return {
        "meta": {"window": {"start": "2026-03-02T00:00:00", "end": "2026-03-02T00:01:40"}},
        "agents_per_megawatt": {
            "values": values,
            "boundaries": [boundary],
            "coverage": {"excluded": {"board": []}},
        }
        | figure,
    }


def engine_values(found: dict[str, Any]) -> dict[str, float]:
    return {r["state"]: r["engine"][0] for r in found["rows"] if r["tier"] is None}


def test_states_are_spans_of_the_engines_instants_over_the_engines_energy() -> None:
    found = agents_truth.compare(report(), CALLS, [served(c) for c in CALLS], ENERGY)
    joules = 60_000 + 40 * 2000
    seconds = {
        "open": (79 - 1) + (39 - 11),
        "in_turn": (29 - 1) + (79 - 61) + (39 - 11),
        "llm_active": 8 + 8 + 18 + 28,
    }
    assert engine_values(found) == pytest.approx(
        {state: s / 3600 / (joules / 3.6e9) for state, s in seconds.items()}
    )


def test_the_client_saw_more_than_the_engine() -> None:
    found = agents_truth.compare(report(), CALLS, [served(c) for c in CALLS], ENERGY)
    row = next(r for r in found["rows"] if r["tier"] is None and r["state"] == "open")
    assert row["client"] == pytest.approx((80 + 30) / 3600 / (140_000 / 3.6e9))


def test_only_the_window_of_the_figure_counts() -> None:
    short = report()
    short["meta"]["window"]["end"] = "2026-03-02T00:01:10"
    found = agents_truth.compare(short, CALLS, [served(c) for c in CALLS], ENERGY)
    assert engine_values(found)["open"] == pytest.approx((69 + 28) / 3600 / (80_000 / 3.6e9))


def test_attempts_of_one_call_are_one_sight() -> None:
    failed = served(CALLS[0], status=500, ended_us=START + 2 * SECOND, first_token_us=None)
    again = served(CALLS[0], later_s=3)
    sight = agents_truth.at_engine(CALLS[:1], [failed, again])[1]
    assert (sight.start_us, sight.end_us, sight.failed) == (START + SECOND, START + 7 * SECOND, False)


def test_two_sessions_that_say_the_same_are_told_apart_by_who_was_waiting() -> None:
    twins = [call(1, 0, 10), call(2, 20, 30, session="t", words_sha256="1")]
    sights = agents_truth.at_engine(twins, [served(twins[1]), served(twins[0])])
    assert [sights[n].start_us for n in (1, 2)] == [START + SECOND, START + 21 * SECOND]


def test_a_call_that_the_engine_never_saw_is_an_error() -> None:
    with pytest.raises(TruthError, match=r"never saw: \[4\]"):
        agents_truth.compare(report(), CALLS, [served(c) for c in CALLS[:3]], ENERGY)


def test_energy_that_does_not_reach_over_the_window_is_an_error() -> None:
    with pytest.raises(TruthError, match="does not cover"):
        agents_truth.compare(report(), CALLS, [served(c) for c in CALLS], ENERGY[:2])


def test_a_pause_of_more_than_half_an_hour_closes_a_session() -> None:
    calls = [call(1, 0, 10), call(2, 3600, 3610, turn=2)]
    spans = agents_truth.spans(calls, agents_truth.at_engine(calls, [served(c) for c in calls]))
    assert sum(b - a for own in spans["open"].values() for a, b in own) == 2 * 8 * SECOND


def test_subagents_are_no_root_agents() -> None:
    child = call(9, 2, 5, agent="explore", parent_agent="main", initiator="agent")
    calls = [*CALLS, child]
    with_child = agents_truth.compare(report(), calls, [served(c) for c in calls], ENERGY)
    without = agents_truth.compare(report(), CALLS, [served(c) for c in CALLS], ENERGY)
    assert engine_values(with_child) == engine_values(without)


def test_a_turn_that_engine_and_client_judge_apart_gives_a_range() -> None:
    # the engine's first token is in time, the client's first byte is not
    calls = [replace(CALLS[0], first_byte_us=START + 9 * SECOND, done_us=START + 12 * SECOND), *CALLS[1:]]
    strict = report()
    for row in strict["agents_per_megawatt"]["values"]:
        row["tier"] = "20 tok/s, 5 s"
    found = agents_truth.compare(strict, calls, [served(c) for c in calls], ENERGY)
    low, high = next(r["engine"] for r in found["rows"] if r["tier"] and r["state"] == "in_turn")
    assert low == pytest.approx((18 + 28) / 3600 / (140_000 / 3.6e9))
    assert high == pytest.approx((28 + 18 + 28) / 3600 / (140_000 / 3.6e9))


@pytest.mark.parametrize(("interval", "within"), [([0.0, 1e9], True), ([1e8, 1e9], False)])
def test_an_interval_that_misses_the_truth_says_so(interval: list[float], within: bool) -> None:
    told = report()
    for row in told["agents_per_megawatt"]["values"]:
        row["measurement_interval"] = row["any_conformity_interval"] = interval
    found = agents_truth.compare(told, CALLS, [served(c) for c in CALLS], ENERGY)
    assert {r["within"] for r in found["rows"]} == {within}
    assert all(("does NOT hold" in line) is not within for line in agents_truth.lines(found)[:-1])


def test_energy_is_compared_over_the_measured_seconds() -> None:
    gaps = {"board": [{"start": "2026-03-02T00:00:00", "end": "2026-03-02T00:00:40", "seconds": 40.0}]}
    found = agents_truth.compare(
        report(coverage={"excluded": gaps}), CALLS, [served(c) for c in CALLS], ENERGY
    )
    assert found["energy"]["engine_joules"] == pytest.approx(100_000)
    assert found["energy"]["within"] is True


def test_no_figure_is_nothing_to_compare() -> None:
    with pytest.raises(TruthError, match="no figure: no power"):
        agents_truth.compare(report(values=[], reason="no power"), CALLS, [], ENERGY)
