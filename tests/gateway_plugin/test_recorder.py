from __future__ import annotations

import time
from typing import Any

import orjson
import pytest

from gateway_plugin import recorder as module
from gateway_plugin.call import Ending, OpenCall, now_us
from gateway_plugin.event import FIELD_NAMES, encode
from gateway_plugin.identity import Auth
from gateway_plugin.usage import normalise
from tests.gateway_plugin.builders import (
    AUTH,
    CLAUDE_OLD,
    CLAUDE_SESSION,
    TOOLS,
    Recording,
    answer,
    anthropic,
    arrival,
    chat,
    result,
    user,
)

SESSION = {"user-agent": "opencode/1.3", "x-session-id": "ses_0123456789"}
OK = Ending("success")


def run(
    rec: Recording, body: dict[str, Any], headers: Any = SESSION, ending: Ending = OK, **extra: Any
) -> dict[str, Any]:
    call = rec.recorder.begin(arrival(body, headers, **extra))
    final = rec.recorder.finish(call, ending)
    assert final is not None
    return final


def test_each_call_writes_one_open_and_one_final_record_with_one_event_id() -> None:
    rec = Recording()
    run(rec, chat(user("hi")))
    first, second = rec.records
    assert (first["stage"], second["stage"]) == ("open", "final")
    assert first["event_id"] == second["event_id"]
    assert (first["outcome"], second["outcome"]) == ("open", "success")


def test_records_hold_fields_of_the_contract_only_and_are_json() -> None:
    rec = Recording()
    run(rec, chat(user("hi"), tools=TOOLS), ending=Ending("success", usage=normalise({"prompt_tokens": 1})))
    for record in rec.records:
        assert set(record) <= FIELD_NAMES
        assert orjson.loads(encode(record))["event_id"] == record["event_id"]


def test_no_text_of_the_prompt_no_key_and_no_address_gets_into_a_record() -> None:
    rec = Recording()
    canary = "canary-7f3a"
    auth = Auth(
        key_hash=f"{canary}-key", user_id=f"{canary}@example.org", end_user=f"{canary} person", team_id="t"
    )
    body = chat(
        user(f"{canary} prompt"),
        answer(canary, "c"),
        result("c", canary),
        system=f"{canary} system",
        tools=[{"name": canary}],
        user=canary,
    )
    run(
        rec,
        body,
        {"authorization": f"Bearer {canary}", "x-session-id": f"{canary} with spaces", "cookie": canary},
        auth=auth,
    )
    assert canary not in repr([encode(r) for r in rec.records])


def test_a_second_ending_is_a_counted_no_op() -> None:
    rec = Recording()
    call = rec.recorder.begin(arrival(chat(user("hi"))))
    assert rec.recorder.finish(call, OK) is not None
    assert rec.recorder.finish(call, OK) is None
    assert rec.recorder.finish(call, Ending("failure")) is None
    assert len(rec.records) == 2
    assert rec.recorder.counts["duplicate_ending"] == 2


@pytest.mark.parametrize(
    ("first", "second"), [("aborted", "success"), ("aborted", "failure"), ("failure", "success")]
)
def test_a_higher_ranked_ending_wins_over_an_earlier_lower_one(first: str, second: str) -> None:
    rec = Recording()
    call = rec.recorder.begin(arrival(chat(user("hi"))))
    rec.recorder.finish(call, Ending(first))
    assert rec.recorder.finish(call, Ending(second)) is not None
    assert rec.last["outcome"] == second


def test_an_ended_call_is_still_found_by_its_event_id() -> None:
    rec = Recording()
    call = rec.recorder.begin(arrival(chat(user("hi"))))
    assert rec.recorder.find(call.event_id) is call
    rec.recorder.finish(call, OK)
    assert rec.recorder.find(call.event_id) is call
    assert rec.recorder.find("another") is None


