"""Every agentwatt command in the documents runs, against the recorded run."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.conftest import Recorded
from tests.test_project import DOCUMENTS, ROOT, shell_lines

pytestmark = pytest.mark.integration

COMMANDS = sorted(
    {line for document in DOCUMENTS for line in shell_lines(document) if line.startswith("agentwatt ")}
)


@pytest.mark.parametrize("line", COMMANDS)
def test_a_documented_command_runs(recorded: Recorded, line: str, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    shutil.copytree(recorded.run.lake, lake)
    command = [sys.executable, "-m", "pipeline.cli", *shlex.split(line)[1:]]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={
            **recorded.run.pipeline_env,
            "PYTHONPATH": str(ROOT),
            "AGENTWATT_LAKE": str(lake),
        },
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, (line, done.stderr[-2000:])
