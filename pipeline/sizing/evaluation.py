"""One pass of the model: numbers in, fleet, gateway, money and energy out. Pure, so that it can be repeated.

:mod:`pipeline.sizing.plan` calls it once with the stated values and many times with drawn ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pipeline.sizing import concurrency, fleet, gateway, hardware, kv, queueing, speed, weights
from pipeline.sizing.geometry import Geometry
from pipeline.sizing.plan_file import Plan
from pipeline.sizing.regimes import Baseline
from pipeline.sizing.units import GB, GIB, SizingError, ceil_div, exact, plain, round_up

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Demand:
    """Concurrency: the mean, what is sized for, and where the difference comes from."""

    mean: float
    sized_for: float
    sequences: int
    basis: str
    peak: concurrency.Peak | None
    poisson_peak: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """A replica under one tensor parallel size, and the fleet made of it."""

    tensor_parallel: int
    weights_per_gpu_gb: float
    kv_per_gpu_gb: int | float
    kv_replica_gb: int | float
    gib_per_sequence: float
    fit: kv.Fit
    ceiling: speed.Ceiling
    replicas: int
    gpus: int
    baseline: Baseline


@dataclass(frozen=True, slots=True)
class AgentsFigures:
    """Everything the agents' method computes before money."""

    demand: Demand
    chosen: Candidate
    kv_need_gib: int | float
    nodes: int
    nodes_with_headroom: int
    refused: tuple[str, ...]


def demand_of(plan: Plan, values: Values) -> Demand:
    """Concurrent sequences: a measured quantile where there is one, else D x rho x A."""
    if plan.profiles:
        mean = sum(p.mean for p in plan.profiles)
        basis = f"{len(plan.profiles)} profiles, D x rho x A each"
    else:
        mean = concurrency.concurrency(
            values["people.active"], values["people.duty_cycle"], values["people.amplification"]
        )
        basis = "D x rho x A"
    peak = None
    sized = mean
    if plan.samples:
        peak = concurrency.weekly_peak(plan.samples, values["people.concurrency_quantile"])
        sized = peak.value
        basis = (
            f"measured: P{values['people.concurrency_quantile'] * 100:g} of hour {peak.hour_of_week} "
            f"of the week ({peak.hours_seen} of 168 hours seen)"
        )
    sized *= 1 + values["fleet.margin"]
    sequences = round_up(max(1, math.ceil(exact(round(sized, 9)))), int(values["fleet.sequence_multiple"]))
    return Demand(mean, sized, sequences, basis, peak, concurrency.poisson_quantile(mean, 0.95))


def _card(values: Values) -> tuple[float, float, float]:
    gpu = hardware.find(values["hardware.gpu"]) if "hardware.gpu" in values else None
    return (
        values.get("hardware.memory_gb") or (gpu.memory_gb if gpu else 0.0),
        values.get("hardware.hbm_gb_s") or (gpu.hbm_gb_s if gpu else 0.0),
        values.get("hardware.bf16_tflops") or (gpu.bf16_tflops if gpu else 0.0),
    )


def _cost(geometry: Geometry | None, values: Values, parallel: weights.Parallelism) -> kv.SequenceCost:
    element = values["model.kv_element_bytes"]
    if geometry is not None:
        return kv.sequence_cost(geometry, element, parallel)
    heads = math.ceil(values["model.kv_heads"] / parallel.tensor)
    layers = math.ceil(values["model.layers"] / parallel.pipeline)
    per_token = kv.bytes_per_token(layers, heads, int(values["model.head_dim"]), element)
    return kv.SequenceCost(per_token, exact(0), 0, exact(0))


def _placed(
    geometry: Geometry | None, values: Values, parallel: weights.Parallelism
) -> tuple[Any, float, float]:
    """Weights per GPU (exact where declared), weights a token reads per GPU, and active parameters."""
    declared: float | None = values.get("model.weights_gb")
    if geometry is None:
        if declared is None:
            raise SizingError("model.weights_gb: missing")
        per_gpu = exact(declared) / parallel.gpus
        return per_gpu, float(per_gpu), values["model.active_params_b"] * 1e9
    placed = weights.place_weights(geometry, parallel)
    active = (values.get("model.active_params_b") or placed.active_parameters / 1e9) * 1e9
    if declared is None:
        return placed.per_gpu_gb, placed.active_per_gpu_gb, active
    scale = declared / placed.total_gb
    return exact(declared) / parallel.gpus, placed.active_per_gpu_gb * scale, active


