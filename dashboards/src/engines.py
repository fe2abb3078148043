"""Engines: load, KV cache and latency by model."""

from __future__ import annotations

from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards.src import expressions as e
from dashboards.src.frame import build
from dashboards.src.panels import AMBER, RED, Panel, Query, grid, lines, number, thresholds


def dashboard() -> Dashboard:
    """Return the dashboard."""
    return build(
        "engines",
        "Which model's engines are near their limit, and is it the queue, the KV cache or the decode speed?",
        [("Load", _load()), ("Latency", _latency()), ("Work", _work())],
        live=True,
        model_variable=True,
    )


def _load() -> list[Panel]:
    return [
        number(
            "Running",
            "Requests in the engines' batches.",
            "short",
            Query("sum(vllm:num_requests_running{@m})"),
            span=6,
            link="overview",
        ),
        number(
            "Waiting",
            "Requests that wait for a place. More than a few for minutes: the fleet is too small or the KV "
            "cache is full.",
            "short",
            Query("sum(vllm:num_requests_waiting{@m})"),
            steps=thresholds((1, AMBER), (5, RED)),
            span=6,
            link="overview",
        ),
        number(
            "Fullest KV cache",
            "Share of KV blocks that live requests hold, of the fullest engine. Cached but free blocks count "
            "as free, so an idle engine shows 0 with a full prefix cache.",
            "percentunit",
            Query(f"max({e.KV_USAGE})"),
            steps=thresholds((0.8, AMBER), (0.95, RED)),
            span=6,
            link="prefix",
        ),
        number(
            "Preemptions",
            "Requests thrown out of the batch for lack of KV blocks, per minute. Each is computed again, "
            "which no token counter of the engine shows.",
            "opm",
            Query("sum(rate(vllm:num_preemptions_total{@m}[@])) * 60"),
            steps=thresholds((0.1, AMBER), (1, RED)),
            span=6,
            link="prefix",
        ),
        lines(
            "Running and waiting by model",
            "Requests in the batch and in the queue. Waiting while running is below the limit means that KV "
            "blocks are short, not slots.",
            "short",
            Query("sum by (model_name) (vllm:num_requests_running{@m})", "running {{model_name}}"),
            Query("sum by (model_name) (vllm:num_requests_waiting{@m})", "waiting {{model_name}}"),
            low=0,
            link="overview",
        ),
        lines(
            "Why requests wait",
            "capacity = no KV blocks or slots; deferred = the request itself is not ready (a transfer, a "
            "grammar). From vLLM 0.20 on.",
            "short",
            Query("sum by (model_name, reason) (vllm:num_requests_waiting_by_reason{@m})",
                  "{{reason}} {{model_name}}"),
            low=0,
            link="overview",
        ),
        lines(
            "KV cache in use by engine",
            "0 to 1, under its present and its former name. Above 0.95 the next long prompt waits or "
            "preempts another.",
            "percentunit",
            Query(e.KV_USAGE, "{{model_name}} {{instance}}"),
            low=0,
            high=1,
            steps=thresholds((0.95, RED)),
            link="prefix",
        ),
        lines(
            "Preemptions by model",
            "Preempted requests per second. They raise latency and energy without raising any token count.",
            "ops",
            Query("sum by (model_name) (rate(vllm:num_preemptions_total{@m}[@]))", "{{model_name}}"),
            low=0,
            link="power",
        ),
    ]  # fmt: skip


def _latency() -> list[Panel]:
    return [
        lines(
            "Time to first token",
            "Median and 95th percentile by model, at the engine (the gateway's part is not in it).",
            "s",
            Query(e.quantile(0.5, "vllm:time_to_first_token_seconds", "model_name", engine=True),
                  "P50 {{model_name}}"),
            Query(e.quantile(0.95, "vllm:time_to_first_token_seconds", "model_name", engine=True),
                  "P95 {{model_name}}"),
            low=0,
            link="gateway",
        ),
        lines(
            "Gap between tokens",
            "Median and 95th percentile by model. 50 ms are 20 tokens/s. It grows with the batch and with "
            "long prefills that run between decode steps.",
            "s",
            Query(e.quantile(0.5, "vllm:inter_token_latency_seconds", "model_name", engine=True),
                  "P50 {{model_name}}"),
            Query(e.quantile(0.95, "vllm:inter_token_latency_seconds", "model_name", engine=True),
                  "P95 {{model_name}}"),
            low=0,
            steps=thresholds((0.05, AMBER)),
            link="overview",
        ),
        lines(
            "Where the time goes",
            "Mean time of finished requests in queue, prefill and decode. Queue: too few engines. Prefill: "
            "prefix misses. Decode: batch too large.",
            "s",
            Query(e.mean("vllm:request_queue_time_seconds", engine=True), "queue"),
            Query(e.mean("vllm:request_prefill_time_seconds", engine=True), "prefill"),
            Query(e.mean("vllm:request_decode_time_seconds", engine=True), "decode"),
            stacked=True,
            low=0,
            link="prefix",
        ),
        lines(
            "Whole request",
            "From arrival to the last token, by model. Requests whose client left are in none of the "
            "engine's histograms.",
            "s",
            Query(e.quantile(0.5, "vllm:e2e_request_latency_seconds", "model_name", engine=True),
                  "P50 {{model_name}}"),
            Query(e.quantile(0.95, "vllm:e2e_request_latency_seconds", "model_name", engine=True),
                  "P95 {{model_name}}"),
            low=0,
            link="overview",
        ),
    ]  # fmt: skip


def _work() -> list[Panel]:
    return [
        lines(
            "Prompt tokens",
            "Prompt tokens per second by model, cached ones included.",
            "short",
            Query("sum by (model_name) (rate(vllm:prompt_tokens_total{@m}[@]))", "{{model_name}}"),
            stacked=True,
            low=0,
            link="prefix",
        ),
        lines(
            "Generated tokens",
            "Generated tokens per second by model, those of clients that left included.",
            "short",
            Query("sum by (model_name) (rate(vllm:generation_tokens_total{@m}[@]))", "{{model_name}}"),
            stacked=True,
            low=0,
            link="power",
        ),
        lines(
            "Finished requests by reason",
            "length = the output limit cut an answer, which breaks tool calls; abort stays near zero even "
            "when clients leave.",
            "reqps",
            Query(
                "sum by (finished_reason) (rate(vllm:request_success_total{@m}[@]))", "{{finished_reason}}"
            ),
            stacked=True,
            low=0,
            link="overview",
        ),
        lines(
            "Refused at admission",
            "Requests that an engine refused because a queue limit was reached, by limit. From vLLM 0.33 on.",
            "reqps",
            Query(
                'sum by (reason) (rate(vllm:admission_rejections_total{@,model_name=~"$model"}[@]))',
                "{{reason}}",
            ),
            low=0,
            link="gateway",
        ),
        grid(
            "Cache configuration",
            "What each engine was started with. Different block sizes or hash algorithms under one model "
            "make prefixes unshareable. kv_cache_size_tokens ÷ the prompts' P95 is how many agents fit.",
            "none",
            Query(
                """max by (instance, engine, block_size, num_gpu_blocks, kv_cache_size_tokens,
                enable_prefix_caching, prefix_caching_hash_algo) (vllm:cache_config_info{@})""",
                instant=True,
            ),
            least=125,
            hidden=("Time", "Value"),
            height=7,
            link="sizing",
        ),
    ]
