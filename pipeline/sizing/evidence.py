"""What the machine checks look at, and the shape of their answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Status = Literal["pass", "warn", "fail", "unknown"]
Outcome = tuple[Status, str]


@dataclass(frozen=True, slots=True)
class Check:
    """One check. ``evidence`` is what was seen, in words."""

    id: str
    status: Status
    evidence: str
    question: str = ""


@dataclass(frozen=True)
class Evidence:
    """What the checks may look at; None: not given.

    ``config`` is the proxy's config.yaml, ``chart`` the chart values, ``report`` the figures JSON, ``plan`` a
    computed plan, ``dashboards`` (name, text) of dashboards, rules and autoscalers, ``engine`` the engine's
    command line.
    """

    config: Mapping[str, Any] | None = None
    chart: Mapping[str, Any] | None = None
    report: Mapping[str, Any] | None = None
    plan: Mapping[str, Any] | None = None
    dashboards: Sequence[tuple[str, str]] | None = None
    engine: str | None = None


def get(data: Any, *path: str) -> Any:
    """The value at a path of nested mappings; None where it ends early."""
    for name in path:
        data = data.get(name) if isinstance(data, Mapping) else None
    return data


def number(value: Any) -> float | None:
    """A number, also when it is written as text; None otherwise."""
    if isinstance(value, bool):
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
