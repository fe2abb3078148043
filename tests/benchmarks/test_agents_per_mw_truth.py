"""The simulator's truth, and the benchmark that judges the estimator by it."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean

import pytest

from benchmarks import agents_per_mw_truth, power_week
from benchmarks.power_week import BUSY_BOARDS, Process, Week


def test_the_mean_of_many_weeks_is_what_the_process_says() -> None:
    process = Process(load_cv=0.1)
    weeks = [Week(seed, process) for seed in range(60)]
    hours = fmean(sum(t.end_s - t.start_s for t in w.turns if not t.external) / 3600 for w in weeks)
    assert hours == pytest.approx(process.own_hours, rel=0.04)
    energy = fmean(sum(sum(w.joules(b, w.on_grid())) for b in range(BUSY_BOARDS + 1)) for w in weeks)
    assert energy == pytest.approx(sum(process.joules(b) for b in range(BUSY_BOARDS + 1)), rel=0.02)
    assert fmean(w.realised() for w in weeks) == pytest.approx(process.value(), rel=0.04)


def test_without_gaps_unknown_turns_and_sensor_error_the_direct_path_finds_the_realised_week() -> None:
    process = Process(unknown_share=0, accuracy_percent=0, gaps_per_week=0, resets_per_week=0)
    for seed in range(5):
        week = Week(seed, process)
        assert week.direct().value == pytest.approx(week.realised(), rel=1e-12)


def test_the_whole_pipeline_agrees_with_the_direct_path(tmp_path: Path) -> None:
    difference, found = agents_per_mw_truth.full_path_difference(4)
    assert difference < 1e-9
    assert found["boundaries"][0]["coverage"] < 1  # a sensor fell silent in this week
    assert found["external"]["agent_hours"]["in_turn"] > 0


def test_without_gaps_the_whole_pipeline_finds_the_realised_week(tmp_path: Path) -> None:
    process = Process(
        sessions_per_weekday=15, unknown_share=0, accuracy_percent=0, gaps_per_week=0, resets_per_week=0
    )
    week = Week(3, process)
    found = power_week.figure(week, tmp_path)
    assert next(r for r in found["values"] if r["state"] == "in_turn")["value"] == pytest.approx(
        week.realised(), rel=1e-9
    )


def test_the_last_line_is_json_and_a_missed_target_is_exit_code_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(agents_per_mw_truth.TARGETS, "median_bias", (0.5, 0.6))
    assert agents_per_mw_truth.main(["--seeds", "12", "--full", "0"]) == 1
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert "median_bias" in result["missed"]
    assert result["figures"]["seeds"] == 12
    assert set(result["targets"]) <= set(result["figures"])


def test_wrong_arguments_are_exit_code_two() -> None:
    with pytest.raises(SystemExit) as caught:
        agents_per_mw_truth.main(["--seeds", "1"])
    assert caught.value.code == 2
