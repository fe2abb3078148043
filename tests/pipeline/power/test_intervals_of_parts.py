"""Both intervals of the parts of a value (weeks, model groups, profiles), and the ends of intervals."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, time, timedelta
from pathlib import Path
from typing import Any

import pytest

from pipeline import figures
from tests.pipeline.power.cases import Pool, figure, one_tier, row, turns, watts
from tests.pipeline.sql.synthetic import MONDAY, build

DAY = 86_400
MEGAWATT_HOUR = 1e6
#: of the first day, from the instant that the synthetic weeks count from
MIDNIGHT = (datetime.combine(MONDAY.date(), time()) - MONDAY).total_seconds()


def fortnight() -> list[dict[str, Any]]:
    """Two sessions a day for two weeks, the second one of another model group; the weekends are quieter."""
    events = []
    for day in range(14):
        length = 200 if day % 7 >= 5 else 500 + 20 * day
        start = day * DAY + 7200
        events += turns(f"a{day}", start, length_s=length, model_group="large")
        events += turns(f"b{day}", start + 900, length_s=length / 2, model_group="small")
        events += [
            e | {"event_id": f"b{day}-tool", "initiator": "agent"}
            for e in turns(f"b{day}", start + 900 + length / 2 + 5, length_s=30, model_group="small")
        ]
    return events


def meters() -> list[dict[str, Any]]:
    both = [
        m
        for name, power in (("GPU-a", 300), ("GPU-b", 100))
        for m in watts(name, power, hours=14 * 24, step_s=100, start_s=MIDNIGHT)
    ]
    # GPU-a is silent for three hours of the second Tuesday
    gap = (8 * DAY + 3600, 8 * DAY + 4 * 3600)
    return [m for m in both if not ("GPU-a" in m["labels"] and gap[0] < _second(m) < gap[1])]


def _second(sample: dict[str, Any]) -> float:
    return float((datetime.fromisoformat(sample["ts"]) - MONDAY).total_seconds())


@pytest.fixture(scope="module")
def two_weeks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    settings = one_tier(
        pools=[Pool("l", ["large"], devices=["GPU-a"]), Pool("s", ["small"], devices=["GPU-b"])]
    )
    lake = tmp_path_factory.mktemp("weeks")
    build(lake, fortnight(), metrics=meters(), settings=settings)
    start = MONDAY + timedelta(seconds=MIDNIGHT)
    computed = figures.compute(lake, settings, start, start + timedelta(days=14))
    found = computed.figures["agents_per_megawatt"]
    assert found["reason"] is None
    return found


def test_each_week_has_its_value_and_both_intervals(two_weeks: dict[str, Any]) -> None:
    one = row(two_weeks)
    first, second = one["by_week"]
    for week in (first, second):
        assert week["days"] == 7
        low, high = week["measurement_interval"]
        assert low < week["value"] < high
        assert week["week_interval"]["value"][0] < week["value"] < week["week_interval"]["value"][1]
    # only the second week has a silent sensor: the first holds nothing but the sensors' accuracy
    assert first["measurement_interval"] == pytest.approx([first["value"] / 1.05, first["value"] / 0.95])
    assert second["measurement_interval"][1] - second["measurement_interval"][0] > (
        first["measurement_interval"][1] - first["measurement_interval"][0]
    ) * (second["value"] / first["value"])
    hours, energy = (sum(w[key] for w in (first, second)) for key in ("agent_hours", "megawatt_hours"))
    assert hours / energy == pytest.approx(one["value"])


def test_each_model_group_has_both_intervals_on_its_own_energy(two_weeks: dict[str, Any]) -> None:
    large, small = row(two_weeks)["by_model_group"]
    assert (large["model_group"], small["model_group"]) == ("large", "small")
    # the pool of the small models was measured all the time, that of the large ones not while one worked
    assert small["measurement_interval"] == pytest.approx([small["value"] / 1.05, small["value"] / 0.95])
    assert large["measurement_interval"][1] > large["value"] / 0.95
    for group in (large, small):
        low, high = group["week_interval"]["value"]
        assert low < group["value"] < high
        assert group["value"] == pytest.approx(group["value_upper"])


@pytest.mark.parametrize(("parts", "name"), [("by_model_group", "model_group"), ("by_profile", "profile")])
def test_contributions_add_up_and_have_both_intervals(
    two_weeks: dict[str, Any], parts: str, name: str
) -> None:
    one = row(two_weeks)
    assert len({p[name] for p in one[parts]}) == 2
    assert sum(p["contribution"] for p in one[parts]) == pytest.approx(one["value"])
    for part in one[parts]:
        low, high = part["contribution_interval"]
        assert low < part["contribution"] < high
        low, high = part["contribution_week_interval"]["value"]
        assert low < part["contribution"] < high


def test_a_declared_share_scales_the_value_and_its_interval(tmp_path: Path) -> None:
    events = [*turns("s1", 0, model_group="a"), *turns("s2", 0, model_group="b")]
    shared = Pool("both", ["a", "b"], devices=["GPU-*"], split="shares", shares={"a": 0.75, "b": 0.25})
    found = figure(tmp_path, events, watts("GPU-a", 400), one_tier(pools=[shared]))
    a, b = row(found)["by_model_group"]
    assert b["value"] == pytest.approx(3 * a["value"])
    assert b["measurement_interval"] == pytest.approx([3 * x for x in a["measurement_interval"]])
    assert a["measurement_interval"] == pytest.approx([a["value"] / 1.05, a["value"] / 0.95])
    assert a["week_interval"]["value"] is None
    assert "measured week days" in a["week_interval"]["reason"]


def test_hourly_cells_add_up_to_the_headline(tmp_path: Path) -> None:
    events = [*turns("s1", 0, 3500), *turns("s2", 3400, ttft_ms=9000)]
    found = figure(tmp_path, events, watts("GPU-a", 250, hours=2), hours=2)
    (cells,) = found["cells"]
    assert (cells["state"], cells["boundary"]) == ("in_turn", "board")
    hours = cells["hours"]
    assert [h["hour"][11:16] for h in hours] == ["08:00", "09:00"]
    assert [h["megawatt_hours"] for h in hours] == pytest.approx([250 / MEGAWATT_HOUR] * 2)
    # the first session ends its second turn after the hour; the second session misses its service level
    assert [h["conformant_agent_hours"][0] for h in hours] == pytest.approx([400 / 3600, 200 / 3600])
    assert [h["agent_hours"] for h in hours] == pytest.approx([600 / 3600, 300 / 3600])
    top, bottom = sum(h["conformant_agent_hours"][0] for h in hours), sum(h["megawatt_hours"] for h in hours)
    assert top / bottom == pytest.approx(row(found)["value"])


# -- ends of intervals


def ends(
    tmp_path: Path, unseen_ms: float, overhead_ms: float | None, length_s: float = 300
) -> dict[str, Any]:
    events = [*turns("s1", 0, 600), *turns("s2", 0)]
    events = [e | {"duration_ms": length_s * 1000, "overhead_ms": overhead_ms} for e in events]
    settings = one_tier()
    settings = replace(settings, power=replace(settings.power, unseen_ms=unseen_ms))
    return figure(tmp_path, events, watts("GPU-a", 100), settings)


@pytest.mark.parametrize(
    ("state", "hours"), [("in_turn", 900 / 3600), ("llm_active", 900 / 3600), ("open", 1200 / 3600)]
)
def test_the_gateways_own_time_and_the_clocks_at_both_ends_widen_the_interval(
    tmp_path: Path, state: str, hours: float
) -> None:
    one = row(ends(tmp_path, unseen_ms=100, overhead_ms=2000), state)
    assert one["value"] == pytest.approx(hours / (100 / MEGAWATT_HOUR))
    # three intervals: each may have begun two seconds later at the engine, and each has two ends
    lost, gained = 3 * (2 + 0.2) / 3600, 3 * 0.2 / 3600
    expected = [
        (hours - lost) / (100 / MEGAWATT_HOUR) / 1.05,
        (hours + gained) / (100 / MEGAWATT_HOUR) / 0.95,
    ]
    assert one["measurement_interval"] == pytest.approx(expected)
    assert one["any_conformity_interval"] == pytest.approx(expected)


def test_without_gateway_time_and_unseen_time_only_the_sensors_are_left(tmp_path: Path) -> None:
    one = row(ends(tmp_path, unseen_ms=0, overhead_ms=None))
    assert one["measurement_interval"] == pytest.approx([one["value"] / 1.05, one["value"] / 0.95])


def test_no_interval_loses_more_than_its_length(tmp_path: Path) -> None:
    one = row(ends(tmp_path, unseen_ms=60_000, overhead_ms=1000, length_s=90), "llm_active")
    assert one["measurement_interval"][0] == 0
    assert one["measurement_interval"][1] > 2 * one["value"]
