"""Extraction of SpendLogs against a real PostgreSQL, over the table layouts that LiteLLM has had."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from pydantic import SecretStr

from gateway_plugin.hashing import Hasher
from pipeline.errors import ConfigError, UnreachableError
from pipeline.extract import spend_logs
from pipeline.extract.database import split_url
from pipeline.lake import Lake, connect
from pipeline.settings import Settings
from tests.pipeline.extract.conftest import (
    SPEND_LOGS_1_102,
    SPEND_LOGS_1_106,
    SPEND_LOGS_PARTITIONED,
    settings_for,
)

Database = tuple[asyncpg.Connection, str]
HASHER = Hasher(b"a secret of the tests")
NOON = datetime(2026, 3, 29, 12, 0)
METADATA = {
    "litellm_call_id": "call-from-metadata",
    "status": "success",
    "usage_object": {
        "prompt_tokens": 17000,
        "completion_tokens": 40,
        "prompt_tokens_details": {"cached_tokens": 16000, "cache_creation_tokens": 100},
    },
    "attempted_retries": 2,
    "error_information": {"error_class": "RateLimitError", "error_code": "429", "traceback": "secret text"},
    "spend_logs_metadata": {"agentwatt": {"event_id": "e-1", "initiator": "user", "prompt_bytes": 12}},
    "model_map_information": {"filler": "x" * 10_000},
}


async def insert(connection: asyncpg.Connection, request_id: str, **columns: Any) -> None:
    values: dict[str, Any] = {
        "request_id": request_id,
        "call_type": "acompletion",
        "api_key": "hash-of-key",
        "startTime": NOON,
        "endTime": NOON + timedelta(seconds=2),
        "end_user": "alice@corp.example",
        "metadata": METADATA,
        **columns,
    }
    if not isinstance(values["metadata"], str):
        values["metadata"] = json.dumps(values["metadata"])
    names = ", ".join(f'"{n}"' for n in values)
    marks = ", ".join(f"${i + 1}" for i in range(len(values)))
    await connection.execute(f'INSERT INTO "LiteLLM_SpendLogs" ({names}) VALUES ({marks})', *values.values())


def rows(lake: Lake, columns: str = "*", where: str = "true") -> list[dict[str, Any]]:
    with connect() as con:
        lake.view(con, "raw/spend_logs", "s")
        result = con.execute(f"SELECT {columns} FROM s WHERE {where} ORDER BY start_time, request_id")
        names = [d[0] for d in result.description or []]
        return [dict(zip(names, r, strict=True)) for r in result.fetchall()]


def texts_on_disk(folder: Path) -> bytes:
    return b"".join(p.read_bytes() for p in folder.rglob("*") if p.is_file())


@pytest.mark.parametrize("layout", [SPEND_LOGS_1_102, SPEND_LOGS_1_106, SPEND_LOGS_PARTITIONED])
async def test_every_layout_gives_the_same_typed_row(database: Database, lake: Lake, layout: str) -> None:
    connection, url = database
    await connection.execute(layout)
    await insert(
        connection,
        "chatcmpl-1",
        spend=0.0000125,
        prompt_tokens=17000,
        completion_tokens=40,
        total_tokens=17040,
        completionStartTime=NOON + timedelta(milliseconds=350),
        model="m",
        model_group="coder-large",
        custom_llm_provider="hosted_vllm",
        cache_hit="None",
        session_id="3f2b8c1e-0000-4000-8000-000000000001",
        status="success",
    )
    report = await spend_logs.extract(lake, settings_for(url))
    assert (report.rows_read, report.rows_written, report.missing_columns) == (1, 1, ())
    (row,) = rows(lake)
    aw = json.loads(row.pop("aw"))
    assert aw == {"event_id": "e-1", "initiator": "user", "prompt_bytes": 12}
    assert row.pop("extracted_at") <= datetime.now(UTC).replace(tzinfo=None)
    assert row == {
        "request_id": "chatcmpl-1",
        "litellm_call_id": "call-from-metadata",
        "call_type": "acompletion",
        "key_hash": "hash-of-key",
        "spend": Decimal("0.000012500"),
        "prompt_tokens": 17000,
        "completion_tokens": 40,
        "total_tokens": 17040,
        "start_time": NOON,
        "end_time": NOON + timedelta(seconds=2),
        "completion_start_time": NOON + timedelta(milliseconds=350),
        "model": "m",
        "model_id": None,
        "model_group": "coder-large",
        "provider": "hosted_vllm",
        "user_hash": HASHER.digest("user", "alice@corp.example"),
        "team_id": None,
        "row_session_id": "3f2b8c1e-0000-4000-8000-000000000001",
        "status": "success",
        "cache_hit": None,
        "usage_input": 17000,
        "usage_cached": 16000,
        "usage_cache_write": 100,
        "usage_output": 40,
        "attempted_retries": 2,
        "error_class": "RateLimitError",
        "error_code": "429",
        "date": date(2026, 3, 29),
    }


async def test_the_installed_releases_own_migrations_give_a_table_without_gaps(
    database: Database, lake: Lake
) -> None:
    spec = importlib.util.find_spec("litellm_proxy_extras")
    if spec is None or spec.origin is None:
        pytest.skip("the proxy's migrations are not installed")
    connection, url = database
    for script in sorted((Path(spec.origin).parent / "migrations").glob("*/migration.sql")):
        await connection.execute(script.read_text(encoding="utf-8"))
    await insert(connection, "r1", litellm_call_id="call-from-column")
    report = await spend_logs.extract(lake, settings_for(url))
    assert (report.missing_columns, report.repaired) == ((), {})
    (row,) = rows(lake)
    assert (row["litellm_call_id"], row["usage_cached"]) == ("call-from-column", 16000)


async def test_raw_identities_and_bodies_never_reach_the_disk(database: Database, lake: Lake) -> None:
    connection, url = database
    await connection.execute(SPEND_LOGS_1_106)
    await insert(connection, "r1", session_id="bob@corp.example", messages='[{"content": "the prompt"}]')
    await spend_logs.extract(lake, settings_for(url))
    stored = texts_on_disk(lake.root)
    for secret in (b"alice", b"bob@", b"the prompt", b"secret text"):
        assert secret not in stored
    (row,) = rows(lake)
    assert row["row_session_id"] == HASHER.keep_or_hash("bob@corp.example")


async def test_without_a_secret_the_user_is_null_and_counted(database: Database, lake: Lake) -> None:
    connection, url = database
    await connection.execute(SPEND_LOGS_1_106)
    await insert(connection, "r1")
    settings = settings_for(url).model_copy(update={"hash_secret": None})
    report = await spend_logs.extract(lake, settings)
    assert rows(lake)[0]["user_hash"] is None
    assert report.repaired["user_hash null: no hash_secret"] == 1


async def test_reading_again_replaces_rows_and_takes_late_ones(database: Database, lake: Lake) -> None:
    connection, url = database
    await connection.execute(SPEND_LOGS_1_106)
    settings = settings_for(url, page_rows=100, lateness_s=3600)
    for i in range(250):
        await insert(
            connection, f"r{i:03}", startTime=NOON + timedelta(seconds=i), endTime=NOON + timedelta(hours=1)
        )
    first = await spend_logs.extract(lake, settings)
    assert first.rows_read == 250
    await connection.execute(
        """UPDATE "LiteLLM_SpendLogs" SET status = 'failure' WHERE request_id = 'r249'"""
    )
    await insert(connection, "late", startTime=NOON - timedelta(minutes=10))
    await insert(connection, "too-late", startTime=NOON - timedelta(hours=3))
    await insert(connection, "next-day", startTime=NOON + timedelta(days=1), endTime=NOON + timedelta(days=1))
    second = await spend_logs.extract(lake, settings)
    assert second.rows_read == 252
    stored = rows(lake, "request_id, status")
    assert len(stored) == 252
    assert {r["request_id"] for r in stored} >= {"late", "next-day"}
    assert [r["status"] for r in stored if r["request_id"] == "r249"] == ["failure"]
    assert len(lake.files("raw/spend_logs")) == 2
    # An explicit start reaches what came after the lateness window had closed.
    await spend_logs.extract(lake, settings, since=date(2026, 3, 29), until=date(2026, 3, 30))
    assert len(rows(lake)) == 253
    assert lake.read_state("spend_logs")["watermark"] == ["2026-03-30T12:00:00", "next-day"]


async def test_an_extraction_loads_no_data_frames(database: Database, lake: Lake) -> None:
    connection, url = database
    await connection.execute(SPEND_LOGS_1_106)
    await insert(connection, "r1")
    await insert(connection, "odd", metadata='"no object"', end_user="o'hara")
    program = (
        "import asyncio, pathlib, sys\n"
        "from pydantic import SecretStr\n"
        "from pipeline.extract.spend_logs import extract\n"
        "from pipeline.lake import Lake\n"
        "from pipeline.settings import DatabaseSettings, Settings\n"
        "database = DatabaseSettings(url=SecretStr(sys.argv[1]))\n"
        "settings = Settings(hash_secret=SecretStr('s'), database=database)\n"
        "report = asyncio.run(extract(Lake(pathlib.Path(sys.argv[2])), settings))\n"
        "print(report.rows_written, sorted({'pandas', 'pyarrow', 'numpy'} & sys.modules.keys()))\n"
    )
    done = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, url, str(lake.root), stdout=asyncio.subprocess.PIPE
    )
    told, _ = await done.communicate()
    assert told.decode().strip() == "2 []"


async def test_complete_dates_are_written_while_later_ones_are_read(
    database: Database, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, url = database
    await connection.execute(SPEND_LOGS_1_106)
    for i in range(250):  # each of three dates begins within a page
        start = NOON + timedelta(minutes=12 * i)
        await insert(connection, f"r{i:03}", startTime=start, endTime=start)
    settings = settings_for(url, page_rows=100)
    monkeypatch.setattr("pipeline.extract.spend_logs._FLUSH_ROWS", 50)
    seen: list[tuple[int, int, Any]] = []

    def progress(report: spend_logs.ExtractReport) -> None:
        seen.append((report.rows_read, report.rows_written, lake.read_state("spend_logs").get("watermark")))

    whole = await spend_logs.extract(lake, settings, progress=progress)
    assert seen == [
        (100, 60, ["2026-03-30T00:00:00", ""]),
        (200, 180, ["2026-03-31T00:00:00", ""]),
        (250, 180, ["2026-03-31T00:00:00", ""]),
    ]
    assert (whole.rows_written, whole.rejected, len(whole.dates)) == (250, {}, 3)
    assert [r["request_id"] for r in rows(lake)] == [f"r{i:03}" for i in range(250)]
    assert lake.read_state("spend_logs")["watermark"][1] == "r249"


async def test_a_date_of_many_rows_is_written_before_all_of_it_was_read(
    database: Database, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, url = database
    await connection.execute(SPEND_LOGS_1_106)
    for i in range(250):
        await insert(connection, f"r{i:03}", startTime=NOON + timedelta(seconds=i))
    monkeypatch.setattr("pipeline.extract.spend_logs._DATE_ROWS", 200)
    written: list[int] = []
    await spend_logs.extract(
        lake, settings_for(url, page_rows=100), progress=lambda report: written.append(report.rows_written)
    )
    assert written == [0, 200, 200]
    assert [r["request_id"] for r in rows(lake)] == [f"r{i:03}" for i in range(250)]


async def test_a_window_after_a_gap_does_not_move_the_watermark(database: Database, lake: Lake) -> None:
    connection, url = database
    await connection.execute(SPEND_LOGS_1_106)
    await insert(connection, "a")
    await spend_logs.extract(lake, settings_for(url))
    await insert(connection, "b", startTime=NOON + timedelta(days=5), endTime=NOON + timedelta(days=5))
    await insert(connection, "c", startTime=NOON + timedelta(days=9), endTime=NOON + timedelta(days=9))
    await spend_logs.extract(lake, settings_for(url), since=date(2026, 4, 7))
    assert lake.read_state("spend_logs")["watermark"][1] == "a"
    await spend_logs.extract(lake, settings_for(url))
    assert [r["request_id"] for r in rows(lake)] == ["a", "b", "c"]


async def test_the_same_request_id_in_two_partitions_stays_two_rows(database: Database, lake: Lake) -> None:
    connection, url = database
    await connection.execute(SPEND_LOGS_PARTITIONED)
    await insert(connection, "None")
    await insert(connection, "None", startTime=NOON + timedelta(days=30), endTime=NOON + timedelta(days=31))
    await spend_logs.extract(lake, settings_for(url))
    assert len(rows(lake, where="request_id = 'None'")) == 2


@pytest.mark.parametrize(
    ("metadata", "cached"),
    [
        (json.dumps(json.dumps(METADATA)), 16000),  # a JSON string that holds JSON
        (json.dumps({**METADATA, "usage_object": json.dumps(METADATA["usage_object"])}), 16000),
        (json.dumps(json.dumps(METADATA).replace("17000", "NaN")), 16000),
        (json.dumps("not JSON at all"), None),
        ("null", None),
        ("[]", None),
        ('""', None),
        ("{}", None),
        (
            json.dumps({"usage_object": {"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 9}}}),
            None,
        ),
        (json.dumps({"usage_object": {"prompt_tokens": 5, "prompt_tokens_details": None}}), None),
        (json.dumps({"usage_object": {"prompt_tokens": "50", "cache_read_input_tokens": "7"}}), 7),
        (json.dumps({"usage_object": {"prompt_tokens": 5, "cache_read_input_tokens": 0}}), 0),
    ],
)
async def test_metadata_of_any_shape_gives_a_row(
    database: Database, lake: Lake, metadata: str, cached: int | None
) -> None:
    connection, url = database
    await connection.execute(SPEND_LOGS_1_106)
    await insert(connection, "r1", metadata=metadata)
    await spend_logs.extract(lake, settings_for(url))
    assert [r["usage_cached"] for r in rows(lake)] == [cached]


@pytest.mark.parametrize("kind", ["jsonb", "json"])
async def test_either_type_of_a_json_column_gives_the_same_rows(
    database: Database, lake: Lake, kind: str
) -> None:
    connection, url = database
    altered = f'ALTER TABLE "LiteLLM_SpendLogs" ALTER metadata DROP DEFAULT, ALTER metadata TYPE {kind};'
    await connection.execute(SPEND_LOGS_1_106 + altered)
    inner = {**METADATA, "spend_logs_metadata": json.dumps(METADATA["spend_logs_metadata"])}
    shapes = [METADATA, inner, json.dumps(json.dumps(METADATA)), [METADATA], "null", {}]
    for number, metadata in enumerate(shapes):
        value = metadata if isinstance(metadata, str) else json.dumps(metadata)
        await insert(connection, f"r{number}", metadata=value)
    await insert(connection, "r6")
    await connection.execute("""UPDATE "LiteLLM_SpendLogs" SET metadata = NULL WHERE request_id = 'r6'""")
    report = await spend_logs.extract(lake, settings_for(url))
    assert report.repaired == {"metadata double-encoded": 1}
    found = {r["request_id"]: r for r in rows(lake)}
    for name in ("r0", "r1", "r2"):
        assert json.loads(found[name]["aw"])["event_id"] == "e-1"
        told = ("litellm_call_id", "usage_cached", "attempted_retries", "error_class", "error_code")
        assert [found[name][t] for t in told] == ["call-from-metadata", 16000, 2, "RateLimitError", "429"]
    assert [found[f"r{n}"]["usage_input"] for n in range(3, 7)] == [None] * 4


async def test_our_object_survives_a_double_encoded_row(database: Database, lake: Lake) -> None:
    connection, url = database
    await connection.execute(SPEND_LOGS_1_106)
    inner = {**METADATA, "spend_logs_metadata": json.dumps(METADATA["spend_logs_metadata"])}
    await insert(connection, "a", metadata=json.dumps(json.dumps(METADATA)))
    await insert(connection, "b", metadata=inner)
    await insert(connection, "c", metadata={"spend_logs_metadata": {"team": "x"}})
    report = await spend_logs.extract(lake, settings_for(url))
    found = [json.loads(r["aw"])["event_id"] if r["aw"] else None for r in rows(lake)]
    assert found == ["e-1", "e-1", None]
    assert report.repaired["metadata double-encoded"] == 1


async def test_bad_values_are_nulled_or_set_aside_with_a_reason(database: Database, lake: Lake) -> None:
    connection, url = database
    await connection.execute(SPEND_LOGS_1_106)
    await insert(connection, "nan", spend=float("nan"), prompt_tokens=-5)
    await insert(connection, "zero-duration", endTime=NOON)
    await insert(connection, "backwards", endTime=NOON - timedelta(seconds=1))
    await insert(connection, "")
    await insert(connection, 'odd "quoted", id\nwith\r\nlines \\N')
    await insert(connection, "ancient", startTime=datetime(1970, 1, 1), endTime=datetime(1970, 1, 1))
    await insert(connection, "future", startTime=datetime(2999, 1, 1), endTime=datetime(2999, 1, 1))
    await connection.execute(
        """UPDATE "LiteLLM_SpendLogs" SET "endTime" = 'infinity' WHERE request_id = 'zero-duration'"""
    )
    report = await spend_logs.extract(lake, settings_for(url))
    assert report.rejected == {"missing request_id": 1, "start_time out of range": 2}
    assert report.repaired["spend not a finite number"] == 1
    assert report.repaired["token count negative or unreadable"] == 1
    assert report.repaired["end_time before start_time or unreadable"] == 2
    stored = {r["request_id"]: r for r in rows(lake)}
    assert stored.keys() == {"nan", "zero-duration", "backwards", 'odd "quoted", id\nwith\r\nlines \\N'}
    assert stored["nan"]["spend"] is None
    assert stored["nan"]["prompt_tokens"] is None
    assert stored["backwards"]["end_time"] is None
    with connect() as con:
        lake.view(con, "rejects/spend_logs", "x")
        assert con.execute("SELECT reason FROM x").fetchall() == [("missing request_id",)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("None", None),
        ("True", True),
        ("False", False),
        ("", None),
        (None, None),
        ("Cache OFF", None),
        ("true", True),
    ],
)
async def test_cache_hit_text_has_three_states(
    database: Database, lake: Lake, text: str | None, expected: bool | None
) -> None:
    connection, url = database
    await connection.execute(SPEND_LOGS_1_106)
    await insert(connection, "r", cache_hit=text)
    await spend_logs.extract(lake, settings_for(url))
    assert [r["cache_hit"] for r in rows(lake)] == [expected]


async def test_missing_columns_are_null_and_named(database: Database, lake: Lake) -> None:
    connection, url = database
    await connection.execute(SPEND_LOGS_1_106)
    await connection.execute(
        'ALTER TABLE "LiteLLM_SpendLogs" DROP session_id, DROP litellm_call_id, DROP "completionStartTime"'
    )
    await insert(connection, "r")
    report = await spend_logs.extract(lake, settings_for(url))
    assert report.missing_columns == ("completionStartTime", "session_id")
    (row,) = rows(lake)
    assert (row["row_session_id"], row["completion_start_time"]) == (None, None)
    assert row["litellm_call_id"] == "call-from-metadata"


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/St_Johns"])
async def test_instants_do_not_depend_on_the_servers_time_zone(
    database: Database, lake: Lake, zone: str
) -> None:
    connection, url = database
    await connection.execute(SPEND_LOGS_1_106)
    await connection.execute(f"SET TimeZone = '{zone}'")
    name = await connection.fetchval("SELECT current_database()")
    await connection.execute(f"""ALTER DATABASE "{name}" SET TimeZone = '{zone}'""")
    moment = datetime(2026, 3, 29, 1, 30)  # does not exist on clocks in Berlin
    await insert(connection, "naive", startTime=moment, endTime=moment + timedelta(hours=1))
    await spend_logs.extract(lake, settings_for(url))
    await connection.execute(
        'ALTER TABLE "LiteLLM_SpendLogs" ALTER "startTime" TYPE timestamptz '
        """USING "startTime" AT TIME ZONE 'UTC'"""
    )
    await spend_logs.extract(lake, settings_for(url))
    assert [r["start_time"] for r in rows(lake)] == [moment]


async def test_times_kept_as_text_are_read_in_every_spelling(database: Database, lake: Lake) -> None:
    connection, url = database
    await connection.execute(SPEND_LOGS_1_106)
    await connection.execute(
        """ALTER TABLE "LiteLLM_SpendLogs" ALTER "startTime" TYPE text, ALTER "endTime" TYPE text"""
    )
    spellings = [
        "2026-03-29T12:00:00Z",
        "2026-03-29 12:00:00",
        "2026-03-29T14:00:00+02:00",
        "2026-03-29T12:00:00.000000+00:00",
        "1774785600.0",
        "yesterday",
    ]
    for i, text in enumerate(spellings):
        await insert(connection, f"r{i}", startTime=text, endTime=text)
    report = await spend_logs.extract(lake, settings_for(url))
    assert [r["start_time"] for r in rows(lake)] == [NOON] * 5
    assert report.rejected == {"start_time unreadable": 1}


async def test_pages_lose_and_repeat_nothing_among_equal_start_times(database: Database, lake: Lake) -> None:
    connection, url = database
    await connection.execute(SPEND_LOGS_1_106)
    await connection.executemany(
        'INSERT INTO "LiteLLM_SpendLogs" (request_id, call_type, "startTime", "endTime") '
        "VALUES ($1, 'x', $2, $2)",
        [(f"r{i}", NOON) for i in range(1050)],
    )
    report = await spend_logs.extract(lake, settings_for(url, page_rows=100))
    assert (report.rows_read, report.rows_written, len(rows(lake))) == (1050, 1050, 1050)


async def test_a_crash_between_dates_repeats_no_row(
    database: Database, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, url = database
    await connection.execute(SPEND_LOGS_1_106)
    for day in range(3):
        await insert(
            connection, f"r{day}", startTime=NOON + timedelta(days=day), endTime=NOON + timedelta(days=day)
        )
    write = Lake.write

    def write_once(self: Lake, *arguments: Any, **options: Any) -> int:
        monkeypatch.setattr(Lake, "write", fail)
        return write(self, *arguments, **options)

    def fail(self: Lake, *arguments: Any, **options: Any) -> int:
        raise OSError("disk full")

    monkeypatch.setattr(Lake, "write", write_once)
    with pytest.raises(OSError, match="disk full"):
        await spend_logs.extract(lake, settings_for(url))
    assert [r["request_id"] for r in rows(lake)] == ["r0"]
    monkeypatch.undo()
    await spend_logs.extract(lake, settings_for(url))
    assert [r["request_id"] for r in rows(lake)] == ["r0", "r1", "r2"]
    assert not list((lake.root / ".tmp").glob("*"))


async def test_the_session_can_only_read(database: Database, lake: Lake) -> None:
    connection, url = database
    await connection.execute(SPEND_LOGS_1_106)
    from pipeline.extract.database import connection as connect_database
    from pipeline.extract.database import transaction

    settings = settings_for(url)
    with pytest.raises(UnreachableError, match="read-only"):
        async with connect_database(settings) as reader, transaction(reader, settings):
            await reader.execute('DELETE FROM "LiteLLM_SpendLogs"')


async def test_errors_say_what_is_missing(database: Database, lake: Lake) -> None:
    _, url = database
    with pytest.raises(ConfigError, match=r"LiteLLM_SpendLogs.*absent or not granted"):
        await spend_logs.extract(lake, settings_for(url))
    with pytest.raises(UnreachableError, match="did not let us in"):
        await spend_logs.extract(
            lake, settings_for("postgresql://nobody@127.0.0.1:1/none", connect_timeout_s=2)
        )
    with pytest.raises(ConfigError, match="no database URL"):
        await spend_logs.extract(lake, Settings())


def test_parameters_that_only_prisma_knows_are_taken_out_of_the_url() -> None:
    url, schema = split_url("postgresql://u:p%40@h:5/db?schema=llm&connection_limit=10&sslmode=require")
    assert (url, schema) == ("postgresql://u:p%40@h:5/db?sslmode=require", "llm")


async def test_the_schema_of_a_prisma_url_is_used(database: Database, lake: Lake) -> None:
    connection, url = database
    await connection.execute("CREATE SCHEMA llm; SET search_path = llm;" + SPEND_LOGS_1_106)
    await insert(connection, "r")
    settings = settings_for(url + "&schema=llm")
    assert (await spend_logs.extract(lake, settings)).rows_written == 1
    assert isinstance(settings.database.url, SecretStr)
