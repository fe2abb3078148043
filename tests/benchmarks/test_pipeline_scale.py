"""The benchmark of builds: its traffic is what it says, small runs measure, targets decide the exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import agent_weeks, pipeline_scale
from pipeline import run
from pipeline.schema import SCHEMAS
from pipeline.sql import binding


def test_a_week_has_every_column_and_sessions_that_cross_days(tmp_path: Path) -> None:
    calls = agent_weeks.write(tmp_path, agent_weeks.for_week(4_000, open_records=True, ledger_share=0.5))
    con = run.connect(tmp_path)
    try:
        files = binding.parquet(binding.files(tmp_path, "raw/events"))
        names = [row[0] for row in con.execute(f"DESCRIBE SELECT * FROM {files}").fetchall()]
        found = con.execute(
            "SELECT COUNT(*), COUNT(DISTINCT event_id), SUM(CASE WHEN stage = 'open' THEN 1 ELSE 0 END), "
            f"COUNT(DISTINCT initiator), COUNT(DISTINCT agent_kind) FROM {files}"
        ).fetchone()
    finally:
        con.close()
    assert set(names) == set(SCHEMAS["raw/events"])
    assert found == (2 * calls, calls, calls, 3, 2)
    assert 2_000 < calls < 8_000
    assert len(binding.files(tmp_path, "raw/spend_logs")) >= 7


def test_the_same_seed_gives_the_same_calls(tmp_path: Path) -> None:
    counts = {agent_weeks.write(tmp_path / n, agent_weeks.for_week(1_000)) for n in ("a", "b")}
    assert len(counts) == 1


def test_a_small_run_measures_sizes_and_histories(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--calls", "500", "--history", "1", "2", "--calls-per-day", "200", "--folder", str(tmp_path)]
    code = pipeline_scale.main(options)
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["sizes"][0]["calls"] > 0
    assert result["sizes"][0]["peak_gib"] > 0
    assert [h["history_days"] for h in result["histories"]] == [1, 2]
    assert result["targets"]["seconds"] == {"value": None, "target": 180.0, "met": None}
    assert code == (0 if result["met"] else 1)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("seconds", "met"), [(180.0, True), (180.1, False)])
def test_a_missed_target_is_said(seconds: float, met: bool) -> None:
    sizes = [
        {"asked": 10_000_000, "seconds": seconds, "peak_gib": 3.0},
        {"asked": 20_000_000, "seconds": 2 * seconds, "peak_gib": 3.0},
    ]
    found = pipeline_scale.verdict(
        sizes, [{"history_days": 7, "seconds": 2.0}, {"history_days": 100, "seconds": 2.1}]
    )
    assert found["met"] is met
    assert found["targets"]["growth"]["value"] == 2.0
    assert found["targets"]["history"]["met"] is True
