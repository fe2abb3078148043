"""``agentwatt report``: weeks, settings of the sizing, and errors that say what to do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline import run
from pipeline.settings import Settings
from tests.pipeline.report import weeks

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lake")
    weeks.write(folder, 12, power=False)
    run.build(folder, Settings())
    return folder


def call(folder: Path, lake: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("AGENTWATT_")}
    return subprocess.run(
        [sys.executable, "-m", "pipeline.cli", "report", "--lake", str(lake), *arguments],
        cwd=folder,
        env=environment | {"PYTHONPATH": str(ROOT), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_week_with_a_plan_and_an_inventory_gives_a_decision(lake: Path, tmp_path: Path) -> None:
    plan = ROOT / "docs/examples/twenty_developers.yaml"
    (tmp_path / "agentwatt.yaml").write_text(
        f"sizing:\n  plan: {plan}\n  installed: {{gpus: 90, source: inventory}}\n", encoding="utf-8"
    )
    done = call(tmp_path, lake, "--week", "2026-W11", "-o", "out")
    assert done.returncode == 0, done.stderr
    written = [Path(json.loads(line)["file"]).name for line in done.stdout.splitlines()]
    assert written == ["report.json", "report.html", "report.md", "figures.csv", "plan.yaml"]
    document = json.loads((tmp_path / "out/report.json").read_text(encoding="utf-8"))
    assert document["meta"]["window"]["start"] == "2026-03-09T00:00:00"
    assert document["decision"]["value"] == "fewer"
    assert document["decision"]["plan"]["is_published_example"] is False


def test_a_week_without_calls_is_a_report_of_nulls_and_leaves_no_old_plan_behind(
    lake: Path, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/plan.yaml").write_text("old", encoding="utf-8")
    done = call(tmp_path, lake, "--week", "2026-W20", "-o", "out")
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "out/plan.yaml").exists()
    assert "No decision: the window holds no call." in (tmp_path / "out/report.md").read_text(
        encoding="utf-8"
    )


def test_a_week_and_dates_do_not_go_together(lake: Path, tmp_path: Path) -> None:
    done = call(tmp_path, lake, "--week", "last", "--since", "2026-03-09")
    assert done.returncode == 2
    assert "--week does not go with --since" in done.stderr


def test_a_plan_that_cannot_be_used_is_named_with_line_and_key(lake: Path, tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text("plan: {name: x, method: agents}\n", encoding="utf-8")
    (tmp_path / "agentwatt.yaml").write_text("sizing: {plan: plan.yaml}\n", encoding="utf-8")
    done = call(tmp_path, lake, "--week", "2026-W11")
    assert done.returncode == 2
    assert "plan.yaml:1: plan.currency" in done.stderr
    assert "Traceback" not in done.stderr
