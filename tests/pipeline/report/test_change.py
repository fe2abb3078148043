"""Change from the window before, week-to-week intervals of the figures, and weeks as windows."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path
from typing import Any

import pytest

from pipeline import run
from pipeline.errors import ConfigError
from pipeline.power.interval import Day, ratio_interval
from pipeline.report import change, extras, text
from pipeline.report.week import window
from pipeline.sql import parameters
from tests.pipeline.sql.synthetic import Settings, session, write

WEEK = {"start": "2026-03-09T00:00:00", "end": "2026-03-16T00:00:00", "hours": 168.0}


def human(days: dict[str, tuple[int, float]]) -> dict[str, Any]:
    rows = [
        {"day": day, "idle_cap_s": 900.0, "calls": calls, "human_hours": hours}
        for day, (calls, hours) in days.items()
    ]
    return {
        "calls_per_human_hour": {"value": {"15 min": 30.0}, "by_day": rows},
        "meta": {"window": WEEK},
    }


DAYS = {f"2026-03-{d:02d}": (100 + d, 4.0) for d in range(9, 14)} | {
    "2026-03-14": (20, 1.0),
    "2026-03-15": (24, 1.0),
}


def test_the_interval_of_calls_per_human_hour_is_the_jackknife_over_days_in_strata() -> None:
    found = change.interval_of(human(DAYS), "calls_per_human_hour", "15 min")
    days = [Day(c, h, date.fromisoformat(d).weekday() >= 5) for d, (c, h) in DAYS.items()]
    assert found["value"] == list(ratio_interval(days))
    assert found["kind"] == "week to week"


def test_days_of_the_window_without_work_count_as_days_of_nothing() -> None:
    weekdays = {d: v for d, v in DAYS.items() if date.fromisoformat(d).weekday() < 5}
    found = change.interval_of(human(weekdays), "calls_per_human_hour", "15 min")
    assert found["value"] is not None
    without = human(weekdays) | {"meta": {"window": None}}
    assert change.interval_of(without, "calls_per_human_hour", "15 min")["reason"] == (
        "needs at least two measured weekend days, has 0"
    )


def test_the_interval_of_the_hit_sums_tokens_of_days_and_ends_at_one() -> None:
    hours = [
        {"hour": f"2026-03-{d:02d}T{h:02d}:00:00", "input_tokens": 1000, "cached_tokens": 990 + d - 12}
        for d in range(9, 16)
        for h in (8, 9)
    ]
    content = {"prefix_hit": {"value": {"realised": 0.99}, "hourly": hours}, "meta": {"window": WEEK}}
    low, high = change.interval_of(content, "prefix_hit", "realised")["value"]
    assert 0.98 < low < 0.99 < high <= 1.0


def test_prompts_take_the_lowest_and_highest_day_and_one_day_is_not_enough() -> None:
    rows = [{"start_date": "2026-03-09", "p50": 900.0}, {"start_date": "2026-03-10", "p50": 1200.0}]
    part = {"value": {"p50": 1000.0}, "by": {"day": rows}}
    assert change.interval_of({"prompt_length": part}, "prompt_length", "p50")["value"] == [900.0, 1200.0]
    alone = change.interval_of({"prompt_length": part | {"by": {"day": rows[:1]}}}, "prompt_length", "p50")
    assert alone["reason"] == "needs at least two days, has 1"


def test_shares_change_by_points_and_everything_else_by_per_cent() -> None:
    now = human(DAYS) | {
        "prefix_hit": {"value": {"realised": 0.90, "potential_inf": 0.95}},
        "prompt_length": {"value": {"p50": 1100.0, "p95": 2.0}},
        "counts": {"calls": 50},
    }
    before = {
        "calls_per_human_hour": {"value": {"15 min": 20.0}},
        "prefix_hit": {"value": {"realised": 0.88, "potential_inf": 0.95}},
        "prompt_length": {"value": {"p50": 1000.0, "p95": 0.0}},
        "counts": {"calls": 0},
    }
    rows = {(r["figure"], r["key"]): r for r in change.compare(now, before, None)["rows"]}
    assert rows["prefix_hit", "realised"]["change"] == pytest.approx(0.02)
    assert rows["prompt_length", "p50"]["change"] == pytest.approx(0.1)
    assert rows["counts", "calls"]["reason"] == "it was 0 in the earlier window"
    assert rows["calls_per_human_hour", "15 min"]["within_spread"] is False
    assert rows["agents_per_megawatt", "headline"]["change"] is None
    assert rows["agents_per_megawatt", "headline"]["reason"].startswith("this window")


def test_without_an_earlier_window_every_change_is_null_with_the_reason() -> None:
    found = change.compare(human(DAYS), None, "the lake holds no call in the window before")
    assert found["window"] is None
    assert {r["change"] for r in found["rows"]} == {None}
    assert {r["reason"] for r in found["rows"]} == {"the lake holds no call in the window before"}


def test_the_earlier_window_comes_from_the_lake_itself(tmp_path: Path) -> None:
    write(tmp_path, "raw_event", session("s1", datetime(2026, 3, 3, 9), turns=2, calls=3))
    write(tmp_path, "raw_event", session("s2", datetime(2026, 3, 10, 9), turns=1, calls=2), name="b")
    settings = Settings()
    run.build(tmp_path, settings)
    start, end = window("2026-W11", "UTC", date(2026, 3, 20))
    found, reason = extras.before(tmp_path, settings, parameters.Window(start, end))
    assert reason is None
    assert found is not None
    assert found["counts"]["calls"] == 6
    assert found["meta"]["window"]["start"] == "2026-03-02T00:00:00"
    nothing, why = extras.before(tmp_path, settings, parameters.Window(datetime(2026, 3, 2), start))
    assert (nothing, why) == (None, "the lake holds no call in the window before")


@pytest.mark.parametrize(
    ("start", "end", "earlier"),
    [
        # The clocks go forward on 29 March: the week before is a week of midnights all the same.
        (datetime(2026, 3, 29, 22), datetime(2026, 4, 5, 22), datetime(2026, 3, 22, 23)),
        (datetime(2026, 3, 8, 23), datetime(2026, 3, 15, 23), datetime(2026, 3, 1, 23)),
        (datetime(2026, 3, 9, 8), datetime(2026, 3, 9, 9), datetime(2026, 3, 9, 7)),
    ],
)
def test_the_window_before_is_as_long_and_keeps_business_midnights(
    start: datetime, end: datetime, earlier: datetime
) -> None:
    assert change.window_before(start, end, "Europe/Berlin") == (earlier, start)


def test_a_week_is_bounded_by_midnights_of_the_business_time_zone() -> None:
    assert window("2026-W11", "Europe/Berlin", date(2026, 1, 1)) == (
        datetime(2026, 3, 8, 23),
        datetime(2026, 3, 15, 23),
    )
    start, end = window("2026-W13", "Europe/Berlin", date(2026, 1, 1))
    assert (end - start).total_seconds() == 167 * 3600


@pytest.mark.parametrize("today", [date(2026, 3, 16), date(2026, 3, 22)])
def test_the_last_week_is_the_newest_complete_one(today: date) -> None:
    assert window("last", "UTC", today)[0] == datetime(2026, 3, 9)


@pytest.mark.parametrize("week", ["2026-W54", "2026-11", "yesterday", "2026-W00"])
def test_a_week_that_is_none_is_refused_with_the_way_to_write_it(week: str) -> None:
    with pytest.raises(ConfigError, match=week):
        window(week, "UTC", date(2026, 3, 16))


def test_windows_are_written_as_business_days_where_they_are_whole_days() -> None:
    berlin = {"start": "2026-03-08T23:00:00", "end": "2026-03-15T23:00:00", "hours": 168.0}
    assert text.window(berlin, "Europe/Berlin") == "Mon 9 Mar to Sun 15 Mar 2026, week 11 (Europe/Berlin)"
    assert text.window(berlin, "UTC").startswith("2026-03-08 23:00:00 to 2026-03-15 23:00:00 UTC")
    day = {"start": "2026-03-09T00:00:00", "end": "2026-03-10T00:00:00", "hours": 24.0}
    assert text.window(day, "UTC") == "Mon 9 Mar 2026 (UTC)"
