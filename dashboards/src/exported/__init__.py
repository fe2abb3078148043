"""What each exporter really exposes: metric names with their labels.

A query that names a metric or label of nobody fails the check, so a renamed metric is found before a panel
is empty. Sources: the plugin's own table, the registry of the engine (compared with a recorded vLLM scrape in
its tests), the DCGM text, a scrape of the proxy, and the names that older vLLM releases used.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from gateway_plugin.sinks import metric_table

#: Labels that Prometheus itself adds to every series.
SCRAPE_LABELS: Final = frozenset({"job", "instance", "__name__"})
_ENGINE_LABELS: Final = frozenset({"model_name", "engine"})
_DCGM_LABELS: Final = frozenset({"gpu", "UUID", "device", "modelName", "Hostname"})
#: Names of vLLM 0.10 and earlier, which some fleets still run (removed by vllm-project/vllm#29330).
OLD_ENGINE_NAMES: Final = {
    "vllm:gpu_cache_usage_perc": "gauge",
    "vllm:gpu_prefix_cache_hits_total": "counter",
    "vllm:gpu_prefix_cache_queries_total": "counter",
}


@dataclass(frozen=True, slots=True)
class Family:
    """A metric family: its kind, its labels (None: unknown) and the values of closed labels."""

    name: str
    kind: str
    labels: frozenset[str] | None
    values: tuple[tuple[str, frozenset[str]], ...] = ()

    def series(self) -> tuple[str, ...]:
        """Return the names that its samples have."""
        if self.kind == "histogram":
            return tuple(f"{self.name}_{part}" for part in ("bucket", "sum", "count"))
        return (self.name,)


@cache
def families() -> dict[str, Family]:
    """Return every family by the name of each of its series."""
    found = [*_plugin(), *_engine(), *_old_engine(), *_dcgm(), *_litellm()]
    return {series: family for family in found for series in family.series()}


def labels_of(series: str) -> frozenset[str] | None:
    """Return the labels that the series may have, Prometheus's own included; None: unknown ones.

    Raises:
        KeyError: nobody exports it.
    """
    family = families()[series]
    if family.labels is None:
        return None
    own = frozenset({"le"}) if series.endswith("_bucket") else frozenset()
    return family.labels | SCRAPE_LABELS | own


def _plugin() -> list[Family]:
    return [
        Family(
            m.exposed,
            m.kind,
            frozenset(m.labels),
            tuple(
                (label, frozenset((*metric_table.LABELS[label], metric_table.OTHER))) for label in m.labels
            ),
        )
        for m in metric_table.METRICS
    ]


def _engine() -> list[Family]:
    from deploy.local.engine.metrics import EngineMetrics

    registry = EngineMetrics(block_size=16, blocks=16, max_model_len=1024)
    registry.of("any")
    found = []
    for metric in registry.registry.collect():
        name = f"{metric.name}_total" if metric.type == "counter" else metric.name
        labels = {
            label
            for sample in metric.samples
            if not sample.name.endswith("_created")
            for label in sample.labels
            if label != "le"
        }
        found.append(Family(name, metric.type, frozenset(labels) or _ENGINE_LABELS))
    return found


def _old_engine() -> list[Family]:
    return [Family(name, kind, _ENGINE_LABELS) for name, kind in OLD_ENGINE_NAMES.items()]


def _dcgm() -> list[Family]:
    return [
        Family("DCGM_FI_DEV_POWER_USAGE", "gauge", _DCGM_LABELS),
        Family("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "counter", _DCGM_LABELS),
    ]


def _litellm() -> list[Family]:
    text = (Path(__file__).parent / "litellm-1.108.7.txt").read_text(encoding="utf-8")
    found = []
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, kind, labels = line.split()
            known = None if labels == "?" else frozenset() if labels == "-" else frozenset(labels.split(","))
            found.append(Family(name, kind, known))
    return found


def bounds(name: str) -> frozenset[str] | None:
    """Return the bucket bounds of a histogram as its ``le`` labels spell them; None: unknown."""
    for metric in metric_table.METRICS:
        if metric.exposed == name and metric.buckets:
            return frozenset({*(str(b) for b in metric.buckets), "+Inf"})
    return _engine_bounds().get(name)


@cache
def _engine_bounds() -> dict[str, frozenset[str]]:
    from deploy.local.engine.metrics import EngineMetrics

    registry = EngineMetrics(block_size=16, blocks=16, max_model_len=1024)
    registry.of("any")
    return {
        metric.name: frozenset(s.labels["le"] for s in metric.samples if s.name.endswith("_bucket"))
        for metric in registry.registry.collect()
        if metric.type == "histogram"
    }
