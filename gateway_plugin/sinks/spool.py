"""Event records on disk while Redis is away: bounded JSON-lines segments, replayed in order, crash-safe.

A worker appends to segments of its own and holds a lock on each; segments of processes that died lose their
lock and are adopted by whoever comes next. Appends are synced before they count as stored. What was read is
remembered in a small file beside a segment without a sync, so that a crash can replay records twice but never
lose one: readers keep one record per event id and stage. All methods block and belong in a thread.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_SUFFIX: Final = ".jsonl"
_READ_BYTES: Final = 1 << 20


class SpoolError(OSError):
    """The spool cannot be written (disk full, folder gone); the records stay with the caller."""


@dataclass(slots=True, eq=False)
class _Segment:
    path: Path
    fd: int
    size: int
    offset: int
    records: int

    @property
    def position_path(self) -> Path:
        return self.path.with_suffix(".pos")


class Spool:
    """A folder of segments, shared by the workers of one host.

    ``counts``: ``stored``, ``replayed``, ``dropped_spool_full`` (oldest first), ``dropped_spool_corrupt``,
    ``adopted`` (segments of dead processes).
    """

    def __init__(self, directory: Path, *, max_bytes: int, segment_bytes: int = 4 << 20) -> None:
        self._directory = directory
        self._max_bytes = max_bytes
        self._segment_bytes = segment_bytes
        self._segments: list[_Segment] = []
        self._active: _Segment | None = None
        self._next: tuple[_Segment, int, int] | None = None
        self._lock = threading.RLock()
        self.counts: Counter[str] = Counter()

    @property
    def pending_bytes(self) -> int:
        """Bytes of this worker's segments that were not replayed yet."""
        return sum(s.size - s.offset for s in self._segments)

    @property
    def pending_records(self) -> int:
        """Records of this worker's segments that were not replayed yet."""
        return sum(s.records for s in self._segments)

    def append(self, records: Sequence[bytes]) -> None:
        """Store *records* and sync them; the oldest segments go when the bound is reached.

        Raises:
            SpoolError: nothing of *records* was stored.
        """
        data = b"".join(r + b"\n" for r in records)
        with self._lock:
            if len(data) > self._max_bytes:
                self.counts["dropped_spool_full"] += len(records)
                return
            while self._segments and sum(s.size for s in self._segments) + len(data) > self._max_bytes:
                oldest = self._segments[0]
                self.counts["dropped_spool_full"] += oldest.records
                self._remove(oldest)
            try:
                segment = self._writable()
                self._write(segment, data)
            except OSError as error:
                raise SpoolError(
                    f"the spool cannot be written: {error.strerror or type(error).__name__}"
                ) from None
            segment.size += len(data)
            segment.records += len(records)
            self.counts["stored"] += len(records)

    def _writable(self) -> _Segment:
        if self._active is None or self._active.size >= self._segment_bytes:
            self._directory.mkdir(parents=True, exist_ok=True)
            path = self._directory / f"{time.time_ns():020d}-{os.getpid()}{_SUFFIX}"
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
            fcntl.flock(fd, fcntl.LOCK_EX)
            self._active = _Segment(path, fd, 0, 0, 0)
            self._segments.append(self._active)
            folder = os.open(self._directory, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        return self._active

    @staticmethod
    def _write(segment: _Segment, data: bytes) -> None:
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(segment.fd, view) :]
            os.fsync(segment.fd)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(segment.fd, segment.size)
            raise

    def adopt(self) -> int:
        """Take over segments whose process is gone; return how many."""
        with self._lock:
            own = {s.path for s in self._segments}
            found = [p for p in sorted(self._directory.glob(f"*{_SUFFIX}")) if p not in own]
            adopted = [s for p in found if (s := self._take(p)) is not None]
            self._segments = sorted([*self._segments, *adopted], key=lambda s: s.path.name)
            self.counts["adopted"] += len(adopted)
            return len(adopted)

    @staticmethod
    def _take(path: Path) -> _Segment | None:
        try:
            fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            status = os.fstat(fd)
            if status.st_nlink == 0:
                raise BlockingIOError  # its process finished it while we looked
            segment = _Segment(path, fd, status.st_size, 0, 0)
            with contextlib.suppress(OSError, ValueError):
                segment.offset = min(int(segment.position_path.read_text()), segment.size)
            position = segment.offset
            while part := os.pread(fd, _READ_BYTES, position):
                segment.records += part.count(b"\n")
                position += len(part)
        except OSError:
            os.close(fd)
            return None
        return segment

    def read(self, limit: int) -> list[bytes]:
        """Return up to *limit* of the oldest records; they stay stored until :meth:`commit`."""
        with self._lock:
            while self._segments:
                segment = self._segments[0]
                records, consumed, lines = self._lines(segment, limit)
                if records:
                    self._next = (segment, segment.offset + consumed, lines)
                    return records
                if segment is self._active and segment.offset >= segment.size and segment.size == 0:
                    return []
                self._remove(segment)
            return []

    def _lines(self, segment: _Segment, limit: int) -> tuple[list[bytes], int, int]:
        """Return (valid records, bytes consumed, lines consumed) from the segment's read position."""
        records: list[bytes] = []
        consumed = lines = 0
        rest = b""
        position = segment.offset
        while len(records) < limit:
            part = os.pread(segment.fd, _READ_BYTES, position)
            if not part:
                if rest:  # the process died inside a write
                    self.counts["dropped_spool_corrupt"] += 1
                    consumed += len(rest)
                break
            position += len(part)
            *whole, rest = (rest + part).split(b"\n")
            for line in whole:
                if len(records) >= limit:
                    return records, consumed, lines
                consumed += len(line) + 1
                lines += 1
                if line.startswith(b"{") and line.endswith(b"}"):
                    records.append(line)
                else:
                    self.counts["dropped_spool_corrupt"] += 1
        return records, consumed, lines

    def commit(self) -> None:
        """Forget what the last :meth:`read` returned: it is stored elsewhere now."""
        with self._lock:
            if self._next is None:
                return
            segment, offset, lines = self._next
            self._next = None
            if segment not in self._segments:
                return
            segment.offset = offset
            segment.records = max(0, segment.records - lines)
            self.counts["replayed"] += lines
            if offset >= segment.size:
                self._remove(segment)
            else:
                with contextlib.suppress(OSError):
                    segment.position_path.write_text(str(offset))

    def _remove(self, segment: _Segment) -> None:
        self._segments.remove(segment)
        if self._active is segment:
            self._active = None
        if self._next is not None and self._next[0] is segment:
            self._next = None
        for path in (segment.path, segment.position_path):
            with contextlib.suppress(OSError):
                path.unlink()
        os.close(segment.fd)

    def close(self) -> None:
        """Let go of all segments; what they hold stays on disk for the next process."""
        with self._lock:
            for segment in self._segments:
                os.close(segment.fd)
            self._segments.clear()
            self._active = self._next = None
