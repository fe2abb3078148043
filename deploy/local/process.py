"""Child processes of the local equipment: started, watched, stopped, never left behind.

Every service runs in a process group of its own, so that Ctrl-C in the terminal reaches only the Python
program, which then stops the services in the right order. Beside each runs a *guard*, a shell that waits on
a pipe from this program: when the pipe breaks because the program was killed, the guard ends the service.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

POLL_S = 0.05
GROUP_END_S = 3.0

# $1 process and group id, $2 signal that stops the service, $3 seconds until it is killed, $4 folder to
# remove afterwards, or nothing.
_GUARD = """
if read -r line; then exit 0; fi
kill -"$2" "$1" 2>/dev/null
waited=0
while [ "$waited" -lt "$3" ] && kill -0 "$1" 2>/dev/null; do sleep 1; waited=$((waited + 1)); done
kill -KILL -- "-$1" 2>/dev/null
[ -z "$4" ] || rm -rf -- "$4"
"""


class StackError(RuntimeError):
    """Local equipment failed; the text says what, where the log is and what to do about it."""


class ManagedProcess:
    """One long-running local program with its log file.

    `wait_until` watches it come up and notices an early death; `stop` asks it to end, waits, and as the
    last resort kills its whole process group.
    """

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        user: int | None = None,
        group: int | None = None,
        stop_signal: signal.Signals = signal.SIGTERM,
        stop_grace_s: float = 10.0,
        scratch: Path | None = None,
    ) -> None:
        """Describe the process; nothing is started yet.

        Args:
            name: what messages call it.
            argv: program and arguments.
            log: file that its output is appended to.
            env: its whole environment; None hands on this program's.
            cwd: its working directory.
            user: numeric user id to run as; only root may give one.
            group: numeric group id to run as.
            stop_signal: what asks it to end.
            stop_grace_s: how long it may take to end before it is killed.
            scratch: folder that the guard removes when this program was killed; otherwise it is the caller's.
        """
        self.name = name
        self.log = log
        self._argv = list(argv)
        self._env = dict(env) if env is not None else None
        self._cwd = cwd
        self._user = user
        self._group = group
        self._stop_signal = stop_signal
        self._stop_grace_s = stop_grace_s
        self._scratch = scratch
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the program with stdout and stderr in the log file.

        Raises:
            StackError: the program cannot be executed.
        """
        self.log.parent.mkdir(parents=True, exist_ok=True)
        try:
            with self.log.open("ab") as output:
                self._process = subprocess.Popen(
                    self._argv,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=self._env,
                    cwd=self._cwd,
                    user=self._user,
                    group=self._group,
                    extra_groups=[] if self._user is not None else None,
                    start_new_session=True,
                )
        except (OSError, subprocess.SubprocessError) as error:
            raise StackError(f"{self.name} cannot be started ({self._argv[0]}): {error}") from error
        self._guard = subprocess.Popen(
            [
                "/bin/sh",
                "-c",
                _GUARD,
                "guard",
                str(self._process.pid),
                self._stop_signal.name.removeprefix("SIG"),
                str(round(self._stop_grace_s)),
                str(self._scratch or ""),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """Process id, which is also the id of its process group."""
        if self._process is None:
            raise StackError(f"{self.name} has not been started")
        return self._process.pid

    @property
    def running(self) -> bool:
        """True between a successful start and the end of the process."""
        return self._process is not None and self._process.poll() is None

    def wait_until(self, ready: Callable[[], bool], *, timeout_s: float, advice: str) -> float:
        """Poll `ready` until it is true; returns the seconds that took.

        Raises:
            StackError: the process ended or the time was up; carries the last log lines and `advice`.
        """
        begun = time.monotonic()
        while True:
            if self._process is None or self._process.poll() is not None:
                code = None if self._process is None else self._process.returncode
                raise StackError(self._report(f"{self.name} ended while starting (exit code {code})", advice))
            if ready():
                return time.monotonic() - begun
            if time.monotonic() - begun > timeout_s:
                raise StackError(self._report(f"{self.name} was not ready after {timeout_s:g} s", advice))
            time.sleep(POLL_S)

    def wait(self, *, timeout_s: float) -> int:
        """Wait for the process to end by itself; returns its exit code.

        Raises:
            StackError: it still runs after `timeout_s`.
        """
        if self._process is None:
            raise StackError(f"{self.name} has not been started")
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            raise StackError(f"{self.name} still runs after {timeout_s:g} s") from error

    def stop(self) -> None:
        """End the process and whatever it started; harmless when it has already ended."""
        process, self._process = self._process, None
        if process is None:
            return
        try:
            if process.poll() is None:
                # Only the service itself is asked: it ends its own children after it has flushed.
                process.send_signal(self._stop_signal)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(self._stop_grace_s)
        finally:
            _end_group(process.pid)
            process.wait()
            self._release_guard()

    def _release_guard(self) -> None:
        guard, self._guard = self._guard, None
        if guard is None:
            return
        with contextlib.suppress(BrokenPipeError):
            guard.communicate(b"stopped\n")

    def tail(self, lines: int = 15) -> str:
        """Last lines of the log, or a note that it is empty."""
        return log_tail(self.log, lines)

    def _report(self, problem: str, advice: str) -> str:
        return f"{problem}.\nLog: {self.log}\n{self.tail()}\n{advice}"

    def __enter__(self) -> Self:
        """Start, for use in a `with` statement."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        self.stop()


def _end_group(group: int) -> None:
    """Terminate, then kill, what is left of a process group."""
    for final, number in ((False, signal.SIGTERM), (True, signal.SIGKILL)):
        try:
            os.killpg(group, number)
        except (ProcessLookupError, PermissionError):  # macOS answers EPERM for a group of zombies
            return
        deadline = time.monotonic() + GROUP_END_S
        while not final and _group_alive(group) and time.monotonic() < deadline:
            time.sleep(POLL_S)


def _group_alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def log_tail(path: Path, lines: int = 15) -> str:
    """Last lines of a text file, indented for an error message."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            last: deque[str] = deque(file, maxlen=lines)
    except OSError as error:
        return f"  (log not readable: {error.strerror})"
    return "".join(f"  | {line.rstrip()}\n" for line in last).rstrip("\n") or "  (log is empty)"


def run_checked(
    what: str,
    argv: Sequence[str],
    *,
    advice: str,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    user: int | None = None,
    group: int | None = None,
    timeout_s: float = 600.0,
) -> str:
    """Run a short program to its end and return its output.

    Raises:
        StackError: it cannot be run, fails or takes longer than `timeout_s`; carries its last output lines.
    """
    try:
        result = subprocess.run(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=dict(env) if env is not None else None,
            cwd=cwd,
            user=user,
            group=group,
            extra_groups=[] if user is not None else None,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise StackError(f"{what} took longer than {timeout_s:g} s.\n{advice}") from error
    except (OSError, subprocess.SubprocessError) as error:
        raise StackError(f"{what} cannot be run ({argv[0]}): {error}\n{advice}") from error
    if result.returncode != 0:
        shown = "\n".join(f"  | {line}" for line in result.stdout.splitlines()[-15:])
        raise StackError(f"{what} failed (exit code {result.returncode}).\n{shown}\n{advice}")
    return result.stdout
