"""From a demand to GPUs and nodes: the throughput chain, the agents' chain, and their checks.

Two ways to the same number. *Throughput*: tokens per second at the peak, divided by the utilisation the
latency target allows and by what one GPU gives. *Agents*: sequences that must be resident at once, divided
by what one replica holds in memory and in time.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from pipeline.sizing import kv
from pipeline.sizing.units import (
    GB,
    GIB,
    SECONDS_PER_DAY,
    SECONDS_PER_HOUR,
    SizingError,
    ceil_div,
    exact,
    floor_div,
    plain,
    share,
)


def average_tok_s(requests_per_day: float, output_tokens: float) -> float:
    """Mean output tokens per second over a day."""
    return float(exact(requests_per_day) * exact(output_tokens) / SECONDS_PER_DAY)


def _peak(requests_per_day: float, output_tokens: float, peak_factor: float, active_hours: float) -> Fraction:
    if not 0 < active_hours <= 24:
        raise SizingError(f"active_hours must lie in 0..24, not {active_hours}")
    per_day = exact(requests_per_day) * exact(output_tokens)
    return exact(peak_factor) * per_day / (exact(active_hours) * SECONDS_PER_HOUR)


def peak_tok_s(
    requests_per_day: float, output_tokens: float, peak_factor: float, active_hours: float
) -> float:
    """Output tokens per second in the busy hour: the day's over the active hours, times the peak factor."""
    return float(_peak(requests_per_day, output_tokens, peak_factor, active_hours))


def required_tok_s(demand_tok_s: float, rho_max: float) -> float:
    """Installed tokens per second so that utilisation at the peak stays at ``rho_max``."""
    if not 0 < rho_max <= 1:
        raise SizingError(f"rho_max must lie in 0..1, not {rho_max}")
    return float(exact(demand_tok_s) / exact(rho_max))


def gpus_for(installed_tok_s: float, gpu_tok_s: float) -> int:
    """GPUs that install ``installed_tok_s`` when one gives ``gpu_tok_s``."""
    return ceil_div(installed_tok_s, gpu_tok_s)


def nodes_for(gpus: int, gpus_per_node: int) -> int:
    """Whole nodes that hold ``gpus``."""
    return ceil_div(gpus, gpus_per_node)


def with_headroom(nodes: int, headroom: float) -> int:
    """Nodes with a share of ``headroom`` on top, rounded up."""
    if headroom < 0:
        raise SizingError(f"headroom must not be negative, not {headroom}")
    return ceil_div(exact(nodes) * (1 + exact(headroom)), 1)


def chain_gpus(
    requests_per_day: float,
    output_tokens: float,
    *,
    peak_factor: float,
    active_hours: float,
    rho_max: float,
    gpu_tok_s: float,
) -> int:
    """The whole throughput chain in one ceiling, without rounding between its steps."""
    peak = _peak(requests_per_day, output_tokens, peak_factor, active_hours)
    if not 0 < rho_max <= 1:
        raise SizingError(f"rho_max must lie in 0..1, not {rho_max}")
    return ceil_div(peak / exact(rho_max), gpu_tok_s)


@dataclass(frozen=True, slots=True)
class Chain:
    """Every step of the throughput chain, for the report."""

    average_tok_s: float
    peak_tok_s: float
    rho_max: float
    required_tok_s: float
    gpus: int
    nodes: int
    nodes_with_headroom: int
    gpus_installed: int