def test_the_tables_of_open_and_ended_calls_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_OPEN_MAX", 5)
    monkeypatch.setattr(module, "_FINISHED_MAX", 5)
    rec = Recording()
    calls = [rec.recorder.begin(arrival(chat(user(f"{n}")))) for n in range(12)]
    assert len(rec.recorder.open_calls) == 5
    assert rec.recorder.counts["open_table_full"] == 7
    assert sum(r["outcome"] == "aborted" for r in rec.records) == 7
    for call in calls:
        rec.recorder.finish(call, OK)
    assert len(rec.recorder._finished) == 5


def test_a_call_that_is_open_for_too_long_is_closed_as_aborted_and_a_late_success_wins() -> None:
    rec = Recording(open_timeout_s=100)
    call = rec.recorder.begin(arrival(chat(user("hi"))))
    rec.recorder.close_stale()
    assert rec.last["outcome"] == "open"
    call.mono -= 101
    rec.recorder.close_stale()
    assert rec.last["outcome"] == "aborted"
    rec.recorder.finish(call, OK)
    assert rec.last["outcome"] == "success"


def test_a_request_whose_client_went_away_is_closed_after_the_grace_with_its_own_end() -> None:
    rec = Recording(left_grace_s=30)
    call = rec.recorder.begin(arrival(chat(user("hi"))))
    call.mono -= 100
    call.seen_us -= 100_000_000
    call.record["started_us"] -= 100_000_000
    rec.recorder.left(call)
    call.left_mono = time.monotonic() - 29
    rec.recorder.close_stale()
    assert rec.last["outcome"] == "open"
    call.left_mono = time.monotonic() - 40
    rec.recorder.close_stale()
    assert (rec.last["outcome"], rec.last["error_class"]) == ("aborted", "ClientDisconnected")
    assert rec.last["duration_ms"] == pytest.approx(60_000, rel=0.01)


@pytest.mark.parametrize("left", [True, False], ids=["left", "open for too long"])
def test_a_mass_departure_is_closed_bit_by_bit_and_completely(left: bool) -> None:
    rec = Recording(left_grace_s=30, open_timeout_s=1_000)
    calls = [rec.recorder.begin(arrival(chat(user(f"{n}")))) for n in range(300)]
    for call in calls:
        if left:
            rec.recorder.left(call)
            call.left_mono = time.monotonic() - 31
        else:
            call.mono -= 1_001
    kept = rec.recorder.begin(arrival(chat(user("still here"))))
    steps = 1
    while rec.recorder.close_stale():
        steps += 1
    assert steps > 1
    assert list(rec.recorder.open_calls.values()) == [kept]
    assert rec.recorder.counts["watchdog_aborted"] == rec.recorder.counts["final_aborted"] == 300


def test_a_request_that_ended_well_is_not_kept_for_its_leaving() -> None:
    rec = Recording()
    for n in range(3):
        call = rec.recorder.begin(arrival(chat(user(f"{n}"))))
        rec.recorder.finish(call, OK)
        rec.recorder.left(call)
    late = rec.recorder.begin(arrival(chat(user("logged after it left"))))
    rec.recorder.left(late)
    rec.recorder.finish(late, OK)
    rec.recorder.close_stale()
    assert not rec.recorder._left
    assert rec.recorder.counts["final_aborted"] == 0


def test_a_prefix_lasts_over_a_call_that_was_refused() -> None:
    rec = Recording()
    one = run(rec, chat(user("a"), tools=TOOLS))
    run(rec, chat(user("a"), answer("b"), user("c"), tools=TOOLS), ending=Ending("rejected"))
    again = run(rec, chat(user("a"), answer("b"), user("c"), tools=TOOLS))
    assert again["shared_bytes"] == one["prompt_bytes"]
    assert again["break_reason"] == "none"
    assert again["previous_event_id"] == one["event_id"]


def test_an_answer_from_the_response_cache_leaves_no_prefix() -> None:
    rec = Recording()
    run(rec, chat(user("a")), ending=Ending("success", response_cache_hit=True))
    assert run(rec, chat(user("a"), answer("b"), user("c")))["shared_bytes"] == 0


