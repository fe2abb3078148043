"""Spool files: complete lines once, whatever happens to the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway_plugin.event import encode, new_event_id
from pipeline.errors import ConfigError
from pipeline.extract import spool
from pipeline.extract.event_record import MAX_RECORD_BYTES
from pipeline.lake import Lake, connect


def line(event_id: str | None = None) -> bytes:
    record = {"schema": 1, "event_id": event_id or new_event_id(), "stage": "final", "outcome": "success"}
    return encode({**record, "started_us": 1_774_785_000_000_000}) + b"\n"


def count(lake: Lake) -> int:
    with connect() as con:
        lake.view(con, "raw/events", "e")
        found = con.execute("SELECT count(*) FROM e").fetchone()
        return int(found[0]) if found else 0


def test_only_complete_lines_count_and_each_counts_once(lake: Lake, tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    folder.mkdir()
    path = folder / "worker-1.jsonl"
    whole = line()
    path.write_bytes(line() + b"\n" + line() + whole[:20])
    assert spool.collect(lake, folder).rows == 2
    assert spool.collect(lake, folder).rows == 0
    with path.open("ab") as handle:
        handle.write(whole[20:] + line())
    report = spool.collect(lake, folder)
    assert (report.rows, report.rejected) == (2, {})
    assert count(lake) == 4


def test_a_replaced_or_shortened_file_is_read_from_its_start(lake: Lake, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(line() + line())
    spool.collect(lake, tmp_path)
    path.write_bytes(line())
    assert spool.collect(lake, tmp_path).rows == 1
    other = tmp_path / "new"
    other.write_bytes(line() + line() + line())
    other.replace(path)
    assert spool.collect(lake, tmp_path).rows == 3
    assert count(lake) == 6


def test_bad_and_endless_lines_are_set_aside_and_reading_goes_on(lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"{broken\n" + b"x" * (3 * MAX_RECORD_BYTES) + b"\n" + line())
    report = spool.collect(lake, tmp_path)
    assert report.rejected == {"not JSON": 1, "too large": 1}
    assert report.rows == 1
    assert spool.collect(lake, tmp_path).entries == 0


def test_a_big_file_is_written_in_parts_and_a_crash_repeats_no_part(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"".join(line() for _ in range(25)))
    seen: list[int] = []

    def crash(report: spool.CollectReport) -> None:
        seen.append(report.rows)
        if len(seen) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        spool.collect(lake, tmp_path, max_file_rows=10, progress=crash)
    assert seen == [10, 20]
    assert spool.collect(lake, tmp_path, max_file_rows=10).rows == 5
    assert count(lake) == 25


def test_an_absent_folder_is_a_settings_error(lake: Lake, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        spool.collect(lake, tmp_path / "none")
