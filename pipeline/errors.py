"""The errors a user can act on: what happened, why, and the next command; each knows its exit code."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of every command (the same list stands in the operations guide)."""

    OK = 0
    UNEXPECTED = 1
    USAGE = 2
    UNREACHABLE = 3
    AUDIT_FAILED = 4
    THRESHOLD = 5
    INTERRUPTED = 130


class AgentwattError(Exception):
    """A failure with an explanation.

    Args:
        what: one sentence, what could not be done.
        why: the cause as far as it is known.
        next_step: a command or a change that moves the user on.
    """

    exit_code: ExitCode = ExitCode.UNEXPECTED

    def __init__(self, what: str, *, why: str = "", next_step: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.next_step = next_step

    def __str__(self) -> str:
        return f"{self.what} {self.why}".strip()


class ConfigError(AgentwattError):
    """A setting, an option or an input file is wrong."""

    exit_code = ExitCode.USAGE


class UnreachableError(AgentwattError):
    """A database, stream or metrics endpoint did not answer, or refused us."""

    exit_code = ExitCode.UNREACHABLE


class LockHeldError(AgentwattError):
    """Another process is writing the same lake."""

    exit_code = ExitCode.UNREACHABLE


class AuditFailedError(AgentwattError):
    """An audit of the data returned rows that must not exist."""

    exit_code = ExitCode.AUDIT_FAILED


class ThresholdError(AgentwattError):
    """A figure crossed a threshold that the caller set."""

    exit_code = ExitCode.THRESHOLD
