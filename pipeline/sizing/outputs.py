"""Outputs of a plan that get an interval, and the money and power of a computed fleet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipeline.sizing import costing, evaluation
from pipeline.sizing.fleet import Chain
from pipeline.sizing.plan_file import Plan


def headline(plan: Plan, values: Mapping[str, Any]) -> dict[str, float]:
    """The few outputs that get an interval.

    Raises:
        SizingError: no fleet exists for these values.
    """
    if plan.method == "throughput":
        chain = evaluation.throughput(values)
        return {
            "peak_tok_s": chain.peak_tok_s,
            "required_tok_s": chain.required_tok_s,
            "gpus": chain.gpus,
            "nodes": chain.nodes_with_headroom,
            **_extra(chain_money(plan, values, chain), chain_power(plan, values, chain)),
        }
    found = evaluation.agents(plan, values)
    gate = evaluation.gateway_of(values, mean_rps(values), found.demand.sequences)
    money, power = agents_money(plan, values, found), agents_power(plan, values, found)
    return {
        "mean_concurrency": found.demand.mean,
        "sequences": found.demand.sequences,
        "requests_per_replica": found.chosen.ceiling.requests,
        "gpus": found.chosen.gpus,
        "nodes": found.nodes_with_headroom,
        "tpot_ms": found.chosen.ceiling.at.tpot_ms,
        "ttft_ms": found.chosen.ceiling.at.ttft_ms,
        "gateway_workers": gate.workers,
        **_extra(money, power),
    }


def _extra(money: Mapping[str, Any], power: Mapping[str, Any]) -> dict[str, float]:
    """Cost and power among the outputs with an interval, where the plan has their inputs."""
    found: dict[str, float] = {}
    if money.get("million_tokens") is not None:
        found["cost_million_tokens"] = float(money["million_tokens"])
    if power.get("kw"):
        found["node_kw"] = power["kw"]["node"]
        for state, by_boundary in power["predicted_agents_per_megawatt"].items():
            found[f"{state}_agents_per_megawatt_node"] = by_boundary["node"]
    return found


def mean_rps(values: Mapping[str, Any]) -> float:
    """Mean calls per second of the people at work."""
    return float(values["people.active"] * values["calls.per_human_hour"] / 3600)


def agents_money(plan: Plan, values: Mapping[str, Any], found: evaluation.AgentsFigures) -> dict[str, Any]:
    """Tokens at the mean concurrency: calls per second follow from it by Little's law."""
    calls_per_s = found.demand.mean / found.chosen.ceiling.at.call_s
    return costing.money_of(
        values,
        plan.currency,
        plan.offers,
        nodes=found.nodes_with_headroom,
        gpus_per_node=int(values["hardware.gpus_per_node"]),
        fleet_tok_s=calls_per_s * values["calls.output_tokens"],
        spare_nodes=found.nodes_with_headroom - found.nodes,
    )


def agents_power(plan: Plan, values: Mapping[str, Any], found: evaluation.AgentsFigures) -> dict[str, Any]:
    """Root agents only: subagents stand beside them and are in the load, not in the count."""
    slots = found.chosen.ceiling.requests * (found.chosen.replicas + int(values["fleet.spare_replicas"]))
    people = sum(p.people for p in plan.profiles) or values["people.active"]
    root = sum(p.people * p.duty.rho for p in plan.profiles) or people * values["people.duty_cycle"]
    return costing.power_of(
        values,
        nodes=found.nodes_with_headroom,
        gpus=found.chosen.gpus,
        gpus_per_node=int(values["hardware.gpus_per_node"]),
        load=min(1.0, found.demand.mean / slots),
        agents={"llm_active": root, "open": people},
        offers=plan.offers,
    )


def chain_money(plan: Plan, values: Mapping[str, Any], chain: Chain) -> dict[str, Any]:
    """Cost of the installed fleet at the planned utilisation."""
    return costing.money_of(
        values,
        plan.currency,
        plan.offers,
        nodes=chain.nodes_with_headroom,
        gpus_per_node=int(values["hardware.gpus_per_node"]),
        fleet_tok_s=values["demand.gpu_tok_s"] * chain.gpus_installed,
        spare_nodes=chain.nodes_with_headroom - chain.nodes,
    )


def chain_power(plan: Plan, values: Mapping[str, Any], chain: Chain) -> dict[str, Any]:
    """Power of the installed fleet at the mean demand."""
    capacity = values["demand.gpu_tok_s"] * chain.gpus_installed
    return costing.power_of(
        values,
        nodes=chain.nodes_with_headroom,
        gpus=chain.gpus_installed,
        gpus_per_node=int(values["hardware.gpus_per_node"]),
        load=min(1.0, chain.average_tok_s / capacity),
        agents={},
        offers=plan.offers,
    )
