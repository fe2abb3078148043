"""Events, ledger rows and daily sums against a real PostgreSQL: every class of difference is told apart."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from datetime import date, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from deploy.local.migrations import apply_migrations
from pipeline import reconcile
from pipeline.differences import CLASSES
from pipeline.errors import ConfigError
from pipeline.extract import spend_logs
from pipeline.lake import Lake
from pipeline.settings import Settings
from tests.pipeline.extract.conftest import (
    SPEND_LOGS_1_106,
    database,  # noqa: F401 - a fixture
    postgres_server,  # noqa: F401 - a fixture
    settings_for,
)
from tests.pipeline.sql.synthetic import MONDAY, event, write

Database = tuple[asyncpg.Connection, str]
DAILY = """
CREATE TABLE "LiteLLM_Daily{0}Spend" (
  id text PRIMARY KEY DEFAULT gen_random_uuid()::text, {1} text, date text NOT NULL, api_key text NOT NULL,
  model text, prompt_tokens bigint NOT NULL DEFAULT 0, completion_tokens bigint NOT NULL DEFAULT 0,
  spend double precision NOT NULL DEFAULT 0, api_requests bigint NOT NULL DEFAULT 0,
  successful_requests bigint NOT NULL DEFAULT 0, failed_requests bigint NOT NULL DEFAULT 0);
