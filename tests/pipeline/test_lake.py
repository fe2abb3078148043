"""The lake: atomic files, typed reading, compaction and the writer lock."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pipeline import lake as lake_module
from pipeline import runlock
from pipeline.errors import ConfigError, ExitCode, LockHeldError
from pipeline.lake import Lake, connect, finish_compaction
from pipeline.runlock import writer_lock
from pipeline.schema import SCHEMAS

DAY = date(2026, 3, 29)
T0 = datetime(2026, 3, 29, 10)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "it's a lake")


def put(lake: Lake, name: str, values: list[float], day: date = DAY) -> Path:
    path = Path("raw/metrics") / f"date={day}" / f"{name}.parquet"
    rows = [[T0 + timedelta(seconds=i), "engine", "up", "{}", v, "gauge"] for i, v in enumerate(values)]
    with connect() as con:
        assert lake.write_columns(con, "raw/metrics", path, rows, "ts") == len(values)
    return lake.root / path


def values(lake: Lake) -> list[Any]:
    with connect() as con:
        return [
            r[0]
            for r in con.execute(
                f"SELECT value FROM ({lake.relation_sql('raw/metrics')}) ORDER BY 1"
            ).fetchall()
        ]


@pytest.mark.parametrize("table", SCHEMAS)
def test_an_absent_table_is_an_empty_relation_with_its_types(lake: Lake, table: str) -> None:
    with connect() as con:
        name = lake.view(con, table)
        described = {r[0]: r[1] for r in con.execute(f"DESCRIBE {name}").fetchall()}
        assert con.execute(f"SELECT count(*) FROM {name}").fetchall() == [(0,)]
    assert described == {**SCHEMAS[table], "date": "DATE"}


def test_a_column_that_older_files_lack_is_null(lake: Lake) -> None:
    put(lake, "new", [1.0])
    with connect() as con:
        lake.write(
            con,
            "SELECT TIMESTAMP '2026-03-28 01:00:00' AS ts, 2::FLOAT AS value",
            Path("raw/metrics/date=2026-03-28/old.parquet"),
        )
        name = lake.view(con, "raw/metrics")
        rows = con.execute(f"SELECT date, value, target FROM {name} ORDER BY date").fetchall()
    assert rows == [(date(2026, 3, 28), 2.0, None), (DAY, 1.0, "engine")]


def test_only_the_dates_asked_for_are_listed(lake: Lake) -> None:
    for n in range(3):
        put(lake, "f", [1.0], DAY + timedelta(days=n))
    assert lake.dates("raw/metrics") == [DAY, DAY + timedelta(days=1), DAY + timedelta(days=2)]
    found = lake.files("raw/metrics", since=DAY + timedelta(days=1), until=DAY + timedelta(days=2))
    assert [p.parent.name for p in found] == ["date=2026-03-30"]
    assert lake.size("raw/metrics").files == 3


def test_a_failed_write_leaves_the_old_file_and_no_temporary_one(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(lake, "f", [1.0])
    before = path.read_bytes()
    monkeypatch.setattr(lake_module, "sync", _no_space)
    with pytest.raises(OSError, match="no space"):
        put(lake, "f", [2.0, 3.0])
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == ["f.parquet"]


def _no_space(_: Path) -> None:
    raise OSError("no space")


def test_a_query_that_fails_half_way_writes_nothing(lake: Lake) -> None:
    with connect() as con, pytest.raises(Exception, match="Conversion"):
        lake.write(
            con,
            "SELECT (CASE WHEN i = 900000 THEN 'x' ELSE '1' END)::INT FROM range(1000000) t(i)",
            Path("raw/metrics/date=2026-03-29/f.parquet"),
        )
    assert lake.files("raw/metrics") == []
    assert not list((lake.root / "raw/metrics/date=2026-03-29").iterdir())


def test_compaction_keeps_every_row_once(lake: Lake) -> None:
    for n in range(5):
        put(lake, f"f{n}", [float(n), float(n)])
    put(lake, "again", [4.0, 4.0])  # a sample collected twice
    expected = sorted([float(n) for n in range(5)] * 2)
    with connect() as con:
        assert lake.compact(con, "raw/metrics", DAY) == 6
        assert lake.compact(con, "raw/metrics", DAY) == 0
    assert len(lake.files("raw/metrics")) == 1
    assert values(lake) == expected


@pytest.mark.parametrize("crash", ["before the rename", "after the rename", "between removals"])
def test_a_crash_in_compaction_neither_loses_nor_repeats(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, crash: str
) -> None:
    for n in range(3):
        put(lake, f"f{n}", [float(n)])
    folder = lake.root / f"raw/metrics/date={DAY}"
    with monkeypatch.context() as patch:
        if crash == "before the rename":
            patch.setattr(Lake, "write", _killed)
        else:
            patch.setattr(
                lake_module,
                "finish_compaction",
                lambda f: None if not (f / ".compaction.json").exists() else _killed(),
            )
        with connect() as con, pytest.raises(KeyboardInterrupt):
            lake.compact(con, "raw/metrics", DAY)
    if crash == "between removals":
        (folder / "f0.parquet").unlink()
    assert values(lake) == [0.0, 1.0, 2.0]
    put(lake, "late", [3.0])
    assert values(lake) == [0.0, 1.0, 2.0, 3.0]
    with connect() as con:
        assert lake.compact(con, "raw/metrics", DAY) > 0
    assert values(lake) == [0.0, 1.0, 2.0, 3.0]
    assert [p.suffix for p in folder.iterdir()] == [".parquet"]


def _killed(*_: Any, **__: Any) -> int:
    raise KeyboardInterrupt


def test_a_damaged_journal_hides_nothing(lake: Lake) -> None:
    path = put(lake, "f", [1.0])
    (path.parent / ".compaction.json").write_text("{")
    assert values(lake) == [1.0]
    finish_compaction(path.parent)


def test_state_is_replaced_whole_and_damage_is_explained(lake: Lake) -> None:
    assert lake.read_state("events") == {}
    lake.write_state("events", {"entries": 1})
    lake.write_state("events", {"entries": 2})
    assert lake.read_state("events") == {"entries": 2}
    (lake.root / "state" / "events.json").write_text("{")
    with pytest.raises(ConfigError, match=r"events\.json cannot be read"):
        lake.read_state("events")


def test_only_old_temporary_files_are_swept(lake: Lake) -> None:
    path = put(lake, "f", [1.0])
    old, new = path.with_name(".f.parquet.0a.tmp"), path.with_name(".g.parquet.0b.tmp")
    for left in (old, new):
        left.write_bytes(b"half a file")
    os.utime(old, (0, 0))
    assert lake.sweep() == 1
    assert sorted(p.name for p in path.parent.iterdir()) == [new.name, path.name]


def test_a_lake_that_cannot_be_written_is_a_settings_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        Lake(tmp_path / "file" / "lake").prepare()


def test_a_second_writer_is_refused_with_the_holders_name(lake: Lake) -> None:
    with writer_lock(lake.root, "run"):
        refused = pytest.raises(LockHeldError, match=rf"'run' \(process {os.getpid()} on ")
        with refused as caught, writer_lock(lake.root, "compact"):
            pass
        assert caught.value.exit_code is ExitCode.UNREACHABLE
        who = runlock.holder(lake.root)
        assert who is not None
        assert who["name"] == "run"
    assert runlock.holder(lake.root) is None
    with writer_lock(lake.root, "run"):
        pass


def _hold(root: str, ready: Any) -> None:
    with writer_lock(Path(root), "run"):
        ready.send(True)
        signal.pause()


def test_the_lock_of_a_killed_process_is_free(lake: Lake) -> None:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_hold, args=(str(lake.root), theirs))
    process.start()
    assert ours.poll(30)
    with pytest.raises(LockHeldError, match=f"process {process.pid} "), writer_lock(lake.root, "run"):
        pass
    process.kill()
    process.join()
    assert json.loads((lake.root / ".writer.lock").read_text())["pid"] == process.pid
    assert runlock.holder(lake.root) is None
    with writer_lock(lake.root, "run"):
        pass