def candidate(plan: Plan, values: Values, tensor: int, sequences: int) -> Candidate:
    """A fleet of replicas of ``tensor`` GPUs (times pipeline stages).

    Raises:
        SizingError: the weights, one sequence or a single request do not fit.
    """
    parallel = weights.Parallelism(
        tensor, int(values["hardware.pipeline_parallel"]), int(values["hardware.expert_parallel"])
    )
    if plan.geometry is not None and plan.geometry.heads % tensor:
        raise SizingError(f"tensor parallel {tensor} does not divide {plan.geometry.heads} attention heads")
    memory, bandwidth, tflops = _card(values)
    per_gpu, active_gb, active_params = _placed(plan.geometry, values, parallel)
    room = kv.budget(
        memory,
        per_gpu,
        gpu_memory_utilization=values["hardware.gpu_memory_utilization"],
        activations_gb=values["hardware.activations_gb"],
        overhead_gb=values["hardware.overhead_gb"],
        gpus=parallel.gpus,
    )
    cost = _cost(plan.geometry, values, parallel)
    contexts = {
        "p50": int(values["calls.prompt_tokens_p50"] + values["calls.output_tokens"]),
        "p95": int(values["calls.prompt_tokens_p95"] + values["calls.output_tokens"]),
        "max": int(values["calls.context_max"]),
    }
    fits = kv.fit(
        float(room.per_gpu_gb),
        cost,
        p50=min(contexts["p50"], contexts["max"]),
        p95=min(contexts["p95"], contexts["max"]),
        longest=contexts["max"],
    )
    sized_at = min(contexts[values["fleet.context"]], contexts["max"])
    vram = {"p50": fits.at_p50, "p95": fits.at_p95, "max": fits.at_max}[values["fleet.context"]]
    machine = speed.Machine(
        active_weights_gb_per_gpu=active_gb,
        hbm_gb_s=bandwidth,
        prefill_tok_s=speed.prefill_tok_s(
            parallel.gpus, tflops, values["hardware.flops_efficiency"], active_params
        ),
        bandwidth_efficiency=values["hardware.bandwidth_efficiency"],
    )
    work = speed.Work(
        prompt_tokens=values["calls.prompt_tokens_p50"],
        prompt_tokens_p95=values["calls.prompt_tokens_p95"],
        hit=values["calls.prefix_hit"],
        output_tokens=values["calls.output_tokens"],
        kv_gb_per_gpu=float(cost.bytes_at(min(contexts["p50"], contexts["max"])) / GB),
    )
    slo = speed.Slo(values["slo.ttft_ms"], values["slo.tpot_ms"])
    ceiling = speed.replica_ceiling(machine, work, slo, vram)
    spare = int(values["fleet.spare_replicas"])
    replicas = max(1, ceil_div(sequences, ceiling.requests))
    return Candidate(
        tensor_parallel=tensor,
        weights_per_gpu_gb=float(per_gpu),
        kv_per_gpu_gb=room.per_gpu_gb,
        kv_replica_gb=room.replica_gb,
        gib_per_sequence=float(cost.bytes_at(sized_at) * parallel.gpus / GIB),
        fit=replace(fits, max_num_seqs=max(1, min(fits.at_p95, ceiling.time))),
        ceiling=ceiling,
        replicas=replicas,
        gpus=(replicas + spare) * parallel.gpus,
        baseline=Baseline(machine, work, slo, sequences, vram, parallel.gpus, spare),
    )


def agents(plan: Plan, values: Values) -> AgentsFigures:
    """Fleet for people at work. Without a stated tensor parallel size the cheapest one that holds is taken.

    Of two sizes that cost the same number of GPUs the larger wins: it adds memory bandwidth to each token.

    Raises:
        SizingError: no size holds; the message gives the reason of each.
    """
    demand = demand_of(plan, values)
    per_node = int(values["hardware.gpus_per_node"])
    stated = values.get("hardware.tensor_parallel")
    sizes = [int(stated)] if stated else [2**k for k in range(per_node.bit_length()) if 2**k <= per_node]
    best: Candidate | None = None
    refused: list[str] = []
    for size in sizes:
        try:
            found = candidate(plan, values, size, demand.sequences)
        except SizingError as error:
            refused.append(f"tensor parallel {size}: {error}")
            continue
        if best is None or found.gpus <= best.gpus:
            best = found
    if best is None:
        raise SizingError("no replica holds: " + "; ".join(refused))
    nodes = fleet.reserve(fleet.nodes_for(best.gpus, per_node), values["fleet.reserved_share"])
    need = plain(exact(demand.sequences) * exact(round(best.gib_per_sequence, 9)))
    return AgentsFigures(
        demand, best, need, nodes, fleet.with_headroom(nodes, values["fleet.headroom"]), tuple(refused)
    )


def throughput(values: Values) -> fleet.Chain:
    """The SLO chain with the published utilisation table.

    Raises:
        OutOfRange: the target lies outside the table and no measured service time replaces it.
    """
    target = values["slo.ttft_p99_ms"]
    service = values.get("slo.service_s")
    rho = queueing.rho_max_mm1(target / 1e3, service) if service else queueing.rho_max_published(target)
    return fleet.throughput_chain(
        values["demand.requests_per_day"],
        values["demand.output_tokens"],
        peak_factor=values["demand.peak_factor"],
        active_hours=values["demand.active_hours"],
        rho_max=rho,
        gpu_tok_s=values["demand.gpu_tok_s"],
        gpus_per_node=int(values["hardware.gpus_per_node"]),
        headroom=values["fleet.headroom"],
        reserved_share=values["fleet.reserved_share"],
    )


def gateway_of(values: Values, mean_rps: float, in_flight: float) -> gateway.Gateway:
    """Gateway for a mean call rate and a number of calls in flight at the peak."""
    peak = values.get("gateway.peak_rps")
    if peak is None:
        peak = mean_rps * values["gateway.peak_factor"]
    return gateway.size(
        gateway.Demand(peak, in_flight, values["gateway.burst_rps_per_s"]),
        gateway.CountingCost(
            values["gateway.count_wall_s"], values["gateway.count_cpu_s"], values["gateway.counter"]
        ),
        gateway.WorkerShape(
            vcpu=values["gateway.vcpu"],
            memory_gib=values["gateway.memory_gib"],
            workers_per_replica=int(values["gateway.workers_per_replica"]),
            slots=int(values["gateway.slots"]),
        ),
        pool=int(values["gateway.pool"]),
        max_connections=int(values["gateway.max_connections"]),
        flush_s=values["gateway.flush_s"],
        row_bytes=values["gateway.row_bytes"],
        startup_s=values["gateway.startup_s"],
    )