"""
DAY = MONDAY.date()
SPAN = {"since": DAY, "until": DAY + timedelta(days=1)}


async def row(
    connection: asyncpg.Connection, request_id: str, aw: dict[str, Any] | None, **columns: Any
) -> None:
    metadata = {"spend_logs_metadata": {"agentwatt": aw}} if aw else {}
    values: dict[str, Any] = {
        "request_id": request_id,
        "call_type": "acompletion",
        "status": "success",
        "user": "ann",
        "startTime": MONDAY + timedelta(minutes=1),
        "endTime": MONDAY + timedelta(minutes=1, seconds=2),
        "prompt_tokens": 1000,
        "completion_tokens": 100,
        "spend": 0.01,
        "metadata": json.dumps(metadata),
        **columns,
    }
    names = ", ".join(f'"{n}"' for n in values)
    marks = ", ".join(f"${i + 1}" for i in range(len(values)))
    await connection.execute(f'INSERT INTO "LiteLLM_SpendLogs" ({names}) VALUES ({marks})', *values.values())


async def daily(connection: asyncpg.Connection, table: str, column: str, requests: int, rows: int) -> None:
    await connection.execute(DAILY.format(table, column))
    await connection.execute(
        f'INSERT INTO "LiteLLM_Daily{table}Spend" ({column}, date, api_key, model, prompt_tokens, '
        "completion_tokens, spend, api_requests) VALUES ('ann', $1, 'k', 'm', $2, $3, $4, $5)",
        DAY.isoformat(), 1000 * rows, 100 * rows, 0.01 * rows, requests,
    )  # fmt: skip


@pytest.fixture
def settings(database: Database, tmp_path: Path) -> Settings:  # noqa: F811 - the fixture
    return settings_for(database[1]).model_copy(update={"lake": tmp_path / "lake"})


def classes(found: reconcile.Reconciliation, compared: str = "events and rows") -> dict[str, int]:
    return {d.name: d.count for d in found.differences if d.compared == compared}


async def found_in(settings: Settings, **span: Any) -> reconcile.Reconciliation:
    return await asyncio.to_thread(reconcile.reconcile, settings, **(span or SPAN))


async def test_every_class_of_call_is_told_apart(database: Database, settings: Settings) -> None:  # noqa: F811
    connection, _ = database
    await connection.execute(SPEND_LOGS_1_106)
    at = MONDAY + timedelta(minutes=1)
    own = {"litellm_call_id": None}
    write(
        settings.lake,
        "raw_event",
        [
            event("agreed", at, **own),
            event("retried", at, attempts=3, **own),
            event("cached", at, response_cache_hit=True, **own),
            event("open", at, outcome="open", stage="open", duration_ms=None, ended_us=None, **own),
            event("aborted", at, outcome="aborted", **own),
            event("refused", at, outcome="rejected", **own),
            event("dropped", at, **own),
            event("no-log", at, **own),
            event("same-1", at, litellm_call_id="client-id"),
            event("same-2", at, litellm_call_id="client-id"),
            event("failed", at, outcome="failure", **own),
            event("late-end", at, outcome="aborted", **own),
            event("imported", at, plugin_version="import:weka", **own),
            event("other-day", MONDAY + timedelta(days=1), **own),
        ],
    )
    await row(connection, "r1", {"event_id": "agreed"})
    for n, status in enumerate(("failure", "failure", "success")):
        await row(connection, f"r2-{n}", {"event_id": "retried"}, status=status)
    await row(connection, "r3", {"event_id": "cached"}, cache_hit="True")
    await row(connection, "r4", None, litellm_call_id="client-id")
    await row(connection, "r5", {"event_id": "late-end"})
    await row(connection, "r6", None, status="failure")
    await row(connection, "r7", {"event_id": "trimmed"})
    await row(connection, "r8", None)
    await row(connection, "r9", None, call_type="aembedding")
    # 12 rows, 2 of them further attempts: 10 requests, and 1 whose row was dropped.
    await daily(connection, "User", "user_id", 11, 12)
    await spend_logs.extract(Lake(settings.lake), settings)
    await row(connection, "r10", None, startTime=MONDAY + timedelta(minutes=2))
    found = await found_in(settings)
    assert (found.events, found.rows_in_lake, found.rows_in_database) == (12, 11, 12)
    assert classes(found) == {
        "retries and fallbacks": 2,
        "response-cache hit": 1,
        "ended after its last event": 1,
        "open": 1,
        "aborted": 1,
        "rejected after the hook": 1,
        "shared call id": 3,
        "counted by LiteLLM, no row": 1,
        "unknown to LiteLLM's ledger": 1,
        "failure without a row": 1,
        "rejected before the hook": 1,
        "not a call of generation": 1,
        "event lost": 1,
        "no object of ours": 1,
    }
    assert classes(found, "rows and lake") == {"late row": 1}
    assert {d.compared for d in found.differences} == {"events and rows", "rows and lake"}
    lost = next(d for d in found.differences if d.name == "event lost")
    assert (lost.samples, lost.explained) == (("r7",), False)


async def test_a_window_in_order_has_no_difference(database: Database, settings: Settings) -> None:  # noqa: F811
    connection, _ = database
    await connection.execute(SPEND_LOGS_1_106)
    write(settings.lake, "raw_event", [event("a", MONDAY), event("b", MONDAY)])
    await row(connection, "r1", {"event_id": "a"})
    await row(connection, "r2", {"event_id": "b"}, team_id="t1")
    for table, column, rows in (("User", "user_id", 2), ("Team", "team_id", 1), ("Global", "model_group", 2)):
        await daily(connection, table, column, rows, rows)
    await connection.execute(DAILY.format("Tag", "tag"))
    await spend_logs.extract(Lake(settings.lake), settings)
    found = await found_in(settings)
    assert found.differences == []
    assert found.daily == {
        "LiteLLM_DailyGlobalSpend": 2,
        "LiteLLM_DailyTeamSpend": 1,
        "LiteLLM_DailyUserSpend": 2,
    }
    assert found.notices == [
        "LiteLLM_DailyTagSpend was not compared: a call counts several times or not at all in it."
    ]
    assert found.unexplained_percent() == 0


async def test_daily_sums_that_count_too_many_too_few_or_other_tokens_are_named(
    database: Database,  # noqa: F811
    settings: Settings,
) -> None:
    connection, _ = database
    await connection.execute(SPEND_LOGS_1_106)
    write(settings.lake, "raw_event", [event(name, MONDAY) for name in "abcd"])
    for name in "abcd":
        await row(connection, name, {"event_id": name}, team_id="t1", end_user="x")
    await daily(connection, "User", "user_id", 7, 4)
    await daily(connection, "Team", "team_id", 1, 4)
    await daily(connection, "EndUser", "end_user_id", 4, 9)
    await spend_logs.extract(Lake(settings.lake), settings)
    found = await found_in(settings)
    assert classes(found, "rows and LiteLLM_DailyUserSpend") == {"counted without a row": 3}
    assert classes(found, "rows and LiteLLM_DailyTeamSpend") == {"row not counted": 3}
    assert classes(found, "rows and LiteLLM_DailyEndUserSpend") == {"token or spend sums differ": 1}
    assert found.unexplained_percent() == 75


async def test_rows_that_the_databases_retention_deleted_are_explained(
    database: Database,  # noqa: F811
    settings: Settings,
) -> None:
    connection, _ = database
    await connection.execute(SPEND_LOGS_1_106)
    write(settings.lake, "raw_event", [event("a", MONDAY)])
    await row(connection, "r1", {"event_id": "a"})
    await spend_logs.extract(Lake(settings.lake), settings)
    await connection.execute('DELETE FROM "LiteLLM_SpendLogs"')
    found = await found_in(settings)
    assert classes(found, "rows and lake") == {"deleted in the database": 1}
    assert classes(found) == {}
    assert found.unexplained_percent() == 0
    assert found.notices == ["This database has no daily spend tables: only events and rows were compared."]


async def test_what_ended_just_before_the_ledger_was_read_is_too_fresh(
    database: Database,  # noqa: F811
    settings: Settings,
) -> None:
    connection, _ = database
    await connection.execute(SPEND_LOGS_1_106)
    write(settings.lake, "raw_event", [event("a", MONDAY), event("b", MONDAY + timedelta(minutes=8))])
    Lake(settings.lake).write_state(
        "spend_logs", {"updated_at": (MONDAY + timedelta(minutes=10)).isoformat()}
    )
    found = await found_in(settings)
    assert classes(found) == {"too fresh": 1, "unknown to LiteLLM's ledger": 1}
    assert found.unexplained_percent() == 50


async def test_times_kept_as_text_or_with_a_zone_give_the_same_days(
    database: Database,  # noqa: F811
    settings: Settings,
) -> None:
    connection, _ = database
    write(settings.lake, "raw_event", [event("a", MONDAY)])
    for kind, value in (("timestamptz", "2026-03-02 01:30:00+02"), ("text", "2026-03-01T23:30:00")):
        await connection.execute(SPEND_LOGS_1_106)
        await connection.execute(f'ALTER TABLE "LiteLLM_SpendLogs" ALTER "startTime" TYPE {kind}')
        await connection.execute(
            'INSERT INTO "LiteLLM_SpendLogs" (request_id, call_type, "startTime", "endTime") '
            f"VALUES ('r', 'acompletion', '{value}', now())"
        )
        assert (await found_in(settings)).rows_in_database == 0
        assert (await found_in(settings, since=date(2026, 3, 1), until=DAY)).rows_in_database == 1
        await connection.execute('DROP TABLE "LiteLLM_SpendLogs"')


async def test_an_absent_ledger_an_empty_lake_and_an_empty_window_are_explained(
    database: Database,  # noqa: F811
    settings: Settings,
) -> None:
    with pytest.raises(ConfigError, match="no event and no row"):
        await asyncio.to_thread(reconcile.reconcile, settings)
    with pytest.raises(ConfigError, match="cannot be read"):
        await found_in(settings)
    with pytest.raises(ConfigError, match="no day"):
        await found_in(settings, since=DAY, until=DAY)


async def test_the_command_prints_the_classes_and_fails_above_the_threshold(
    database: Database,  # noqa: F811
    settings: Settings,
) -> None:
    connection, url = database
    await connection.execute(SPEND_LOGS_1_106)
    write(settings.lake, "raw_event", [event("a", MONDAY), event("b", MONDAY)])
    await row(connection, "r1", {"event_id": "a"})
    await spend_logs.extract(Lake(settings.lake), settings)

    def command(*options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "pipeline.cli", "reconcile", "--lake", str(settings.lake), *options],
            cwd=Path(__file__).resolve().parents[2],
            env=os.environ | {"DATABASE_URL": url},
            capture_output=True,
            text=True,
            check=False,
        )

    loose = await asyncio.to_thread(command, "--fail-on", "50")
    strict = await asyncio.to_thread(command, "--fail-on", "49.9")
    (line,) = (json.loads(text) for text in loose.stdout.splitlines())
    assert (line["class"], line["count"], line["samples"]) == ("unknown to LiteLLM's ledger", 1, ["b"])
    assert (loose.returncode, strict.returncode) == (0, 5)
    assert "unexplained percent: 50.0" in loose.stderr
    assert "50.00 % of the window is unexplained" in strict.stderr


async def test_the_tables_of_the_proxys_own_migrations_are_read(
    database: Database,  # noqa: F811
    settings: Settings,
) -> None:
    package = find_spec("litellm_proxy_extras")
    if package is None or package.origin is None:
        pytest.skip("the proxy's migrations are not installed")
    connection, url = database
    await asyncio.to_thread(apply_migrations, url, Path(package.origin).parent / "migrations")
    write(settings.lake, "raw_event", [event("a", MONDAY)])
    await row(connection, "r1", {"event_id": "a"}, team_id="t1")
    await connection.execute(
        'INSERT INTO "LiteLLM_DailyUserSpend" (id, user_id, date, api_key, model, custom_llm_provider, '
        "prompt_tokens, completion_tokens, spend, api_requests, successful_requests, updated_at) "
        "VALUES ('1', 'ann', $1, 'k', 'm', 'hosted_vllm', 1000, 100, 0.01, 1, 1, now())",
        DAY.isoformat(),
    )
    await spend_logs.extract(Lake(settings.lake), settings)
    found = await found_in(settings)
    assert classes(found) == {}
    assert classes(found, "rows and LiteLLM_DailyUserSpend") == {}
    assert classes(found, "rows and LiteLLM_DailyTeamSpend") == {"row not counted": 1}
    assert found.daily["LiteLLM_DailyUserSpend"] == 1


def test_every_class_says_why() -> None:
    assert all(why and not why.endswith(".") for _, why in CLASSES.values())


def test_the_guide_holds_every_class() -> None:
    guide = (Path(__file__).resolve().parents[2] / "docs/reconciliation.md").read_text(encoding="utf-8")
    for name, (explained, why) in CLASSES.items():
        assert f"| {name} | {'yes' if explained else 'no'} | {why} |" in guide
