"""Runs are incremental by day, idempotent, and a late record repairs every day its session touches."""

from __future__ import annotations

import shutil
from datetime import date, timedelta
from pathlib import Path

import pytest

from pipeline import run
from tests.pipeline.sql.synthetic import MONDAY, Settings, event, facts, metric, row, scenario, session, write

DAY = timedelta(days=1)


def state(lake: Path) -> dict[str, int]:
    """Each file of facts with the instant it was written."""
    return {str(p.relative_to(lake)): p.stat().st_mtime_ns for p in lake.glob("facts/*/date=*/*.parquet")}


def test_a_second_run_over_the_same_records_writes_no_day(tmp_path: Path) -> None:
    scenario(tmp_path)
    first = run.build(tmp_path, Settings())
    before = state(tmp_path)
    second = run.build(tmp_path, Settings())
    assert (first.calls, second.days, second.new_files) == (50, (), 0)
    assert state(tmp_path) == before
    assert second.audits == first.audits


def test_building_twice_from_scratch_gives_the_same_facts(tmp_path: Path) -> None:
    scenario(tmp_path)
    run.build(tmp_path, Settings())
    first = facts(tmp_path)
    shutil.rmtree(tmp_path / "facts")
    run.build(tmp_path, Settings())
    assert facts(tmp_path) == first


def test_days_one_after_the_other_give_the_same_facts_as_all_at_once(tmp_path: Path) -> None:
    events = [
        *session("s1", MONDAY + timedelta(hours=15, minutes=58), turns=3, calls=4),
        *session("s2", MONDAY + DAY, turns=2, calls=2),
        *session("s1", MONDAY + 2 * DAY, turns=1, calls=2),
    ]
    for n, e in enumerate(events):
        e["event_id"] = f"e{n:02d}"
    for e in events:
        write(tmp_path / "steps", "raw_event", [e], name=e["event_id"])
        run.build(tmp_path / "steps", Settings())
    write(tmp_path / "once", "raw_event", events)
    run.build(tmp_path / "once", Settings())
    for relation in ("fct_call", "fct_turn"):
        assert facts(tmp_path / "steps", relation) == facts(tmp_path / "once", relation)


def test_a_late_record_rebuilds_the_days_of_its_session_and_no_other(tmp_path: Path) -> None:
    write(
        tmp_path,
        "raw_event",
        [
            event("a1", MONDAY, initiator="user"),
            event("a2", MONDAY + 2 * DAY),
            event("b", MONDAY + 4 * DAY, session_key="s2", initiator="user"),
        ],
    )
    run.build(tmp_path, Settings())
    before = state(tmp_path)
    assert facts(tmp_path)["a2"]["turn_key"] == "call:a1"
    write(tmp_path, "raw_event", [event("late", MONDAY + timedelta(hours=1), initiator="user")], name="late")
    result = run.build(tmp_path, Settings())
    assert facts(tmp_path)["a2"]["turn_key"] == "call:late"
    changed = {n.split("date=")[1][:10] for n, at in state(tmp_path).items() if before.get(n) != at}
    assert changed == {"2026-03-02", "2026-03-04"}
    assert date(2026, 3, 6) not in result.days


def test_a_ledger_row_after_midnight_completes_the_call_before_it(tmp_path: Path) -> None:
    late = event("a", MONDAY.replace(hour=23, minute=59), litellm_call_id="lid", input_tokens=None)
    write(tmp_path, "raw_event", [late])
    run.build(tmp_path, Settings())
    after = (MONDAY.replace(hour=0) + DAY + timedelta(minutes=1)).isoformat()
    write(tmp_path, "raw_spend_log", [row(late, aw=None, start_time=after, usage_input=1234)])
    run.build(tmp_path, Settings())
    assert (facts(tmp_path)["a"]["source"], facts(tmp_path)["a"]["input_tokens"]) == ("both", 1234)


def test_merged_files_rebuild_their_day_alone(tmp_path: Path) -> None:
    write(tmp_path, "raw_event", [event("a", MONDAY)], name="one")
    write(tmp_path, "raw_event", [event("b", MONDAY + timedelta(minutes=1))], name="two")
    write(tmp_path, "raw_event", [event("z", MONDAY + 3 * DAY, session_key="s2")], name="other")
    run.build(tmp_path, Settings())
    folder = tmp_path / "raw/events/date=2026-03-02"
    write(
        tmp_path, "raw_event", [event("a", MONDAY), event("b", MONDAY + timedelta(minutes=1))], name="merged"
    )
    (folder / "one.parquet").unlink()
    (folder / "two.parquet").unlink()
    result = run.build(tmp_path, Settings())
    assert date(2026, 3, 5) not in result.days
    assert sorted(facts(tmp_path)) == ["a", "b", "z"]


