"""What goes wrong with clocks, calendars and traffic in a real gateway bends no figure."""

from __future__ import annotations

import hashlib
import math
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import orjson
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from pipeline import figures, run
from pipeline.extract.event_record import EventBatch
from pipeline.figures.series import series
from pipeline.sql import models
from tests.pipeline.sql.synthetic import MONDAY, Settings, build, event, facts, row, session, us, write

DAY = timedelta(days=1)
HEALTH = "litellm-internal-health-check"


def figure(lake: Path, name: str, settings: Settings | None = None) -> dict[str, Any]:
    return figures.compute(lake, settings or Settings()).figures[name]


def numbers(lake: Path) -> dict[tuple[Any, ...], float | None]:
    rows = series(lake, Settings(), period="window", by=("all", "client")).rows()
    return {(r["figure"], r["part"], r["dimension"], r["member"]): r["value"] for r in rows}


def published(lake: Path) -> dict[str, list[dict[str, Any]]]:
    found = {}
    for name in models.PUBLISHED:
        table = f"marts/{name.removeprefix('mart_')}"
        if list((lake / table).glob("date=*/*.parquet")):
            rows = figures.load(lake, table).rows()
            # Caps are numbers that rows are told apart by; other floats are sums.
            found[table] = sorted(
                rows,
                key=lambda r: str([r[k] for k in r if k.endswith("_cap_s") or not isinstance(r[k], float)]),
            )
    return found


def same(first: Any, second: Any) -> bool:
    if isinstance(first, float) and isinstance(second, float):
        return math.isclose(first, second, rel_tol=1e-9, abs_tol=1e-9)
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(same(first[k], second[k]) for k in first)
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(same, first, second))
    return bool(first == second)


# -- clocks and calendars


def test_a_call_of_the_year_2099_is_set_aside_when_it_is_collected(tmp_path: Path) -> None:
    batch = EventBatch(collected_at=MONDAY)
    fields = {"schema": 1, "stage": "final", "outcome": "success"}
    for name, at in (("now", MONDAY), ("ahead", MONDAY + DAY), ("far", datetime(2099, 1, 1))):
        batch.add(f"{name}-0", orjson.dumps(fields | {"event_id": name, "started_us": us(at)}))
    assert dict(batch.reasons) == {"started_us in the future": 1}
    assert sorted(batch.rows) == [MONDAY.date(), MONDAY.date() + DAY]


@pytest.mark.parametrize(("night", "hours"), [(datetime(2026, 3, 29), 23), (datetime(2026, 10, 25), 25)])
def test_the_night_the_clocks_change_loses_and_doubles_no_call(
    tmp_path: Path, night: datetime, hours: int
) -> None:
    calls = [
        event(f"e{n:03d}", night - timedelta(hours=12) + timedelta(minutes=30 * n), initiator="user")
        for n in range(2 * 48)
    ]
    lake = build(tmp_path, calls)
    settings = Settings(business_time_zone="Europe/Berlin")
    rows = series(lake, settings, ("losses", "active_people"), period="day", by=("all",)).rows()
    days = {r["start"]: r["calls"] for r in rows if r["figure"] == "losses" and r["dimension"] == "all"}
    assert sum(days.values()) == 96
    assert days[night.date()] == 2 * hours


def test_a_clock_ten_minutes_off_moves_no_count_and_gives_no_negative_time(tmp_path: Path) -> None:
    right = session("s1", MONDAY, turns=6, calls=6)
    behind = [
        e | {"started_us": e["started_us"] + (600_000_000 if n % 2 else 0)}
        | {"ended_us": e["ended_us"] + (600_000_000 if n % 2 else 0)}
        for n, e in enumerate(right)
    ]  # fmt: skip
    good = build(tmp_path / "right", right)
    skewed = build(tmp_path / "skewed", behind)
    first, second = figure(good, "calls_per_human_hour"), figure(skewed, "calls_per_human_hour")
    assert second["calls_per_user_prompt"] == first["calls_per_user_prompt"]
    assert figure(skewed, "prompt_length")["value"] == figure(good, "prompt_length")["value"]
    assert figure(skewed, "prefix_hit")["value"] == pytest.approx(
        figure(good, "prefix_hit")["value"], rel=1e-9
    )
    assert all(c["gap_ms"] is None or c["gap_ms"] >= 0 for c in facts(skewed).values())
    for one, other in zip(first["values"], second["values"], strict=True):
        assert abs(one["human_hours"] - other["human_hours"]) <= 600 / 3600 + 1e-9
        assert other["d_rho_a"] == pytest.approx(other["mean_concurrency"], rel=0.01)


