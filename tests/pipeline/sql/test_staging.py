"""One call from many records: open and final, events and ledger rows, retries, copies and damage."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path

import pytest

from pipeline import run
from pipeline.sql import models
from tests.pipeline.sql.synthetic import MONDAY, Settings, build, event, facts, row, write

OPEN = {"stage": "open", "outcome": "open", "duration_ms": None, "input_tokens": None, "output_tokens": None,
        "cached_tokens": None, "usage_source": None, "ttft_ms": None}  # fmt: skip


def audits(lake: Path) -> dict[str, int]:
    return {a["name"]: a["rows"] for a in run.last_audits(lake)}


def test_a_slow_success_beats_the_watchdogs_aborted_record(tmp_path: Path) -> None:
    lake = build(
        tmp_path,
        [
            event("a", MONDAY, outcome="success", cached_tokens=7, stream_id="1-0"),
            event("a", MONDAY, outcome="aborted", cached_tokens=None, duration_ms=600_000, stream_id="2-0"),
            event("a", MONDAY, **OPEN),
        ],
    )
    call = facts(lake)["a"]
    assert (call["outcome"], call["cached_tokens"], call["duration_ms"], call["record_count"]) == (
        "success", 7, 2000, 3,
    )  # fmt: skip


def test_records_delivered_twice_are_one_call(tmp_path: Path) -> None:
    lake = build(tmp_path, [event("a", MONDAY), event("a", MONDAY)], [row(event("a", MONDAY))])
    assert list(facts(lake)) == ["a"]
    assert audits(lake)["duplicate_call_id"] == 0


def test_an_open_record_without_an_end_stays_open_and_has_no_end(tmp_path: Path) -> None:
    lake = build(tmp_path, [event("a", MONDAY, **OPEN)])
    call = facts(lake)["a"]
    assert (call["outcome"], call["end_at"], call["input_tokens"]) == ("open", None, None)


def test_a_ledger_row_completes_a_call_whose_final_record_was_lost(tmp_path: Path) -> None:
    whole = event("a", MONDAY, cached_tokens=400)
    lake = build(tmp_path, [event("a", MONDAY, **OPEN)], [row(whole)])
    call = facts(lake)["a"]
    names = ("source", "outcome", "input_tokens", "cached_tokens", "duration_ms")
    assert [call[n] for n in names] == ["both", "success", 1000, 400, 2000]


def test_rows_alone_give_the_same_turns_as_events_alone(tmp_path: Path) -> None:
    events = [
        event("a", MONDAY, turn_id="t", initiator="user"),
        event("b", MONDAY + timedelta(seconds=5), turn_id="t", shared_bytes=3000),
    ]
    by_event = facts(build(tmp_path / "events", events))
    by_row = facts(build(tmp_path / "rows", (), [row(e) for e in events]))
    same = ("turn_key", "category", "position", "input_tokens", "cached_tokens", "potential_inf_tokens",
            "start_at", "end_at", "user_hash", "session_key", "gap_ms")  # fmt: skip
    for name in ("a", "b"):
        assert {k: by_row[name][k] for k in same} == {k: by_event[name][k] for k in same}
        assert (by_event[name]["source"], by_row[name]["source"]) == ("event", "row")


def test_retries_are_attempts_of_one_call_and_their_spend_adds_up(tmp_path: Path) -> None:
    call = event("a", MONDAY, attempts=3)
    failed = [row(call, request_id=f"try-{n}", status="failure", spend=0.0) for n in (1, 2)]
    lake = build(tmp_path, [call], [*failed, row(call, request_id="try-3", spend=0.25)])
    found = facts(lake)["a"]
    assert (found["outcome"], found["attempts"], found["row_count"], found["spend"]) == (
        "success",
        3,
        3,
        0.25,
    )


def test_a_row_without_our_object_joins_by_an_unambiguous_call_id(tmp_path: Path) -> None:
    call = event("a", MONDAY, litellm_call_id="lid", team_id=None)
    lake = build(tmp_path, [call], [row(call, aw=None, team_id="t9", request_id="r")])
    assert [(c["source"], c["team_id"]) for c in facts(lake).values()] == [("both", "t9")]


def test_a_call_id_that_two_calls_share_joins_nothing(tmp_path: Path) -> None:
    pair = [event(n, MONDAY + timedelta(milliseconds=i), litellm_call_id="same") for i, n in enumerate("ab")]
    lake = build(tmp_path, pair, [row(pair[0], aw=None)])
    found = facts(lake)
    assert sorted(c["source"] for c in found.values()) == ["event", "event", "row"]
    assert audits(lake)["call_id_shared"] == 1


def test_unattributed_rows_are_kept_even_when_their_ids_collide(tmp_path: Path) -> None:
    call = event("x", MONDAY)
    rows = [
        row(
            call,
            aw=None,
            request_id="None",
            litellm_call_id=None,
            start_time=(MONDAY + timedelta(seconds=n)).isoformat(),
        )
        for n in range(3)
    ]
    found = facts(build(tmp_path, (), rows))
    assert len(found) == 3
    assert {c["category"] for c in found.values()} == {"unattributed"}
    assert {c["is_attended"] for c in found.values()} == {0}


@pytest.mark.parametrize("aw", ["{bad", "[1]", '"text"'])
def test_an_unreadable_object_is_counted_and_its_row_kept(tmp_path: Path, aw: str) -> None:
    lake = build(tmp_path, (), [row(event("a", MONDAY), aw=aw)])
    assert len(facts(lake)) == 1
    assert audits(lake)["bad_row_object"] == 1


def test_an_object_stored_as_a_json_string_is_opened(tmp_path: Path) -> None:
    call = event("a", MONDAY)
    lake = build(tmp_path, (), [row(call, aw=json.dumps(row(call)["aw"]))])
    assert list(facts(lake)) == ["a"]
    assert audits(lake)["bad_row_object"] == 0


def test_a_row_read_twice_counts_as_it_was_read_last(tmp_path: Path) -> None:
    call = event("a", MONDAY)
    first = row(call, spend=0.0, extracted_at="2026-03-02T09:00:00")
    later = row(call, spend=0.5, extracted_at="2026-03-02T12:00:00")
    assert facts(build(tmp_path, (), [first, later]))["a"]["spend"] == 0.5


def test_a_failure_refused_before_our_hook_is_rejected_not_engine_load(tmp_path: Path) -> None:
    lake = build(
        tmp_path, (), [row(event("a", MONDAY), aw=None, status="failure", prompt_tokens=0, usage_input=None)]
    )
    (call,) = facts(lake).values()
    assert (call["outcome"], call["is_engine"], call["input_tokens"]) == ("rejected", 0, None)


def test_a_failures_zero_duration_is_unknown_and_counted(tmp_path: Path) -> None:
    failed = event("a", MONDAY, outcome="failure", duration_ms=None)
    lake = build(tmp_path, (), [row(failed, end_time=MONDAY.isoformat())])
    assert facts(lake)["a"]["end_at"] is None
    assert audits(lake)["zero_duration_failure"] == 1


@pytest.mark.parametrize("cached", [1001, -1])
def test_impossible_cached_tokens_are_set_aside_and_counted(tmp_path: Path, cached: int) -> None:
    lake = build(tmp_path, [event("a", MONDAY, cached_tokens=cached)])
    assert facts(lake)["a"]["cached_tokens"] is None
    assert audits(lake)["cached_over_input"] == 1


@pytest.mark.parametrize(
    "fields", [{"outcome": "aborted"}, {"usage_source": "estimated"}, {"cached_tokens": None}]
)
def test_cached_tokens_of_aborted_estimated_and_silent_calls_are_unknown(
    tmp_path: Path, fields: dict[str, str]
) -> None:
    assert facts(build(tmp_path, [event("a", MONDAY, **fields)]))["a"]["cached_tokens"] is None


def test_zero_cached_tokens_are_a_miss_not_unknown(tmp_path: Path) -> None:
    assert facts(build(tmp_path, [event("a", MONDAY, cached_tokens=0)]))["a"]["cached_tokens"] == 0


def test_tool_calls_of_an_answer_are_those_of_the_record_that_says_how_the_call_ended(tmp_path: Path) -> None:
    counts = {"tool_reads": 3, "tool_edits": 0, "tool_runs": 1, "tool_others": 2}
    whole = event("b", MONDAY, **counts)
    lake = build(
        tmp_path,
        [
            event("a", MONDAY, **OPEN),
            event("a", MONDAY, **counts),
            event("b", MONDAY, **OPEN),
            event("c", MONDAY, outcome="failure"),
        ],
        [row(whole)],
    )
    found = {name: tuple(call[c] for c in counts) for name, call in facts(lake).items()}
    assert found == {"a": (3, 0, 1, 2), "b": (3, 0, 1, 2), "c": (None, None, None, None)}


def test_every_column_that_another_record_may_fill_has_a_bit_of_its_own() -> None:
    filled = set(re.findall(r"COALESCE\(r\.(\w+), m\.\1\)", models.load("stg_event").sql))
    bits = re.findall(r"CASE WHEN r\.(\w+) IS NULL THEN 0 ELSE (\d+) END", models.load("stg_record").sql)
    assert {name for name, _ in bits} == filled
    assert sorted(int(bit) for _, bit in bits) == [2**n for n in range(len(filled))]
    assert len(filled) < 63  # more do not fit a BIGINT


def test_older_files_without_newer_columns_and_with_foreign_ones_are_read(tmp_path: Path) -> None:
    import duckdb

    write(tmp_path, "raw_event", [event("a", MONDAY)])
    path = tmp_path / "raw/events/date=2026-03-02/a.parquet"
    duckdb.sql(
        f"COPY (SELECT * EXCLUDE (prefix_steps, degraded, tool_ms, tool_reads), 1 AS novelty FROM '{path}') "
        f"TO '{path.with_name('b.parquet')}' (FORMAT parquet)"
    )
    path.unlink()
    run.build(tmp_path, Settings())
    assert facts(tmp_path)["a"]["outcome"] == "success"
