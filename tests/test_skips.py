"""What was not run must not look like what passed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CASES = """
import pytest

def test_that_passes(): pass

@pytest.mark.skipif(True, reason="no such program: apt-get install it")
def test_that_is_skipped(): pass
"""
XFAIL = """
import pytest

@pytest.mark.xfail
def test_that_is_expected_to_fail(): assert False
"""
MODULE = 'import pytest\npytest.importorskip("no_such_package_at_all")\n'


def run(folder: Path, text: str, *arguments: str, ci: str | None) -> tuple[int, str]:
    """Run pytest on *text* beside this project's conftest.py; return its exit code and output."""
    shutil.copy(Path(__file__).parent / "conftest.py", folder)
    (folder / "test_some.py").write_text(text, encoding="utf-8")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_") and k != "CI"}
    if ci is not None:
        environment["CI"] = ci
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-c",
            os.devnull,
            "--rootdir",
            ".",
            *arguments,
            "test_some.py",
        ],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("processes", [(), ("-n", "2")], ids=["one process", "xdist"])
def test_a_skipped_test_fails_continuous_integration_and_is_named(
    tmp_path: Path, processes: tuple[str, ...]
) -> None:
    code, output = run(tmp_path, CASES, *processes, ci="true")
    assert code == 1
    assert "1 passed, 1 skipped" in output
    assert "test_some.py::test_that_is_skipped: no such program: apt-get install it" in output


def test_a_module_that_is_skipped_as_a_whole_fails_it_too(tmp_path: Path) -> None:
    code, output = run(tmp_path, f"{MODULE}\ndef test_any(): pass\n", ci="1")
    assert code != 0
    assert "no_such_package_at_all" in output.split("that fails the run")[1]


@pytest.mark.parametrize("ci", [None, "", "false", "0"])
def test_elsewhere_a_skipped_test_is_a_hint(tmp_path: Path, ci: str | None) -> None:
    assert run(tmp_path, CASES, ci=ci)[0] == 0


def test_an_expected_failure_is_not_a_skip(tmp_path: Path) -> None:
    assert run(tmp_path, XFAIL, ci="true")[0] == 0