def test_a_session_over_midnight_gives_the_figures_of_one_at_noon(tmp_path: Path) -> None:
    noon = build(tmp_path / "noon", session("s", MONDAY.replace(hour=12), turns=6, calls=6, idle_s=200))
    midnight = build(
        tmp_path / "midnight", session("s", MONDAY.replace(hour=23, minute=50), turns=6, calls=6, idle_s=200)
    )
    assert numbers(midnight) == pytest.approx(numbers(noon))
    rows = series(midnight, Settings(), ("calls_per_human_hour",), period="day", by=("all",)).rows()
    whole = figure(noon, "calls_per_human_hour")["values"]
    total = sum(r["bottom"] for r in rows if r["dimension"] == "all" and r["part"] == "g = 5 min")
    assert total == pytest.approx(whole[0]["human_hours"])


def test_a_session_of_thirty_days_has_the_hours_that_somebody_worked_in_it(tmp_path: Path) -> None:
    calls = [e for day in range(30) for e in session("s", MONDAY + day * DAY, turns=1, calls=3)]
    for n, e in enumerate(calls):
        e |= {"event_id": f"e{n:03d}", "turn_id": f"t{n // 3}"}
    lake = build(tmp_path, calls)
    human = figure(lake, "calls_per_human_hour")
    for value in human["values"]:
        assert value["human_hours"] == pytest.approx(30 * (3 * 2 + 2 * 4) / 3600)
    assert human["longest_user_day_hours"] < 0.01
    assert numbers(lake)["context_at_end", "p50", "all", "all"] == 7000 + 101
    assert human["calls_per_user_prompt"]["value"] == 3


# -- traffic that is nobody's


def test_nine_health_checks_in_ten_change_no_figure_and_are_counted(tmp_path: Path) -> None:
    people = session("s1", MONDAY, turns=4, calls=5)
    checks = [
        event(f"h{n:03d}", MONDAY + timedelta(seconds=5 * n), session_key=None, session_evidence="E5",
              team_id=HEALTH, key_alias=HEALTH, user_hash=None, initiator="unknown", input_tokens=9,
              output_tokens=1)
        for n in range(90)
    ]  # fmt: skip
    keys = (HEALTH, hashlib.sha256(HEALTH.encode()).hexdigest())
    rows = [
        row(e, aw=None, key_hash=key, litellm_call_id=f"{e['event_id']}{n}", request_id=f"{e['event_id']}{n}")
        for e in checks
        for n, key in enumerate(keys)
    ]
    clean = build(tmp_path / "clean", people, [row(e) for e in people])
    write(tmp_path / "full", "raw_event", [*people, *checks])
    write(tmp_path / "full", "raw_spend_log", [*[row(e) for e in people], *rows])
    built = run.build(tmp_path / "full", Settings())
    assert numbers(tmp_path / "full") == pytest.approx(numbers(clean))
    assert {a.name: a.rows for a in built.audits}["health_check"] == 3 * 90
    assert built.calls == 20


# -- late rows and merging


def test_a_late_row_of_a_session_over_days_repairs_facts_and_marts_of_all_of_them(tmp_path: Path) -> None:
    calls = [e for day in range(3) for e in session("s", MONDAY + day * DAY, turns=2, calls=3)]
    calls += session("other", MONDAY + 9 * DAY, turns=1, calls=2, user="u9")
    for n, e in enumerate(calls):
        e |= {"event_id": f"e{n:02d}", "turn_id": f"t{n // 3}"}
    calls[0]["initiator"] = "agent"  # the session's first prompt comes late
    for e in calls[1:9]:
        e["initiator"] = "agent"
    late = event("late", MONDAY - timedelta(minutes=1), session_key="s", initiator="user", turn_id="t0")
    write(tmp_path / "steps", "raw_event", calls)
    run.build(tmp_path / "steps", Settings())
    before = facts(tmp_path / "steps")
    write(tmp_path / "steps", "raw_event", [late], name="late")
    result = run.build(tmp_path / "steps", Settings())
    assert set(result.days) == {MONDAY.date() + n * DAY for n in range(3)}
    write(tmp_path / "once", "raw_event", [*calls, late])
    run.build(tmp_path / "once", Settings())
    assert facts(tmp_path / "steps") == facts(tmp_path / "once") != before
    assert same(published(tmp_path / "steps"), published(tmp_path / "once"))


