"""Every input of a plan: its key, unit, meaning, and the published default that stands in for it.

An input without a default is required by the methods that name it. A default is always ``literature``: it
carries a source and a date, and the report lists it among what was not measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from pipeline.sizing import concurrency
from pipeline.sizing.concurrency import Tag

Kind = Literal["number", "count", "money", "text", "flag", "numbers"]
Method = Literal["agents", "throughput"]

_AGENTS = "sizing for agents, 2026-09-12"
_SLO = "from the SLO to the number of GPUs, 2026-06-16"
_CHAT = "capacity planning for on-premise inference, 2026-06-01"
_COPILOT = "arXiv 2608.00101, 2026-07-30"


@dataclass(frozen=True, slots=True)
class Spec:
    """One key a plan may carry. ``required`` lists the methods that cannot do without it."""

    key: str
    kind: Kind
    unit: str
    meaning: str
    default: Any = None
    source: str = ""
    required: tuple[Method, ...] = ()
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Input:
    """One value with where it comes from; ``is_default`` when nobody stated it."""

    key: str
    value: Any
    unit: str
    tag: Tag
    source: str
    date: str
    low: float | None = None
    high: float | None = None
    line: int = 0
    is_default: bool = False

    def to_dict(self) -> dict[str, Any]:
        """As it is written in a plan file."""
        shown: dict[str, Any] = {
            "value": self.value,
            "unit": self.unit,
            "tag": self.tag,
            "source": self.source,
            "date": self.date,
        }
        if self.low is not None:
            shown["low"] = self.low
        if self.high is not None:
            shown["high"] = self.high
        return shown


_BOTH: Final[tuple[Method, ...]] = ("agents", "throughput")
_A: Final[tuple[Method, ...]] = ("agents",)
_T: Final[tuple[Method, ...]] = ("throughput",)

SPECS: Final[tuple[Spec, ...]] = (
    # -- model
    Spec("model.weights_gb", "number", "GB",
         "weights of the model; overrides the count from config.json", low=0),
    Spec("model.active_params_b", "number", "billion",
         "parameters a token visits; overrides config.json", low=0),
    Spec("model.layers", "count", "layers", "layers with a full cache, without config.json", low=1),
    Spec("model.kv_heads", "count", "heads", "KV heads, without config.json", low=1),
    Spec("model.head_dim", "count", "elements", "head dimension, without config.json", low=1),
    Spec("model.kv_element_bytes", "number", "B",
         "bytes of a KV element: 2, or 1 for FP8", 2, _CHAT, low=0.25, high=4),
    # -- hardware
    Spec("hardware.gpu", "text", "name", "card, for its data-sheet figures"),
    Spec("hardware.memory_gb", "number", "GB", "memory of a card", low=1),
    Spec("hardware.hbm_gb_s", "number", "GB/s", "memory bandwidth of a card", low=1),
    Spec("hardware.bf16_tflops", "number", "TFLOP/s", "dense BF16 arithmetic of a card", low=1),
    Spec("hardware.gpus_per_node", "count", "GPUs", "cards in a node", required=_BOTH, low=1),
    Spec("hardware.gpu_memory_utilization", "number", "share",
         "memory the engine may take", 0.90, _AGENTS, low=0.1, high=1),
    Spec("hardware.activations_gb", "number", "GB", "activation buffers per card", 4, _CHAT, low=0),
    Spec("hardware.overhead_gb", "number", "GB",
         "context, communication and pool overhead per card", 3, _CHAT, low=0),
    Spec("hardware.tensor_parallel", "count", "GPUs",
         "tensor parallel size; left out: the cheapest that holds", low=1),
    Spec("hardware.pipeline_parallel", "count", "stages", "pipeline stages", 1, _AGENTS, low=1),
    Spec("hardware.expert_parallel", "count", "ranks",
         "ranks that experts are divided over", 1, _AGENTS, low=1),
    Spec("hardware.bandwidth_efficiency", "number", "share",
         "share of the bandwidth decode reaches", 0.70, _CHAT, low=0.05, high=1),
    Spec("hardware.flops_efficiency", "number", "share",
         "share of the arithmetic prefill reaches", 0.5, _CHAT, low=0.05, high=1),
    # -- fleet
    Spec("fleet.spare_replicas", "count", "replicas",
         "replicas for availability and maintenance", 1, _AGENTS, low=0),
    Spec("fleet.headroom", "number", "share",
         "nodes on top for failures and upgrades", 0.15, _SLO, low=0, high=2),
    Spec("fleet.context", "text", "name", "context a sequence is sized at: p50, p95 or max", "max", _AGENTS),
    Spec("fleet.sequence_multiple", "count", "sequences",
         "sequences are rounded up to a multiple of this", 1, _AGENTS, low=1),
    Spec("fleet.reserved_share", "number", "share",
         "nodes kept free for evals, re-embedding and rollback", 0.0, _CHAT, low=0, high=0.9),
    Spec("fleet.margin", "number", "share",
         "margin on top of the concurrency sized for", 0.0, _AGENTS, low=0, high=5),
    # -- people
    Spec("people.active", "number", "people", "people at work at once (not seats)", required=_A, low=0),
    Spec("people.duty_cycle", "number", "share",
         "in-flight time of main-thread, non-failing calls per human-hour",
         concurrency.PUBLISHED_DUTY, _AGENTS, low=0),
    Spec("people.amplification", "number", "factor", "all in-flight time over that",
         round(concurrency.published_amplification(), 4), _AGENTS, low=1),
    Spec("people.concurrency_quantile", "number", "share",
         "quantile within the busiest hour of the week", 0.95, _CHAT, low=0.5, high=0.999),
    # -- calls
    Spec("calls.prompt_tokens_p50", "number", "tokens", "median prompt of a call", 68_000, _COPILOT, low=1),
    Spec("calls.prompt_tokens_p95", "number", "tokens",
         "95th percentile of the prompt", 142_000, _AGENTS, low=1),
    Spec("calls.context_max", "count", "tokens",
         "longest context admitted (--max-model-len)", required=_A, low=1),
    Spec("calls.output_tokens", "number", "tokens", "output of a call", 444, _AGENTS, low=1),
    Spec("calls.prefix_hit", "number", "share",
         "prompt tokens served from the prefix cache", 0.926, _COPILOT, low=0, high=1),
    Spec("calls.per_human_hour", "number", "calls/h", "calls per human-hour", 38.9, _COPILOT, low=0),
    # -- slo
    Spec("slo.ttft_ms", "number", "ms", "target for the time to first token", required=_A, low=1),
    Spec("slo.tpot_ms", "number", "ms", "target for the time per output token", required=_A, low=0.1),
    Spec("slo.ttft_p99_ms", "number", "ms",
         "target that the utilisation table is read at", required=_T, low=1),
    Spec("slo.service_s", "number", "s", "measured service time before the first token, for W/(W+s)", low=0),
    # -- throughput
    Spec("demand.requests_per_day", "number", "1/day", "requests per day", required=_T, low=0),
    Spec("demand.output_tokens", "number", "tokens", "output tokens per request", required=_T, low=0),
    Spec("demand.peak_factor", "number", "factor",
         "busy hour over the mean of the active hours", required=_T, low=1),
    Spec("demand.active_hours", "number", "h", "hours a day with traffic", required=_T, low=0.1, high=24),
    Spec("demand.gpu_tok_s", "number", "tok/s", "goodput of one GPU under the SLO", required=_T, low=0),
    # -- gateway
    Spec("gateway.peak_factor", "number", "factor",
         "peak calls per second over the mean", 10, _AGENTS, low=1),
    Spec("gateway.peak_rps", "number", "1/s",
         "peak calls per second; overrides people x calls x peak factor", low=0),
    Spec("gateway.count_wall_s", "number", "s",
         "wall time of the token counts of one request", 0.100, _AGENTS, low=1e-6),
    Spec("gateway.count_cpu_s", "number", "s", "CPU time of the same", 0.100, _AGENTS, low=1e-6),
    Spec("gateway.counter", "text", "name", "stock or incremental", "stock", _AGENTS),
    Spec("gateway.slots", "count", "slots", "concurrent counts per worker", 4, _AGENTS, low=1),
    Spec("gateway.vcpu", "number", "vCPU", "vCPU per worker", 1, _AGENTS, low=0.1),
    Spec("gateway.memory_gib", "number", "GiB", "memory per worker", 4, _AGENTS, low=0.5),
    Spec("gateway.workers_per_replica", "count", "workers", "worker processes in a pod", 1, _AGENTS, low=1),
    Spec("gateway.pool", "count", "connections", "database connections per worker", 10, _AGENTS, low=1),
    Spec("gateway.max_connections", "count", "connections",
         "connections Postgres allows", 100, "PostgreSQL default, 2026-01-01", low=11),
    Spec("gateway.flush_s", "number", "s",
         "interval of the spend writer (proxy_batch_write_at)", 60, _AGENTS, low=1),
    Spec("gateway.row_bytes", "number", "B", "bytes of a queued spend row", 4096, _AGENTS, low=1),
    Spec("gateway.burst_rps_per_s", "number", "1/s2", "steepest climb of the call rate", 0, _AGENTS, low=0),
    Spec("gateway.startup_s", "number", "s", "time until a new replica serves", 300, _AGENTS, low=0),
    Spec("gateway.redis", "flag", "yes/no", "limits are shared through Redis", True, _AGENTS),
    # -- money
    Spec("money.capex_node", "money", "currency", "price of a node", low=0),
    Spec("money.amortisation_years", "count", "years", "straight-line amortisation", 3, _SLO, low=1),
    Spec("money.opex_node_year", "money", "currency/year",
         "operation of a node per year, energy included", low=0),
    Spec("money.utilisation", "number", "share",
         "share of the year's hours in which the GPUs do paid work", 0.63, _SLO, low=0.01, high=1),
    Spec("money.growth", "number", "1/year", "growth of the demand per year", low=0),
    # -- energy
    Spec("energy.board_busy_w", "number", "W", "draw of a busy board; default: the card's rating", low=1),
    Spec("energy.board_idle_w", "number", "W", "draw of an idle board", low=0),
    Spec("energy.node_overhead_w", "number", "W", "draw of a node beside its boards", low=0),
    Spec("energy.pue", "number", "factor",
         "facility over rack power", 1.54, "Uptime survey 2025, 2025-07-01", low=1, high=3),
    Spec("energy.price_kwh", "money", "currency/kWh", "energy price", low=0),
    Spec("energy.prices_kwh", "numbers", "currency/kWh", "energy prices to compare"),
    Spec("energy.measured_agents_per_megawatt", "number", "agents/MW",
         "the measured figure, shown beside the predicted one", low=0),
)  # fmt: skip

BY_KEY: Final[Mapping[str, Spec]] = {spec.key: spec for spec in SPECS}
SECTIONS: Final[frozenset[str]] = frozenset(spec.key.split(".")[0] for spec in SPECS)


def default_input(spec: Spec) -> Input | None:
    """The published default of a key; None when there is none."""
    if spec.default is None:
        return None
    source, _, date = spec.source.rpartition(", ")
    return Input(spec.key, spec.default, spec.unit, "literature", source, date, is_default=True)
