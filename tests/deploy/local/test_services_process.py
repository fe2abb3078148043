"""Child processes: early death is noticed, and nothing survives a stop."""

from __future__ import annotations

import os
import select
import sys
from pathlib import Path

import pytest

from deploy.local.process import ManagedProcess, StackError, log_tail, run_checked

IGNORES_SIGTERM = """
import os, signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
print("child", child.pid, flush=True)
signal.pause()
"""


def python(code: str, log: Path, *, grace_s: float = 10.0) -> ManagedProcess:
    return ManagedProcess("the program", [sys.executable, "-c", code], log=log, stop_grace_s=grace_s)


def test_an_early_death_is_reported_with_the_last_log_lines(tmp_path: Path) -> None:
    with (
        python("print('cannot go on'); raise SystemExit(7)", tmp_path / "a.log") as process,
        pytest.raises(StackError, match=r"exit code 7(.|\n)*cannot go on(.|\n)*try again") as failure,
    ):
        process.wait_until(lambda: False, timeout_s=30, advice="try again")
    assert str(tmp_path / "a.log") in str(failure.value)


def test_a_process_that_never_gets_ready_is_reported(tmp_path: Path) -> None:
    with (
        python("import signal; signal.pause()", tmp_path / "a.log") as process,
        pytest.raises(StackError, match=r"not ready after 0\.2 s"),
    ):
        process.wait_until(lambda: False, timeout_s=0.2, advice="")


def test_a_missing_program_is_reported(tmp_path: Path) -> None:
    process = ManagedProcess("the program", [str(tmp_path / "absent")], log=tmp_path / "a.log")
    with pytest.raises(StackError, match="cannot be started"):
        process.start()


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="waits on a process that is not its child")
def test_a_stop_kills_a_stubborn_process_together_with_its_children(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    with python(IGNORES_SIGTERM, log, grace_s=0.2) as process:
        process.wait_until(lambda: "child" in log.read_text(), timeout_s=30, advice="")
        handles = [os.pidfd_open(process.pid), os.pidfd_open(int(log.read_text().split()[1]))]
    try:
        for handle in handles:
            assert select.select([handle], [], [], 20.0)[0]
    finally:
        for handle in handles:
            os.close(handle)


def test_stopping_twice_is_harmless(tmp_path: Path) -> None:
    process = python("import signal; signal.pause()", tmp_path / "a.log")
    process.start()
    assert process.running
    process.stop()
    process.stop()
    assert not process.running


def test_a_failing_command_is_reported_with_its_output_and_advice() -> None:
    with pytest.raises(StackError, match=r"(?s)counting failed \(exit code 3\).*no numbers.*learn to count"):
        run_checked(
            "counting",
            [sys.executable, "-c", "print('no numbers'); raise SystemExit(3)"],
            advice="learn to count",
        )


def test_a_command_that_takes_too_long_is_reported() -> None:
    with pytest.raises(StackError, match="longer than"):
        run_checked(
            "waiting", [sys.executable, "-c", "import signal; signal.pause()"], advice="", timeout_s=0.2
        )


def test_the_tail_of_a_log_tells_empty_from_unreadable(tmp_path: Path) -> None:
    (tmp_path / "empty.log").touch()
    assert "empty" in log_tail(tmp_path / "empty.log")
    assert "not readable" in log_tail(tmp_path / "absent.log")
    (tmp_path / "long.log").write_text("".join(f"{n}\n" for n in range(100)))
    assert log_tail(tmp_path / "long.log", lines=2).split() == ["|", "98", "|", "99"]
