"""What the engine exposes under vLLM's names, in an own registry.

Names, types, labels and buckets follow vLLM 0.32 (compared with a recorded scrape in the tests). Three clocks
as in vLLM: prefix queries and hits count at admission, prompt tokens at the first output token, request
histograms at the end; an aborted request appears in none of the latter. Left out is what this engine has no
counterpart of: steps (``iteration_tokens_total``), block residency, sleep operations.
"""

from __future__ import annotations

from itertools import chain
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_ENGINE: Final = "0"
_LABELS: Final = ("model_name", "engine")

_GAUGES: Final = {
    "num_requests_running": "Requests that run.",
    "num_requests_waiting": "Requests that wait to be run.",
    "kv_cache_usage_perc": "Share of the KV cache that live requests hold, 0 to 1.",
}
_COUNTERS: Final = {
    "estimated_flops_per_gpu": "Estimated floating point operations; not estimated here.",
    "estimated_read_bytes_per_gpu": "Estimated bytes read from memory; not estimated here.",
    "estimated_write_bytes_per_gpu": "Estimated bytes written to memory; not estimated here.",
    "prefix_cache_queries": "Tokens looked up in the prefix cache.",
    "prefix_cache_hits": "Tokens found in the prefix cache.",
    "external_prefix_cache_queries": "Tokens looked up in other engines' caches; there are none here.",
    "external_prefix_cache_hits": "Tokens found in other engines' caches; there are none here.",
    "mm_cache_queries": "Items looked up in the multi-modal cache; there is none here.",
    "mm_cache_hits": "Items found in the multi-modal cache; there is none here.",
    "num_preemptions": "Preemptions; this engine reserves all blocks of a request and never preempts.",
    "prompt_tokens": "Prompt tokens, cached ones included.",
    "prompt_tokens_cached": "Prompt tokens that were not computed.",
    "generation_tokens": "Generated tokens.",
}
#: Families with one more label: kind, help, label, values.
_SPLIT: Final = {
    "num_requests_waiting_by_reason": (
        Gauge, "Waiting requests by reason.", "reason",
        ("capacity", "deferred"),
    ),
    "engine_sleep_state": (
        Gauge, "1 for the state that the engine is in.", "sleep_state",
        ("awake", "weights_offloaded", "discard_all"),
    ),
    "prompt_tokens_by_source": (
        Counter, "Prompt tokens by where they came from.", "source",
        ("local_compute", "local_cache_hit", "external_kv_transfer"),
    ),
    "prompt_tokens_cached_by_source": (
        Counter, "Cached prompt tokens by tier, counted at admission.", "source",
        ("device", "host", "p2p", "disk", "external_unspecified"),
    ),
    "request_success": (
        Counter, "Finished requests by reason.", "finished_reason",
        ("stop", "length", "abort", "error", "repetition"),
    ),
}  # fmt: skip
_REJECTIONS: Final = ("max_num_queued_reqs", "max_num_queued_tokens")

_TTFT: Final = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0,
    80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip
_LATENCY: Final = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0,
    960.0, 1920.0, 7680.0,
)  # fmt: skip
_ITL: Final = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
_TIMES: Final = {
    "time_to_first_token_seconds": ("Time to first token.", _TTFT),
    "inter_token_latency_seconds": ("Time between two tokens.", _ITL),
    "request_time_per_output_token_seconds": ("Mean time per token of a request after its first.", _ITL),
    "e2e_request_latency_seconds": ("Time from arrival to the last token.", _LATENCY),
    "request_queue_time_seconds": ("Time from arrival to admission.", _LATENCY),
    "request_prefill_time_seconds": ("Time from admission to the first token.", _LATENCY),
    "request_decode_time_seconds": ("Time from the first to the last token.", _LATENCY),
    "request_inference_time_seconds": ("Time from admission to the last token.", _LATENCY),
    "request_params_n": ("Answers asked for.", (1.0, 2.0, 5.0, 10.0, 20.0)),
    "request_num_preemptions": ("Preemptions of a request.", (1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0)),
}
#: Histograms of tokens; their buckets end at the longest prompt.
_TOKENS: Final = {
    "request_prompt_tokens": "Prompt tokens of a request.",
    "request_generation_tokens": "Generated tokens of a request.",
    "request_prefill_kv_computed_tokens": "Prompt tokens of a request that were computed.",
    "request_params_max_tokens": "Output limit of a request.",
    "request_max_num_generation_tokens": "Most tokens that were asked for in one answer.",
}

#: Labels of cache_config_info that say something here; those without a counterpart are "None".
_CACHE_LABELS: Final = (
    "_block_size_resolved", "block_size", "cache_dtype", "cache_hit_alignment_tokens",
    "effective_attention_block_size", "enable_mamba_shared_prefix_checkpoint", "enable_prefix_caching",
    "engine", "gpu_memory_utilization", "hash_block_size", "is_attention_free", "kv_cache_dtype_skip_layers",
    "kv_cache_layout", "kv_cache_max_concurrency", "kv_cache_memory_bytes", "kv_cache_size_tokens",
    "kv_offloading_backend", "kv_offloading_size", "kv_sharing_fast_prefill", "mamba_block_size",
    "mamba_cache_dtype", "mamba_cache_mode", "mamba_page_size_padded", "mamba_ssm_cache_dtype",
    "num_cpu_blocks", "num_gpu_blocks", "num_gpu_blocks_override", "prefix_cache_retention_interval",
    "prefix_caching_hash_algo", "prefix_match_unit", "replayssm_buffer_len", "skip_page_size_padded",
    "sliding_window", "swa_bounded_replay", "use_kda_recoverssm", "use_replayssm",
    "user_specified_block_size",
)  # fmt: skip


