"""The export to PostgreSQL, against a real server: what is written, replaced, refused and left alone."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from deploy.local.services import PostgresService
from pipeline import export as exporting
from pipeline import figures, run
from pipeline.errors import ConfigError, UnreachableError
from pipeline.export import Period
from pipeline.export_tables import TABLES
from pipeline.settings import PowerSettings, Settings
from tests.pipeline.sql.synthetic import MONDAY, event, scenario, write

ROOT = Path(__file__).parents[2]
WEEK = Period(date(2026, 3, 2), date(2026, 3, 9))
_NUMBER = itertools.count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresService]:
    with pytest.MonkeyPatch.context() as environment:
        environment.delenv("DATABASE_URL", raising=False)
        with PostgresService(tmp_path_factory.mktemp("postgres")) as service:
            yield service


@pytest.fixture
def url(server: PostgresService) -> Iterator[str]:
    name = f"export_{next(_NUMBER)}"
    yield server.create_database(name)
    server.drop_database(name)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lake = tmp_path_factory.mktemp("lake")
    scenario(lake)
    run.build(lake, settings_of(lake))
    return lake


def settings_of(lake: Path, **changes: Any) -> Settings:
    return Settings(lake=lake, power=PowerSettings(presets=["dcgm"]), **changes)


def rows(url: str, table: str, schema: str = "agentwatt") -> list[dict[str, Any]]:
    async def ask() -> list[dict[str, Any]]:
        connection = await asyncpg.connect(url)
        try:
            return [
                dict(r) for r in await connection.fetch(f"SELECT * FROM {schema}.{table} ORDER BY 1, 2, 3")
            ]
        finally:
            await connection.close()

    return asyncio.run(ask())


def execute(url: str, sql: str) -> None:
    async def tell() -> None:
        connection = await asyncpg.connect(url)
        try:
            await connection.execute(sql)
        finally:
            await connection.close()

    asyncio.run(tell())


def everything(url: str) -> dict[str, list[dict[str, Any]]]:
    """Every row but its time of export; floats to ten digits, since sums in parallel differ in the last."""
    found = {table.name: rows(url, table.name) for table in TABLES}
    for window in found["agentwatt_window"]:
        del window["exported_at"]

    def rounded(row: dict[str, Any]) -> dict[str, Any]:
        return {k: float(f"{v:.10g}") if isinstance(v, float) else v for k, v in row.items()}

    return {name: sorted(map(rounded, members), key=repr) for name, members in found.items()}


def test_the_figures_of_the_week_are_those_of_the_report(built: Path, url: str) -> None:
    exporting.export(settings_of(built), url, periods=[WEEK])
    computed = figures.compute(built, settings_of(built)).to_dict()
    stored = {(r["figure"], r["name"]): r["value"] for r in rows(url, "agentwatt_figure")}
    assert stored["calls_per_human_hour", "gaps up to 15 min"] == pytest.approx(
        computed["calls_per_human_hour"]["value"]["15 min"]
    )
    assert stored["prefix_hit", "realised"] == pytest.approx(computed["prefix_hit"]["value"]["realised"])
    assert stored["prompt_length", "P95"] == pytest.approx(computed["prompt_length"]["value"]["p95"])
    cells = {(r["boundary"], r["state"], r["tier"]): r for r in rows(url, "agentwatt_agents_per_mw")}
    for value in computed["agents_per_megawatt"]["values"]:
        cell = cells[value["boundary"], value["state"], value["tier"]]
        assert cell["value"] == pytest.approx(value["value"])
        assert cell["megawatt_hours"] == pytest.approx(value["megawatt_hours"])
        assert cell["coverage"] is not None
    assert cells


def test_daily_series_add_up_to_the_figures(built: Path, url: str) -> None:
    exporting.export(settings_of(built), url, periods=[WEEK])
    computed = figures.compute(built, settings_of(built)).to_dict()
    realised = rows(url, "agentwatt_realised_day")
    hit = sum(r["cached_tokens"] for r in realised) / sum(r["reporting_input_tokens"] for r in realised)
    assert hit == pytest.approx(computed["prefix_hit"]["value"]["realised"])
    calls = rows(url, "agentwatt_call_day")
    assert sum(r["calls"] for r in calls) == 4 * 5 + 2 * 3 + 3 * 4 + 6 + 2 * 3
    assert {r["day"] for r in calls} == {date(2026, 3, 2), date(2026, 3, 3)}
    energy = sum(r["megawatt_hours"] for r in rows(url, "agentwatt_energy_day"))
    assert energy == pytest.approx(
        computed["agents_per_megawatt"]["boundaries"][0]["megawatt_hours"], rel=0.01
    )
    hours = sum(r["human_hours"] for r in rows(url, "agentwatt_human_day") if r["idle_cap_s"] == 900)
    assert hours == pytest.approx(computed["calls_per_human_hour"]["values"][1]["human_hours"])
    lengths = rows(url, "agentwatt_prompt_day")
    assert sum(r["calls"] for r in lengths) == sum(r["engine_calls"] for r in calls)
    for row in lengths:
        mean = row["input_tokens"] / row["calls"]
        assert row["up_to_tokens"] / 2 * 0.98 <= mean <= row["up_to_tokens"] * 1.02, row


def test_tool_catalogues_are_summed_by_client_and_say_how_their_tokens_are_known(
    built: Path, url: str
) -> None:
    exporting.export(settings_of(built), url, periods=[WEEK])
    found = {row["client"]: row for row in rows(url, "agentwatt_catalogue")}
    assert set(found) == {"claude-code", "codex"}
    sent = found["claude-code"]
    # 20 calls with 40 tools in 64,000 bytes, four bytes a token: 16,000 tokens each, half for 20 tools.
    assert (sent["calls_with_tools"], sent["catalogues"], sent["source"]) == (20, 1, "estimated")
    assert sent["tokens_per_call"] == 16_000
    assert (sent["catalogue_tokens"], sent["saved_tokens"]) == (320_000, 160_000)
    assert found["codex"]["catalogue_tokens"] is None
    assert found["codex"]["source"] == "none"


def test_a_second_export_changes_nothing(built: Path, url: str) -> None:
    exporting.export(settings_of(built), url, periods=[WEEK])
    before = everything(url)
    exporting.export(settings_of(built), url, periods=[WEEK])
    assert everything(url) == before
    assert before["agentwatt_figure"]


def test_a_late_call_repairs_its_week_and_what_is_gone_goes(tmp_path: Path, url: str) -> None:
    lake = tmp_path / "lake"
    write(
        lake, "raw_event", [event("one", MONDAY, client="codex"), event("two", MONDAY + timedelta(hours=1))]
    )
    settings = settings_of(lake)
    run.build(lake, settings)
    exporting.export(settings, url, periods=[WEEK])
    assert "codex" in {r["client"] for r in rows(url, "agentwatt_call_day")}
    for path in lake.glob("raw/events/*/*.parquet"):
        path.unlink()
    write(
        lake,
        "raw_event",
        [event(f"e{n}", MONDAY + timedelta(minutes=n), client="opencode") for n in range(3)],
    )
    run.build(lake, settings)
    exporting.export(settings, url, periods=[WEEK])
    stored = rows(url, "agentwatt_call_day")
    assert {r["client"] for r in stored} == {"opencode"}
    assert sum(r["calls"] for r in stored) == 3
    assert rows(url, "agentwatt_window")[0]["calls"] == 3


def test_a_figure_that_cannot_be_computed_is_null_with_its_reason(tmp_path: Path, url: str) -> None:
    lake = tmp_path / "lake"
    write(lake, "raw_event", [event("one", MONDAY)])
    run.build(lake, settings_of(lake))
    exporting.export(settings_of(lake), url, periods=[WEEK])
    found = [r for r in rows(url, "agentwatt_figure") if r["figure"] == "agents_per_megawatt"]
    assert found
    assert all(r["value"] is None and r["reason"] for r in found)
    assert rows(url, "agentwatt_agents_per_mw") == []


def test_a_period_without_calls_leaves_a_window_with_the_reason(built: Path, url: str) -> None:
    empty = Period(date(2026, 3, 16), date(2026, 3, 23))
    exporting.export(settings_of(built), url, periods=[empty])
    (window,) = rows(url, "agentwatt_window")
    assert window["calls"] is None
    assert window["window_start"] is None
    assert window["notes"] == "the lake holds no call in the window"
    assert rows(url, "agentwatt_figure") == []


def test_without_a_period_the_newest_weeks_of_the_lake_are_exported(tmp_path: Path, url: str) -> None:
    lake = tmp_path / "lake"
    write(lake, "raw_event", [event(f"w{n}", MONDAY + timedelta(weeks=n)) for n in range(3)])
    settings = settings_of(lake)
    run.build(lake, settings)
    done = exporting.export(settings, url, weeks=2)
    assert [p.start for p in done.periods] == [date(2026, 3, 16), date(2026, 3, 9)]
    many = exporting.export(settings, url, weeks=50)
    assert [p.start for p in many.periods][-1] == date(2026, 3, 2)
    assert [r["calls"] for r in rows(url, "agentwatt_window")] == [1, 1, 1]


def test_weeks_are_cut_at_midnight_of_the_business_time_zone(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    sunday_evening_utc = MONDAY.replace(hour=23, minute=30) - timedelta(days=1)  # Monday 00:30 in Berlin
    write(
        lake,
        "raw_event",
        [event("a", sunday_evening_utc - timedelta(days=2)), event("b", sunday_evening_utc)],
    )
    settings = settings_of(lake, business_time_zone="Europe/Berlin")
    run.build(lake, settings)
    before = Period(WEEK.start - timedelta(days=7), WEEK.start)
    held = exporting.held_days(settings)
    assert held == (date(2026, 2, 28), date(2026, 3, 2))
    rows_of = {p: exporting.collect(settings, p, held) for p in (before, WEEK)}
    calls = {p.start: found["agentwatt_window"][0][5] for p, found in rows_of.items()}
    assert calls == {before.start: 1, WEEK.start: 1}


def test_no_row_holds_a_user_a_session_a_key_or_an_id(built: Path, url: str) -> None:
    exporting.export(settings_of(built), url, periods=[WEEK])
    names = {column for table in TABLES for column in table.columns}
    assert not {n for n in names if any(part in n for part in ("user", "session", "key", "hash", "team"))}
    text = json.dumps(everything(url), default=str)
    for identifier in ("u1", "u2", "s1-1-1", "s3-t1"):
        assert f'"{identifier}"' not in text


def test_every_table_says_what_its_rows_are(built: Path, url: str) -> None:
    exporting.export(settings_of(built), url, periods=[WEEK])

    async def comments() -> dict[str, str | None]:
        connection = await asyncpg.connect(url)
        try:
            found = await connection.fetch(
                "SELECT relname, obj_description(oid) AS text FROM pg_class "
                "WHERE relnamespace = 'agentwatt'::regnamespace AND relkind = 'r'"
            )
            return {r["relname"]: r["text"] for r in found}
        finally:
            await connection.close()

    known = asyncio.run(comments())
    assert {t.name: t.meaning for t in TABLES} == {k: v for k, v in known.items() if k != "agentwatt_version"}


def test_a_failure_in_the_middle_leaves_what_was_there(
    built: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    exporting.export(settings_of(built), url, periods=[WEEK])
    before = everything(url)
    collect = exporting.collect

    def broken(*arguments: Any, **options: Any) -> exporting.Rows:
        found = collect(*arguments, **options)
        found["agentwatt_engine_day"] = [(None,) * 7]  # its key may not be null
        return found

    monkeypatch.setattr(exporting, "collect", broken)
    with pytest.raises(UnreachableError):
        exporting.export(settings_of(built), url, periods=[WEEK])
    assert everything(url) == before


def test_a_role_without_create_can_use_tables_that_exist(
    built: Path, url: str, server: PostgresService
) -> None:
    exporting.export(settings_of(built), url, periods=[WEEK])
    execute(
        url,
        "CREATE ROLE writer LOGIN; GRANT USAGE ON SCHEMA agentwatt TO writer;"
        "GRANT SELECT, INSERT, DELETE ON ALL TABLES IN SCHEMA agentwatt TO writer",
    )
    try:
        as_writer = url.replace("postgres@", "writer@", 1)
        assert as_writer != url
        done = exporting.export(settings_of(built), as_writer, periods=[WEEK])
        assert done.rows["agentwatt_figure"] > 0
    finally:
        execute(url, "DROP OWNED BY writer; DROP ROLE writer")


def test_tables_of_another_version_are_left_alone(built: Path, url: str) -> None:
    exporting.export(settings_of(built), url, periods=[WEEK])
    execute(url, "UPDATE agentwatt.agentwatt_version SET version = 99")
    before = everything(url)
    with pytest.raises(ConfigError, match="version 99"):
        exporting.export(settings_of(built), url, periods=[WEEK])
    assert everything(url) == before


def test_two_exports_at_once_leave_one_set_of_rows(built: Path, url: str) -> None:
    found = exporting.collect(settings_of(built), WEEK, (date(2026, 3, 2), date(2026, 3, 3)))

    async def both() -> None:
        write_one = [exporting._write(settings_of(built), url, "agentwatt", [WEEK], found) for _ in range(4)]
        await asyncio.gather(*write_one)

    asyncio.run(both())
    assert len(rows(url, "agentwatt_figure")) == len(found["agentwatt_figure"])


@pytest.mark.parametrize("schema", ["public", "Agentwatt", "a b", "a;drop schema x", "", "1a"])
def test_a_schema_that_must_not_be_used_is_refused(schema: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        exporting.export(settings_of(tmp_path), "postgresql://nowhere/none", schema=schema)


def test_another_schema_is_made_and_used(built: Path, url: str) -> None:
    exporting.export(settings_of(built), url, periods=[WEEK], schema="figures_of_ours")
    assert rows(url, "agentwatt_figure", "figures_of_ours")


def test_a_lake_without_marts_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        exporting.export(settings_of(tmp_path), "postgresql://nowhere/none")
    assert "agentwatt run" in caught.value.next_step


# -- the command


def command(url: str | None, *arguments: str) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("AGENTWATT_", "COVERAGE"))}
    for name in ("REDIS_URL", "DATABASE_URL", "EXPORT_DATABASE_URL"):
        kept.pop(name, None)
    if url is not None:
        kept["EXPORT_DATABASE_URL"] = url
    return subprocess.run(
        [sys.executable, "-m", "pipeline.cli", "export", *arguments],
        env=kept, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def test_the_command_prints_rows_by_table_and_says_the_rest_on_stderr(built: Path, url: str) -> None:
    done = command(
        url, "--to", "postgres", "--lake", str(built), "--since", "2026-03-02", "--until", "2026-03-09"
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["table"] for line in lines] == [t.name for t in TABLES]
    assert "Exported 2026-03-02 to 2026-03-09" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("--to", "postgres"), 2, "EXPORT_DATABASE_URL"),
        (("--to", "mysql"), 2, "postgres"),
        (("--to", "postgres", "--url", "postgresql://x", "--since", "2026-03-02"), 2, "belong together"),
        (
            ("--to", "postgres", "--url", "postgresql://x", "--since", "2026-03-09", "--until", "2026-03-02"),
            2,
            "not before",
        ),
        (
            ("--to", "postgres", "--url", "postgresql://x", "--since", "monday", "--until", "2026-03-02"),
            2,
            "is no day",
        ),
    ],
)
def test_wrong_use_of_the_command_ends_with_code_2_and_says_why(
    arguments: tuple[str, ...], code: int, says: str
) -> None:
    done = command(None, *arguments)
    assert done.returncode == code
    assert says in done.stderr
    assert done.stdout == ""


def test_a_database_that_is_not_there_ends_with_code_3_and_without_the_password(built: Path) -> None:
    done = command("postgresql://a:secret-word@127.0.0.1:9/x", "--to", "postgres", "--lake", str(built))
    assert done.returncode == 3
    assert "127.0.0.1" in done.stderr
    assert "secret-word" not in done.stderr
