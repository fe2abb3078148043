"""Checks of what is deployed: proxy configuration, chart values, engine flags, dashboards."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Final

from pipeline.sizing.evidence import Evidence, Outcome, Status, get, number
from pipeline.sizing.gateway import DEFAULT_FLUSH_S, REQUEST_TIMEOUT_S

#: Request timeout of the proxy when nothing is set, seconds.
DEFAULT_REQUEST_TIMEOUT_S: Final = 6000

#: Engine metrics that were renamed or removed, and what replaced them.
RENAMED_METRICS: Final[Mapping[str, str]] = {
    "vllm:gpu_cache_usage_perc": "vllm:kv_cache_usage_perc",
    "vllm:time_in_queue_requests": "vllm:request_queue_time_seconds",
    "vllm:num_requests_swapped": "removed with CPU swapping",
    "vllm:cpu_cache_usage_perc": "removed with CPU swapping",
    "vllm:gpu_prefix_cache_hit_rate": "rate(vllm:prefix_cache_hits) / rate(vllm:prefix_cache_queries)",
    "vllm:cpu_prefix_cache_hit_rate": "rate(vllm:prefix_cache_hits) / rate(vllm:prefix_cache_queries)",
}


def affinity(e: Evidence) -> Outcome:
    """Session affinity at the router."""
    if e.config is None:
        return "unknown", "no proxy configuration given"
    checks = get(e.config, "router_settings", "optional_pre_call_checks") or []
    if "session_affinity" in checks:
        return "pass", "router_settings.optional_pre_call_checks names session_affinity"
    if get(e.config, "router_settings", "model_group_affinity_config"):
        return "pass", "router_settings.model_group_affinity_config is set"
    names = [m.get("model_name") for m in e.config.get("model_list") or [] if isinstance(m, Mapping)]
    if names and len(names) == len(set(names)):
        return "warn", "off, and every model group has one deployment: harmless until a second one is added"
    return (
        "fail",
        "no affinity: consecutive calls of a session spread over replicas and prefill is 20 to 60 times",
    )


def timeout(e: Evidence) -> Outcome:
    """Request timeout of the proxy."""
    if e.config is None:
        return "unknown", "no proxy configuration given"
    value = number(get(e.config, "litellm_settings", "request_timeout"))
    if value is None:
        return (
            "fail",
            f"request_timeout is not set: {DEFAULT_REQUEST_TIMEOUT_S} s, a hung call holds a slot for hours",
        )
    status: Status = "pass" if value <= REQUEST_TIMEOUT_S else "fail"
    return (
        status,
        f"litellm_settings.request_timeout is {value:g} s, at most {REQUEST_TIMEOUT_S:g} is recommended",
    )


def admission(e: Evidence) -> Outcome:
    """Admission control of the proxy, against the plan."""
    if e.config is None:
        return "unknown", "no proxy configuration given"
    limit = number(get(e.config, "general_settings", "max_in_flight_requests_per_worker"))
    if limit is None:
        return "fail", "general_settings.max_in_flight_requests_per_worker is not set: the queue has no bound"
    sized = number(get(e.plan, "results", "gateway", "max_in_flight_per_worker"))
    if sized is not None and limit > 4 * sized:
        return "warn", f"limit of {limit:g} in flight per worker, the plan needs {sized:g}"
    if sized is not None and limit < sized:
        return "warn", f"limit of {limit:g} in flight per worker rejects the planned peak of {sized:g}"
    return "pass", f"{limit:g} in flight per worker"


def engine_admission(e: Evidence) -> Outcome:
    """Bound on the queue of the engine."""
    if e.engine is None:
        return "unknown", "no engine command line given"
    found = [f for f in ("--max-num-queued-reqs", "--max-num-queued-tokens") if f in e.engine]
    return ("pass", " and ".join(found)) if found else ("warn", "the engine's queue has no bound")


def _flag_value(engine: str, flag: str) -> float | None:
    words = engine.replace("=", " ").split()
    for word, following in pairwise(words):
        if word == flag:
            return number(following)
    return None


def max_num_seqs(e: Evidence) -> Outcome:
    """``--max-num-seqs`` against the cache budget of the plan."""
    if e.engine is None:
        return "unknown", "no engine command line given"
    value = _flag_value(e.engine, "--max-num-seqs")
    budget = number(get(e.plan, "results", "kv", "fit", "max_num_seqs"))
    if value is None:
        return "fail", "--max-num-seqs is not set: the default is a chat heuristic, not the cache budget"
    if budget is None:
        return "unknown", f"--max-num-seqs {value:g}, but no agents' plan to compare with"
    status: Status = "pass" if value <= budget else "fail"
    return status, f"--max-num-seqs {value:g}, the cache budget and the targets allow {budget:g}"


def batch_interval(e: Evidence) -> Outcome:
    """Interval of the spend writer."""
    if e.config is None:
        return "unknown", "no proxy configuration given"
    value = number(get(e.config, "general_settings", "proxy_batch_write_at"))
    seconds = DEFAULT_FLUSH_S if value is None else value
    said = "not set, 10 s" if value is None else f"{seconds:g} s"
    return ("pass" if seconds >= 60 else "warn"), f"proxy_batch_write_at {said}; 60 is recommended"


def redis(e: Evidence) -> Outcome:
    """Limits shared between workers."""
    if e.config is None:
        return "unknown", "no proxy configuration given"
    cache = str(get(e.config, "litellm_settings", "cache_params", "type") or "")
    shared = cache.startswith("redis") or bool(
        get(e.config, "router_settings", "redis_host") or get(e.config, "router_settings", "redis_url")
    )
    factor = number(get(e.plan, "results", "gateway", "limit_multiplier_without_redis")) or 1
    if shared:
        return "pass", "limits are shared through Redis"
    if factor <= 1:
        return "warn", "no Redis: limits hold for one worker only"
    return "fail", f"no Redis: every limit is really {factor:g} times as high over the planned workers"


def retries(e: Evidence) -> Outcome:
    """Retries that multiply load."""
    if e.config is None:
        return "unknown", "no proxy configuration given"
    router = number(get(e.config, "router_settings", "num_retries"))
    general = number(get(e.config, "litellm_settings", "num_retries"))
    total = max(router or 0, general or 0)
    if total > 2:
        return (
            "warn",
            f"{total:g} retries per call multiply with those of the client while the platform is full",
        )
    return "pass", f"{total:g} retries per call"


def hpa(e: Evidence) -> Outcome:
    """What the autoscaler looks at."""
    if e.chart is None:
        return "unknown", "no chart values given"
    scaling = e.chart.get("autoscaling") or {}
    if scaling.get("targetMemoryUtilizationPercentage"):
        return "fail", "scales on memory, which the database client never returns: replicas are only added"
    cpu = number(scaling.get("targetCPUUtilizationPercentage"))
    if scaling.get("enabled") and cpu is not None and cpu > 60:
        return (
            "warn",
            f"CPU target {cpu:g} %: with minutes of start-up 60 % is the highest that is recommended",
        )
    keda = bool(get(e.chart, "keda", "enabled"))
    return (
        "pass",
        "scales on calls in flight" if keda else f"CPU target {cpu:g} %" if cpu else "no memory target",
    )


def resources(e: Evidence) -> Outcome:
    """Requests equal to limits."""
    if e.chart is None:
        return "unknown", "no chart values given"
    requests, limits = get(e.chart, "resources", "requests"), get(e.chart, "resources", "limits")
    if not requests or not limits:
        return "warn", "requests and limits are not both set: 1 vCPU and 4 GiB per worker are recommended"
    same = {k: str(v) for k, v in requests.items()} == {k: str(v) for k, v in limits.items()}
    return ("pass" if same else "warn"), f"requests {dict(requests)}, limits {dict(limits)}"


def renames(e: Evidence) -> Outcome:
    """Engine metrics that were renamed, in dashboards and rules."""
    if e.dashboards is None:
        return "unknown", "no dashboards or rules given"
    found = sorted(
        f"{name}: {old} -> {new}"
        for name, text in e.dashboards
        for old, new in RENAMED_METRICS.items()
        if old in text or old.replace(":", "_", 1) in text
    )
    if found:
        return "fail", "; ".join(found)
    return "pass", f"{len(e.dashboards)} files name no renamed metric"
