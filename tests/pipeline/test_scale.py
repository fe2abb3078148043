"""However the work is cut (buckets, days, parts), facts and sums come out the same."""

from __future__ import annotations

import random
import shutil
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pipeline import figures, publishing, run
from pipeline.lake import Lake
from pipeline.sql import binding, models
from pipeline.staging import Bucket, Limits
from tests.pipeline.sql.synthetic import MONDAY, Settings, event, metric, row, scenario, write

DAY = timedelta(days=1)
SMALL = Limits(bucket_records=7)


def traffic(seed: int, days: int = 4) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Sessions that cross days, records that disagree about their session, rows with and without ours."""
    rng = random.Random(seed)
    events: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    for n in range(60):
        session = rng.choice(["s1", "s2", "s3", "s4", None])
        at = MONDAY.replace(hour=0) + timedelta(seconds=rng.randrange(days * 86_400))
        final = event(
            f"e{n:03d}",
            at,
            session_key=session,
            user_hash=f"u-{session}",
            agent_id=rng.choice(["main", "main", "sub"]),
            initiator=rng.choice(["user", "agent", "auxiliary", "compaction"]),
            outcome=rng.choice(["success", "success", "failure", "rejected"]),
            model_group=rng.choice(["coder-large", "coder-small"]),
            input_tokens=rng.choice([None, 500, 20_000, 90_000]),
            cached_tokens=None,
            turn_id=rng.choice([None, f"t{n // 6}"]),
            shared_bytes=rng.choice([0, 1000]),
            prefix_steps=rng.choice(["[]", "[[5.0, 800], [900.0, 1000]]", "no list"]),
            litellm_call_id=f"lid-{n}",
            duration_ms=rng.choice([None, 800.0, 400_000.0]),
        )
        events.append(final)
        if rng.random() < 0.5:
            known = rng.choice([session, "s1", None])
            events.append(
                {
                    k: v
                    for k, v in final.items()
                    if k not in {"duration_ms", "ended_us", "session_key", "client"}
                }
                | {"stage": "open", "outcome": "open"}
                | ({"session_key": known} if known else {})
            )
        if rng.random() < 0.5:
            late = (at + timedelta(minutes=rng.choice([0, 20]))).isoformat()
            told = rng.choice(["ours", "none"])
            rows.append(row(final, start_time=late, **({} if told == "ours" else {"aw": None})))
    for n in range(5):  # calls known from their rows alone
        at = MONDAY + timedelta(hours=rng.randrange(days * 24 - 9))
        rows.append(row(event(f"r{n}", at, session_key=rng.choice(["s1", "s5"]))))
    return events, rows


def content(lake: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every relation of facts, in an order of its own."""
    con = run.connect(lake)
    try:
        found = {}
        for relation in binding.FACTS:
            binding.bind_fact(con, relation, binding.files(lake, binding.FACTS[relation]))
            found[relation] = con.execute(f"SELECT * FROM {relation} ORDER BY ALL").fetchall()
    finally:
        con.close()
    return found


def published(lake: Path, name: str, keys: str, sums: str) -> dict[tuple[Any, ...], tuple[float, ...]]:
    """Sums of a published mart over all of its parts."""
    con = run.connect(lake)
    try:
        files = binding.parquet(binding.files(lake, f"marts/{name}"))
        wanted = ", ".join(f"SUM({s})" for s in sums.split(", "))
        rows = con.execute(f"SELECT {keys}, {wanted} FROM {files} GROUP BY {keys}").fetchall()
    finally:
        con.close()
    return _split(rows, keys)


def one_shot(lake: Path, name: str, keys: str, sums: str, settings: Settings) -> dict[tuple[Any, ...], Any]:
    """The same sums of the mart over the whole lake at once."""
    con = run.connect(lake)
    try:
        assert figures.bind(con, lake, settings) is not None
        wanted = ", ".join(f"SUM({s})" for s in sums.split(", "))
        rows = con.execute(f"SELECT {keys}, {wanted} FROM mart_{name} GROUP BY {keys}").fetchall()
    finally:
        con.close()
    return _split(rows, keys)


def _split(rows: list[tuple[Any, ...]], keys: str) -> dict[tuple[Any, ...], tuple[float, ...]]:
    width = len(keys.split(", "))
    return {r[:width]: r[width:] for r in rows}


