"""Agent-hours over megawatt-hours: states, conformity, hours, refusals and Little's law."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pipeline import figures, run
from tests.pipeline.sql.synthetic import (
    MONDAY,
    Power,
    Settings,
    Tier,
    board_metrics,
    build,
    event,
    metric,
    session,
)

HOUR = timedelta(hours=1)
ONE = Settings(slo_tiers=(Tier(5, 50),))


def at(seconds: float) -> datetime:
    return MONDAY + timedelta(seconds=seconds)


def boards(hours: float = 3, watts: float = 500) -> list[dict[str, Any]]:
    return board_metrics(MONDAY - HOUR, MONDAY + hours * HOUR, watts=watts)


def compute(lake: Path, settings: Settings = ONE, until: datetime | None = None) -> dict[str, Any]:
    return figures.compute(lake, settings, MONDAY, until or MONDAY + HOUR).figures["agents_per_megawatt"]


def states(figure: dict[str, Any], key: str = "value") -> dict[str, float]:
    return {r["state"]: r[key] for r in figure["values"]}


def pair(**fields: Any) -> list[dict[str, Any]]:
    """Two sessions, 600 s open: a turn of 300 s with two calls of 30 s, then a turn of one call of 30 s."""
    events = []
    for s in ("s1", "s2"):
        call = {"session_key": s, "duration_ms": 30_000, "output_tokens": 3001, "ttft_ms": 1000} | fields
        events += [
            event(f"{s}a", at(0), turn_id=f"{s}1", initiator="user", **call),
            event(f"{s}b", at(270), turn_id=f"{s}1", **call),
            event(f"{s}c", at(570), turn_id=f"{s}2", initiator="user", **call),
        ]
    return events


def test_states_hold_open_gaps_turns_and_calls_in_flight(tmp_path: Path) -> None:
    figure = compute(build(tmp_path, pair(), metrics=boards()))
    mwh = 2 * 500 / 1e6
    assert states(figure, "megawatt_hours")["open"] == pytest.approx(mwh)
    assert states(figure) == pytest.approx(
        {"open": 2 * 600 / 3600 / mwh, "in_turn": 2 * 330 / 3600 / mwh, "llm_active": 2 * 90 / 3600 / mwh}
    )
    assert figure["boundary"] == "board"
    assert figure["synthetic"] is False


def test_a_gap_and_a_turn_that_miss_leave_the_numerator_but_not_the_energy(tmp_path: Path) -> None:
    events = pair()
    events[0] |= {"ttft_ms": 9_000}  # first turn of s1 exceeds 5 s
    figure = compute(build(tmp_path, events, metrics=boards()))
    mwh = 2 * 500 / 1e6
    assert states(figure) == pytest.approx(
        {"open": 630 / 3600 / mwh, "in_turn": 360 / 3600 / mwh, "llm_active": 120 / 3600 / mwh}
    )
    assert states(figure, "any_conformity")["open"] == pytest.approx(1200 / 3600 / mwh)


@pytest.mark.parametrize(
    ("fields", "lower", "upper"),
    [
        ({"ttft_ms": 5_000}, 1, 1),
        ({"ttft_ms": 5_001}, 0, 0),
        ({"outcome": "failure"}, 0, 0),
        ({"ttft_ms": None, "duration_ms": 4_000}, 1, 1),  # the whole call took less than the bound
        ({"ttft_ms": None, "duration_ms": 30_000}, 0, 1),  # it matters: unknown
        (
            {"ttft_ms": None, "duration_ms": 5_000, "output_tokens": 100},
            0,
            1,
        ),  # speed unknown: maybe fast enough
        ({"output_tokens": 1000}, 0, 0),  # 34 tok/s
        ({"output_tokens": 15}, 1, 1),  # too few tokens for a speed
        ({"outcome": "open", "ttft_ms": None, "duration_ms": None, "output_tokens": None}, 0, 1),
    ],
)
def test_conformity_of_a_turn_has_a_lower_and_an_upper_bound(
    tmp_path: Path, fields: dict[str, Any], lower: int, upper: int
) -> None:
    call = {"duration_ms": 30_000, "output_tokens": 3001, "ttft_ms": 1000, "turn_id": "t"}
    lake = build(tmp_path, [event("a", at(0), initiator="user", **call | fields), event("b", at(40), **call)])
    con = run.connect(lake)
    figures.bind(con, lake, ONE)
    row = con.execute("SELECT conforms_lower, conforms_upper FROM mart_turn_conformity").fetchone()
    con.close()
    assert row == (lower, upper)


@pytest.mark.parametrize(
    ("calls", "late", "slow", "conforms"),
    [(19, 1, 0, 0), (20, 1, 0, 1), (20, 2, 0, 0), (3, 0, 1, 0), (4, 0, 1, 1), (4, 0, 2, 0), (40, 2, 10, 1)],
)
def test_five_per_cent_may_be_late_and_a_quarter_slow_rounded_down(
    tmp_path: Path, calls: int, late: int, slow: int, conforms: int
) -> None:
    events = [
        event(
            f"e{n:02d}",
            at(40 * n),
            turn_id="t",
            duration_ms=30_000,
            ttft_ms=6_000 if n < late else 1_000,
            output_tokens=500 if calls - n <= slow else 3001,
        )
        for n in range(calls)
    ]
    lake = build(tmp_path, events)
    con = run.connect(lake)
    figures.bind(con, lake, ONE)
    row = con.execute("SELECT conforms_lower, conforms_upper FROM mart_turn_conformity").fetchone()
    con.close()
    assert row == (conforms, conforms)


def test_a_turn_across_an_hour_is_split_by_time(tmp_path: Path) -> None:
    long = {"duration_ms": 3_600_000, "output_tokens": 400_000, "ttft_ms": 1000, "initiator": "user"}
    events = [event("a", at(1800), session_key="s1", **long), event("b", at(1800), session_key="s2", **long)]
    lake = build(tmp_path, events, metrics=boards())
    con = run.connect(lake)
    figures.bind(con, lake, ONE, MONDAY, MONDAY + 2 * HOUR)
    found = con.execute(
        "SELECT hour_start, agent_hours FROM mart_agent_hour WHERE state = 'in_turn' ORDER BY hour_start"
    ).fetchall()
    con.close()
    assert found == [(MONDAY, pytest.approx(1.0)), (MONDAY + HOUR, pytest.approx(1.0))]


def test_seconds_without_power_leave_numerator_and_denominator(tmp_path: Path) -> None:
    long = {"duration_ms": 3_600_000, "output_tokens": 400_000, "ttft_ms": 1000, "initiator": "user"}
    events = [event("a", at(0), session_key="s1", **long), event("b", at(0), session_key="s2", **long)]
    gap = [m for m in boards() if not at(600) < datetime.fromisoformat(m["ts"]) < at(1200)]
    figure = compute(build(tmp_path, events, metrics=gap))
    row = next(r for r in figure["values"] if r["state"] == "in_turn")
    assert row["agent_hours"] == pytest.approx(2 * 3000 / 3600)
    assert row["value"] == pytest.approx(2 / (1000 / 1e6))
    assert figure["coverage"]["excluded_s"] == {"board": pytest.approx(600)}


def test_subagents_and_external_work_stand_beside_the_ratio(tmp_path: Path) -> None:
    events = pair()
    call = {"duration_ms": 60_000, "output_tokens": 6001, "ttft_ms": 1000}
    events.append(event("sub", at(100), session_key="s1", agent_id="x", agent_kind="subagent", **call))
    events.append(event("ext", at(100), session_key="s3", provider="anthropic", initiator="user", **call))
    figure = compute(build(tmp_path, events, metrics=boards()))
    row = next(r for r in figure["values"] if r["state"] == "in_turn")
    assert row["agent_hours"] == pytest.approx(2 * 330 / 3600)
    assert row["subagents_beside"] == pytest.approx(60 / 3600 / (1000 / 1e6))
    assert figure["external"]["agent_hours"]["in_turn"] == pytest.approx(60 / 3600)


def test_one_session_is_refused(tmp_path: Path) -> None:
    figure = compute(build(tmp_path, session("s1", MONDAY, turns=2, calls=2), metrics=boards()))
    assert figure["value"] is None
    assert "one session" in figure["reason"]


def test_only_external_work_is_refused_with_what_to_declare(tmp_path: Path) -> None:
    lake = build(tmp_path, pair(provider="anthropic"), metrics=boards())
    assert "power.model_groups" in compute(lake)["reason"]
    mapped = Settings(slo_tiers=(Tier(5, 50),), power=Power(model_groups={"coder-large": ["node-1"]}))
    run.build(lake, mapped)
    assert compute(lake, mapped)["reason"] is None


def test_the_measurement_interval_holds_sensor_accuracy_and_unknown_turns(tmp_path: Path) -> None:
    events = pair()
    events[0] |= {"ttft_ms": None}
    figure = compute(build(tmp_path, events, metrics=boards()))
    row = next(r for r in figure["values"] if r["state"] == "open")
    mwh = 1000 / 1e6
    assert row["value"] == pytest.approx(630 / 3600 / mwh)
    assert row["value_upper"] == pytest.approx(1200 / 3600 / mwh)
    assert row["measurement_interval"] == pytest.approx([630 / 3600 / mwh / 1.05, 1200 / 3600 / mwh / 0.95])
    assert row["week_interval"]["value"] is None
    assert "two measured week days, has 1" in row["week_interval"]["reason"]


def test_a_full_week_has_a_week_to_week_interval_around_its_value(tmp_path: Path) -> None:
    events = []
    for day in range(7):
        for s in range(2 + day % 3):
            start = MONDAY + timedelta(days=day, minutes=s)
            events += session(f"d{day}s{s}", start, turns=3, calls=3, output_tokens=101)
    metrics = board_metrics(MONDAY - timedelta(hours=8, minutes=1), MONDAY + timedelta(days=7), step_s=110)
    lake = build(tmp_path, events, metrics=metrics)
    week = figures.compute(lake, ONE, datetime(2026, 3, 2), datetime(2026, 3, 9)).figures[
        "agents_per_megawatt"
    ]
    row = next(r for r in week["values"] if r["state"] == "in_turn")
    low, high = row["week_interval"]["value"]
    assert low < row["value"] < high
    assert len(row["by_day"]) == 7
    assert sum(d["agent_hours"] for d in row["by_day"]) == pytest.approx(row["conformant_agent_hours"][0])
    assert sum(d["megawatt_hours"] for d in row["by_day"]) == pytest.approx(row["megawatt_hours"])


def test_the_pooled_rule_judges_hours_not_turns(tmp_path: Path) -> None:
    events = pair()
    events[0] |= {"ttft_ms": 9_000}
    many = [
        event(f"x{n}", at(1000 + 3 * n), session_key="s9", turn_id="x", duration_ms=2_000, ttft_ms=500)
        for n in range(40)
    ]
    figure = compute(build(tmp_path, events + many, metrics=boards()))
    row = next(r for r in figure["values"] if r["state"] == "in_turn")
    assert row["value"] < row["pooled_rule"] == pytest.approx(row["any_conformity"])


def test_littles_law_holds_with_edges_and_breaks_with_overlapping_turns(tmp_path: Path) -> None:
    whole = [e for n in range(5) for e in session(f"s{n}", at(60 * n), turns=4, calls=4)]
    lake = build(tmp_path / "whole", whole, metrics=boards())
    cut = figures.compute(lake, ONE, at(100), at(400)).figures["agents_per_megawatt"]["littles_law"]
    assert cut["holds"] is True
    assert cut["residual"] < 1e-6
    assert cut["mean_agents_in_turn"] > 0.5
    overlapping = [
        event(f"e{n}", at(10 * n), turn_id=f"t{n}", initiator="user", duration_ms=60_000) for n in range(9)
    ]
    broken = compute(build(tmp_path / "broken", overlapping, metrics=boards()))["littles_law"]
    assert broken["holds"] is False


@pytest.mark.parametrize(
    ("waiting", "kv", "lower_bound"), [(0, 0.4, True), (3, 0.4, False), (0, 0.95, False), (None, None, None)]
)
def test_a_window_that_was_never_near_the_limit_is_a_lower_bound(
    tmp_path: Path, waiting: float | None, kv: float | None, lower_bound: bool | None
) -> None:
    metrics = [m for m in boards() if not m["name"].startswith("vllm:num") and "kv_cache" not in m["name"]]
    if waiting is not None and kv is not None:
        metrics += [
            metric(at(60), "vllm:num_requests_waiting", waiting),
            metric(at(60), "vllm:kv_cache_usage_perc", kv),
        ]
    figure = compute(build(tmp_path, pair(), metrics=metrics))
    assert figure["saturation"]["lower_bound"] is lower_bound


def test_served_and_capacity_are_different_rows(tmp_path: Path) -> None:
    figure = compute(build(tmp_path, pair(), metrics=boards()))
    assert {r["kind"] for r in figure["values"]} == {"served"}
    assert figure["capacity"]["value"] is None


def test_one_session_of_ours_beside_external_ones_is_refused(tmp_path: Path) -> None:
    events = pair() + session("s3", MONDAY, turns=1, calls=2)
    for e in events:
        if e["session_key"] != "s3":
            e["provider"] = "anthropic"
    figure = compute(build(tmp_path, events, metrics=boards()))
    assert figure["value"] is None
    assert "1 session in the window (2 more at external providers)" in figure["reason"]
