"""Prometheus metrics in the proxy's own registry, served by LiteLLM's ``/metrics``.

Works in a single process and with ``PROMETHEUS_MULTIPROC_DIR``: plain counters and histograms, gauges with an
explicit mode that a background task sets. Label children are looked up once. ``prometheus_client`` is
optional: without it the sink says so once and does nothing.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from gateway_plugin.sinks import metric_table as table
from gateway_plugin.sinks.metric_table import LABELS, METRICS, OTHER, Metric

log = logging.getLogger("agentwatt")


def make(registry: Any = None) -> Metrics | None:
    """Return the sink on *registry* (default: the process's own), or None without ``prometheus_client``."""
    try:
        import prometheus_client
    except ImportError:
        log.warning("agentwatt: prometheus_client is not installed: no metrics")
        return None
    return Metrics(prometheus_client, registry if registry is not None else prometheus_client.REGISTRY)


class Metrics:
    """Turns final records and samples into metrics. Used on the event loop only."""

    def __init__(self, client: Any, registry: Any) -> None:
        self._collectors = {m: _collector(client, registry, m) for m in METRICS}
        self._children: dict[tuple[str, ...], Any] = {}
        self._seen: Counter[tuple[Metric, str]] = Counter()
        self._allowed = {name: frozenset(values) for name, values in LABELS.items()}

    def _child(self, metric: Metric, *values: str) -> Any:
        key = (metric.name, *values)  # a name remembers its hash, a metric would hash all of its buckets
        child = self._children.get(key)
        if child is None:
            closed = [
                v if v in self._allowed[name] else OTHER
                for name, v in zip(metric.labels, values, strict=True)
            ]
            collector = self._collectors[metric]
            child = collector.labels(*closed) if closed else collector
            if len(self._children) < 5000:
                self._children[key] = child
        return child

    def observe(self, record: Mapping[str, Any], *, revised: bool = False) -> None:
        """Enter one final record; *revised* when a lower-ranked ending of the call was entered before."""
        initiator, outcome = str(record.get("initiator")), str(record.get("outcome"))
        route = str(record.get("route"))
        self._child(table.CALLS, initiator, route, outcome).inc()
        if (ms := record.get("plugin_ms")) is not None and not revised:
            self._child(table.PLUGIN_COST).observe(ms / 1e3)
        if (ms := record.get("overhead_ms")) is not None:
            self._child(table.OVERHEAD, route).observe(ms / 1e3)
        if (ms := record.get("count_wait_ms")) is not None:
            self._child(table.COUNT_WAIT).observe(ms / 1e3)
        if outcome == "success" and not record.get("response_cache_hit"):
            self._tokens(record, initiator)

    def _tokens(self, record: Mapping[str, Any], initiator: str) -> None:
        tokens, output = record.get("input_tokens"), record.get("output_tokens")
        if output:
            self._child(table.OUTPUT_TOKENS, initiator).inc(output)
        if tokens is None:
            return
        self._child(table.PROMPT_TOKENS, initiator).observe(tokens)
        position = _position(record.get("call_index"))
        reason = str(record.get("break_reason") or "unknown")
        cached = record.get("cached_tokens")
        known = "reported" if cached is not None else "unknown"
        total, shared = record.get("prompt_bytes"), record.get("shared_bytes")
        self._child(table.INPUT_TOKENS, position, reason, known).inc(tokens)
        if total and shared is not None:
            potential = tokens * shared / total
            self._child(table.NEW_TOKENS, initiator).observe(tokens - potential)
            self._child(table.POTENTIAL_TOKENS, position, reason, known).inc(potential)
        if cached is not None:
            self._child(table.REALISED_TOKENS, position, reason).inc(cached)

    def count_phases(self, by_phase: Mapping[str, Mapping[str, float]]) -> None:
        """Enter the token counting of one call: time by phase of the request."""
        for phase, tally in by_phase.items():
            if tally.get("calls"):
                self._child(table.COUNTING, phase).observe(tally["ms"] / 1e3)

    def set(self, sample: Mapping[Metric, float]) -> None:
        """Set gauges."""
        for metric, value in sample.items():
            self._collectors[metric].set(value)

    def late(self, seconds: float) -> None:
        """Enter by how much a timer of the event loop was late."""
        self._child(table.LOOP_LAG_HISTOGRAM).observe(seconds)

    def advance(self, metric: Metric, totals: Mapping[str, int]) -> None:
        """Bring a counter with one label up to *totals*, which only grow."""
        for value, total in totals.items():
            delta = total - self._seen[metric, value]
            if delta > 0:
                self._child(metric, value).inc(delta)
                self._seen[metric, value] = total


def _position(call_index: object) -> str:
    if not isinstance(call_index, int) or call_index < 1:
        return "unknown"
    return str(call_index) if call_index < 3 else "3+"


def _collector(client: Any, registry: Any, metric: Metric) -> Any:
    """Make the collector, or find the one that an earlier import of this module made."""
    options: dict[str, Any] = {"registry": registry}
    if metric.labels:
        options["labelnames"] = metric.labels
    if metric.kind == "histogram":
        options["buckets"] = metric.buckets
    if metric.kind == "gauge":
        options["multiprocess_mode"] = metric.mode
    kinds: dict[str, Callable[..., Any]] = {
        "counter": client.Counter,
        "gauge": client.Gauge,
        "histogram": client.Histogram,
    }
    try:
        return kinds[metric.kind](metric.name, metric.help, **options)
    except ValueError:
        known = getattr(registry, "_names_to_collectors", {}).get(metric.name)
        if known is None:
            raise
        return known
