"""Every kind of trace, from a file to calls in the facts."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from pipeline import importing
from pipeline.errors import ConfigError
from pipeline.settings import Settings
from tests.pipeline.extract.traces.conftest import (
    copilot_call,
    copilot_session,
    raw,
    set_aside,
    weka_call,
    weka_session,
)

SHARED = Path(__file__).resolve().parents[4].parent / "shared/data"
Bring = Callable[..., importing.FileReport]
Facts = Callable[..., list[tuple[Any, ...]]]


def test_weka_calls_keep_turns_lengths_and_prefixes(bring: Bring, facts: Facts) -> None:
    requests = [
        weka_call(0.0, 130, [1, 2]),
        weka_call(10.0, 200, [1, 2, 3], input_types=["tool_result"], type="s", ttft=0.5),
        weka_call(500.0, 210, [1, 2, 9], api_time=None),
    ]
    report = bring([weka_session("trace_1", requests)])
    assert (report.kind, report.calls, report.rejected.total()) == ("weka", 3, 0)
    rows = facts(
        "initiator, position, category, input_tokens, duration_ms, ttft_ms, is_stream, potential_inf_tokens, "
        "potential_300_tokens, user_hash, session_id, client"
    )
    fixed = (None, "trace_1", "claude-code")
    assert rows == [
        ("user", "1", "first_of_session", 130, 2000.0, None, 0, 0.0, 0.0, *fixed),
        ("agent", "2", "within", 200, 2000.0, 500.0, 1, 128.0, 128.0, *fixed),
        ("user", "1", "boundary", 210, None, None, 0, 128.0, 0.0, *fixed),
    ]


def test_run_length_and_plain_blocks_are_the_same_session(bring: Bring, facts: Facts) -> None:
    plain = [weka_call(0.0, 130, [1, 2]), weka_call(9.0, 200, [1, 2, 7])]
    packed = [
        {**{k: v for k, v in r.items() if k != "hash_ids"}, "hash_ids_rle": rle}
        for r, rle in zip(plain, ([[1, 2]], [[1, 2], [7, 1]]), strict=True)
    ]
    bring([weka_session("trace_1", plain)], "plain.jsonl")
    bring(json.dumps(weka_session("trace_1", packed), indent=2), "packed.json")
    assert facts("COUNT(*), COUNT(DISTINCT session_key), SUM(potential_inf_tokens)", "") == [(2, 1, 128.0)]


def test_equal_ids_with_other_content_are_other_sessions(bring: Bring, facts: Facts) -> None:
    bring([weka_session("trace_1", [weka_call(0.0, 130, [1])])], "a.jsonl")
    bring([weka_session("trace_1", [weka_call(0.0, 140, [1])])], "b.jsonl")
    assert facts("COUNT(*), COUNT(DISTINCT session_key)", "") == [(2, 2)]


def test_subagents_of_a_session_are_streams_of_their_own(bring: Bring, facts: Facts) -> None:
    inner = {"t": 1.0, "type": "subagent", "agent_id": "deep", "requests": [weka_call(0.5, 70, [1])]}
    child = {
        "t": 5.0,
        "type": "subagent",
        "agent_id": "explore",
        "requests": [weka_call(0.0, 64, [1]), inner],
    }
    bring([weka_session("trace_1", [weka_call(0.0, 130, [1, 2]), child])])
    rows = facts("agent_id, agent_kind, parent_agent_id, potential_inf_tokens, started_us")
    start = rows[0][4]
    assert [(*r[:4], r[4] - start) for r in rows] == [
        ("main", "main", None, 0.0, 0),
        ("explore", "subagent", "main", 0.0, 5_000_000),
        ("deep", "subagent", "explore", 0.0, 6_500_000),
    ]


def test_bad_calls_of_a_session_are_set_aside_one_by_one(bring: Bring, settings: Settings) -> None:
    requests = [
        weka_call(0.0, 130, [1, 2]),
        weka_call(1.0, -5, [1]),
        weka_call(2.0, 64, ["x"]),  # type: ignore[list-item]
        {"type": "n", "in": 5, "prompt": "a secret"},
        "nothing",
        {"t": 1.0, "type": "subagent", "requests": []},
    ]
    report = bring([weka_session("trace_1", requests), {"id": "x", "block_size": 64}, {"block_size": 64}])  # type: ignore[arg-type]
    assert (report.calls, dict(report.rejected)) == (
        1,
        {
            "in is negative": 1,
            "block ids are no whole numbers": 1,
            "no t": 1,
            "request is not an object": 1,
            "subagent without agent_id or requests": 1,
            "no requests": 1,
            "no id": 1,
        },
    )
    kept = set_aside(settings)
    assert len(kept) == 7
    assert "secret" not in repr(kept)
    assert any(place.endswith("/line 1, request 2") for place, _, _ in kept)


def test_mooncake_shares_blocks_over_the_whole_trace(bring: Bring, facts: Facts) -> None:
    row = {"input_length": 1000, "output_length": 5}
    report = bring(
        [
            {"timestamp": 0, "hash_ids": [0, 1], **row},
            {"timestamp": 400_000, "hash_ids": [0, 2], **row},
            {"timestamp": 400_001, "hash_ids": [0, 2], **row},
            {"timestamp": 400_002, "hash_ids": "0", **row},
            {"timestamp": -1, "hash_ids": [0], **row},
        ]
    )
    assert (report.kind, report.calls, dict(report.rejected)) == (
        "mooncake", 3, {"hash_ids are no list of whole numbers": 1, "timestamp is negative": 1},
    )  # fmt: skip
    rows = facts("session_key, duration_ms, potential_inf_tokens, potential_300_tokens, category")
    assert rows == [
        (None, None, 0.0, 0.0, "unattributed"),
        (None, None, 512.0, 0.0, "unattributed"),
        (None, None, 1000.0, 1000.0, "unattributed"),
    ]


def test_copilot_turns_tools_and_outcomes_come_out(bring: Bring, facts: Facts) -> None:
    batch = {
        "timestamp": "2026-06-01T08:00:03Z",
        "duration_ms": 900,
        "request_id": "m1",
        "function_calls": [{"name": "read", "duration_ms": 100.0}, {"name": "run", "duration_ms": 800.0}],
    }
    turns = [
        [copilot_call(1, "user", 1000, 0), copilot_call(5, "agent", 1500, 900)],
        [
            copilot_call(60, "user", 1600, 1400, result="UserCancel"),
            copilot_call(70, "agent", 50, 0, model="tool-model"),
            copilot_call(80, "agent", 0, 0, result="ServerError", status_code="500"),
        ],
    ]
    report = bring([copilot_session("s-12345678", turns, [batch])])
    assert (report.kind, report.calls) == ("copilot-2026", 5)
    rows = facts(
        "start_at, duration_ms, initiator, category, outcome, status_code, input_tokens, cached_tokens, "
        "tool_ms"
    )
    noon = datetime(2026, 6, 1, 8, 0)
    assert [(r[0] - noon).total_seconds() for r in rows] == [1, 5, 60, 70, 80]
    assert {r[1] for r in rows} == {1500.5}
    assert [r[2:] for r in rows] == [
        ("user", "first_of_session", "success", None, 1000, 0, None),
        ("agent", "within", "success", None, 1500, 900, 800.0),
        ("user", "boundary", "aborted", None, 1600, None, None),
        ("auxiliary", "auxiliary", "success", None, 50, 0, None),
        ("agent", "within", "failure", 500, None, None, None),
    ]
    assert facts("COUNT(DISTINCT turn_key)", "") == [(2,)]


COUNTS = "tool_reads, tool_edits, tool_runs, tool_others"


def test_copilot_tools_are_counted_at_the_call_that_asked_for_them(bring: Bring, facts: Facts) -> None:
    names = ["read_file", "replace_string_in_file", "run_in_terminal", "manage_todo_list"]
    batches = [
        {"request_id": "m1", "function_calls": [{"name": n} for n in names]},
        {"request_id": "m1", "function_calls": [{"name": "grep_search"}]},
    ]
    calls = [copilot_call(1, "user", 1000, 0), copilot_call(5, "agent", 1500, 900)]
    bring([copilot_session("s-12345678", [calls], batches)])
    assert facts(COUNTS) == [(2, 1, 1, 1), (0, 0, 0, 0)]


def test_a_copilot_batch_of_no_known_call_leaves_the_other_calls_of_its_turn_unknown(
    bring: Bring, facts: Facts
) -> None:
    batches = [
        {"request_id": "m5", "function_calls": [{"name": "run_in_terminal"}]},
        {"request_id": "gone", "function_calls": [{"name": "read_file"}]},
    ]
    calls = [copilot_call(1, "user", 1000, 0), copilot_call(5, "agent", 1500, 900)]
    bring([copilot_session("s-12345678", [calls], batches)])
    assert facts(COUNTS) == [(None, None, None, None), (0, 0, 1, 0)]


def test_a_copilot_session_in_two_shards_is_one_session(bring: Bring, facts: Facts) -> None:
    bring([copilot_session("s-12345678", [[copilot_call(1, "user", 10, 0)]])], "a.jsonl")
    bring([copilot_session("s-12345678", [[copilot_call(99, "agent", 10, 0)]])], "b.jsonl")
    bring(
        [copilot_session("s-12345678", [[copilot_call(99, "agent", 10, 0)]]), {"session_id": "x"}], "c.jsonl"
    )
    assert facts("COUNT(*), COUNT(DISTINCT session_key)", "") == [(2, 1)]


@pytest.mark.skipif(not SHARED.exists(), reason="the published examples are not on this machine")
@pytest.mark.parametrize(("form", "users"), [("derived", 1), ("sanitized", 0)])
def test_tracelab_examples_give_their_rounds_hits_and_users(
    settings: Settings, facts: Facts, form: str, users: int
) -> None:
    path = SHARED / f"tracelab_examples/{form}/round_trace.jsonl"
    (report,) = importing.import_files(settings, [path]).files
    assert (report.kind, report.calls, report.rejected.total()) == ("tracelab", 19, 0)
    sums = ", ".join(f"CAST(SUM({name.strip()}) AS BIGINT)" for name in COUNTS.split(","))
    assert facts(sums, "") == [(4, 2, 13, 0)]  # 3 + 1 web, 2 written files, Bash and exec_command
    rounds = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert facts(
        "SUM(input_tokens), SUM(cached_tokens), SUM(output_tokens), COUNT(DISTINCT session_key), "
        "COUNT(DISTINCT user_hash), SUM(CASE WHEN initiator = 'user' THEN 1 ELSE 0 END), COUNT(end_at)",
        "",
    ) == [
        (
            sum(r["input_tokens_total"] for r in rounds),
            sum(r["prefix_tokens"] for r in rounds),
            sum(r["output_tokens"] for r in rounds),
            2,
            users,
            sum(r["current_user_message_count"] > 0 for r in rounds),
            19,
        )
    ]
    first = facts("start_at, end_at, client, route, category", "ORDER BY client, started_us")[0]
    began, ended = datetime(2026, 6, 1, 5, 40, 20, 151000), datetime(2026, 6, 1, 5, 40, 31, 647000)
    assert first == (began, ended, "claude-code", "messages", "first_of_session")
    stored = b"".join(p.read_bytes() for p in settings.lake.rglob("*.parquet"))
    assert b"/workspace" not in stored
    assert b"example_sessions" not in stored


@pytest.mark.skipif(not SHARED.exists(), reason="the published traces are not on this machine")
def test_azure_rows_give_arrivals_and_lengths(settings: Settings, facts: Facts) -> None:
    path = SHARED / "azure_llm_2023/AzureLLMInferenceTrace_code.csv.gz"
    (report,) = importing.import_files(settings, [path]).files
    assert (report.kind, report.calls, report.rejected.total()) == ("azure-2023", 8819, 0)
    assert facts("start_at, input_tokens, output_tokens, session_key, duration_ms")[0] == (
        datetime(2023, 11, 16, 18, 17, 3, 979960), 4808, 10, None, None,
    )  # fmt: skip


TABLE = """when,who,chat,prompt,hit,answer,took,kind,code
2026-03-02T08:00:00+01:00,ann@corp.example,c1,1000,0,50,2.5,user,200
1772434810,ann@corp.example,c1,2000,1500,50,1,agent,200
2026-03-02 07:00:30,bob,c1,3000,,50,,user,503
yesterday,bob,c1,3000,,50,,user,200
2026-03-02 07:00:30,bob,c1,many,,50,,user,200
2026-03-02 07:00:30,bob,c1,1.5,,50,,user,200
"""
MAP = {
    "started": "when", "user": "who", "session": "chat", "input_tokens": "prompt", "cached_tokens": "hit",
    "output_tokens": "answer", "duration_s": "took", "initiator": "kind", "status_code": "code",
}  # fmt: skip


def test_a_mapped_table_gives_sessions_by_user_and_hides_names(
    bring: Bring, facts: Facts, settings: Settings
) -> None:
    report = bring(TABLE, "calls.csv", columns=MAP)
    assert (report.kind, report.calls, dict(report.rejected)) == (
        "table",
        3,
        {"started is no time": 1, "input_tokens is no number": 1, "input_tokens is no whole number": 1},
    )  # fmt: skip
    rows = facts(
        "start_at, duration_ms, initiator, outcome, input_tokens, cached_tokens, session_key, user_hash"
    )
    assert [r[:6] for r in rows] == [
        (datetime(2026, 3, 2, 7, 0), 2500.0, "user", "success", 1000, 0),
        (datetime(2026, 3, 2, 7, 0, 10), 1000.0, "agent", "success", 2000, 1500),
        (datetime(2026, 3, 2, 7, 0, 30), None, "user", "failure", 3000, None),
    ]
    assert rows[0][6] == rows[1][6] != rows[2][6]  # the same id of two people is two sessions
    assert rows[0][7] == rows[1][7] != rows[2][7]
    assert b"ann@corp" not in b"".join(p.read_bytes() for p in settings.lake.rglob("*") if p.is_file())


def test_a_table_with_our_own_names_needs_no_mapping(bring: Bring, facts: Facts) -> None:
    text = "started_s,Input_Tokens,ended,ttft_ms,stream,agent,call\n0,10,,5,true,,a\n1.5,20,,,no,helper,b\n"
    assert bring(text, "calls.csv").kind == "table"
    rows = facts("input_tokens, ttft_ms, is_stream, agent_kind, started_us, plugin_version")
    assert [r[:4] for r in rows] == [(10, 5.0, 1, "main"), (20, None, 0, "subagent")]
    assert rows[1][4] - rows[0][4] == 1_500_000
    assert {r[5] for r in rows} == {"import:table-relative"}


@pytest.mark.parametrize(
    ("columns", "match"),
    [
        ({"started": "absent"}, "no column absent"),
        ({"input_tokens": "prompt"}, "when a call started"),
        ({"started": "when", "started_s": "took"}, "when a call started"),
    ],
)
def test_a_mapping_that_does_not_fit_the_file_is_refused(
    bring: Bring, columns: dict[str, str], match: str
) -> None:
    with pytest.raises(ConfigError, match=match):
        bring(TABLE, "calls.csv", columns=columns)


def test_starts_outside_the_years_of_the_lake_are_set_aside(bring: Bring) -> None:
    report = bring("started,input_tokens\n1999-01-01,5\n2150-01-01,5\n12,5\n2026-01-01,5\n", "calls.csv")
    assert (report.calls, dict(report.rejected)) == (
        1, {"start outside 2020 to 2100": 2, "started is no absolute time": 1},
    )  # fmt: skip


def test_what_the_importer_stores_is_a_valid_event(bring: Bring, settings: Settings) -> None:
    """The steps are JSON text of [[age, tokens], …], and a call names where it came from."""
    bring([weka_session("t", [weka_call(0.0, 130, [1]), weka_call(9.0, 130, [1])])])
    rows = raw(settings, "prefix_steps, plugin_version, stage, schema")
    assert rows == [("[]", "import:weka", "final", 1), ("[[7.0,64]]", "import:weka", "final", 1)]
