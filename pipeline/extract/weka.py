"""Imports recorded Claude Code sessions (run-length encoded block ids) as call events.

The traces hold, for every call, its start, its length, its tokens and the ids of its 64-token blocks, but
no text. The potential prefix comes from the blocks: the longest prefix of a call whose blocks were all
touched by earlier calls of the same session, agent and model, where touched means the end of the latest call
that held the block. Sizes are in tokens instead of bytes (``prompt_bytes`` = input tokens), so no rounding
comes in.
"""

# ruff: noqa: S608 - relation names and columns are our own; paths are quoted; values are parameters

from __future__ import annotations

import bisect
import gzip
import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from gateway_plugin.event import SCHEMA_VERSION
from pipeline.lake import Lake, connect
from pipeline.schema import SCHEMAS

#: The traces have no calendar: session n starts n × 10 minutes after this (naive UTC).
EPOCH: Final = datetime(2026, 1, 5)
_SPACING: Final = timedelta(minutes=10)


class BlockTouches:
    """When each block id of a stream was last touched, kept as runs of equal instants."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._runs: list[tuple[int, int, float]] = []  # [first, past the last), instant; disjoint, rising

    def steps(self, runs: Sequence[Sequence[int]], now: float) -> list[tuple[float, int]]:
        """Return [(age in seconds, blocks)], rising: how much of the prefix *runs* is no older than each age.

        A block that a call still in flight touched has age 0.
        """
        steps: list[tuple[float, int]] = []
        oldest, length = 0.0, 0
        for first, count in runs:
            position, stop = first, first + count
            while position < stop:
                index = bisect.bisect_right(self._starts, position) - 1
                if index < 0 or self._runs[index][1] <= position:
                    return steps
                _, end, instant = self._runs[index]
                age = max(0.0, now - instant)
                length += min(end, stop) - position
                if steps and age <= oldest:
                    steps[-1] = (oldest, length)
                else:
                    oldest = age
                    steps.append((age, length))
                position = min(end, stop)
        return steps

    def touch(self, runs: Sequence[Sequence[int]], instant: float) -> None:
        """Record that a call that ended at *instant* held the blocks *runs*."""
        for first, count in runs:
            self._cover(first, first + count, instant)

    def _cover(self, first: int, stop: int, instant: float) -> None:
        low = bisect.bisect_right(self._starts, first) - 1
        if low < 0 or self._runs[low][1] <= first:
            low += 1
        high = low
        kept: list[tuple[int, int, float]] = []
        while high < len(self._runs) and self._runs[high][0] < stop:
            begin, end, old = self._runs[high]
            if begin < first:
                kept.append((begin, first, old))
            if end > stop:
                kept.append((stop, end, old))
            high += 1
        replacement = sorted([*kept, (first, stop, instant)])
        self._runs[low:high] = replacement
        self._starts[low:high] = [run[0] for run in replacement]


def events(path: Path) -> Iterator[dict[str, Any]]:
    """Yield one final event a call of the traces in *path* (JSON lines, gzip or plain), subagents included.

    Raises:
        ValueError: a line is no trace of 64-token blocks.
    """
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            trace = json.loads(line)
            if not isinstance(trace, dict) or trace.get("block_size") != 64:
                raise ValueError(f"{path}: line {number + 1} is no trace of 64-token blocks")
            yield from _trace(trace, EPOCH + number * _SPACING)


def load(path: Path, lake: Path) -> int:
    """Write the traces in *path* into the lake as raw events, one file a day; return the number of calls."""
    columns = ", ".join(f"'{name}': '{kind}'" for name, kind in SCHEMAS["raw/events"].items())
    target = Lake(lake)
    target.prepare()
    staged = lake / ".weka.jsonl"
    count = 0
    try:
        with staged.open("w", encoding="utf-8") as out:
            for record in events(path):
                count += 1
                out.write(json.dumps(record) + "\n")
        with connect() as con:
            con.execute(
                "CREATE TABLE calls AS SELECT *, CAST(make_timestamp(started_us) AS DATE) AS day "
                f"FROM read_json($file, format = 'newline_delimited', columns = {{{columns}}})",
                {"file": str(staged)},
            )
            for (day,) in con.execute("SELECT DISTINCT day FROM calls").fetchall():
                rows = f"SELECT * EXCLUDE (day) FROM calls WHERE day = DATE '{day.isoformat()}'"
                file = Path("raw/events") / f"date={day.isoformat()}" / "weka.parquet"
                target.write(con, rows, file, "started_us, event_id")
    finally:
        staged.unlink(missing_ok=True)
    return count


def _trace(trace: dict[str, Any], start: datetime) -> Iterator[dict[str, Any]]:
    main = [r for r in trace["requests"] if r["type"] != "subagent"]
    yield from _stream(trace["id"], "main", None, main, start)
    for child in trace["requests"]:
        if child["type"] == "subagent":
            later = start + timedelta(seconds=child["t"])
            yield from _stream(trace["id"], child["agent_id"], "main", child["requests"], later)


def _stream(
    session: str, agent: str, parent: str | None, requests: Sequence[dict[str, Any]], start: datetime
) -> Iterator[dict[str, Any]]:
    origin = round(start.replace(tzinfo=UTC).timestamp() * 1e6)
    touches: dict[str, BlockTouches] = {}
    for number, request in enumerate(requests):
        began, took = float(request["t"]), float(request.get("api_time") or 0.0)
        stream = touches.setdefault(request["model"], BlockTouches())
        tokens = int(request["in"])
        runs = request["hash_ids_rle"]
        steps = [(age, min(blocks * 64, tokens)) for age, blocks in stream.steps(runs, began)]
        stream.touch(runs, began + took)
        ttft = request.get("ttft")
        started = origin + round(began * 1e6)
        yield {
            "schema": SCHEMA_VERSION,
            "event_id": f"{session}/{agent}/{number:06d}",
            "stage": "final",
            "outcome": "success",
            "started_us": started,
            "ended_us": started + round(took * 1e6),
            "session_key": session,
            "session_id": session,
            "session_evidence": "E1",
            "agent_id": agent,
            "agent_kind": "main" if parent is None else "subagent",
            "parent_agent_id": parent,
            "turn_evidence": "E3",
            "initiator": "agent" if "tool_result" in request["input_types"] else "user",
            "client": "claude-code",
            "user_hash": session,
            "user_source": "end_user",
            "route": "messages",
            "stream": request["type"] == "s",
            "model_group": request["model"],
            "model": request["model"],
            "provider": "anthropic",
            "input_tokens": tokens,
            "output_tokens": int(request["out"]),
            "usage_source": "provider",
            "prompt_bytes": tokens,
            "shared_bytes": steps[-1][1] if steps else 0,
            "prefix_steps": json.dumps(steps),
            "ttft_ms": None if ttft is None else float(ttft) * 1000,
            "duration_ms": took * 1000,
            "attempts": 1,
            "response_cache_hit": False,
            "stream_id": f"{session}-{agent}-{number}",
            "collected_at": (start + timedelta(seconds=began + took)).isoformat(),
        }
