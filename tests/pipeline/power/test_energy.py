"""Energy of boards: counters and gauges, resets, slices, sentinels, gaps and boundaries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pipeline import figures
from tests.pipeline.sql.synthetic import MONDAY, Power, Settings, board_metrics, build, event, metric

COUNTER = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
GAUGE = "DCGM_FI_DEV_POWER_USAGE"
HOUR = timedelta(hours=1)


@dataclass(frozen=True)
class Source:
    name: str
    metric: str
    kind: str
    scope: str
    factor: float = 1.0
    identity_labels: Sequence[str] = ()
    match_labels: dict[str, str] = field(default_factory=dict)
    accuracy_percent: float | None = None
    synthetic: bool = False
    devices: int | None = None


def measured(tmp_path: Path, metrics: list[dict[str, Any]], power: Power | None = None) -> dict[str, Any]:
    """The agents figure of a window of exactly one hour."""
    lake = build(tmp_path, [event("a", MONDAY, initiator="user")], metrics=metrics)
    computed = figures.compute(lake, Settings(power=power or Power()), MONDAY, MONDAY + HOUR)
    return computed.figures["agents_per_megawatt"]


def every(minutes: float, name: str, value: Any, **labels: str) -> list[dict[str, Any]]:
    """Samples of one series over the hour and a little around it; *value* is a function of seconds passed."""
    steps = int(70 / minutes)
    return [
        metric(
            MONDAY + timedelta(minutes=n * minutes - 5), name, value((n * minutes - 5) * 60 + 300), **labels
        )
        for n in range(steps + 1)
    ]


def test_the_counter_is_in_millijoules_and_boards_add_up(tmp_path: Path) -> None:
    figure = measured(tmp_path, board_metrics(MONDAY - HOUR, MONDAY + 2 * HOUR, watts=500))
    (board,) = figure["boundaries"]
    assert board["megawatt_hours"] == pytest.approx(2 * 500 / 1e6)
    assert board["mean_watts"] == pytest.approx(1000)
    assert board["coverage"] == pytest.approx(1)
    assert [d["read_from"] for d in board["devices"]] == ["counter", "counter"]
    assert board["counter_to_gauge"] == pytest.approx(1)
    assert board["counter_and_gauge_agree"] is True


def test_a_gauge_alone_is_integrated_by_trapezoids(tmp_path: Path) -> None:
    ramp = every(1, GAUGE, lambda s: 100 + s / 10, UUID="g")
    (board,) = measured(tmp_path, ramp)["boundaries"]
    assert board["mean_watts"] == pytest.approx(100 + (300 + 1800) / 10)
    assert board["devices"][0]["read_from"] == "gauge"


def test_a_reset_counter_counts_its_new_value_and_is_reported(tmp_path: Path) -> None:
    def value(s: float) -> float:
        return 9e9 + s * 100_000 if s < 2100 else (s - 2100) * 100_000 + 12

    (board,) = measured(tmp_path, every(1, COUNTER, value, UUID="g"))["boundaries"]
    assert board["counter_resets"] == 1
    assert board["megawatt_hours"] * 3.6e9 == pytest.approx(100 * (3600 - 60) + 0.012, rel=1e-6)


def test_slices_of_one_board_count_once(tmp_path: Path) -> None:
    slices = [m for n in range(7) for m in every(1, GAUGE, lambda s: 52.7, UUID="g", GPU_I_ID=str(n))]
    (board,) = measured(tmp_path, slices)["boundaries"]
    assert board["mean_watts"] == pytest.approx(52.7)
    assert len(board["devices"]) == 1


@pytest.mark.parametrize("sentinel", [9223372036854775794.0, -1.0, 2147483632.0])
def test_values_that_mean_not_available_are_dropped(tmp_path: Path, sentinel: float) -> None:
    series = every(1, GAUGE, lambda s: sentinel if s == 1200 else 100.0, UUID="g")
    (board,) = measured(tmp_path, series)["boundaries"]
    assert board["mean_watts"] == pytest.approx(100)
    assert board["coverage"] == pytest.approx(1)


@pytest.mark.parametrize("blank", [2147483632.0, 140737488355328.0, 140737488355330.0, 9223372036854775794.0])
def test_blanks_of_a_counter_are_neither_energy_nor_a_restart(tmp_path: Path, blank: float) -> None:
    series = every(1, COUNTER, lambda s: blank if s == 1200 else 1e9 + s * 1e5, UUID="g")
    (board,) = measured(tmp_path, series)["boundaries"]
    assert board["mean_watts"] == pytest.approx(100)
    assert (board["counter_resets"], board["implausible_steps"]) == (0, 0)
    assert board["coverage"] == pytest.approx(1)


def test_neighbours_further_apart_than_the_longest_gap_are_a_gap(tmp_path: Path) -> None:
    series = [m for m in every(1, COUNTER, lambda s: s * 1e5, UUID="g") if not 900 < _seconds(m) < 1500]
    (board,) = measured(tmp_path, series)["boundaries"]
    assert board["excluded_s"] == pytest.approx(600)
    assert board["coverage"] == pytest.approx(3000 / 3600)
    assert board["mean_watts"] == pytest.approx(100)


def _seconds(record: dict[str, Any]) -> float:
    from datetime import datetime

    return (datetime.fromisoformat(record["ts"]) - MONDAY).total_seconds()


def test_a_board_that_falls_silent_takes_its_time_out_for_all(tmp_path: Path) -> None:
    steady = every(1, GAUGE, lambda s: 100, UUID="a")
    silent = [m for m in every(1, GAUGE, lambda s: 100, UUID="b") if _seconds(m) <= 3300]
    (board,) = measured(tmp_path, steady + silent)["boundaries"]
    assert board["coverage"] == pytest.approx(3300 / 3600)
    assert board["mean_watts"] == pytest.approx(200)


def test_too_thin_a_coverage_is_refused_and_names_the_thinnest_device(tmp_path: Path) -> None:
    steady = every(1, GAUGE, lambda s: 100, UUID="a")
    silent = [m for m in every(1, GAUGE, lambda s: 100, UUID="b") if _seconds(m) <= 1800]
    figure = measured(tmp_path, steady + silent)
    assert figure["value"] is None
    assert "50.0%" in figure["reason"]
    assert "thinnest device b" in figure["reason"]


def test_no_power_gives_null_never_infinity(tmp_path: Path) -> None:
    figure = measured(tmp_path, [])
    assert (figure["value"], figure["values"]) == (None, [])
    assert "no power was measured" in figure["reason"]


def test_power_of_another_day_does_not_overlap_the_window(tmp_path: Path) -> None:
    figure = measured(tmp_path, board_metrics(MONDAY + 5 * HOUR, MONDAY + 6 * HOUR))
    assert "no power was measured in the window" in figure["reason"]


def test_a_single_sample_measures_nothing(tmp_path: Path) -> None:
    figure = measured(tmp_path, [metric(MONDAY + HOUR / 2, GAUGE, 100, UUID="g")])
    assert "no two neighbouring samples" in figure["reason"]


@pytest.mark.parametrize("by_label", [True, False])
def test_made_up_power_is_called_synthetic(tmp_path: Path, by_label: bool) -> None:
    labels = {"UUID": "g"} | ({"synthetic": "true"} if by_label else {})
    source = Source("s", GAUGE, "gauge", "board", synthetic=not by_label)
    figure = measured(tmp_path, every(1, GAUGE, lambda s: 100, **labels), Power(sources=[source]))
    assert figure["boundaries"][0]["synthetic"] is True


def test_boundaries_are_measured_apart_and_units_scaled(tmp_path: Path) -> None:
    sources = [
        Source("board", GAUGE, "gauge", "board", identity_labels=["UUID"]),
        Source(
            "pdu", "rack_power", "gauge", "rack", factor=1000, identity_labels=["outlet"], accuracy_percent=1
        ),
    ]
    metrics = every(1, GAUGE, lambda s: 100, UUID="g")
    metrics += every(1, "rack_power", lambda s: 0.2, outlet="1") + every(
        1, "rack_power", lambda s: 0.3, outlet="2"
    )
    figure = measured(tmp_path, metrics, Power(sources=sources, pue=1.5))
    found = {b["boundary"]: (b["mean_watts"], b["accuracy_percent"]) for b in figure["boundaries"]}
    assert found == {"board": pytest.approx((100, 5)), "rack": pytest.approx((500, 1))}
    assert figure["facility"]["megawatt_hours"] == pytest.approx(500 / 1e6 * 1.5)


def test_facility_without_rack_power_is_null_with_a_reason(tmp_path: Path) -> None:
    figure = measured(tmp_path, every(1, GAUGE, lambda s: 100, UUID="g"), Power(pue=1.5))
    assert figure["facility"]["megawatt_hours"] is None
    assert "no rack power" in figure["facility"]["reason"]


def test_only_declared_targets_and_labels_count(tmp_path: Path) -> None:
    metrics = every(1, GAUGE, lambda s: 100, UUID="a", job="ours") + every(
        1, GAUGE, lambda s: 900, UUID="b", job="theirs"
    )
    metrics += [m | {"target": "other"} for m in every(1, GAUGE, lambda s: 900, UUID="c", job="ours")]
    power = Power(
        sources=[Source("s", GAUGE, "gauge", "board", match_labels={"job": "ours"})],
        model_groups={"coder-large": ["node-1"]},
    )
    (board,) = measured(tmp_path, metrics, power)["boundaries"]
    assert board["mean_watts"] == pytest.approx(100)