def throughput_chain(
    requests_per_day: float,
    output_tokens: float,
    *,
    peak_factor: float,
    active_hours: float,
    rho_max: float,
    gpu_tok_s: float,
    gpus_per_node: int,
    headroom: float,
    reserved_share: float = 0.0,
) -> Chain:
    """Demand to nodes, keeping the intermediate figures."""
    peak = peak_tok_s(requests_per_day, output_tokens, peak_factor, active_hours)
    gpus = chain_gpus(
        requests_per_day,
        output_tokens,
        peak_factor=peak_factor,
        active_hours=active_hours,
        rho_max=rho_max,
        gpu_tok_s=gpu_tok_s,
    )
    nodes = reserve(nodes_for(gpus, gpus_per_node), reserved_share)
    final = with_headroom(nodes, headroom)
    return Chain(
        average_tok_s=average_tok_s(requests_per_day, output_tokens),
        peak_tok_s=peak,
        rho_max=rho_max,
        required_tok_s=required_tok_s(peak, rho_max),
        gpus=gpus,
        nodes=nodes,
        nodes_with_headroom=final,
        gpus_installed=final * gpus_per_node,
    )


@dataclass(frozen=True, slots=True)
class AgentFleet:
    """GPUs for a number of resident sequences. ``sequences_per_replica`` is the memory fit."""

    kv_need_gib: int | float
    kv_per_gpu_gb: int | float
    kv_replica_gb: int | float
    sequences_per_replica: int
    replicas: int
    gpus_per_replica: int
    gpus_total: int


def agent_fleet(
    sequences: int,
    gib_per_sequence: float,
    *,
    weights_gb: float,
    gpu_gb: float,
    gpu_memory_utilization: float,
    tensor_parallel: int,
    spare_replicas: int,
    activations_gb: float = 0.0,
    overhead_gb: float = 0.0,
) -> AgentFleet:
    """Replicas that hold ``sequences`` of ``gib_per_sequence`` each, plus spare ones.

    A sequence lives on one replica, so a replica holds a whole number of them. Weights are divided evenly
    over the tensor ranks; ``gib_per_sequence`` is over the whole replica.

    Raises:
        SizingError: the weights leave no room, or a single sequence does not fit a replica.
    """
    room = kv.budget(
        gpu_gb,
        exact(weights_gb) / tensor_parallel,
        gpu_memory_utilization=gpu_memory_utilization,
        activations_gb=activations_gb,
        overhead_gb=overhead_gb,
        gpus=tensor_parallel,
    )
    each = exact(gib_per_sequence) * GIB
    per_replica = floor_div(exact(room.replica_gb) * GB, each)
    if per_replica < 1:
        raise SizingError(
            f"one sequence of {gib_per_sequence:.1f} GiB does not fit the {float(room.replica_gb):.1f} GB "
            f"that {tensor_parallel} GPUs leave for the cache"
        )
    replicas = max(1, ceil_div(sequences, per_replica))
    return AgentFleet(
        kv_need_gib=plain(exact(sequences) * exact(gib_per_sequence)),
        kv_per_gpu_gb=room.per_gpu_gb,
        kv_replica_gb=room.replica_gb,
        sequences_per_replica=per_replica,
        replicas=replicas,
        gpus_per_replica=tensor_parallel,
        gpus_total=(replicas + spare_replicas) * tensor_parallel,
    )


def sequences_in(kv_gb: float, gib_per_sequence: float) -> float:
    """Sequences (not whole) in ``kv_gb`` decimal GB when each takes ``gib_per_sequence`` binary GiB."""
    return float(exact(kv_gb) * GB / (exact(gib_per_sequence) * GIB))


def replicas_for_rate(requests_per_s: float, concurrency: int, request_s: float) -> int:
    """Replicas for a request rate when each sustains ``concurrency`` calls of ``request_s`` (Little)."""
    return ceil_div(exact(requests_per_s) * exact(request_s), concurrency)


def replicas_for_goodput(target_tok_s: float, goodput_tok_s: float) -> int:
    """Replicas for a target of tokens per second when one gives ``goodput_tok_s`` under its SLO."""
    return ceil_div(target_tok_s, goodput_tok_s)


def reserve(nodes: int, share_reserved: float) -> int:
    """Nodes so that ``share_reserved`` of them stays free for evals, re-embedding and rollback stand-by."""
    share("share_reserved", share_reserved)
    if share_reserved >= 1:
        raise SizingError("share_reserved must be below 1")
    return ceil_div(exact(nodes) / (1 - exact(share_reserved)), 1)