def test_times_come_from_the_monotonic_clock_and_the_receipt() -> None:
    rec = Recording()
    received = now_us() - 50_000
    call = rec.recorder.begin(arrival(chat(user("hi"), stream=True), SESSION, received_us=received))
    call.mono -= 2.0
    call.seen_us -= 2_000_000
    call.record["started_us"] = received - 2_000_000
    start = call.record["started_us"]
    end = now_us()
    final = rec.recorder.finish(
        call, Ending("success", ended_us=end, first_token_us=start + 1_000_000, handoff_us=start + 100_000)
    )
    assert final is not None
    assert final["duration_ms"] == pytest.approx(2050, abs=60)
    assert final["ttft_ms"] == 1000.0
    assert final["overhead_ms"] == 100.0
    assert final["pre_call_ms"] == pytest.approx(50, abs=5)
    assert final["ended_us"] == pytest.approx(start + final["duration_ms"] * 1e3, abs=2)


def test_instants_outside_the_call_are_unknown_and_a_stepped_clock_bends_no_duration() -> None:
    rec = Recording()
    call = rec.recorder.begin(arrival(chat(user("hi"), stream=True)))
    final = rec.recorder.finish(
        call,
        Ending("success", ended_us=now_us() - 3600 * 10**6, first_token_us=now_us() + 10**9, handoff_us=1),
    )
    assert final is not None
    assert (final["ttft_ms"], final["overhead_ms"], final["pre_call_ms"]) == (None, None, None)
    assert 0 <= final["duration_ms"] < 60_000


def test_a_call_without_stream_has_no_time_to_first_token() -> None:
    rec = Recording()
    assert run(rec, chat(user("x")), ending=Ending("success", first_token_us=now_us()))["ttft_ms"] is None


def test_declared_keys_are_unattended_work() -> None:
    assert run(Recording(service_keys=["alias"]), chat(user("x")))["service_key"] is True
    assert run(Recording(), chat(user("x")))["service_key"] is False


def test_a_subagent_that_its_client_does_not_name_is_a_stream_of_its_own() -> None:
    rec = Recording()
    run(rec, anthropic(user("fix"), tools=TOOLS), CLAUDE_OLD)
    child = run(rec, anthropic(user("explore"), system="You explore.", tools=TOOLS[:1]), CLAUDE_OLD)
    assert (child["agent_kind"], child["parent_agent_id"], child["initiator"]) == (
        "subagent",
        "main",
        "agent",
    )
    assert (child["break_reason"], child["turn_index"]) == ("first", 1)
    back = run(rec, anthropic(user("fix"), answer("a"), user("b"), tools=TOOLS), CLAUDE_OLD)
    assert (back["agent_id"], back["break_reason"], back["turn_index"]) == ("main", "none", 2)


def test_a_client_that_names_its_agents_is_not_second_guessed() -> None:
    rec = Recording()
    headers = {"user-agent": "claude-cli/2.1.283 (external, cli)", "x-claude-code-session-id": CLAUDE_SESSION}
    run(rec, anthropic(user("fix"), tools=TOOLS), headers)
    other = run(rec, anthropic(user("x"), system="Other.", tools=TOOLS), headers)
    assert other["agent_id"] == "main"


def test_a_short_first_call_of_a_named_subagent_is_no_compaction_of_its_parent() -> None:
    rec = Recording()
    headers = {"x-claude-code-session-id": CLAUDE_SESSION}
    history = [m for i in range(20) for m in (user(f"{i} " + "w" * 3000), answer("ok"))]
    run(rec, anthropic(*history, user("go")), headers)
    child = run(
        rec, anthropic(user("explore"), system="sub"), headers | {"x-claude-code-agent-id": "agent-A"}
    )
    assert child["break_reason"] == "first"
    parent = run(rec, anthropic(*history, user("go"), answer("x"), user("on")), headers)
    assert (parent["break_reason"], parent["turn_index"]) == ("none", 22)


