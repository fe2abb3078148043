from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_plugin.sinks import spool as module
from gateway_plugin.sinks.spool import Spool, SpoolError


def record(n: int, size: int = 10) -> bytes:
    return b'{"n":%d,"x":"%s"}' % (n, b"x" * size)


def everything(spool: Spool, limit: int = 7) -> list[bytes]:
    out: list[bytes] = []
    while batch := spool.read(limit):
        out += batch
        spool.commit()
    return out


def test_records_come_back_in_order_over_many_segments(tmp_path: Path) -> None:
    spool = Spool(tmp_path, max_bytes=1 << 20, segment_bytes=200)
    records = [record(n) for n in range(100)]
    for start in range(0, 100, 9):
        spool.append(records[start : start + 9])
    assert len(list(tmp_path.glob("*.jsonl"))) > 5
    assert spool.pending_records == 100
    assert everything(spool) == records
    assert (spool.pending_records, spool.pending_bytes) == (0, 0)
    assert list(tmp_path.iterdir()) == []
    assert spool.counts == {"stored": 100, "replayed": 100}


def test_what_is_read_stays_until_it_is_committed(tmp_path: Path) -> None:
    spool = Spool(tmp_path, max_bytes=1 << 20)
    spool.append([record(1), record(2), record(3)])
    assert spool.read(2) == spool.read(2) == [record(1), record(2)]
    spool.commit()
    spool.commit()
    assert spool.read(2) == [record(3)]


def test_appending_while_replaying_keeps_the_order(tmp_path: Path) -> None:
    spool = Spool(tmp_path, max_bytes=1 << 20)
    spool.append([record(1)])
    assert spool.read(10) == [record(1)]
    spool.append([record(2)])
    spool.commit()
    assert everything(spool) == [record(2)]


def test_the_bound_drops_the_oldest_and_counts_them(tmp_path: Path) -> None:
    spool = Spool(tmp_path, max_bytes=1000, segment_bytes=200)
    for n in range(100):
        spool.append([record(n)])
    kept = everything(spool)
    assert kept[-1] == record(99)
    assert kept == [record(n) for n in range(100 - len(kept), 100)]
    assert spool.counts["dropped_spool_full"] == 100 - len(kept) > 0


def test_a_batch_above_the_whole_bound_is_dropped_and_counted(tmp_path: Path) -> None:
    spool = Spool(tmp_path, max_bytes=100)
    spool.append([record(1, 500)])
    assert spool.counts["dropped_spool_full"] == 1
    assert spool.read(1) == []


def test_records_survive_the_death_of_their_process(tmp_path: Path) -> None:
    code = (
        "import os,sys\nfrom pathlib import Path\nfrom gateway_plugin.sinks.spool import Spool\n"
        "s = Spool(Path(sys.argv[1]), max_bytes=1 << 20)\n"
        "s.append([b'{\"n\":%d}' % n for n in range(5)])\ns.read(2)\ns.commit()\nos._exit(9)\n"
    )
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=root, check=False)
    assert done.returncode == 9
    heir = Spool(tmp_path, max_bytes=1 << 20)
    assert heir.adopt() == 1
    assert heir.pending_records == 3
    assert everything(heir) == [b'{"n":2}', b'{"n":3}', b'{"n":4}']
    assert list(tmp_path.iterdir()) == []


def test_segments_of_a_living_process_are_left_alone(tmp_path: Path) -> None:
    owner, other = Spool(tmp_path, max_bytes=1 << 20), Spool(tmp_path, max_bytes=1 << 20)
    owner.append([record(1)])
    assert other.adopt() == 0
    owner.close()
    assert other.adopt() == 1
    assert everything(other) == [record(1)]


def test_adopted_records_come_before_newer_ones(tmp_path: Path) -> None:
    old, new = Spool(tmp_path, max_bytes=1 << 20), Spool(tmp_path, max_bytes=1 << 20)
    old.append([record(1)])
    old.close()
    new.append([record(2)])
    new.adopt()
    assert everything(new) == [record(1), record(2)]


def test_a_torn_last_line_and_garbage_are_counted_and_skipped(tmp_path: Path) -> None:
    (tmp_path / "00000000000000000001-1.jsonl").write_bytes(
        record(1) + b"\ngarbage\n\n" + record(2) + b'\n{"n":3'
    )
    spool = Spool(tmp_path, max_bytes=1 << 20)
    spool.adopt()
    assert everything(spool) == [record(1), record(2)]
    assert spool.counts["dropped_spool_corrupt"] == 3
    assert list(tmp_path.iterdir()) == []


def test_a_segment_of_garbage_only_goes(tmp_path: Path) -> None:
    (tmp_path / "00000000000000000001-1.jsonl").write_bytes(b"\x00\xff" * 100)
    (tmp_path / "00000000000000000001-1.pos").write_text("not a number")
    spool = Spool(tmp_path, max_bytes=1 << 20)
    spool.adopt()
    spool.append([record(1)])
    assert everything(spool) == [record(1)]


def test_records_longer_than_a_read_come_back_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_READ_BYTES", 64)
    spool = Spool(tmp_path, max_bytes=1 << 20)
    records = [record(n, 300) for n in range(5)]
    spool.append(records)
    assert everything(spool, 2) == records


def test_a_full_disk_leaves_the_records_with_the_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool(tmp_path, max_bytes=1 << 20)
    spool.append([record(1)])
    real = os.fsync

    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SpoolError, match="No space left"):
        spool.append([record(2)])
    monkeypatch.setattr(os, "fsync", real)
    spool.append([record(3)])
    assert everything(spool) == [record(1), record(3)]


def test_a_folder_that_cannot_be_made_is_a_spool_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(SpoolError):
        Spool(tmp_path / "file" / "spool", max_bytes=1000).append([record(1)])
    assert Spool(tmp_path / "none", max_bytes=1000).adopt() == 0


def test_files_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    Spool(tmp_path, max_bytes=1 << 20).append([record(1)])
    (path,) = tmp_path.glob("*.jsonl")
    assert path.stat().st_mode & 0o077 == 0


@given(st.lists(st.one_of(st.integers(1, 6), st.just(0)), max_size=25))
def test_any_interleaving_of_appends_and_replays_keeps_every_record_in_order(
    tmp_path_factory: pytest.TempPathFactory, steps: list[int]
) -> None:
    spool = Spool(tmp_path_factory.mktemp("spool"), max_bytes=1 << 20, segment_bytes=60)
    appended = 0
    replayed: list[bytes] = []
    for step in steps:
        if step:
            spool.append([record(appended + n, 1) for n in range(step)])
            appended += step
        else:
            replayed += spool.read(4)
            spool.commit()
    replayed += everything(spool)
    assert replayed == [record(n, 1) for n in range(appended)]
    spool.close()
