"""Read the plugin's spool files (JSON lines, one record per line) into ``raw/events``.

Files are only read, never changed: the position in each is kept in the lake's state, and a line counts once
it is complete (ends in a line feed). A crash between writing Parquet and saving the position makes lines
arrive again under the same ``stream_id``, which compaction and staging remove.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline.errors import ConfigError
from pipeline.extract.event_record import MAX_RECORD_BYTES, EventBatch, new_batch
from pipeline.extract.event_stream import CollectReport
from pipeline.lake import Lake

STATE = "spool"


def collect(
    lake: Lake,
    directory: Path,
    *,
    max_file_rows: int = 20_000,
    progress: Callable[[CollectReport], None] = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> CollectReport:
    """Read what is new in ``*.jsonl`` files of *directory*.

    Raises:
        ConfigError: the directory does not exist.
    """
    if not directory.is_dir():
        raise ConfigError(
            f"The spool folder {directory} does not exist.",
            why="--spool names the folder that the plugin spools to.",
            next_step="Check the plugin's spool setting.",
        )
    report = CollectReport()
    for path in sorted(directory.glob("*.jsonl")):
        if should_stop():
            break
        _read_file(lake, path, max_file_rows, report, progress)
    return report


def _read_file(
    lake: Lake,
    path: Path,
    max_file_rows: int,
    report: CollectReport,
    progress: Callable[[CollectReport], None],
) -> None:
    key = str(path.resolve())
    with path.open("rb") as handle:
        status = path.stat()
        known: dict[str, Any] = lake.read_state(STATE).get(key, {})
        position = int(known.get("offset", 0))
        if known.get("inode") != status.st_ino or position > status.st_size:
            position = 0  # another file under the same name, or one cut short
        handle.seek(position)
        batch = new_batch()
        while line := handle.readline(MAX_RECORD_BYTES + 2):
            rest = 0 if line.endswith(b"\n") else _skip_line(handle)
            if rest is None:
                break  # still being written
            if line.strip():  # an over-long line keeps its first bytes and is set aside as too large
                batch.add(f"spool:{path.name}:{status.st_ino}:{position}", line.rstrip(b"\n"))
            position += len(line) + rest
            if len(batch) >= max_file_rows:
                _write(lake, key, status.st_ino, position, batch, report)
                batch = new_batch()
                progress(report)
        _write(lake, key, status.st_ino, position, batch, report)
        progress(report)


def _skip_line(handle: Any) -> int | None:
    """Length of what is left of an over-long line; None when the file ends before the line does."""
    length = 0
    while part := handle.readline(MAX_RECORD_BYTES):
        length += len(part)
        if part.endswith(b"\n"):
            return length
    return None


def _write(lake: Lake, key: str, inode: int, offset: int, batch: EventBatch, report: CollectReport) -> None:
    if len(batch):
        report.rows += batch.write(lake)
        report.entries += len(batch)
        report.files_written += 1
        report.rejected.update(batch.reasons)
        report.unknown_fields += batch.unknown_fields
        report.last_id = batch.ids[-1]
    state = lake.read_state(STATE)
    state[key] = {"inode": inode, "offset": offset}
    lake.write_state(STATE, state)
