"""How near the engine was to its limit: waiting requests, KV cache, and time to first token under load."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import duckdb

KV_NEAR_LIMIT: Final = 0.9
#: Time to first token of the busiest tenth of hours ÷ of the quieter half, from which on a queue is felt.
TTFT_GROWTH: Final = 3.0
_LEAST_HOURS: Final = 10


def saturation(con: duckdb.DuckDBPyConnection) -> dict[str, Any]:
    """Return what tells of a limit; ``lower_bound`` is null where nothing does."""
    row = con.execute(
        "SELECT kv_usage_max, waiting_max, waiting_samples, samples FROM mart_saturation"
    ).fetchone()
    kv, waiting, waiting_samples, samples = row if row else (None, None, None, None)
    growth = _first_token_growth(con)
    result = {
        "kv_usage_max": kv,
        "waiting_requests_max": waiting,
        "share_of_samples_waiting": waiting_samples / samples if samples else None,
        "first_token_growth": growth,
    }
    slowed = growth is not None and growth >= TTFT_GROWTH
    if kv is None and waiting is None and not slowed:
        unknown = "no engine metrics: it is unknown how near the engine was to its limit"
        return result | {"lower_bound": None, "reason": unknown}
    near = (kv or 0) >= KV_NEAR_LIMIT or (waiting or 0) > 0 or slowed
    reason = None if near else "the engine was never near its limit: the hardware may carry more"
    return result | {"lower_bound": not near, "reason": reason}


def _first_token_growth(con: duckdb.DuckDBPyConnection) -> float | None:
    """P95 of time to first token in the busiest tenth of the hours ÷ that in the quieter half (medians)."""
    rows = con.execute(
        "SELECT calls, MAX(ttft_ms_p95) FROM mart_pooled_hour WHERE calls_with_ttft > 0 "
        "GROUP BY hour_start, calls ORDER BY calls, hour_start"
    ).fetchall()
    if len(rows) < _LEAST_HOURS:
        return None
    quiet = _median([float(r[1]) for r in rows[: len(rows) // 2]])
    busy = _median([float(r[1]) for r in rows[-max(1, len(rows) // 10) :]])
    return busy / quiet if quiet > 0 else None


def _median(values: list[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