def bucket(values: list[int]) -> dict[int, int]:
    """Put values into buckets with the very expression of the marts."""
    counts: dict[int, int] = {}
    for (number,) in duckdb.execute(
        "SELECT CAST(CEIL(LN(CAST(v AS DOUBLE)) / LN(1.02)) AS INTEGER) "
        "FROM (SELECT UNNEST($v::BIGINT[]) AS v)",
        {"v": values},
    ).fetchall():
        counts[number] = counts.get(number, 0) + 1
    return counts


def read(counts: dict[int, int], share: float) -> float:
    """The nearest-rank quantile as a reader of buckets takes it: the middle of the bucket of its rank."""
    rank, seen = max(1, math.ceil(share * sum(counts.values()))), 0
    for number in sorted(counts):
        seen += counts[number]
        if seen >= rank:
            return float(2 * 1.02**number / 2.02)
    raise AssertionError("no value")


def test_the_marts_bucket_by_the_expression_that_is_tested_here() -> None:
    for name in ("mart_prompt_bucket", "mart_ttft_bucket", "mart_count_cost"):
        assert "/ LN(1.02)) AS INTEGER)" in models.load(name).sql


VALUES = st.lists(st.integers(1, 2_000_000), min_size=1, max_size=200)


@given(VALUES, st.sampled_from([0.5, 0.9, 0.95, 0.99]))
@hypothesis_settings(deadline=None, max_examples=60)
def test_a_quantile_read_from_buckets_is_within_one_per_cent_of_the_nearest_rank(
    values: list[int], share: float
) -> None:
    exact = sorted(values)[max(1, math.ceil(share * len(values))) - 1]
    assert read(bucket(values), share) == pytest.approx(exact, rel=0.01)


@given(st.lists(VALUES, min_size=1, max_size=6))
@hypothesis_settings(deadline=None, max_examples=30)
def test_merged_buckets_of_any_split_are_those_of_everything_at_once(parts: list[list[int]]) -> None:
    merged: dict[int, int] = {}
    for part in parts:
        for number, count in bucket(part).items():
            merged[number] = merged.get(number, 0) + count
    assert merged == bucket([v for part in parts for v in part])


def test_published_days_add_up_to_the_marts_of_the_whole_window(tmp_path: Path) -> None:
    zone = Settings(business_time_zone="Asia/Kolkata")  # half an hour off: a UTC day lies in two parts
    calls = [
        e
        for day in range(3)
        for n in range(3)
        for e in session(
            f"s{day}{n}", MONDAY + day * DAY + timedelta(hours=5 * n), turns=2, calls=4, user=f"u{n}"
        )
    ]
    write(tmp_path, "raw_event", calls)
    run.build(tmp_path, zone)
    con = run.connect(tmp_path)
    try:
        assert figures.bind(con, tmp_path, zone) is not None
        for name in (
            "call_sum",
            "prefix_cell",
            "in_turn",
            "prompt_bucket",
            "ttft_bucket",
            "realised",
            "coverage",
        ):
            stored = figures.load(tmp_path, f"marts/{name}")
            numeric = [
                c
                for c, kind in zip(stored.columns, stored.relation.types, strict=True)
                if str(kind) not in {"VARCHAR", "DATE", "TIMESTAMP"} and c not in {"bucket", "tool_cap_s"}
            ]
            sums = ", ".join(f"SUM({c})" for c in numeric)
            whole = con.execute(f"SELECT {sums} FROM mart_{name}").fetchone()
            added = stored.relation.aggregate(sums).fetchone()
            assert added == pytest.approx(whole), name
        people = con.execute("SELECT SUM(human_hours) FROM mart_human_hour WHERE scope = 'all'").fetchone()
        stored = figures.load(tmp_path, "marts/human_hour").relation.filter("scope = 'all'")
        assert stored.aggregate("SUM(human_hours)").fetchone() == pytest.approx(people)
    finally:
        con.close()


def test_the_days_of_a_range_are_the_range_in_any_time_zone(tmp_path: Path) -> None:
    calls = [event(f"e{n:03d}", MONDAY + timedelta(minutes=47 * n), initiator="user") for n in range(90)]
    lake = build(tmp_path, calls)
    for zone in ("UTC", "Asia/Kolkata", "America/New_York", "Pacific/Chatham"):
        rows = series(
            lake, Settings(business_time_zone=zone), ("losses",), period="day", by=("all",),
            since=date(2026, 3, 3), until=date(2026, 3, 4),
        ).rows()  # fmt: skip
        counted = sum(r["bottom"] for r in rows if r["part"] == "failed" and r["dimension"] == "all")
        inside = sum(
            1 for e in calls if us(datetime(2026, 3, 3)) <= e["started_us"] < us(datetime(2026, 3, 4))
        )
        assert counted == inside
