"""Calls in flight by hour of the business week: what a fleet is sized on."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

if TYPE_CHECKING:
    import duckdb

_SHARES: Final = (("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99))


def by_hour_of_week(con: duckdb.DuckDBPyConnection, time_zone: str) -> list[dict[str, Any]]:
    """Return time-weighted quantiles of calls in flight by hour of the business week.

    One row an hour of the week (0 = Monday 00:00 to 167) that the window touches: a quantile is the least
    number of calls that was not exceeded for that share of the time; ``seconds`` is how much of the hour was
    seen. The marts must be built.
    """
    zone = ZoneInfo(time_zone)
    found: dict[int, dict[int, float]] = {}
    for hour, calls, seconds in con.execute(
        "SELECT hour_start, calls_in_flight, seconds FROM mart_concurrency_level ORDER BY ALL"
    ).fetchall():
        local = hour.replace(tzinfo=UTC).astimezone(zone)
        levels = found.setdefault(local.weekday() * 24 + local.hour, {})
        levels[calls] = levels.get(calls, 0.0) + float(seconds)
    return [_row(hour, levels) for hour, levels in sorted(found.items())]


def _row(hour: int, levels: dict[int, float]) -> dict[str, Any]:
    total = sum(levels.values())
    row: dict[str, Any] = {"hour": hour, "seconds": total}
    row["mean"] = sum(calls * seconds for calls, seconds in levels.items()) / total
    for name, share in _SHARES:
        row[name] = weighted_quantile(levels, share)
    return row | {"max": max(levels)}


def weighted_quantile(levels: dict[int, float], share: float) -> int:
    """Return the least level that makes up *share* of all weight with those below it; needs a level."""
    needed = share * sum(levels.values())
    passed = 0.0
    for level in sorted(levels):
        passed += levels[level]
        if passed >= needed * (1 - 1e-12):
            return level
    return max(levels)
