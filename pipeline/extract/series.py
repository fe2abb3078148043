"""Counters and metric names over time: reset-aware deltas, and names that changed between versions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Sequence
from typing import Final

from pipeline.errors import ConfigError

#: Canonical name -> names as exposed, newest first. Only the first that is present counts: old and new
#: names were exposed side by side for some versions, and adding them would count twice.
VLLM_ALIASES: Final[dict[str, tuple[str, ...]]] = {
    "prefix_cache_queries": ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"),
    "prefix_cache_hits": ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
    "external_prefix_cache_queries": ("vllm:external_prefix_cache_queries_total",),
    "external_prefix_cache_hits": ("vllm:external_prefix_cache_hits_total",),
    "kv_cache_usage": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
    "requests_running": ("vllm:num_requests_running",),
    "requests_waiting": ("vllm:num_requests_waiting",),
    "prompt_tokens": ("vllm:prompt_tokens_total",),
    "prompt_tokens_cached": ("vllm:prompt_tokens_cached_total",),
    "generation_tokens": ("vllm:generation_tokens_total",),
    "requests_finished": ("vllm:request_success_total",),
    "preemptions": ("vllm:num_preemptions_total",),
    "ttft_seconds": ("vllm:time_to_first_token_seconds",),
    "inter_token_seconds": ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"),
    "e2e_seconds": ("vllm:e2e_request_latency_seconds",),
    "queue_seconds": ("vllm:request_queue_time_seconds",),
    "prefill_seconds": ("vllm:request_prefill_time_seconds",),
    "decode_seconds": ("vllm:request_decode_time_seconds",),
}

#: DuckDB macro: increase of a counter between two neighbouring samples of one series. A drop is a restart,
#: after which the counter began at 0, so the new value is the increase. Across a gap longer than *max_gap_s*
#: it is unknown (null), as it is for a missing sample; it is never negative.
COUNTER_DELTA_MACRO: Final = """
CREATE OR REPLACE MACRO counter_delta(previous, current, gap_s, max_gap_s) AS
  CASE WHEN previous IS NULL OR current IS NULL OR isnan(previous) OR isnan(current) THEN NULL
       WHEN gap_s <= 0 OR gap_s > max_gap_s THEN NULL
       WHEN current < 0 OR previous < 0 THEN NULL
       WHEN current < previous THEN current
       ELSE current - previous END
"""


def counter_delta(
    previous: float | None, current: float | None, gap_s: float, max_gap_s: float
) -> float | None:
    """Increase between two neighbouring samples of one series: the macro above, in Python."""
    if previous is None or current is None or math.isnan(previous) or math.isnan(current):
        return None
    if gap_s <= 0 or gap_s > max_gap_s or current < 0 or previous < 0:
        return None
    return current if current < previous else current - previous


def counter_deltas(points: Sequence[tuple[float, float | None]], max_gap_s: float) -> list[float | None]:
    """Increase at each point of one series.

    Args:
        points: (seconds, value) by rising time.
        max_gap_s: neighbours further apart than this have an unknown increase.

    Returns:
        As many values as points; the first is None, since nothing precedes it.
    """
    deltas: list[float | None] = [None] * min(1, len(points))
    for (t0, v0), (t1, v1) in itertools.pairwise(points):
        deltas.append(counter_delta(v0, v1, t1 - t0, max_gap_s))
    return deltas


def deltas_sql(relation: str, max_gap_s: float) -> str:
    """SELECT that adds ``gap_s``, ``delta`` and ``restarted`` to the samples of *relation*.

    *relation* has the columns of ``raw/metrics`` and holds counters only; :data:`COUNTER_DELTA_MACRO` must
    have been executed. Samples of one series at one instant count once.
    """
    return f"""
SELECT ts, target, name, labels, value, gap_s,
  counter_delta(previous, value, gap_s, {float(max_gap_s)!r}) AS delta,
  coalesce(value < previous, false) AS restarted
FROM (
  SELECT ts, target, name, labels, value,
    lag(value) OVER series AS previous,
    epoch(ts - lag(ts) OVER series) AS gap_s
  FROM (SELECT ts, target, name, labels, max(value) AS value FROM {relation} GROUP BY ALL)
  WINDOW series AS (PARTITION BY target, name, labels ORDER BY ts))
"""  # noqa: S608 - the relation's name comes from our code


def resolve(wanted: str, present: Collection[str]) -> str:
    """Name under which this engine's version exposes *wanted* (a key of :data:`VLLM_ALIASES`).

    A histogram is found by its ``_count``.

    Raises:
        ConfigError: none of the names is there; no data is not zero.
    """
    names = VLLM_ALIASES[wanted]
    for name in names:
        if name in present or f"{name}_count" in present:
            return name
    raise ConfigError(
        f"No metric for {wanted} was found.",
        why=f"Looked for {', '.join(names)}.",
        next_step="Check the scrape's --match, and that the engine's version exposes one of these names.",
    )
