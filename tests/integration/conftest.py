"""One recorded run for all integration tests: the real proxy with real database and Redis, free ports."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import duckdb
import pytest
import redis

from deploy.local.recorded_run import Options, RecordedRun
from deploy.local.truth import TruthCall


@dataclass(frozen=True)
class Recorded:
    """What is left of the run, and the services, which still run."""

    run: RecordedRun
    out: Path
    truth: list[TruthCall]
    engine: list[dict[str, Any]]
    rows: list[dict[str, Any]]
    events: list[dict[str, Any]]
    redis_dump: dict[bytes, bytes]

    @property
    def finals(self) -> dict[str, dict[str, Any]]:
        """Final records by LiteLLM's call id."""
        return {e["litellm_call_id"]: e for e in self.events if e["stage"] == "final"}

    def query(self, sql: str) -> list[dict[str, Any]]:
        """Run SQL over the lake; ``$lake`` stands for its folder."""
        with duckdb.connect() as con:
            cursor = con.execute(sql.replace("$lake", str(self.run.lake)))
            names = [d[0] for d in cursor.description or ()]
            return [dict(zip(names, values, strict=True)) for values in cursor.fetchall()]

    @property
    def report(self) -> dict[str, Any]:
        """report.json."""
        document: dict[str, Any] = json.loads((self.out / "report.json").read_text(encoding="utf-8"))
        return document


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    """The small scenario, played once."""
    out = tmp_path_factory.mktemp("recorded")
    with RecordedRun(Options(work=out / "run", size="small", speed_up=10)) as run:
        truth = run.replay()
        dump = _dump(run.stack.redis.url)
        run.pipeline()
        run.report(out, ["Power is synthetic."])
        yield Recorded(
            run=run,
            out=out,
            truth=truth,
            engine=run.engine_truth(),
            rows=asyncio.run(_rows(run.stack.postgres.url)),
            events=read_events(run.lake),
            redis_dump=dump,
        )


async def _rows(url: str) -> list[dict[str, Any]]:
    connection = await asyncpg.connect(url)
    try:
        rows = [
            dict(r) for r in await connection.fetch('SELECT * FROM "LiteLLM_SpendLogs" ORDER BY "startTime"')
        ]
    finally:
        await connection.close()
    for row in rows:
        row["metadata"] = json.loads(row["metadata"])
    return rows


def read_events(lake: Path) -> list[dict[str, Any]]:
    """Every event record in the lake."""
    with duckdb.connect() as con:
        cursor = con.execute(f"SELECT * FROM read_parquet('{lake}/raw/events/*/*.parquet')")
        names = [d[0] for d in cursor.description or ()]
        return [dict(zip(names, values, strict=True)) for values in cursor.fetchall()]


def _dump(url: str) -> dict[bytes, bytes]:
    """Everything of ours in Redis: key -> serialised value."""
    with redis.Redis.from_url(url) as connection:
        keys = list(connection.scan_iter(match="{agentwatt}*"))
        found = {}
        for key in keys:
            kind = connection.type(key)
            if kind == b"stream":
                found[key] = repr(connection.xrange(key)).encode()
            else:
                found[key] = connection.dump(key) or b""
        return found


def until(condition: Any, timeout_s: float = 20.0) -> None:
    """Wait until *condition()* is true.

    Raises:
        AssertionError: it was not within the time.
    """
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.05)
