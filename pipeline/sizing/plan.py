"""A plan computed: every figure, the regimes, the intervals, and what the numbers rest on.

The result is a plain mapping in a fixed order, rounded to six significant digits: two runs of one plan file
give the same bytes, and two weeks can be compared line by line.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import Any, Final

from pipeline.sizing import (
    document,
    evaluation,
    gateway_config,
    outputs,
    queueing,
    regimes,
    speed,
    uncertainty,
)
from pipeline.sizing.inputs import BY_KEY
from pipeline.sizing.plan_file import Plan
from pipeline.sizing.units import SizingError

VERSION: Final = 1
#: An output without ceilings, so that the tornado still ranks inputs that move no whole GPU.
_SMOOTH: Final = {"agents": "mean_concurrency", "throughput": "required_tok_s"}


def stated_values(plan: Plan) -> dict[str, Any]:
    """Values by key, as stated or by default."""
    return {key: one.value for key, one in plan.inputs.items()}


def intervals(plan: Plan) -> dict[str, Any]:
    """Monte Carlo intervals and the tornado of the GPUs; empty when no input carries an interval."""
    ranges = {
        key: uncertainty.Range(float(i.low), float(i.value), float(i.high))
        for key, i in plan.inputs.items()
        if i.low is not None and i.high is not None
    }
    if not ranges:
        return {"reason": "no input carries low and high", "outputs": {}, "tornado": {}}
    values = stated_values(plan)

    def model(drawn: Mapping[str, float]) -> dict[str, float]:
        whole = {k: round(v) if BY_KEY[k].kind == "count" else v for k, v in drawn.items()}
        return outputs.headline(plan, {**values, **whole})

    spread = uncertainty.monte_carlo(
        model, ranges, draws=plan.draws, seed=plan.seed, confidence=plan.confidence
    )
    return {
        "method": f"{plan.draws} triangular draws, seed {plan.seed}, central {plan.confidence:.0%}",
        "infeasible_share": next(iter(spread.values())).infeasible / plan.draws,
        "outputs": {name: [one.low, one.high] for name, one in spread.items()},
        "tornado": {
            output: [
                {"input": s.name, "at_low": s.at_low, "at_high": s.at_high}
                for s in uncertainty.tornado(model, ranges, output)
            ]
            for output in ("gpus", _SMOOTH[plan.method])
        },
    }


def compute(plan: Plan) -> dict[str, Any]:
    """The whole report of a plan.

    Raises:
        SizingError: no fleet exists for the stated values.
    """
    values = stated_values(plan)
    body = _agents(plan, values) if plan.method == "agents" else _throughput(plan, values)
    inputs = {key: one.to_dict() for key, one in plan.inputs.items()}
    fingerprint = hashlib.sha256(document.dump(document.rounded(inputs)).encode()).hexdigest()[:16]
    report = {
        "plan": {
            "version": VERSION,
            "name": plan.name,
            "method": plan.method,
            "currency": plan.currency,
            "date": plan.date,
            "week": plan.week,
            "inputs_digest": fingerprint,
        },
        "results": body,
        "uncertainty": intervals(plan),
        "evidence": {
            "measured": sorted(k for k, i in plan.inputs.items() if i.tag == "measured"),
            "declared": sorted(k for k, i in plan.inputs.items() if i.tag == "declared"),
            "literature": sorted(k for k, i in plan.inputs.items() if i.tag == "literature"),
            "filled_from_defaults": {i.key: f"{i.source}, {i.date}" for i in plan.defaults()},
        },
        "inputs": inputs,
    }
    return {key: document.rounded(part) for key, part in report.items()}


def _agents(plan: Plan, values: dict[str, Any]) -> dict[str, Any]:
    found = evaluation.agents(plan, values)
    chosen, demand = found.chosen, found.demand
    rps = outputs.mean_rps(values)
    gate = evaluation.gateway_of(values, rps, demand.sequences)
    notes = list(plan.geometry.notes) if plan.geometry else []
    if demand.peak is None:
        notes.append(
            "sized on a mean with published or declared factors: no concurrency was measured; people start "
            "work at the same hour, so the measured peak will be higher"
        )
    if chosen.ceiling.requests < chosen.ceiling.vram:
        notes.append(f"the {chosen.ceiling.bound} target binds before memory does")
    return {
        "concurrency": demand,
        "kv": {
            "gib_per_sequence": chosen.gib_per_sequence,
            "need_gib": found.kv_need_gib,
            "per_gpu_gb": chosen.kv_per_gpu_gb,
            "replica_gb": chosen.kv_replica_gb,
            "weights_per_gpu_gb": chosen.weights_per_gpu_gb,
            "fit": chosen.fit,
        },
        "replica": {
            "tensor_parallel": chosen.tensor_parallel,
            "bound": chosen.ceiling.bound,
            "vram_sequences": chosen.ceiling.vram,
            "time_requests": chosen.ceiling.time,
            "requests": chosen.ceiling.requests,
            "timing": chosen.ceiling.at,
            "short_call_beside_long_ones": _cobatching(chosen.baseline),
        },
        "fleet": {
            "replicas": chosen.replicas,
            "spare_replicas": int(values["fleet.spare_replicas"]),
            "gpus_per_replica": chosen.baseline.gpus_per_replica,
            "gpus": chosen.gpus,
            "nodes": found.nodes,
            "nodes_with_headroom": found.nodes_with_headroom,
            "refused": list(found.refused),
        },
        "engine": {
            "flags": gateway_config.engine_flags(
                chosen.tensor_parallel,
                chosen.fit.max_num_seqs,
                int(values["calls.context_max"]),
                values["model.kv_element_bytes"],
            ),
            "scaling_triggers": gateway_config.engine_triggers(),
        },
        "queue": _queue(demand.mean, chosen),
        "scenarios": list(regimes.scenarios(chosen.baseline)),
        "gateway": {
            "mean_rps": rps,
            "limit_multiplier": 1 if values["gateway.redis"] else gate.limit_multiplier_without_redis,
            **document.rounded(gate),
            "fragments": gateway_config.fragments(gate, values),
        },
        "money": outputs.agents_money(plan, values, found),
        "energy": outputs.agents_power(plan, values, found),
        "notes": notes,
    }


def _cobatching(base: regimes.Baseline) -> list[dict[str, Any]]:
    """Time per token of a lone call, and of one that shares its batch with one or two long ones."""
    alone = speed.timing(base.machine, base.work, 1).tpot_ms
    return [
        {"long_calls": n, "tpot_ms": alone * f, "meets_slo": alone * f <= base.slo.tpot_ms}
        for n, f in enumerate(speed.COBATCHING)
    ]


def _queue(mean_concurrency: float, chosen: evaluation.Candidate) -> dict[str, Any]:
    """Wait for a free slot of the working replicas, were calls to arrive at random around the mean."""
    slots = chosen.ceiling.requests * chosen.replicas
    call_s = chosen.ceiling.at.call_s
    arrivals = mean_concurrency / call_s
    wait = queueing.wait_quantile_s(slots, arrivals, call_s, 0.95)
    budget_s = max(0.0, chosen.baseline.slo.ttft_ms - chosen.ceiling.at.ttft_ms) / 1e3
    needed = queueing.smallest_servers(arrivals, call_s, target_wait_s=budget_s)
    return {
        "model": "M/M/c over the slots of the working replicas (Erlang C), at the mean concurrency",
        "slots": slots,
        "offered": mean_concurrency,
        "utilisation": mean_concurrency / slots,
        "probability_of_waiting": queueing.erlang_c(slots, mean_concurrency),
        "wait_p95_s": wait,
        "wait_allowed_s": budget_s,
        "slots_needed": needed,
        "holds": slots >= needed,
        "reason": None if math.isfinite(wait) else "the mean alone fills every slot: the queue has no bound",
    }


def _throughput(plan: Plan, values: dict[str, Any]) -> dict[str, Any]:
    chain = evaluation.throughput(values)
    target = values["slo.ttft_p99_ms"] / 1e3
    service = values.get("slo.service_s")
    table: float | None
    try:
        table = queueing.rho_max_published(values["slo.ttft_p99_ms"])
    except SizingError:
        table = None
    return {
        "fleet": chain,
        "utilisation": {
            "used": chain.rho_max,
            "published_table": table,
            "from_measured_service_time": queueing.rho_max_mm1(target, service) if service else None,
        },
        "money": outputs.chain_money(plan, values, chain),
        "energy": outputs.chain_power(plan, values, chain),
        "notes": [],
    }