@pytest.mark.parametrize(
    ("headers", "title"),
    [
        (SESSION, chat(user("fix"), system="You are a title generator.")),
        (CLAUDE_OLD, anthropic(user("fix"), system="Think of a name.")),
        ({"user-agent": "opencode/1.3"}, chat(user("fix"), system="You are a title generator.")),
    ],
    ids=["known prompt", "by the session's lineage", "known prompt without a session"],
)
def test_a_title_is_auxiliary_and_no_turn(headers: dict[str, str], title: dict[str, Any]) -> None:
    rec = Recording()
    work = run(rec, chat(user("fix"), tools=TOOLS), headers)
    aside = run(rec, {**title, "model": "small"}, headers)
    assert (aside["initiator"], aside["agent_id"]) == ("auxiliary", "main")
    after = run(rec, chat(user("fix"), answer("", "c"), result("c"), tools=TOOLS), headers)
    assert (after["turn_id"], after["turn_index"], after["break_reason"]) == (work["turn_id"], 1, "none")
    assert after["previous_event_id"] == work["event_id"]
    if aside["session_key"] == work["session_key"]:
        assert (aside["turn_id"], aside["call_index"], after["call_index"]) == (work["turn_id"], 2, 3)


def test_the_whole_course_of_a_compaction_stays_in_one_turn() -> None:
    rec = Recording()
    history = [user("fix"), answer("", "c"), result("c", "w" * 60_000)]
    before = run(rec, chat(*history, tools=TOOLS))
    compaction = run(
        rec,
        chat(
            *history,
            answer("ok"),
            user("Your task is to create a detailed summary of the conversation"),
            tools=TOOLS,
        ),
    )
    summary = user("This session is being continued from a previous conversation. …")
    after = run(rec, chat(summary, tools=TOOLS))
    later = run(rec, chat(summary, answer("", "d"), result("d"), tools=TOOLS))
    human = run(rec, chat(summary, answer("", "d"), result("d"), answer("done"), user("next"), tools=TOOLS))
    assert [r["initiator"] for r in (compaction, after, later, human)] == [
        "compaction",
        "agent",
        "agent",
        "user",
    ]
    assert {r["turn_id"] for r in (before, compaction, after, later)} == {before["turn_id"]}
    assert after["break_reason"] == "compaction"
    assert (human["turn_index"], human["call_index"]) == (2, 1)


def test_equal_ids_of_two_tenants_never_share_a_stream() -> None:
    rec = Recording()
    run(rec, chat(user("a")), SESSION)
    other = run(rec, chat(user("a"), answer("b"), user("c")), SESSION, auth=Auth(key_hash="another"))
    assert (other["break_reason"], other["shared_bytes"]) == ("first", 0)


def test_client_sent_call_ids_may_repeat() -> None:
    rec = Recording()
    one = rec.recorder.begin(arrival(chat(user("a")), litellm_call_id="same"))
    two = rec.recorder.begin(arrival(chat(user("b")), litellm_call_id="same"))
    rec.recorder.finish(one, Ending("failure"))
    rec.recorder.finish(two, Ending("failure"))
    assert len({r["event_id"] for r in rec.records}) == 2
    assert len(rec.records) == 4


def test_embeddings_and_empty_bodies_are_recorded_without_a_session() -> None:
    rec = Recording()
    final = run(rec, {"model": "embed", "input": ["a", "b"]}, {}, route="embeddings", auth=AUTH)
    assert final["outcome"] == "success"
    final = run(rec, {}, None)
    assert (final["session_evidence"], final["state"], final["initiator"]) == ("E5", "off", "unknown")


def test_a_prompt_above_the_cut_off_is_marked() -> None:
    final = run(Recording(max_prompt_bytes=1 << 16), chat(*[user("w" * 50_000) for _ in range(4)]))
    assert final["truncated"] is True


def test_suspect_usage_is_counted() -> None:
    rec = Recording()
    run(
        rec,
        chat(user("x")),
        ending=Ending("success", usage=normalise({"prompt_tokens": 1, "cache_read_input_tokens": 2})),
    )
    assert rec.recorder.counts["suspect_usage"] == 1
    assert rec.last["cached_tokens"] is None


def test_open_calls_hold_no_reference_to_the_request_body_after_their_end() -> None:
    rec = Recording()
    call: OpenCall = rec.recorder.begin(arrival(chat(user("x"))))
    rec.recorder.finish(call, OK)
    assert call.entry is None