@pytest.mark.parametrize("seed", range(4))
def test_many_buckets_give_the_facts_of_one(tmp_path: Path, seed: int) -> None:
    events, rows = traffic(seed)
    for name, limits in (("one", Limits()), ("many", SMALL)):
        write(tmp_path / name, "raw_event", events)
        write(tmp_path / name, "raw_spend_log", rows)
        result = run.build(tmp_path / name, Settings(retentions_s=(300.0, 60.0)), marts=False, limits=limits)
        assert result.calls >= 60
        assert not (tmp_path / name / ".spill" / "buckets").exists()
    assert content(tmp_path / "one") == content(tmp_path / "many")
    one, many = (run.last_audits(tmp_path / n) for n in ("one", "many"))
    assert one == many


def test_a_column_of_events_that_is_not_kept_in_memory_is_an_error_and_no_null(tmp_path: Path) -> None:
    write(tmp_path, "raw_event", [event("a", MONDAY, tool_ms=5.0)])
    con = run.connect(tmp_path)
    try:
        bucket = Bucket(0, 1, binding.raw_query("raw_event", binding.files(tmp_path, "raw/events")))
        bucket.keep(con)
        bucket.bind_kept(con)
        assert con.execute("SELECT event_id FROM raw_event").fetchall() == [("a",)]
        with pytest.raises(duckdb.Error, match="tool_ms is not kept"):
            con.execute("SELECT tool_ms FROM raw_event").fetchall()
        bucket.bind_all(con)
        assert con.execute("SELECT tool_ms FROM raw_event").fetchall() == [(5.0,)]
    finally:
        con.close()


@pytest.mark.parametrize("limits", [Limits(), SMALL], ids=["one bucket", "many buckets"])
@pytest.mark.parametrize("seed", range(2))
def test_days_one_after_the_other_give_what_all_at_once_give(
    tmp_path: Path, seed: int, limits: Limits
) -> None:
    events, rows = traffic(seed)
    write(tmp_path / "once", "raw_event", events)
    write(tmp_path / "once", "raw_spend_log", rows)
    run.build(tmp_path / "once", Settings())
    steps = tmp_path / "steps"
    days = sorted({p.parent.name for p in (tmp_path / "once" / "raw").rglob("*.parquet")})
    # One day comes late, after the days that follow it.
    for day in [*days[:1], *days[2:], days[1]]:
        for table in ("events", "spend_logs"):
            source = tmp_path / "once" / "raw" / table / day
            if source.exists():
                shutil.copytree(source, steps / "raw" / table / day)
        run.build(steps, Settings(), limits=limits)
    assert content(steps) == content(tmp_path / "once")
    for name, keys, sums in SUMS:
        whole = published(tmp_path / "once", name, keys, sums)
        assert published(steps, name, keys, sums) == {k: pytest.approx(v) for k, v in whole.items()}


SUMS = (
    ("call_day", "day, client, outcome, initiator", "calls, engine_calls, input_tokens, output_tokens"),
    ("prompt_bucket", "day, model_group, bucket", "calls, input_tokens"),
    ("potential", "hour, retention, category", "calls, input_tokens, potential_tokens"),
    ("realised", "hour, category, idle_bin", "calls, input_tokens"),
    ("human_hour", "scope, scope_value, user_key, business_day, idle_cap_s", "human_hours"),
    ("in_turn", "business_day, team_id, profile, tool_cap", "calls, in_turn_hours"),
    ("concurrency_level", "hour_start, calls_in_flight", "seconds"),
    ("call_sum", "day, client, profile", "calls, engine_calls, input_tokens"),
    ("coverage", "day, route, source", "calls, ended_calls"),
)


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata"])
@pytest.mark.parametrize(("name", "keys", "sums"), SUMS, ids=[s[0] for s in SUMS])
def test_parts_add_up_to_the_mart_of_the_whole_lake(
    tmp_path: Path, name: str, keys: str, sums: str, zone: str
) -> None:
    events, rows = traffic(5)
    write(tmp_path, "raw_event", [e | {"response_cache_hit": False} for e in events])
    write(tmp_path, "raw_spend_log", rows)
    settings = Settings(business_time_zone=zone)
    run.build(tmp_path, settings)
    whole = one_shot(tmp_path, name, keys, sums, settings)
    found = published(tmp_path, name, keys, sums)
    assert whole
    if name == "concurrency_level":  # hours before the first and after the last call are nobody's
        whole = {k: v for k, v in whole.items() if k[1] > 0}
        found = {k: v for k, v in found.items() if k[1] > 0}
    assert found == {k: pytest.approx(v, nan_ok=True) for k, v in whole.items()}


