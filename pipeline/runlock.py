"""One writer at a time: a lock on the lake that dies with its process.

The lock is the kernel's (``flock``), so a killed run never leaves it behind; the file's text only tells who
holds it.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from pipeline.errors import LockHeldError


@contextmanager
def writer_lock(root: Path, name: str) -> Iterator[None]:
    """Hold the writer lock of the lake *root* for the command *name*.

    Raises:
        LockHeldError: another process holds it; the error names command, process id, host and since when.
    """
    root.mkdir(parents=True, exist_ok=True)
    path = root / ".writer.lock"
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if not _acquire(handle):
            raise LockHeldError(
                f"The lake {root} is being written by {describe(_read(handle))}.",
                why="Only one run may write a lake at a time.",
                next_step="Wait until it ends, or stop it; the lock is freed when that process ends.",
            )
        who = {
            "name": name,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "since": datetime.now(UTC).replace(tzinfo=None).isoformat(timespec="seconds"),
        }
        os.ftruncate(handle, 0)
        os.pwrite(handle, json.dumps(who).encode(), 0)
        yield
        os.ftruncate(handle, 0)
    finally:
        os.close(handle)  # frees the lock


def holder(root: Path) -> dict[str, object] | None:
    """Who holds the writer lock now, or None. A text that a dead process left behind does not count."""
    try:
        handle = os.open(root / ".writer.lock", os.O_RDWR)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return _read(handle)
    else:
        return None
    finally:
        os.close(handle)


def describe(who: dict[str, object]) -> str:
    """One phrase that names a holder."""
    if not who:
        return "another process"
    return (
        f"'{who.get('name')}' (process {who.get('pid')} on {who.get('host')}, since {who.get('since')} UTC)"
    )


def _acquire(handle: int, attempts: int = 5) -> bool:
    """Take the lock; a few tries, since :func:`holder` takes a shared one for an instant."""
    for attempt in range(attempts):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if attempt + 1 < attempts:
                time.sleep(0.02)
        else:
            return True
    return False


def _read(handle: int) -> dict[str, object]:
    try:
        content = json.loads(os.pread(handle, 4096, 0))
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}
