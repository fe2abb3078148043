"""Removal of old dates: whole dates, under the lock, with the memory of builds and imports kept true."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pipeline import figures, importing, retention, run
from pipeline.errors import LockHeldError
from pipeline.lake import Lake, connect
from pipeline.runlock import writer_lock
from pipeline.settings import Settings
from tests.pipeline.sql.synthetic import MONDAY, event, write

TODAY = MONDAY.date() + timedelta(days=3)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A built lake with four days of one call each, sessions of their own."""
    made = Settings(lake=tmp_path / "lake")
    for n in range(4):
        at = MONDAY + timedelta(days=n)
        write(made.lake, "raw_event", [event(f"e{n}", at, session_key=f"s{n}", initiator="user")])
    run.build(made.lake, made)
    return made


def tree(root: Path) -> set[str]:
    return {
        p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file() and p.name != ".writer.lock"
    }


def dates(settings: Settings, table: str) -> list[int]:
    return [d.day for d in Lake(settings.lake).dates(table)]


def test_dates_before_the_kept_days_go_from_every_layer(settings: Settings) -> None:
    report = retention.retain(settings, 2, today=TODAY)
    assert report.cutoff == date(2026, 3, 4)
    tables = {"raw/events", "facts/call", "facts/turn", "facts/session", "facts/potential"}
    assert {(r.table, r.date.day) for r in report.removed} == {(t, d) for t in tables for d in (2, 3)}
    assert all(r.files == 1 and r.bytes > 0 for r in report.removed)
    for table in tables:
        assert dates(settings, table) == [4, 5]
    assert not (settings.lake / ".trash").exists()


def test_marts_and_figures_hold_only_what_is_left(settings: Settings) -> None:
    retention.retain(settings, 1, today=TODAY)
    with connect() as con:
        path = str(settings.lake / "marts/call_day/*/part.parquet")
        assert con.execute("SELECT day, calls FROM read_parquet(?)", [path]).fetchall() == [(TODAY, 1)]
    assert figures.compute(settings.lake, settings).counts["calls"] == 1


def test_a_removal_makes_the_next_build_build_nothing(settings: Settings) -> None:
    retention.retain(settings, 2, today=TODAY)
    again = run.build(settings.lake, settings)
    assert (again.days, again.new_files) == ((), 0)


def test_a_dry_run_names_the_same_and_changes_nothing(settings: Settings) -> None:
    before = tree(settings.lake)
    named = retention.retain(settings, 2, dry_run=True, today=TODAY)
    assert tree(settings.lake) == before
    assert named.removed == retention.retain(settings, 2, today=TODAY).removed


def test_a_second_removal_finds_nothing(settings: Settings) -> None:
    retention.retain(settings, 2, today=TODAY)
    before = tree(settings.lake)
    assert retention.retain(settings, 2, today=TODAY).removed == []
    assert tree(settings.lake) == before


def test_nothing_goes_while_another_process_writes(settings: Settings) -> None:
    before = tree(settings.lake)
    with writer_lock(settings.lake, "run"), pytest.raises(LockHeldError, match="'run'"):
        retention.retain(settings, 1, today=TODAY)
    assert tree(settings.lake) == before


def test_a_lake_that_loses_everything_has_no_marts(settings: Settings) -> None:
    retention.retain(settings, 1, today=TODAY + timedelta(days=30))
    assert not any(name.startswith(("raw", "facts/call", "marts")) for name in tree(settings.lake))
    assert figures.compute(settings.lake, settings).reason == "the lake holds no call in the window"


@pytest.mark.parametrize("renames", [1, 2, 3, 5])
def test_a_crash_in_the_middle_is_completed_by_a_build_and_the_next_removal(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, renames: int
) -> None:
    real = Path.rename
    done: list[Path] = []

    def crash(self: Path, target: Path) -> Path:
        if self.name.startswith("date="):
            if len(done) == renames:
                raise OSError("power cut")
            done.append(self)
        return real(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", crash)
        with pytest.raises(OSError, match="power cut"):
            retention.retain(settings, 2, today=TODAY)
    run.build(settings.lake, settings)
    assert dates(settings, "facts/call") == dates(settings, "raw/events")
    retention.retain(settings, 2, today=TODAY)
    run.build(settings.lake, settings)
    assert dates(settings, "raw/events") == dates(settings, "facts/call") == [4, 5]
    assert not (settings.lake / ".trash").exists()


def test_an_imported_file_that_lost_dates_may_come_in_again(settings: Settings, tmp_path: Path) -> None:
    files: dict[str, Path] = {}
    for name, day in (("old", 2), ("new", 5)):
        files[name] = tmp_path / f"{name}.csv"
        files[name].write_text(f"started,input_tokens\n2026-03-0{day}T09:00:00,5\n", encoding="utf-8")
        importing.import_files(settings, [files[name]])
    report = retention.retain(settings, 2, today=TODAY)
    assert report.notices == ["1 imported files lost dates and may be imported again: old.csv."]
    again = importing.import_files(settings, list(files.values()))
    assert [f.status for f in again.files] == ["imported", "already imported"]


def test_folders_that_are_no_dates_stay(settings: Settings) -> None:
    other = settings.lake / "raw/events/date=unknown"
    other.mkdir()
    (other / "a.txt").touch()
    (settings.lake / "raw/mine").mkdir()
    retention.retain(settings, 1, today=TODAY)
    assert other.is_dir()
    assert (settings.lake / "raw/mine").is_dir()


def test_the_command_says_what_went(tmp_path: Path) -> None:
    now = datetime.now(UTC).replace(tzinfo=None)
    lake = tmp_path / "lake"
    write(lake, "raw_event", [event("old", now - timedelta(days=9)), event("new", now)])

    def command(*options: str) -> list[dict[str, Any]]:
        done = subprocess.run(
            [sys.executable, "-m", "pipeline.cli", "retention", "--lake", str(lake), *options],
            cwd=Path(__file__).resolve().parents[2],
            capture_output=True,
            text=True,
            check=True,
        )
        return [json.loads(line) for line in done.stdout.splitlines()]

    named = command("--keep-days", "7", "--dry-run")
    assert [(r["table"], r["date"]) for r in named] == [
        ("raw/events", (now - timedelta(days=9)).date().isoformat())
    ]
    assert command("--keep-days", "7") == named
    assert command("--keep-days", "7") == []