def test_a_new_day_builds_the_parts_that_it_touches_and_no_others(tmp_path: Path) -> None:
    first = [event(f"a{n}", MONDAY + n * DAY, session_key=f"s{n}") for n in range(8)]
    write(tmp_path, "raw_event", first)
    assert len(run.build(tmp_path, Settings()).parts) == 8
    assert run.build(tmp_path, Settings()).parts == ()
    write(tmp_path, "raw_event", [event("new", MONDAY + 8 * DAY, session_key="s8")], name="new")
    result = run.build(tmp_path, Settings())
    assert result.days == (date(2026, 3, 10),)
    assert result.parts == (date(2026, 3, 9), date(2026, 3, 10))


def test_metrics_build_the_parts_of_their_days_again(tmp_path: Path) -> None:
    write(tmp_path, "raw_event", [event(f"a{n}", MONDAY + n * DAY, session_key=f"s{n}") for n in range(6)])
    run.build(tmp_path, Settings())
    write(tmp_path, "raw_metric", [metric(MONDAY, "vllm:num_requests_waiting", 1)])
    assert run.build(tmp_path, Settings()).parts == (date(2026, 3, 2), date(2026, 3, 3))


def test_parts_of_days_that_are_gone_go_with_them(tmp_path: Path) -> None:
    write(tmp_path, "raw_event", [event("a", MONDAY), event("z", MONDAY + 3 * DAY, session_key="s2")])
    run.build(tmp_path, Settings())
    shutil.rmtree(tmp_path / "raw/events/date=2026-03-05")
    run.build(tmp_path, Settings())
    assert [p.parent.name for p in binding.files(tmp_path, "marts/call_day")] == ["date=2026-03-02"]


def test_files_of_no_day_are_named_and_the_rest_is_built(tmp_path: Path) -> None:
    scenario(tmp_path)
    for name in ("date=unknown", "elsewhere"):
        folder = tmp_path / "raw/events" / name
        shutil.copytree(tmp_path / "raw/events/date=2026-03-02", folder)
    result = run.build(tmp_path, Settings())
    assert result.calls == 50
    found = next(a for a in result.audits if a.name == "stray_folder")
    assert (found.rows, found.samples, found.failed) == (
        2, ("raw/events/date=unknown", "raw/events/elsewhere"), False,
    )  # fmt: skip
    shutil.rmtree(tmp_path / "raw/events/date=unknown")
    shutil.rmtree(tmp_path / "raw/events/elsewhere")
    assert "stray_folder" not in {a.name for a in run.build(tmp_path, Settings()).audits}


def test_a_replacement_cut_short_shows_the_old_files_and_leaves_none_behind(tmp_path: Path) -> None:
    lake, folder = Lake(tmp_path), Path("facts/call/date=2026-03-02")
    (tmp_path / folder).mkdir(parents=True)
    for name in ("old.parquet", "new-0.parquet"):
        (tmp_path / folder / name).touch()
    (tmp_path / folder / ".compaction.json").write_text(
        '{"output": "new-1.parquet", "outputs": ["new-0.parquet", "new-1.parquet"], '
        '"inputs": ["old.parquet"]}',
        encoding="utf-8",
    )
    assert [p.name for p in lake.day_files("facts/call", date(2026, 3, 2))] == ["old.parquet"]
    (tmp_path / folder / "new-1.parquet").touch()
    assert [p.name for p in lake.day_files("facts/call", date(2026, 3, 2))] == [
        "new-0.parquet",
        "new-1.parquet",
    ]


def test_only_what_is_published_and_what_it_is_made_of_is_built() -> None:
    names = publishing.needed()
    assert set(models.PUBLISHED) <= set(names)
    assert "mart_burst" in names
    assert "mart_agent_gap" not in names


def test_a_mart_that_looks_beside_its_days_is_told_from_one_that_keeps_to_them() -> None:
    assert {n for n in publishing.needed() if publishing.looks_beside(n)} == {
        "mart_burst", "mart_concurrency_level", "mart_turn_conformity", "mart_agent_interval",
        "mart_pooled_hour",
    }  # fmt: skip
