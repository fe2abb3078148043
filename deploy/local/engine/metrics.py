"""What the engine exposes: vLLM's metric families and DCGM's power names, in an own registry.

Names, types and labels follow vLLM 0.32 (compared with a recorded scrape in the tests). Three clocks as in
vLLM: prefix queries and hits count at admission, prompt tokens at the first output token, request histograms
at the end; an aborted request appears in none of the latter.
"""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from deploy.local.engine.power import PowerModel

SECONDS: Final = (
    0.001,
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.25,
    0.5,
    0.75,
    1,
    2.5,
    5,
    7.5,
    10,
    20,
    40,
    80,
)
LATENCY: Final = (
    0.3,
    0.5,
    0.8,
    1,
    1.5,
    2,
    2.5,
    5,
    10,
    15,
    20,
    30,
    40,
    50,
    60,
    120,
    240,
    480,
    960,
    1920,
    7680,
)
ITL: Final = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
TOKENS: Final = tuple(m * 10**e for e in range(6) for m in (1, 2, 5))
LABELS: Final = ("model_name", "engine")
FINISHED: Final = ("stop", "length", "abort", "error", "repetition")
SOURCES: Final = ("local_compute", "local_cache_hit", "external_kv_transfer")


class EngineMetrics:
    """All families of one engine; every observation is one method call."""

    def __init__(
        self, model_names: tuple[str, ...], power: PowerModel, *, block_size: int, blocks: int
    ) -> None:
        self.registry = CollectorRegistry()
        self.running = self._gauge("num_requests_running", "Requests in model execution batches.")
        self.waiting = self._gauge("num_requests_waiting", "Requests waiting to be processed.")
        self.waiting_by_reason = Gauge(
            "vllm:num_requests_waiting_by_reason",
            "Waiting requests by reason.",
            (*LABELS, "reason"),
            registry=self.registry,
        )
        self.kv_usage = self._gauge(
            "kv_cache_usage_perc", "KV-cache usage, 1 means all blocks are held by live requests."
        )
        self.queries = self._counter("prefix_cache_queries", "Prefix cache queries, in tokens.")
        self.hits = self._counter("prefix_cache_hits", "Prefix cache hits, in tokens.")
        self.preemptions = self._counter("num_preemptions", "Cumulative preemptions.")
        self.prompt_tokens = self._counter("prompt_tokens", "Prefill tokens processed.")
        self.by_source = self._counter("prompt_tokens_by_source", "Prompt tokens by source.", "source")
        self.cached = self._counter("prompt_tokens_cached", "Prompt tokens that were not computed.")
        self.generation = self._counter("generation_tokens", "Generation tokens processed.")
        self.success = self._counter("request_success", "Successfully processed requests.", "finished_reason")
        self.ttft = self._histogram("time_to_first_token_seconds", "Time to first token.", SECONDS)
        self.itl = self._histogram("inter_token_latency_seconds", "Inter-token latency.", ITL)
        self.tpot = self._histogram(
            "request_time_per_output_token_seconds", "Time per output token of a request.", ITL
        )
        self.e2e = self._histogram("e2e_request_latency_seconds", "End-to-end latency.", LATENCY)
        self.queue = self._histogram("request_queue_time_seconds", "Time in WAITING phase.", LATENCY)
        self.prefill = self._histogram("request_prefill_time_seconds", "Time in PREFILL phase.", LATENCY)
        self.decode = self._histogram("request_decode_time_seconds", "Time in DECODE phase.", LATENCY)
        self.inference = self._histogram("request_inference_time_seconds", "Time in RUNNING phase.", LATENCY)
        self.request_prompt = self._histogram("request_prompt_tokens", "Prefill tokens of a request.", TOKENS)
        self.request_generation = self._histogram(
            "request_generation_tokens", "Generation tokens of a request.", TOKENS
        )
        self.computed = self._histogram(
            "request_prefill_kv_computed_tokens", "Prompt tokens computed anew.", TOKENS
        )
        info = Gauge(
            "vllm:cache_config_info",
            "Information of the cache configuration.",
            ("block_size", "num_gpu_blocks", "enable_prefix_caching", "engine"),
            registry=self.registry,
        )
        info.labels(str(block_size), str(blocks), "True", "0").set(1)
        self._power = power
        for model in model_names:
            self.introduce(model)

    def introduce(self, model: str) -> None:
        """Show every series of *model* at zero, as vLLM does from its start."""
        for family in (
            self.running, self.waiting, self.kv_usage, self.queries, self.hits, self.preemptions,
            self.prompt_tokens, self.cached, self.generation,
        ):  # fmt: skip
            family.labels(model, "0")
        for reason in ("capacity", "deferred"):
            self.waiting_by_reason.labels(model, "0", reason)
        for reason in FINISHED:
            self.success.labels(model, "0", reason)
        for source in SOURCES:
            self.by_source.labels(model, "0", source)

    def text(self) -> bytes:
        """Return the exposition in text format 0.0.4."""
        return generate_latest(self.registry) + power_text(self._power).encode()

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"vllm:{name}", text, LABELS, registry=self.registry)

    def _counter(self, name: str, text: str, *more: str) -> Counter:
        return Counter(f"vllm:{name}", text, (*LABELS, *more), registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"vllm:{name}", text, LABELS, buckets=buckets, registry=self.registry)


_BOARD_LABELS: Final = ("gpu", "UUID", "device", "modelName", "Hostname")


def power_text(power: PowerModel) -> str:
    """Return the boards' power gauge (W) and energy counter (mJ) in text format.

    Written by hand: dcgm-exporter's energy counter has no ``_total`` suffix, which the client library adds to
    every counter.
    """
    lines = []
    for name, kind, text, value in (
        ("DCGM_FI_DEV_POWER_USAGE", "gauge", "Power draw (in W).", f"{power.board_watts:.3f}"),
        (
            "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
            "counter",
            "Total energy consumption since boot (in mJ).",
            str(int(power.board_joules() * 1e3)),
        ),
    ):
        lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
        for board in range(power.boards):
            labels = ",".join(f'{k}="{v}"' for k, v in zip(_BOARD_LABELS, _board(board), strict=True))
            lines.append(f"{name}{{{labels}}} {value}")
    return "\n".join(lines) + "\n"


def _board(number: int) -> tuple[str, ...]:
    uuid = f"GPU-5741ad10-0000-4000-8000-{number:012d}"
    return (str(number), uuid, f"nvidia{number}", "stand-in (synthetic)", "stand-in")
