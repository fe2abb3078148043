"""Small trace files of every kind, written as their publishers write them."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from pipeline import importing, run
from pipeline.lake import Lake, connect
from pipeline.settings import Settings

Rows = list[dict[str, Any]]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(lake=tmp_path / "lake")


@pytest.fixture
def bring(settings: Settings, tmp_path: Path) -> Callable[..., importing.FileReport]:
    """Write text or records to a file, import it, and return what became of it."""

    def work(content: str | Iterable[Any], name: str = "trace.jsonl", **options: Any) -> importing.FileReport:
        path = tmp_path / name
        text = content if isinstance(content, str) else "".join(json.dumps(r) + "\n" for r in content)
        path.write_text(text, encoding="utf-8")
        return importing.import_files(settings, [path], **options).files[0]

    return work


@pytest.fixture
def facts(settings: Settings) -> Callable[..., list[tuple[Any, ...]]]:
    """Build the lake and select from its calls."""

    def work(columns: str, rest: str = "ORDER BY started_us, call_id") -> list[tuple[Any, ...]]:
        result = run.build(settings.lake, settings)
        assert result.failed_audits == ()
        with connect() as con:
            paths = [str(p) for p in Lake(settings.lake).files("facts/call")]
            return con.execute(f"SELECT {columns} FROM read_parquet(?) {rest}", [paths]).fetchall()

    return work


def raw(
    settings: Settings, columns: str, rest: str = "ORDER BY started_us, event_id"
) -> list[tuple[Any, ...]]:
    """Select from the raw events of the lake."""
    lake = Lake(settings.lake)
    with connect() as con:
        lake.view(con, "raw/events", "e")
        return con.execute(f"SELECT {columns} FROM e {rest}").fetchall()


def set_aside(settings: Settings) -> list[tuple[Any, ...]]:
    """Place, reason and excerpt of everything that was set aside."""
    lake = Lake(settings.lake)
    with connect() as con:
        lake.view(con, "rejects/events", "r")
        return con.execute("SELECT stream_id, reason, excerpt FROM r ORDER BY stream_id").fetchall()


def packed(content: bytes) -> bytes:
    """Gzip with a fixed time, so that equal content gives equal bytes."""
    return gzip.compress(content, mtime=0)


def archive(members: dict[str, bytes]) -> bytes:
    """A tar archive of *members*."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def weka_call(t: float, tokens: int, blocks: list[int], **fields: Any) -> dict[str, Any]:
    """One call of a Weka session, user-initiated unless told."""
    return {
        "t": t,
        "type": "n",
        "model": "m",
        "in": tokens,
        "out": 10,
        "input_types": ["text"],
        "api_time": 2.0,
        "hash_ids": blocks,
    } | fields


def weka_session(name: str, requests: Rows, **fields: Any) -> dict[str, Any]:
    """A Weka session."""
    return {"id": name, "block_size": 64, "hash_id_scope": "local", "requests": requests} | fields


def copilot_call(second: int, initiator: str, prompt: int, cached: int, **fields: Any) -> dict[str, Any]:
    """One model call of the Copilot data set."""
    return {
        "message_id": f"m{second}",
        "timestamp": f"2026-06-01T08:{second // 60:02}:{second % 60:02}.000Z",
        "duration_ms": 1500.5,
        "initiator_type": initiator,
        "model": "Model A",
        "result": "Success",
        "status_code": "OK",
        "tokens": {
            "total": prompt + 20,
            "prompt": prompt,
            "completion": 20,
            "cached": cached,
            "cached_pct": 100 * cached / prompt if prompt else 0.0,
        },
        "message_metadata": [{"type": "System", "role": "system", "sequenceId": 0, "token_len": 100}],
    } | fields


def copilot_session(name: str, turns: list[Rows], batches: Rows | None = None) -> dict[str, Any]:
    """A session of the Copilot data set; *batches* belong to its first turn."""
    return {
        "session_id": name,
        "date": "2026-06-01",
        "turns": [
            {"turn_id": f"turn-{n}", "llm_calls": calls, "tool_batches": (batches or []) if n == 0 else []}
            for n, calls in enumerate(turns)
        ],
    }
