"""Small windows of agents and boards that the power tests share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from pipeline import figures
from tests.pipeline.sql.synthetic import MONDAY, Power, Settings, Tier, build, event, metric

COUNTER = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
GAUGE = "DCGM_FI_DEV_POWER_USAGE"
HOUR = timedelta(hours=1)


@dataclass(frozen=True)
class Source:
    name: str
    metric: str
    kind: str
    scope: str
    factor: float = 1.0
    identity_labels: Sequence[str] = ()
    match_labels: Mapping[str, str] = field(default_factory=dict)
    accuracy_percent: float | None = None
    synthetic: bool = False
    devices: int | None = None


@dataclass(frozen=True)
class Pool:
    name: str
    model_groups: Sequence[str]
    devices: Sequence[str] = ()
    targets: Sequence[str] = ()
    match_labels: Mapping[str, str] = field(default_factory=dict)
    since: datetime | None = None
    until: datetime | None = None
    split: str = "none"
    shares: Mapping[str, float] = field(default_factory=dict)


def one_tier(**power: Any) -> Settings:
    return Settings(slo_tiers=(Tier(5, 50),), power=Power(**power))


def at(seconds: float) -> datetime:
    return MONDAY + timedelta(seconds=seconds)


def watts(name: str, value: float, *, metric_name: str = GAUGE, target: str = "node-1", hours: float = 1,
          step_s: float = 60, start_s: float = 0, **labels: str) -> list[dict[str, Any]]:  # fmt: skip
    """A device at constant power, sampled from a minute before the window to a minute after."""
    steps = int((hours * 3600 + 120) / step_s)
    return [
        metric(
            at(start_s - 60 + n * step_s), metric_name, value, target, **{"UUID": name, "gpu": name} | labels
        )
        for n in range(steps + 1)
    ]


def turns(
    session: str, *starts: float, length_s: float = 300, ttft_ms: float | None = 1000, **fields: Any
) -> list[dict[str, Any]]:
    """Turns of one call each, fast enough for 50 tokens a second."""
    call = {"duration_ms": length_s * 1000, "output_tokens": int(length_s * 60), "ttft_ms": ttft_ms} | fields
    return [
        event(
            f"{session}-{n}", at(s), session_key=session, turn_id=f"{session}t{n}", initiator="user", **call
        )
        for n, s in enumerate(starts)
    ]


def figure(
    lake: Path,
    events: Sequence[dict[str, Any]],
    metrics: Sequence[dict[str, Any]],
    settings: Settings | None = None,
    hours: float = 1,
) -> dict[str, Any]:
    settings = settings or one_tier()
    build(lake, events, metrics=metrics, settings=settings)
    computed = figures.compute(lake, settings, MONDAY, MONDAY + hours * HOUR)
    return computed.figures["agents_per_megawatt"]


def row(found: Mapping[str, Any], state: str = "in_turn", boundary: str = "board") -> dict[str, Any]:
    return next(r for r in found["values"] if r["state"] == state and r["boundary"] == boundary)
