"""From recorded traces to a plan, through the commands alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]
TRACES = ROOT.parent / "shared/data/weka_cc_traces/traces_rle.jsonl.gz"


@pytest.mark.skipif(not TRACES.exists(), reason="the shared traces are not beside the project")
def test_the_weka_traces_lead_to_a_plan(tmp_path: Path) -> None:
    def agentwatt(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "pipeline.cli", *arguments],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=200,
        )
        assert done.returncode == 0, (arguments, done.stderr[-2000:])
        return done.stdout

    lake, out = str(tmp_path / "lake"), str(tmp_path / "out")
    agentwatt("import", "--lake", lake, str(TRACES))
    agentwatt("run", "--offline", "--lake", lake)
    agentwatt("report", "--lake", lake, "--out", out)
    plan = json.loads(agentwatt("plan", "--from-week", f"{out}/report.json", "--format", "json"))
    assert plan["results"]["fleet"]["gpus"] >= 2
    assert plan["results"]["concurrency"]["basis"]