def test_files_that_a_compaction_already_merged_are_not_read_twice(tmp_path: Path) -> None:
    write(tmp_path, "raw_event", [event("a", MONDAY, input_tokens=5)], name="old")
    write(tmp_path, "raw_event", [event("b", MONDAY + timedelta(minutes=1))], name="merged")
    journal = tmp_path / "raw/events/date=2026-03-02/.compaction.json"
    journal.write_text('{"output": "merged.parquet", "inputs": ["old.parquet"]}', encoding="utf-8")
    run.build(tmp_path, Settings())
    assert list(facts(tmp_path)) == ["b"]


def test_vanished_records_leave_no_facts_behind(tmp_path: Path) -> None:
    write(tmp_path, "raw_event", [event("a", MONDAY), event("z", MONDAY + 3 * DAY, session_key="s2")])
    run.build(tmp_path, Settings())
    shutil.rmtree(tmp_path / "raw/events/date=2026-03-05")
    run.build(tmp_path, Settings())
    assert list(facts(tmp_path)) == ["a"]


@pytest.mark.parametrize(
    ("changed", "rebuilt"),
    [
        (Settings(visit_gap_s=60), True),
        (Settings(service_keys=("k",)), True),
        (Settings(idle_caps_s=(60,)), False),
    ],
)
def test_only_conventions_that_facts_depend_on_rebuild_them(
    tmp_path: Path, changed: Settings, rebuilt: bool
) -> None:
    scenario(tmp_path)
    run.build(tmp_path, Settings())
    assert bool(run.build(tmp_path, changed).days) is rebuilt


def test_a_bounded_run_leaves_other_days_for_the_next_one(tmp_path: Path) -> None:
    write(tmp_path, "raw_event", [event("a", MONDAY), event("z", MONDAY + 3 * DAY, session_key="s2")])
    run.build(tmp_path, Settings(), since=date(2026, 3, 5))
    assert list(facts(tmp_path)) == ["z"]
    run.build(tmp_path, Settings(), until=date(2026, 3, 3))
    assert sorted(facts(tmp_path)) == ["a", "z"]


def test_a_damaged_manifest_means_everything_is_built_again(tmp_path: Path) -> None:
    scenario(tmp_path)
    first = run.build(tmp_path, Settings())
    (tmp_path / run.MANIFEST).write_text("{", encoding="utf-8")
    assert run.build(tmp_path, Settings()).calls == first.calls


def test_no_unfinished_file_stays_and_progress_names_each_stage(tmp_path: Path) -> None:
    scenario(tmp_path)
    stages: list[str] = []
    run.build(tmp_path, Settings(), progress=lambda stage, done, total: stages.append(stage))
    assert {"sessions", "stg_call", "fct_call", "facts", "audits", "marts"} <= set(stages)
    assert not list(tmp_path.rglob("*.tmp"))
    assert {p.parent.parent.name for p in (tmp_path / "marts").glob("*/date=*/part.parquet")} >= {
        "human_hour",
        "realised",
        "agent_hour",
    }


def test_an_empty_lake_builds_nothing(tmp_path: Path) -> None:
    result = run.build(tmp_path, Settings())
    assert (result.days, result.calls, result.marts) == ((), 0, ())


def test_audits_report_errors_with_ids(tmp_path: Path) -> None:
    write(tmp_path, "raw_event", [event("a", MONDAY, ttft_ms=9000, duration_ms=2000)])
    result = run.build(tmp_path, Settings())
    found = next(a for a in result.audits if a.name == "negative_duration")
    assert (found.rows, found.samples, found.failed) == (1, ("a",), False)
    assert result.failed_audits == ()


def test_marts_are_published_again_only_when_records_metrics_or_conventions_change(tmp_path: Path) -> None:
    scenario(tmp_path)
    assert run.build(tmp_path, Settings()).marts
    assert run.build(tmp_path, Settings()).marts == ()
    assert run.build(tmp_path, Settings(idle_caps_s=(60,))).marts
    write(tmp_path, "raw_metric", [metric(MONDAY, "vllm:num_requests_waiting", 1)], name="more")
    assert run.build(tmp_path, Settings(idle_caps_s=(60,))).marts
    write(tmp_path, "raw_event", [event("new", MONDAY)], name="more")
    assert run.build(tmp_path, Settings(idle_caps_s=(60,)), marts=False).marts == ()
    assert run.build(tmp_path, Settings(idle_caps_s=(60,))).marts
