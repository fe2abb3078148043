"""The four figures on cases whose answers are worked out by hand."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pipeline import figures, run
from tests.pipeline.sql.synthetic import MONDAY, Settings, build, event, metric, scenario, session, write


def at(seconds: float) -> datetime:
    return MONDAY + timedelta(seconds=seconds)


def compute(lake: Path, name: str, settings: Settings | None = None, **window: Any) -> dict[str, Any]:
    return figures.compute(lake, settings or Settings(), **window).figures[name]


def hours(figure: dict[str, Any]) -> dict[float, float]:
    return {row["idle_cap_s"]: row["human_hours"] for row in figure["values"]}


# -- calls per human-hour


def test_a_gap_up_to_the_cap_counts_in_full_and_a_longer_one_not_at_all(tmp_path: Path) -> None:
    minute = {"duration_ms": 60_000, "ttft_ms": 1}
    lake = build(
        tmp_path,
        [
            event("a", at(0), initiator="user", **minute),
            event("b", at(60 + 300), initiator="user", **minute),  # 5 min later
            event("c", at(60 + 300 + 60 + 600), initiator="user", **minute),  # 10 min later
            event("d", at(60 + 300 + 60 + 600 + 60 + 7200), initiator="user", **minute),  # 2 h later
        ],
    )
    figure = compute(lake, "calls_per_human_hour")
    assert {cap: h * 60 for cap, h in hours(figure).items()} == pytest.approx({300: 9, 900: 19, 1800: 19})
    assert figure["value"] == pytest.approx(
        {"5 min": 4 / (9 / 60), "15 min": 4 / (19 / 60), "30 min": 4 / (19 / 60)}
    )


def test_parallel_sessions_of_one_user_count_their_time_once(tmp_path: Path) -> None:
    hour = {"duration_ms": 3_600_000, "initiator": "user"}
    lake = build(
        tmp_path,
        [
            event("a", at(0), session_key="s1", **hour),
            event("b", at(1800), session_key="s2", **hour),
            event("c", at(0), session_key="s3", user_hash="u2", **hour),
        ],
    )
    assert hours(compute(lake, "calls_per_human_hour"))[300.0] == pytest.approx(1.5 + 1)


def test_unattended_work_has_no_human_hours_and_its_calls_do_not_count(tmp_path: Path) -> None:
    lake = build(
        tmp_path,
        [
            *session("person", MONDAY, turns=1, calls=3),
            *session("robot", MONDAY, turns=5, calls=9, service_key=True, user="u1"),
            *[event(f"loop{n}", at(n), session_key="loop") for n in range(4)],
        ],
    )
    figure = compute(lake, "calls_per_human_hour")
    assert hours(figure)[300.0] * 3600 == pytest.approx(3 * 2 + 2 * 4)
    assert figure["coverage"]["attended_calls"] == 3
    assert figure["coverage"]["unattended_calls"] == 49


def test_only_unattended_work_gives_null_with_a_reason(tmp_path: Path) -> None:
    figure = compute(build(tmp_path, [event("a", at(0))]), "calls_per_human_hour")
    assert figure["value"] is None
    assert "no attended work" in figure["reason"]


@pytest.mark.parametrize(
    ("start", "length"),
    [(datetime(2026, 3, 28, 23), 23), (datetime(2026, 10, 24, 22), 25), (datetime(2026, 3, 1, 23), 24)],
)
def test_a_days_human_hours_are_at_most_the_length_of_the_local_day(
    tmp_path: Path, start: datetime, length: int
) -> None:
    calls = [
        event(
            f"e{n:03d}",
            start - timedelta(hours=2) + timedelta(minutes=10 * n),
            initiator="user",
            duration_ms=590_000,
        )
        for n in range(6 * 30)
    ]
    figure = compute(
        build(tmp_path, calls), "calls_per_human_hour", Settings(business_time_zone="Europe/Berlin")
    )
    assert figure["longest_user_day_hours"] == pytest.approx(length)
    days = {r["day"] for r in figure["by_day"]}
    local = (start + timedelta(hours=3)).date()
    assert local in days
    total = sum(r["human_hours"] for r in figure["by_day"] if r["idle_cap_s"] == 300)
    assert total == pytest.approx(30 - 10 / 3600, rel=1e-6)


def test_tool_gaps_are_cut_down_to_the_cap_inside_turns(tmp_path: Path) -> None:
    lake = build(
        tmp_path,
        [
            event("a", at(0), initiator="user", duration_ms=10_000),
            event("b", at(10 + 1000), duration_ms=10_000),
            event("c", at(9000), initiator="user", duration_ms=10_000),
        ],
    )
    in_turn = compute(lake, "calls_per_human_hour")["calls_per_in_turn_hour"]["in_turn_hours"]
    assert {cap: h * 3600 for cap, h in in_turn.items()} == pytest.approx(
        {"60 s": 90, "300 s": 330, "1800 s": 1030, "none": 1030}
    )


def test_prompts_and_turns_are_the_main_threads(tmp_path: Path) -> None:
    lake = build(
        tmp_path,
        [
            event("a", at(0), initiator="user"),
            event("sub1", at(3), agent_id="x", agent_kind="subagent", initiator="user"),
            event("sub2", at(6), agent_id="x", agent_kind="subagent"),
            event("b", at(9)),
        ],
    )
    figure = compute(lake, "calls_per_human_hour")
    assert figure["calls_per_user_prompt"]["value"] == 4
    assert figure["calls_per_turn"]["value"] == 2
    assert figure["turns_per_session"]["value"] == 1


def test_d_rho_a_equals_the_concurrency_of_a_sweep(tmp_path: Path) -> None:
    events = [
        *session("s1", MONDAY, turns=3, calls=5),
        *session("s2", at(30), turns=2, calls=4, user="u2"),
        *session("s2", at(31), turns=1, calls=6, user="u2"),
        *session("s3", at(50), turns=2, calls=3, outcome="failure"),
    ]
    for n, e in enumerate(events):
        e["event_id"] = f"e{n:02d}"
        if n % 4 == 3:
            e |= {"agent_id": "x", "agent_kind": "subagent"}
    figure = compute(build(tmp_path, events), "calls_per_human_hour")
    for row in figure["values"]:
        assert row["amplification"] > 1.2
        assert row["d_rho_a"] == pytest.approx(row["mean_concurrency"], rel=0.01)


def test_a_key_with_several_turns_at_once_is_flagged(tmp_path: Path) -> None:
    lake = build(
        tmp_path,
        [
            event("a", at(0), initiator="user", user_source="key", session_key="s1"),
            event("b", at(1), initiator="user", user_source="key", session_key="s2"),
            event("c", at(0), initiator="user", user_source="end_user", session_key="s3", user_hash="u2"),
            event("d", at(1), initiator="user", user_source="end_user", session_key="s4", user_hash="u2"),
        ],
    )
    assert compute(lake, "calls_per_human_hour")["coverage"]["keys_shared_at_once"] == 1


# -- prompt length


def test_percentiles_are_linear_and_leave_out_what_no_engine_saw(tmp_path: Path) -> None:
    events = [event(f"e{n}", at(n), input_tokens=100 * n, cached_tokens=0) for n in range(1, 6)]
    events += [
        event("cache", at(50), input_tokens=10**6, response_cache_hit=True),
        event("refused", at(51), input_tokens=10**6, outcome="rejected"),
        event("unknown", at(52), input_tokens=None, cached_tokens=None, usage_source="none"),
    ]
    figure = compute(build(tmp_path, events), "prompt_length")
    assert figure["value"] == pytest.approx({"p50": 300, "p90": 460, "p95": 480, "p99": 496, "mean": 300})
    assert figure["coverage"]["share"] == pytest.approx(5 / 6)
    assert figure["input_to_output"]["value"] == pytest.approx(1500 / 505)


def test_log_buckets_of_days_add_up_and_bound_a_percentile_by_one_per_cent(tmp_path: Path) -> None:
    events = [
        event(
            f"e{d}{n:02d}",
            MONDAY + timedelta(days=d, minutes=n),
            input_tokens=50 + 37 * n * n + d,
            session_key=f"s{d}",
        )
        for d in range(3)
        for n in range(40)
    ]
    lake = build(tmp_path, events)
    whole = compute(lake, "prompt_length")
    parts = [
        compute(lake, "prompt_length", since=date(2026, 3, 2 + d), until=date(2026, 3, 3 + d))
        for d in range(3)
    ]
    merged: dict[int, int] = {}
    for part in parts:
        for bucket, calls, _ in part["histogram"]["buckets"]:
            merged[bucket] = merged.get(bucket, 0) + calls
    assert merged == {b: n for b, n, _ in whole["histogram"]["buckets"]}
    assert sum(p["calls"] for p in parts) == whole["calls"] == 120
    ranks = sorted(e["input_tokens"] for e in events)
    seen = 0
    for bucket in sorted(merged):
        seen += merged[bucket]
        if seen >= 60:
            middle = 1.02 ** (bucket - 0.5)
            break
    assert middle == pytest.approx(ranks[59], rel=0.0101)
    assert sum(b["calls"] for b in whole["display_histogram"]) == 120


# -- prefix hit


def test_the_hit_is_a_ratio_of_sums_over_reporting_calls_with_coverage(tmp_path: Path) -> None:
    lake = build(
        tmp_path,
        [
            event("a", at(0), input_tokens=100, cached_tokens=100),
            event("b", at(10), input_tokens=900, cached_tokens=0),
            event("c", at(20), input_tokens=5000, cached_tokens=None),
        ],
    )
    figure = compute(lake, "prefix_hit")
    assert figure["realised"]["value"] == pytest.approx(0.1)
    assert figure["coverage"]["share_of_calls"] == pytest.approx(2 / 3)
    assert figure["coverage"]["share_of_input_tokens"] == pytest.approx(1 / 6)


def test_no_reported_cached_tokens_gives_null_not_zero(tmp_path: Path) -> None:
    lake = build(
        tmp_path,
        [event("a", at(0), cached_tokens=None, prompt_bytes=None, shared_bytes=None, prefix_steps=None)],
    )
    figure = compute(lake, "prefix_hit")
    assert figure["value"] is None
    assert figure["realised"] == {
        "value": None,
        "reason": "no backend reported cached tokens",
        "cached_tokens": None,
        "input_tokens": None,
        "written_share": None,
    }


def test_a_mode_that_never_reports_hits_while_its_twin_does_is_set_aside(tmp_path: Path) -> None:
    events = [event(f"n{n}", at(n), stream=False, cached_tokens=900) for n in range(10)]
    events += [event(f"s{n}", at(100 + n), stream=True, cached_tokens=0) for n in range(10)]
    figure = compute(build(tmp_path, events), "prefix_hit")
    assert figure["suspect_cells"] == [{"provider": "hosted_vllm", "stream": True, "calls": 10}]
    assert figure["realised"]["value"] == pytest.approx(0.9)
    assert figure["coverage"]["reporting_calls"] == 10


def test_response_cache_hits_and_rejected_calls_count_as_calls_but_not_in_the_hit(
    tmp_path: Path,
) -> None:
    lake = build(
        tmp_path,
        [
            event("a", at(0), initiator="user", cached_tokens=500),
            event("replay", at(10), cached_tokens=1000, response_cache_hit=True),
            event("refused", at(20), cached_tokens=1000, outcome="rejected"),
        ],
    )
    assert compute(lake, "prefix_hit")["realised"]["value"] == pytest.approx(0.5)
    assert compute(lake, "calls_per_human_hour")["coverage"]["attended_calls"] == 3


def test_potential_and_realised_stand_side_by_side_by_position(tmp_path: Path) -> None:
    figure = compute(build(tmp_path, session("s", MONDAY, turns=2, calls=3)), "prefix_hit")
    second = next(r for r in figure["by"]["position"] if r["position"] == "2")
    assert second["potential_inf"] == pytest.approx((5000 + 8000) / (6000 + 9000))
    assert second["realised"] == pytest.approx(0.9 * (5000 + 8000) / (6000 + 9000))


@pytest.mark.parametrize(
    ("names", "factor"),
    [
        (("vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total"), 1),
        (("vllm:gpu_prefix_cache_hits_total", "vllm:gpu_prefix_cache_queries_total"), 1),
        (("vllm:prefix_cache_hits", "vllm:prefix_cache_queries"), 1),
    ],
)
def test_engine_counters_survive_a_restart_and_a_renaming(
    tmp_path: Path, names: tuple[str, str], factor: int
) -> None:
    hits, queries = names
    series = [(0, 100, 200), (60, 900, 1000), (120, 5, 20), (180, 25, 60)]
    metrics = [m for t, h, q in series for m in (metric(at(t), hits, h), metric(at(t), queries, q))]
    lake = build(tmp_path, [event("a", at(0)), event("b", at(200))], metrics=metrics)
    engine = compute(lake, "prefix_hit")["engine"]
    assert engine["value"] == pytest.approx((800 + 5 + 20) / (800 + 20 + 40))
    assert engine["counter_resets"] == 2


def test_old_and_new_names_of_one_counter_are_never_added(tmp_path: Path) -> None:
    metrics = []
    for t, h, q in [(0, 0, 0), (60, 30, 100)]:
        metrics += [
            metric(at(t), "vllm:prefix_cache_hits_total", h),
            metric(at(t), "vllm:prefix_cache_queries_total", q),
        ]
        metrics += [
            metric(at(t), "vllm:gpu_prefix_cache_hits_total", h),
            metric(at(t), "vllm:gpu_prefix_cache_queries_total", q),
        ]
    lake = build(tmp_path, [event("a", at(0)), event("b", at(200))], metrics=metrics)
    engine = compute(lake, "prefix_hit")["engine"]
    assert (engine["value"], engine["query_tokens"]) == (pytest.approx(0.3), 100)


def test_an_engine_that_counts_more_queries_than_prompt_tokens_is_marked(tmp_path: Path) -> None:
    metrics = []
    for t, h, q, p in [(0, 0, 0, 0), (60, 30, 110, 100)]:
        metrics += [
            metric(at(t), "vllm:prefix_cache_hits_total", h),
            metric(at(t), "vllm:prefix_cache_queries_total", q),
            metric(at(t), "vllm:prompt_tokens_total", p),
        ]
    lake = build(tmp_path, [event("a", at(0)), event("b", at(200))], metrics=metrics)
    assert compute(lake, "prefix_hit")["engine"]["overcounted"] is True


# -- windows


def test_counts_of_days_add_up_to_the_range_and_the_end_is_not_included(tmp_path: Path) -> None:
    scenario(tmp_path)
    run.build(tmp_path, Settings())
    whole = figures.compute(tmp_path, Settings(), date(2026, 3, 2), date(2026, 3, 4)).counts["calls"]
    parts = [
        figures.compute(tmp_path, Settings(), date(2026, 3, d), date(2026, 3, d + 1)).counts["calls"]
        for d in (2, 3)
    ]
    assert sum(parts) == whole == 50
    until_first = figures.compute(tmp_path, Settings(), until=MONDAY)
    assert until_first.window is None
    assert until_first.figures["prompt_length"]["reason"] == "the lake holds no call in the window"


def test_evidence_and_source_shares_come_with_every_figure(tmp_path: Path) -> None:
    lake = build(
        tmp_path,
        [event("a", at(0), turn_evidence="E1"), event("b", at(9)), event("c", at(19), session_evidence="E4")],
    )
    for name in ("calls_per_human_hour", "prompt_length", "prefix_hit", "agents_per_megawatt"):
        evidence = compute(lake, name)["evidence"]
        assert evidence["turn_evidence"] == pytest.approx({"E1": 1 / 3, "E3": 2 / 3})
        assert evidence["session_evidence"] == pytest.approx({"E1": 2 / 3, "E4": 1 / 3})
        assert evidence["source"] == {"event": 1.0}


def test_a_late_write_changes_the_figures_of_the_next_computation(tmp_path: Path) -> None:
    lake = build(tmp_path, [event("a", at(0), input_tokens=100)])
    write(tmp_path, "raw_event", [event("b", at(10), input_tokens=300)], name="late")
    run.build(tmp_path, Settings())
    assert compute(lake, "prompt_length")["value"]["p50"] == 200
