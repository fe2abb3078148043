"""Fragments of configuration that match a sized gateway: proxy settings, chart values, engine flags.

They are fragments on purpose: names of models, keys and hosts stay with whoever runs the platform.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipeline.sizing.gateway import REQUEST_TIMEOUT_S, Gateway


def fragments(gate: Gateway, values: Mapping[str, Any]) -> dict[str, Any]:
    """``config_yaml``, ``environment`` and ``values_yaml`` for a gateway, as mappings."""
    return {
        "config_yaml": proxy_config(gate, values),
        "environment": environment(gate, values),
        "values_yaml": chart_values(gate, values),
    }


def proxy_config(gate: Gateway, values: Mapping[str, Any]) -> dict[str, Any]:
    """The part of the proxy's ``config.yaml`` that sizing decides."""
    return {
        "router_settings": {
            # Without affinity the prefix cache is spread over replicas and the fleet is too small.
            "optional_pre_call_checks": ["session_affinity"],
        },
        "general_settings": {
            "max_in_flight_requests_per_worker": gate.max_in_flight_per_worker,
            "max_queued_requests_per_worker": gate.max_queued_per_worker,
            "admission_queue_timeout_seconds": 1.0,
            "proxy_batch_write_at": round(values["gateway.flush_s"]),
            "database_connection_pool_limit": int(values["gateway.pool"]),
        },
        "litellm_settings": {"request_timeout": round(REQUEST_TIMEOUT_S)},
    }


def environment(gate: Gateway, values: Mapping[str, Any]) -> dict[str, str]:
    """Environment variables of a proxy process."""
    return {
        "NUM_WORKERS": str(gate.workers_per_replica),
        "TOKEN_COUNTER_MAX_CONCURRENT_COUNTS": str(int(values["gateway.slots"])),
    }


def chart_values(gate: Gateway, values: Mapping[str, Any]) -> dict[str, Any]:
    """Values for the proxy's chart: replicas, resources per pod, scaling on CPU or on calls in flight.

    Memory has no target: the database client keeps its high-water mark, so replicas would only be added.
    """
    cpu = values["gateway.vcpu"] * gate.workers_per_replica
    size = {
        "cpu": f"{cpu:g}",
        "memory": f"{values['gateway.memory_gib'] * gate.workers_per_replica:g}Gi",
    }
    scaling = gate.scaling
    return {
        "replicaCount": gate.replicas,
        "resources": {"requests": dict(size), "limits": dict(size)},
        "autoscaling": {
            "enabled": True,
            "minReplicas": scaling.min_replicas,
            "maxReplicas": scaling.max_replicas,
            "targetCPUUtilizationPercentage": scaling.hpa_cpu_percent,
        },
        # An alternative to the block above; the chart allows one of the two.
        "keda": {
            "enabled": False,
            "minReplicas": scaling.min_replicas,
            "maxReplicas": scaling.max_replicas,
            "pollingInterval": 15,
            "cooldownPeriod": 360,
            "triggers": [
                {
                    "type": "prometheus",
                    "metadata": {
                        "query": "sum(litellm_in_flight_requests)",
                        "threshold": str(scaling.keda_in_flight_per_replica),
                    },
                }
            ],
        },
        "startupProbe": {"periodSeconds": 10, "failureThreshold": round(scaling.startup_s / 10)},
    }


def engine_flags(
    tensor_parallel: int, max_num_seqs: int, context_max: int, kv_element_bytes: float
) -> list[str]:
    """Flags of the engine that the budget decides."""
    flags = [
        f"--tensor-parallel-size {tensor_parallel}",
        f"--max-num-seqs {max_num_seqs}",
        f"--max-model-len {context_max}",
    ]
    if kv_element_bytes == 1:
        flags.append("--kv-cache-dtype fp8")
    return flags


def engine_triggers() -> list[dict[str, Any]]:
    """Scaling triggers of the engine: queue, and cache usage, which fills before the queue does."""
    return [
        {"query": "sum(vllm:num_requests_waiting)", "threshold": 5},
        {"query": "max(vllm:kv_cache_usage_perc)", "threshold": 0.8},
    ]
