"""A tiny lake, the same every time: builders of raw records and one whole scenario of two days."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb

from gateway_plugin.event import row_object
from pipeline import run
from pipeline.sql import binding

MONDAY = datetime(2026, 3, 2, 8, 0, 0)  # naive UTC


@dataclass(frozen=True)
class Tier:
    ttft_s: float
    speed_tok_s: float


@dataclass(frozen=True)
class Power:
    sources: Sequence[Any] = ()
    max_gap_s: float = 120.0
    pue: float | None = None
    pue_source: str | None = None
    presets: Sequence[str] = ()
    pools: Sequence[Any] = ()
    provisioned: Sequence[Any] = ()
    gpu_model: str | None = None
    min_coverage: float = 0.8
    capacity_share: float = 0.95
    unseen_ms: float = 0.0
    model_groups: Mapping[str, Sequence[str]] = field(default_factory=dict)
    external_model_groups: Sequence[str] = ()
    external_providers: Sequence[str] = ()


@dataclass(frozen=True)
class Settings:
    """Defaults of the pipeline's conventions."""

    business_time_zone: str = "UTC"
    idle_caps_s: Sequence[float] = (300.0, 900.0, 1800.0)
    tool_caps_s: Sequence[float | None] = (60.0, 300.0, 1800.0, None)
    visit_gap_s: float = 1800.0
    retentions_s: Sequence[float] = (math.inf, 3600.0, 300.0)
    slo_tiers: Sequence[Tier] = (Tier(10, 20), Tier(5, 60), Tier(3, 180))
    service_keys: Sequence[str] = ()
    power: Power = field(default_factory=Power)


def us(at: datetime) -> int:
    return round(at.replace(tzinfo=UTC).timestamp() * 1e6)


def event(name: str, at: datetime, **fields: Any) -> dict[str, Any]:
    """A successful final record of a main-thread call that takes two seconds; *fields* replace or remove."""
    record: dict[str, Any] = {
        "schema": 1,
        "event_id": name,
        "stage": "final",
        "outcome": "success",
        "started_us": us(at),
        "session_key": "s1",
        "session_evidence": "E1",
        "agent_id": "main",
        "agent_kind": "main",
        "turn_evidence": "E3",
        "initiator": "agent",
        "client": "claude-code",
        "user_hash": "u1",
        "user_source": "end_user",
        "team_id": "t1",
        "route": "chat",
        "stream": True,
        "model_group": "coder-large",
        "provider": "hosted_vllm",
        "input_tokens": 1000,
        "cached_tokens": 0,
        "output_tokens": 101,
        "usage_source": "provider",
        "prompt_bytes": 4000,
        "shared_bytes": 0,
        "prefix_steps": "[]",
        "ttft_ms": 1000.0,
        "duration_ms": 2000.0,
        "attempts": 1,
        "response_cache_hit": False,
        "collected_at": (at + timedelta(seconds=5)).isoformat(),
        "stream_id": "1-0",
    }
    record |= fields
    if record.get("ended_us") is None and record.get("duration_ms") is not None:
        record["ended_us"] = record["started_us"] + round(record["duration_ms"] * 1000)
    return {k: v for k, v in record.items() if v is not None}


