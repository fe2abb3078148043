"""Goodput of a round: the share of its output that came from requests within the SLO.

Load tools report it differently or not at all. From the requests themselves it is exact; from percentiles
only a lower bound can be given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pipeline.sizing.knee import KneeSlo

_GRID = ("p001", "p01", "p1", "p05", "p5", "p10", "p25", "p50", "p75", "p90", "p95", "p99", "p999")
_GRID_SHARE = {
    "p001": 0.001, "p01": 0.01, "p1": 0.01, "p05": 0.05, "p5": 0.05, "p10": 0.10, "p25": 0.25, "p50": 0.50,
    "p75": 0.75, "p90": 0.90, "p95": 0.95, "p99": 0.99, "p999": 0.999,
}  # fmt: skip


def share_within(
    ttft: Sequence[float | None], itl: Sequence[float | None], weights: Sequence[float], slo: KneeSlo
) -> float:
    """Share of output tokens of requests that keep both targets; a request without a figure misses."""
    good = 0.0
    for first, gap, tokens in zip(ttft, itl, weights, strict=True):
        ok = slo.ttft_ms is None or (first is not None and first < slo.ttft_ms)
        # A request of one token has no gap between tokens and cannot miss that target.
        ok = ok and (slo.itl_ms is None or tokens <= 1 or (gap is not None and gap < slo.itl_ms))
        good += tokens if ok else 0.0
    total = sum(weights)
    return good / total if total else 0.0


def _share_below(percentiles: Mapping[str, Any], limit: float) -> float:
    """Share of requests below ``limit`` from a percentile grid: the last grid point passed."""
    passed = 0.0
    for name in _GRID:
        value = percentiles.get(name)
        if isinstance(value, int | float) and value < limit:
            passed = max(passed, _GRID_SHARE[name])
    top = percentiles.get("max")
    return 1.0 if isinstance(top, int | float) and top < limit else passed


def _bound(parts: Iterable[float]) -> float:
    """Least share that keeps all targets when only the share for each is known."""
    return max(0.0, 1.0 - sum(1.0 - part for part in parts))


def share_from_percentiles(ttft: Mapping[str, Any], itl: Mapping[str, Any], slo: KneeSlo) -> float:
    """Lower bound of the share that keeps every target, from percentile grids (ms)."""
    parts = []
    if slo.ttft_ms is not None:
        parts.append(_share_below(ttft, slo.ttft_ms))
    if slo.itl_ms is not None:
        parts.append(_share_below(itl, slo.itl_ms))
    return _bound(parts)
