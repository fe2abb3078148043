"""A dry run names the days that the run after it builds, says why, and leaves no trace."""

from __future__ import annotations

import hashlib
import json
from datetime import timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipeline import preview, run
from pipeline.cli import app
from pipeline.preview import Preview, Step
from pipeline.staging import Limits
from tests.pipeline.sql.synthetic import MONDAY, Settings, event, row, session, write

DAY = timedelta(days=1)


def content(root: Path) -> dict[str, tuple[str, int]]:
    """Every file and folder below *root*, with a digest of its bytes and the instant of its last change."""
    return {
        str(p.relative_to(root)): (
            hashlib.sha256(p.read_bytes()).hexdigest() if p.is_file() else "folder", p.stat().st_mtime_ns,
        )
        for p in sorted(root.rglob("*"))
    }  # fmt: skip


def look(lake: Path, settings: Settings | None = None, **options: object) -> Preview:
    """Preview *lake* and prove that it stayed as it was."""
    before = content(lake)
    found = preview.of_lake(lake, settings or Settings(), **options)  # type: ignore[arg-type]
    assert content(lake) == before
    return found


def days(found: Preview, action: str) -> list[str]:
    return [s.name for s in found.steps if s.action == action]


def step(found: Preview, name: str, stage: str = "facts") -> Step:
    return next(s for s in found.steps if (s.stage, s.name) == (stage, name))


def foretold(lake: Path, settings: Settings | None = None) -> Preview:
    """Preview, then run, and prove that the run built what was said and nothing else.

    A day whose sessions come out as they were is named and not written.
    """
    found = look(lake, settings)
    result = run.build(lake, settings or Settings())
    built, parts = ({d.isoformat() for d in some} for some in (result.days, result.parts))
    assert set(days(found, "build")) <= built <= {*days(found, "build"), *days(found, "repair")}
    assert parts <= set(days(found, "publish"))
    if not days(found, "repair"):
        assert parts == set(days(found, "publish"))
    assert look(lake, settings).steps == ()
    return found


@pytest.fixture
def week(tmp_path: Path) -> Path:
    """A built lake of three days; session ``long`` lies on the first and the last of four."""
    write(
        tmp_path,
        "raw_event",
        [*session("one", MONDAY, turns=2, calls=3), event("l1", MONDAY, session_key="long")],
    )
    write(tmp_path, "raw_event", session("two", MONDAY + DAY, turns=1, calls=2), name="b")
    write(tmp_path, "raw_event", [event("l2", MONDAY + 4 * DAY, session_key="long")], name="c")
    run.build(tmp_path, Settings())
    return tmp_path


def test_a_first_run_builds_every_day_from_all_its_records(tmp_path: Path) -> None:
    write(tmp_path, "raw_event", session("one", MONDAY, turns=2, calls=3))
    write(tmp_path, "raw_spend_log", [row(event("r", MONDAY + DAY))])
    found = foretold(tmp_path)
    assert days(found, "build") == ["2026-03-02", "2026-03-03"]
    first = step(found, "2026-03-02")
    path = next((tmp_path / "raw/events/date=2026-03-02").glob("*.parquet"))
    assert (first.why, first.files, first.records, first.bytes) == ("first run", 1, 6, path.stat().st_size)
    assert found.buckets == 1


def test_late_records_build_their_day_and_repair_those_that_their_sessions_reach(week: Path) -> None:
    write(week, "raw_event", [event("l3", MONDAY + timedelta(hours=3), session_key="long")], name="late")
    found = foretold(week)
    assert (days(found, "build"), days(found, "repair")) == (["2026-03-02"], ["2026-03-06"])
    assert step(found, "2026-03-02").why == "late or changed records in 1 file"
    assert step(found, "2026-03-06").why == "sessions with new records reach into it"
    assert step(found, "2026-03-03").action == "read"
    assert step(found, "2026-03-02", "marts").why == "facts that it reads are built anew"


def test_a_session_that_reaches_into_a_neighbouring_day_repairs_it(week: Path) -> None:
    write(week, "raw_event", [event("t1", MONDAY + 2 * DAY, session_key="two")], name="new")
    found = foretold(week)
    assert (days(found, "build"), days(found, "repair")) == (["2026-03-04"], ["2026-03-03"])
    assert step(found, "2026-03-04").why == "new records in 1 file"


def test_a_ledger_row_builds_the_day_before_it_too(week: Path) -> None:
    write(week, "raw_spend_log", [row(event("r", MONDAY + DAY))], name="rows")
    found = foretold(week)
    assert days(found, "build") == ["2026-03-02", "2026-03-03"]
    assert step(found, "2026-03-02").why == "ledger rows of its calls may lie on the day after"


def test_other_settings_and_vanished_files_build_everything_and_say_so(week: Path) -> None:
    changed = look(week, Settings(visit_gap_s=60.0))
    assert {s.why for s in changed.steps if s.stage == "facts"} == {"settings or models changed"}
    next((week / "raw/events/date=2026-03-03").glob("*.parquet")).unlink()
    found = foretold(week)
    assert {s.why for s in found.steps if s.action == "build"} == {"raw files vanished"}
    assert days(found, "drop") == ["2026-03-03"]


def test_settings_of_the_marts_alone_publish_parts_and_build_no_day(week: Path) -> None:
    found = foretold(week, Settings(idle_caps_s=(60.0,)))
    assert {(s.stage, s.action, s.why) for s in found.steps} == {
        ("marts", "publish", "facts, metrics, settings or models changed")
    }


def test_days_outside_the_window_are_read_and_not_built(week: Path) -> None:
    write(week, "raw_event", [event("l3", MONDAY + timedelta(hours=3), session_key="long")], name="late")
    found = look(week, until=(MONDAY + DAY).date())
    assert days(found, "build") == ["2026-03-02"]
    assert step(found, "2026-03-06").why.endswith("outside --since and --until")


def test_many_records_are_cut_into_buckets(week: Path) -> None:
    assert look(week, Settings(visit_gap_s=60.0), limits=Limits(bucket_records=4)).buckets == 3


# -- the command


def invoke(lake: Path, *arguments: str) -> tuple[int, list[dict[str, object]], str]:
    result = CliRunner().invoke(
        app, ["run", "--offline", "--dry-run", "--lake", str(lake), "--format", "jsonl", *arguments]
    )
    return result.exit_code, [json.loads(line) for line in result.stdout.splitlines()], result.stderr


def test_the_command_prints_the_steps_and_leaves_the_lake_byte_for_byte_as_it_was(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    write(lake, "raw_event", session("one", MONDAY, turns=2, calls=3))
    before = content(tmp_path)
    code, rows, said = invoke(lake)
    assert (code, content(tmp_path)) == (0, before)
    assert [(r["stage"], r["name"], r["action"], r["records"]) for r in rows] == [
        ("facts", "2026-03-02", "build", 6), ("marts", "2026-03-02", "publish", None),
    ]  # fmt: skip
    assert (
        "Facts: 1 days to build, 0 to repair, 0 to drop, in about 1 bucket of sessions; 6 raw records" in said
    )
    assert "Marts: 1 parts to publish." in said


def test_the_command_makes_no_lake_and_has_nothing_to_do_without_one(tmp_path: Path) -> None:
    assert invoke(tmp_path / "none") == (
        0, [], "Nothing to do: no source to read, and facts and marts are up to date.\n",
    )  # fmt: skip
    assert not (tmp_path / "none").exists()
