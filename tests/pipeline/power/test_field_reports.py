"""Reports from the field about power and energy, each as the input that triggered it."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.power.cases import COUNTER, GAUGE, Source, at, figure, one_tier, row, turns, watts
from tests.pipeline.sql.synthetic import event, metric

#: report -> (severity, tests of this file and its neighbours that keep us from repeating it)
REPORTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "NVIDIA/dcgm-exporter#257": (
        "H",
        (
            "test_field_reports.py::test_b97_slices_that_each_report_the_whole_board_count_once",
            "test_field_reports.py::test_b97_duplicate_series_of_one_board_under_several_pods_count_once",
            "test_energy.py::test_slices_of_one_board_count_once",
        ),
    ),
    "NVIDIA/dcgm-exporter#561": (
        "M",
        (
            "test_field_reports.py::test_b98_slices_without_the_boards_own_series_still_give_its_power",
            "test_field_reports.py::test_b98_no_power_series_is_null_with_a_reason_and_never_a_nameplate",
            "test_energy.py::test_no_power_gives_null_never_infinity",
            "test_beside.py::test_declared_watts_do_not_stand_in_for_a_missing_meter",
        ),
    ),
    "vllm-project/vllm!56354": (
        "M",
        (
            "test_field_reports.py::test_b100_a_counter_that_restarts_counts_its_new_value_in_millijoules",
            "test_field_reports.py::test_b100_one_of_eight_boards_without_power_makes_the_total_null",
            "test_field_reports.py::test_b100_fewer_devices_than_declared_make_the_total_null",
            "test_field_reports.py::"
            "test_b100_counter_and_gauge_that_differ_by_more_than_five_per_cent_are_told",
            "test_energy.py::test_the_counter_is_in_millijoules_and_boards_add_up",
        ),
    ),
    "vllm-project/vllm#10748": (
        "M",
        (
            "test_field_reports.py::"
            "test_b101_energy_of_a_request_is_called_an_allocation_and_names_its_boundary",
            "test_places.py::test_pools_measured_in_different_boundaries_have_no_total",
        ),
    ),
}


@pytest.mark.parametrize("report", REPORTS)
def test_each_report_has_tests_that_exist(report: str) -> None:
    severity, tests = REPORTS[report]
    assert severity in ("H", "M")
    assert tests
    for test in tests:
        file, _, name = test.partition("::")
        tree = ast.parse((Path(__file__).parent / file).read_text(encoding="utf-8"))
        defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert name in defined, test


def test_every_test_of_a_report_stands_in_the_table() -> None:
    tree = ast.parse(Path(__file__).read_text(encoding="utf-8"))
    own = {n.name for n in tree.body if isinstance(n, ast.FunctionDef) and n.name.startswith("test_b")}
    listed = {test.partition("::")[2] for _, tests in REPORTS.values() for test in tests}
    assert own
    assert own <= listed


AGENTS = [*turns("s1", 0, 600), *turns("s2", 100)]
HOURS = 3 * 300 / 3600


def test_b97_slices_that_each_report_the_whole_board_count_once(tmp_path: Path) -> None:
    whole = figure(tmp_path / "whole", AGENTS, watts("GPU-a", 52.7))
    slices = [m for n in range(7) for m in watts("GPU-a", 52.7, GPU_I_ID=str(n))]
    sliced = figure(tmp_path / "sliced", AGENTS, slices)
    assert row(sliced)["value"] == pytest.approx(row(whole)["value"]) == pytest.approx(HOURS / 52.7e-6)


def test_b97_duplicate_series_of_one_board_under_several_pods_count_once(tmp_path: Path) -> None:
    pods = [m for pod in ("a", "b", "c") for m in watts("GPU-a", 100, pod=pod)]
    assert row(figure(tmp_path, AGENTS, pods))["megawatt_hours"] == pytest.approx(1e-4)


def test_b98_slices_without_the_boards_own_series_still_give_its_power(tmp_path: Path) -> None:
    slices = [m for n in range(2) for m in watts("GPU-a", 60, GPU_I_ID=str(n))]
    slices += watts("GPU-b", 40)
    found = figure(tmp_path, AGENTS, slices)
    assert found["boundaries"][0]["mean_watts"] == pytest.approx(100)


def test_b98_no_power_series_is_null_with_a_reason_and_never_a_nameplate(tmp_path: Path) -> None:
    limits = watts("GPU-a", 700, metric_name="DCGM_FI_DEV_ENFORCED_POWER_LIMIT")
    found = figure(tmp_path, AGENTS, limits)
    assert (found["value"], found["values"]) == (None, [])
    assert "no power was measured" in found["reason"]


def test_b100_a_counter_that_restarts_counts_its_new_value_in_millijoules(tmp_path: Path) -> None:
    def counter(s: float) -> float:  # 100 W; the driver is reloaded after half an hour
        return 9e9 + s * 1e5 if s < 1830 else 12 + (s - 1830) * 1e5

    series = [metric(at(60 * n), COUNTER, counter(60.0 * n), UUID="GPU-a") for n in range(-1, 62)]
    exact = Source("c", COUNTER, "counter", "board", 1e-3, identity_labels=["UUID"], accuracy_percent=0)
    found = figure(tmp_path, AGENTS, series, one_tier(sources=[exact]))
    assert found["boundaries"][0]["counter_resets"] == 1
    joules = row(found)["megawatt_hours"] * 3.6e9
    assert joules == pytest.approx(100 * 3600 - 100 * 30 + 0.012, rel=1e-9)
    low, high = row(found)["measurement_interval"]
    # the lost half minute is inside the interval: at the most, the whole minute at full power was lost
    assert low <= HOURS / (100 * 3600 / 3.6e9) < high == pytest.approx(row(found)["value"])


def test_b100_one_of_eight_boards_without_power_makes_the_total_null(tmp_path: Path) -> None:
    series = [m for n in range(7) for m in watts(f"GPU-{n}", 300)]
    series += watts("GPU-7", 55, metric_name="DCGM_FI_DEV_GPU_UTIL")
    found = figure(tmp_path, AGENTS, series)
    assert found["value"] is None
    assert "GPU-7 exports metrics but no power" in found["reason"]


def test_b100_fewer_devices_than_declared_make_the_total_null(tmp_path: Path) -> None:
    declared = one_tier(sources=[Source("g", GAUGE, "gauge", "board", identity_labels=["UUID"], devices=3)])
    found = figure(tmp_path, AGENTS, watts("a", 300) + watts("b", 300), declared)
    assert found["value"] is None
    assert "2 of 3 declared board devices" in found["reason"]


def test_b100_counter_and_gauge_that_differ_by_more_than_five_per_cent_are_told(tmp_path: Path) -> None:
    counter = [metric(at(60 * n), COUNTER, (n + 2) * 60 * 1e5, UUID="GPU-a") for n in range(-1, 62)]
    found = figure(tmp_path, AGENTS, counter + watts("GPU-a", 120))
    board = found["boundaries"][0]
    assert board["counter_to_gauge"] == pytest.approx(100 / 120)
    assert board["counter_and_gauge_agree"] is False
    assert board["mean_watts"] == pytest.approx(100)


def test_b101_energy_of_a_request_is_called_an_allocation_and_names_its_boundary(tmp_path: Path) -> None:
    batch: list[dict[str, Any]] = []
    for n in range(30):
        batch.append(event(f"e{n}", at(10), session_key=f"s{n % 3}", turn_id=f"t{n}", initiator="user",
                           duration_ms=60_000, output_tokens=4000, cached_tokens=900))  # fmt: skip
    (found,) = figure(tmp_path, batch, watts("GPU-a", 300))["companions"]
    assert "an allocation" in found["meaning"]
    assert found["boundary"] == "board"
    assert found["wh_per_call"] == pytest.approx(300 / 30)
    assert found["wh_per_session"] == pytest.approx(300 / 3)
    assert found["wh_per_million_new_tokens"] == pytest.approx(300 / (30 * 100) * 1e6)
    assert found["joules_per_token"] == pytest.approx(300 * 3600 / (30 * 4100))