def row(of: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """The ledger row that LiteLLM writes for the call of an event."""
    at = datetime.fromtimestamp(of["started_us"] / 1e6, UTC).replace(tzinfo=None)
    record = {
        "request_id": f"req-{of['event_id']}",
        "litellm_call_id": of.get("litellm_call_id", f"lid-{of['event_id']}"),
        "call_type": "acompletion",
        "key_hash": "k1",
        "spend": 0.5,
        "prompt_tokens": of.get("input_tokens", 0),
        "completion_tokens": of.get("output_tokens", 0),
        "start_time": at.isoformat(),
        "end_time": (at + timedelta(milliseconds=of.get("duration_ms", 0))).isoformat(),
        "model_group": of.get("model_group"),
        "provider": of.get("provider"),
        "status": "success" if of["outcome"] == "success" else "failure",
        "usage_input": of.get("input_tokens"),
        "usage_cached": of.get("cached_tokens"),
        "usage_output": of.get("output_tokens"),
        "aw": json.dumps(row_object(of)),
        "extracted_at": (at + timedelta(hours=1)).isoformat(),
    }
    return {k: v for k, v in (record | fields).items() if v is not None}


def metric(at: datetime, name: str, value: float, target: str = "node-1", **labels: str) -> dict[str, Any]:
    return {"ts": at.isoformat(), "target": target, "name": name, "value": value, "kind": "untyped",
            "labels": json.dumps(labels, sort_keys=True)}  # fmt: skip


def write(lake: Path, relation: str, records: Iterable[dict[str, Any]], name: str = "a") -> None:
    """Write raw records into their days' folders, one file *name* a day."""
    folder, columns = binding.RAW[relation]
    days: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        if relation == "raw_event":
            day = datetime.fromtimestamp(record["started_us"] / 1e6, UTC).date().isoformat()
        else:
            day = str(record["start_time" if relation == "raw_spend_log" else "ts"])[:10]
        days.setdefault(day, []).append(record)
    con = duckdb.connect()
    for day, members in days.items():
        target = lake / folder / f"date={day}"
        target.mkdir(parents=True, exist_ok=True)
        source = target / f".{name}.jsonl"
        source.write_text("\n".join(json.dumps(m) for m in members), encoding="utf-8")
        spec = ", ".join(f'"{c}": "{kind}"' for c, kind in columns.items())
        con.execute(
            f"COPY (SELECT * FROM read_json('{source}', format='newline_delimited', columns={{{spec}}})) "
            f"TO '{target / (name + '.parquet')}' (FORMAT parquet, COMPRESSION zstd)"
        )
        source.unlink()
    con.close()


def session(
    key: str,
    at: datetime,
    *,
    turns: int,
    calls: int,
    user: str = "u1",
    gap_s: float = 4,
    idle_s: float = 120,
    **fields: Any,
) -> list[dict[str, Any]]:
    """A session of equal turns: calls of two seconds, *gap_s* apart, *idle_s* between turns; prompts grow."""
    events = []
    size = 0
    tokens = 5_000
    for turn in range(1, turns + 1):
        for call in range(1, calls + 1):
            previous = size
            size = tokens * 4
            gap = None if not events else (idle_s if call == 1 else gap_s)
            events.append(
                event(
                    f"{key}-{turn}-{call}",
                    at,
                    session_key=key,
                    user_hash=user,
                    turn_id=f"{key}-t{turn}",
                    initiator="user" if call == 1 else "agent",
                    input_tokens=tokens,
                    cached_tokens=round(previous / 4 * 0.9),
                    prompt_bytes=size,
                    shared_bytes=previous,
                    prefix_steps=json.dumps([] if gap is None else [[gap, previous]]),
                    break_reason="first" if not events else "none",
                    idle_ms=None if gap is None else gap * 1000,
                    **fields,
                )
            )
            at += timedelta(seconds=2 + (gap_s if call < calls else idle_s))
            tokens += 1_000
    return events


def scenario(lake: Path) -> list[dict[str, Any]]:
    """Three people, a service, two days, two boards with counters and an engine; return the events."""
    events = [
        *session("s1", MONDAY, turns=4, calls=5, tool_count=40, tools_bytes=64000, tools_digest="ab" * 8),
        *session("s2", MONDAY + timedelta(minutes=1), turns=2, calls=3, client="codex", route="responses"),
        *session("s3", MONDAY + timedelta(minutes=5), turns=3, calls=4, user="u2", team_id="t2"),
        *session("s4", MONDAY + timedelta(hours=1), turns=1, calls=6, user="bot", service_key=True),
        *session("s5", MONDAY + timedelta(days=1), turns=2, calls=3, user="u3", model_group="coder-small"),
    ]
    opened = [e | {"stage": "open", "outcome": "open", "duration_ms": None, "ended_us": None} for e in events]
    write(lake, "raw_event", [*({k: v for k, v in e.items() if v is not None} for e in opened), *events])
    write(lake, "raw_spend_log", [row(e) for e in events])
    write(
        lake, "raw_metric", board_metrics(MONDAY - timedelta(minutes=2), MONDAY + timedelta(days=1, hours=1))
    )
    return events


def board_metrics(
    start: datetime, end: datetime, *, watts: float = 500.0, step_s: float = 60
) -> list[dict[str, Any]]:
    """Two boards of constant power with energy counters (mJ) and gauges (W), and an engine's counters."""
    records = []
    at = start
    while at <= end:
        passed = (at - start).total_seconds()
        for board in ("GPU-a", "GPU-b"):
            labels = {"UUID": board, "gpu": board[-1], "Hostname": "node-1"}
            records.append(
                metric(at, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", passed * watts * 1000, **labels)
            )
            records.append(metric(at, "DCGM_FI_DEV_POWER_USAGE", watts, **labels))
        records.append(metric(at, "vllm:prefix_cache_queries_total", 100 * passed, model_name="m"))
        records.append(metric(at, "vllm:prefix_cache_hits_total", 80 * passed, model_name="m"))
        records.append(metric(at, "vllm:prompt_tokens_total", 100 * passed, model_name="m"))
        records.append(metric(at, "vllm:num_requests_waiting", 0, model_name="m"))
        records.append(metric(at, "vllm:kv_cache_usage_perc", 0.4, model_name="m"))
        at += timedelta(seconds=step_s)
    return records


def build(
    lake: Path,
    events: Iterable[dict[str, Any]] = (),
    rows: Iterable[dict[str, Any]] = (),
    metrics: Iterable[dict[str, Any]] = (),
    settings: Settings | None = None,
) -> Path:
    """Write raw records and build the facts; return the lake."""
    write(lake, "raw_event", events)
    write(lake, "raw_spend_log", rows)
    write(lake, "raw_metric", metrics)
    run.build(lake, settings or Settings(), marts=False)
    return lake


def facts(lake: Path, relation: str = "fct_call") -> dict[str, dict[str, Any]]:
    """Return the facts by call id (calls) or turn key (turns)."""
    con = run.connect(lake)
    try:
        binding.bind_fact(con, relation, binding.files(lake, binding.FACTS[relation]))
        cursor = con.execute(f"SELECT * FROM {relation} ORDER BY ALL")
        names = [d[0] for d in cursor.description or ()]
        rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    finally:
        con.close()
    key = {"fct_call": "call_id", "fct_turn": "turn_key"}[relation]
    return {row[key]: row for row in rows}
