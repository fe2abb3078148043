"""Turns, positions, categories, gaps, prefixes and visits, each on a case small enough to check by eye."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pipeline import run
from tests.pipeline.sql.synthetic import MONDAY, Power, Settings, build, event, facts, session


def at(seconds: float) -> Any:
    return MONDAY + timedelta(seconds=seconds)


def column(lake: Path, name: str) -> dict[str, Any]:
    return {k: v[name] for k, v in facts(lake).items()}


def test_a_turn_starts_at_each_user_call_where_no_turn_id_is_given(tmp_path: Path) -> None:
    lake = build(
        tmp_path,
        [
            event("a", at(0), initiator="user"),
            event("b", at(10)),
            event("c", at(20), initiator="user"),
            event("d", at(30)),
            event("e", at(40)),
        ],
    )
    assert column(lake, "turn_key") == {
        "a": "call:a",
        "b": "call:a",
        "c": "call:c",
        "d": "call:c",
        "e": "call:c",
    }
    assert column(lake, "position") == {"a": "1", "b": "2", "c": "1", "d": "2", "e": "3+"}
    assert {t["turn_key"]: (t["turn_number"], t["calls"]) for t in facts(lake, "fct_turn").values()} == {
        "call:a": (1, 2),
        "call:c": (2, 3),
    }


def test_given_turn_ids_win_and_calls_without_one_join_the_turn_before(tmp_path: Path) -> None:
    lake = build(
        tmp_path,
        [
            event("a", at(0), initiator="user", turn_id="t1"),
            event("b", at(10), initiator="unknown"),
            event("c", at(20), initiator="user", turn_id="t1"),
        ],
    )
    assert set(column(lake, "turn_key").values()) == {"t1"}
    assert column(lake, "turn_source") == {"a": "given", "b": "settled", "c": "given"}


def test_calls_before_any_turn_start_are_kept_and_reported(tmp_path: Path) -> None:
    lake = build(tmp_path, [event("a", at(0)), event("b", at(10), initiator="user")])
    assert column(lake, "turn_key") == {"a": "lead", "b": "call:b"}
    assert {a["name"]: a["rows"] for a in run.last_audits(lake)}["turn_without_start"] == 1


def test_streams_of_agents_and_users_do_not_mix(tmp_path: Path) -> None:
    lake = build(
        tmp_path,
        [
            event("a", at(0), initiator="user"),
            event("sub", at(1), agent_id="x", agent_kind="subagent", initiator="user"),
            event("b", at(10)),
            event("other", at(11), session_key="s2", initiator="user"),
            event("c", at(20)),
        ],
    )
    assert column(lake, "turn_key") == {
        "a": "call:a", "b": "call:a", "c": "call:a", "sub": "call:sub", "other": "call:other",
    }  # fmt: skip
    assert column(lake, "category")["sub"] == "first_of_session"


def test_the_first_category_that_applies_wins(tmp_path: Path) -> None:
    big = {"input_tokens": 20_000}
    lake = build(
        tmp_path,
        [
            event("first", at(0), initiator="user", model_group="m1", compaction_hint=True, **big),
            event("switch", at(10), initiator="user", model_group="m2", input_tokens=1_000),
            event("grown", at(20), model_group="m2", **big),
            event("shrunk", at(30), initiator="user", model_group="m2", input_tokens=13_999),
            event("kept", at(40), model_group="m2", input_tokens=9_800),
            event("small", at(50), model_group="m2", input_tokens=500),
            event(
                "hinted", at(60), initiator="user", model_group="m2", compaction_hint=True, input_tokens=500
            ),
            event("asked", at(70), initiator="user", model_group="m2", input_tokens=500),
        ],
    )
    assert column(lake, "category") == {
        "first": "first_of_session",
        "switch": "model_switch",
        "grown": "within",
        "shrunk": "compaction",
        "kept": "within",  # exactly 70 % is no compaction
        "small": "within",  # the previous prompt was not above 10,000 tokens
        "hinted": "compaction",
        "asked": "boundary",
    }


def test_a_compaction_is_the_call_that_summarises_and_the_first_one_after_it(tmp_path: Path) -> None:
    lake = build(
        tmp_path,
        [
            event("before", at(0), initiator="user", input_tokens=30_000),
            event("summarise", at(10), initiator="compaction", compaction_hint=True, input_tokens=31_000),
            event("after", at(20), compaction_hint=True, input_tokens=9_000),
            event("asked", at(30), initiator="user", compaction_hint=True, input_tokens=9_500),
            event("worked", at(40), compaction_hint=True, input_tokens=9_900),
            event("again", at(50), initiator="compaction", compaction_hint=True, input_tokens=9_950),
        ],
    )
    assert column(lake, "category") == {
        "before": "first_of_session",
        "summarise": "compaction",
        "after": "compaction",
        "asked": "boundary",
        "worked": "within",
        "again": "compaction",
    }


def test_an_auxiliary_call_on_another_model_is_no_model_switch_and_takes_no_position(tmp_path: Path) -> None:
    lake = build(
        tmp_path,
        [
            event("a", at(0), initiator="user"),
            event("title", at(1), initiator="auxiliary", model_group="coder-small"),
            event("b", at(10)),
        ],
    )
    assert column(lake, "category") == {"a": "first_of_session", "title": "auxiliary", "b": "within"}
    assert column(lake, "position") == {"a": "1", "title": None, "b": "2"}
    assert len(facts(lake, "fct_turn")) == 1


def test_the_call_number_is_what_we_saw_or_what_the_request_shows_where_that_is_more(tmp_path: Path) -> None:
    lake = build(
        tmp_path,
        [
            event("missed", at(0), turn_id="t", call_index=4),
            event("next", at(10), turn_id="t", call_index=5),
            event("fresh", at(20), turn_id="u", initiator="user", call_index=1),
            event("second", at(30), turn_id="u", call_index=2),
            event("after_compaction", at(40), turn_id=None, initiator="unknown", call_index=1),
        ],
    )
    assert column(lake, "call_in_turn") == {
        "missed": 4, "next": 5, "fresh": 1, "second": 2, "after_compaction": 3,
    }  # fmt: skip


def test_gaps_run_from_the_latest_earlier_end_and_are_never_negative(tmp_path: Path) -> None:
    lake = build(
        tmp_path,
        [
            event("a", at(0), duration_ms=10_000),
            event("b", at(2), duration_ms=1_000),
            event("c", at(12), duration_ms=1_000),
            event("d", at(13 + 3600), duration_ms=1_000),
        ],
    )
    assert column(lake, "gap_ms") == {"a": None, "b": 0, "c": 2_000, "d": 3_600_000}
    assert column(lake, "idle_bin") == {"a": None, "b": "<10 s", "c": "<10 s", "d": "≥60 min"}


def test_potential_tokens_follow_the_steps_within_each_retention_inclusively(tmp_path: Path) -> None:
    steps = json.dumps([[10, 1000], [300, 2000], [3600.5, 3000]])
    lake = build(
        tmp_path,
        [event("a", at(0), prompt_bytes=4000, shared_bytes=3000, prefix_steps=steps, input_tokens=800)],
    )
    call = facts(lake)["a"]
    assert (call["potential_300_tokens"], call["potential_3600_tokens"], call["potential_inf_tokens"]) == (
        400,
        400,
        600,
    )


def test_potential_is_unknown_without_a_chain_and_zero_without_a_shared_byte(tmp_path: Path) -> None:
    lake = build(
        tmp_path,
        [
            event("unknown", at(0), prompt_bytes=None, shared_bytes=None, prefix_steps=None),
            event("nothing", at(10), shared_bytes=0, prefix_steps=None),
            event("any_age", at(20), shared_bytes=4000, prefix_steps=None),
        ],
    )
    found = facts(lake)
    keys = ("potential_inf_tokens", "potential_3600_tokens", "potential_300_tokens")
    assert [found["unknown"][k] for k in keys] == [None, None, None]
    assert [found["nothing"][k] for k in keys] == [0, 0, 0]
    assert [found["any_age"][k] for k in keys] == [1000, None, None]


def test_unreadable_or_falling_steps_are_reported(tmp_path: Path) -> None:
    lake = build(
        tmp_path,
        [
            event("bad", at(0), prefix_steps="[[1,"),
            event("falling", at(10), prefix_steps="[[1, 500], [9, 400]]"),
            event("good", at(20), prefix_steps="[[1, 400], [9, 500]]"),
        ],
    )
    found = next(a for a in run.last_audits(lake) if a["name"] == "bad_prefix_steps")
    assert (found["rows"], sorted(found["samples"])) == (2, ["bad", "falling"])


def test_speed_needs_sixteen_tokens_and_a_first_token(tmp_path: Path) -> None:
    lake = build(
        tmp_path,
        [
            event("fast", at(0), output_tokens=101, ttft_ms=1000, duration_ms=3000),
            event("short", at(10), output_tokens=15, ttft_ms=1000, duration_ms=3000),
            event("silent", at(20), output_tokens=101, ttft_ms=None, duration_ms=3000),
        ],
    )
    assert column(lake, "tokens_per_s") == {"fast": 50, "short": None, "silent": None}


def test_a_visit_ends_after_thirty_idle_minutes_across_all_agents(tmp_path: Path) -> None:
    lake = build(
        tmp_path,
        [
            event("a", at(0), initiator="user"),
            event("sub", at(1000), agent_id="x", agent_kind="subagent"),
            event("b", at(1002 + 1800)),
            event("c", at(1004 + 3601)),
        ],
    )
    con = duckdb.connect()
    visits = con.execute(
        f"SELECT visit_number, calls FROM read_parquet('{lake}/facts/session/*/*.parquet') ORDER BY "
        "visit_number"
    ).fetchall()
    assert visits == [(1, 3), (2, 1)]


def test_attended_means_a_user_call_somewhere_in_the_session_and_no_service_key(tmp_path: Path) -> None:
    events = [
        *session("person", MONDAY, turns=1, calls=2),
        *session("robot", MONDAY, turns=1, calls=2, service_key=True),
        *session("declared", MONDAY, turns=1, calls=2, key_alias="nightly"),
        event("loop", at(0), session_key="agent-only", initiator="agent"),
    ]
    lake = build(tmp_path, events, settings=Settings(service_keys=("nightly",)))
    attended = {v["session_key"]: v["is_attended"] for v in facts(lake).values()}
    assert attended == {"person": 1, "robot": 0, "declared": 0, "agent-only": 0}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"response_cache_hit": True}, 0),
        ({"outcome": "rejected"}, 0),
        ({"route": "embeddings"}, 0),
        ({"outcome": "failure"}, 1),
        ({"outcome": "aborted"}, 1),
        ({"route": "responses"}, 1),
    ],
)
def test_only_generation_that_reached_an_engine_is_engine_load(
    tmp_path: Path, fields: dict[str, Any], expected: int
) -> None:
    assert facts(build(tmp_path, [event("a", at(0), **fields)]))["a"]["is_engine"] == expected


@pytest.mark.parametrize(
    ("power", "expected"),
    [
        (Power(), {"own": 0, "hosted": 1}),
        (Power(model_groups={"claude": ["node-1"], "coder": ["node-1"]}), {"own": 0, "hosted": 0}),
        (Power(model_groups={"claude": ["node-1"]}), {"own": 1, "hosted": 0}),
        (Power(external_model_groups=["coder"]), {"own": 1, "hosted": 1}),
        (Power(external_providers=["hosted_vllm"]), {"own": 1, "hosted": 0}),
    ],
)
def test_external_follows_providers_and_declared_model_groups(
    tmp_path: Path, power: Power, expected: dict[str, int]
) -> None:
    lake = build(
        tmp_path,
        [
            event("own", at(0), provider="hosted_vllm", model_group="coder"),
            event("hosted", at(10), provider="anthropic", model_group="claude"),
        ],
        settings=Settings(power=power),
    )
    assert column(lake, "is_external") == expected