def token_buckets(largest: int) -> tuple[float, ...]:
    """Return 1, 2, 5, 10, 20, 50 … up to *largest*, as vLLM does."""
    series = chain.from_iterable((10**e, 2 * 10**e, 5 * 10**e) for e in range(len(str(largest))))
    return tuple(float(value) for value in series if value <= largest)


class ModelMetrics:
    """The series of one model; all of them exist from the start, as in vLLM."""

    def __init__(self, families: EngineMetrics, model: str) -> None:
        gauge = {name: family.labels(model, _ENGINE) for name, family in families.gauges.items()}
        counter = {name: family.labels(model, _ENGINE) for name, family in families.counters.items()}
        histogram = {name: family.labels(model, _ENGINE) for name, family in families.histograms.items()}
        gauges = {
            name: {value: family.labels(model, _ENGINE, value) for value in _SPLIT[name][3]}
            for name, family in families.split_gauges.items()
        }
        counters = {
            name: {value: family.labels(model, _ENGINE, value) for value in _SPLIT[name][3]}
            for name, family in families.split_counters.items()
        }
        for reason in _REJECTIONS:
            families.rejections.labels(model, reason)
        gauges["engine_sleep_state"]["awake"].set(1)
        self.running = gauge["num_requests_running"]
        self.waiting = gauge["num_requests_waiting"]
        self.waiting_for_capacity = gauges["num_requests_waiting_by_reason"]["capacity"]
        self.kv_usage = gauge["kv_cache_usage_perc"]
        self.queries = counter["prefix_cache_queries"]
        self.hits = counter["prefix_cache_hits"]
        self.cached_on_device = counters["prompt_tokens_cached_by_source"]["device"]
        self.prompt_tokens = counter["prompt_tokens"]
        self.cached = counter["prompt_tokens_cached"]
        self.computed_here = counters["prompt_tokens_by_source"]["local_compute"]
        self.cached_here = counters["prompt_tokens_by_source"]["local_cache_hit"]
        self.generation = counter["generation_tokens"]
        self.finished = counters["request_success"]
        self.ttft = histogram["time_to_first_token_seconds"]
        self.itl = histogram["inter_token_latency_seconds"]
        self.tpot = histogram["request_time_per_output_token_seconds"]
        self.e2e = histogram["e2e_request_latency_seconds"]
        self.queue = histogram["request_queue_time_seconds"]
        self.prefill = histogram["request_prefill_time_seconds"]
        self.decode = histogram["request_decode_time_seconds"]
        self.inference = histogram["request_inference_time_seconds"]
        self.request_prompt = histogram["request_prompt_tokens"]
        self.request_generation = histogram["request_generation_tokens"]
        self.request_computed = histogram["request_prefill_kv_computed_tokens"]
        self.request_max_tokens = histogram["request_params_max_tokens"]
        self.request_max_generation = histogram["request_max_num_generation_tokens"]
        self.request_n = histogram["request_params_n"]
        self.request_preemptions = histogram["request_num_preemptions"]


class EngineMetrics:
    """All families of one engine."""

    def __init__(self, *, block_size: int, blocks: int, max_model_len: int) -> None:
        self.registry = registry = CollectorRegistry()
        self.models: dict[str, ModelMetrics] = {}
        self.gauges = {
            name: Gauge(f"vllm:{name}", text, _LABELS, registry=registry) for name, text in _GAUGES.items()
        }
        self.counters = {
            name: Counter(f"vllm:{name}", text, _LABELS, registry=registry)
            for name, text in _COUNTERS.items()
        }
        self.split_gauges = {
            name: Gauge(f"vllm:{name}", text, (*_LABELS, label), registry=registry)
            for name, (kind, text, label, _) in _SPLIT.items()
            if kind is Gauge
        }
        self.split_counters = {
            name: Counter(f"vllm:{name}", text, (*_LABELS, label), registry=registry)
            for name, (kind, text, label, _) in _SPLIT.items()
            if kind is Counter
        }
        tokens = token_buckets(max_model_len)
        histograms = _TIMES | {name: (text, tokens) for name, text in _TOKENS.items()}
        self.histograms = {
            name: Histogram(f"vllm:{name}", text, _LABELS, buckets=buckets, registry=registry)
            for name, (text, buckets) in histograms.items()
        }
        self.rejections = Counter(
            "vllm:admission_rejections",
            "Requests refused by a limit of the queue; there is none here.",
            ("model_name", "reason"),
            registry=registry,
        )
        info = Gauge("vllm:cache_config_info", "The cache's configuration.", _CACHE_LABELS, registry=registry)
        known = {
            "_block_size_resolved": "True",
            "block_size": str(block_size),
            "effective_attention_block_size": str(block_size),
            "enable_prefix_caching": "True",
            "engine": _ENGINE,
            "is_attention_free": "False",
            "kv_cache_max_concurrency": str(blocks * block_size / max_model_len),
            "kv_cache_size_tokens": str(blocks * block_size),
            "num_gpu_blocks": str(blocks),
            "prefix_caching_hash_algo": "xxh3_64",
            "user_specified_block_size": "True",
        }
        info.labels(**{label: known.get(label, "None") for label in _CACHE_LABELS}).set(1)

    def of(self, model: str) -> ModelMetrics:
        """Return the series of *model*, made at its first use."""
        if model not in self.models:
            self.models[model] = ModelMetrics(self, model)
        return self.models[model]

    def text(self) -> bytes:
        """Return the exposition in text format 0.0.4."""
        return generate_latest(self.registry)
