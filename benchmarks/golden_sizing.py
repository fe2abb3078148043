"""Recompute every worked example of a golden file from its inputs and print JSON: id -> value.

Usage: ``python benchmarks/golden_sizing.py FILE``. The file maps groups to rows with ``id`` and ``in``; a
row is recognised by its group and the names of its inputs, never by its numbers, so any file of that shape
can be computed. Values come from ``pipeline.sizing`` alone. A case that the model refuses (outside a
published table, no knee in the sweep, never pays back) prints null, and the reason goes to standard error.
Exit code 2: the file cannot be read or a row is not recognised.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from pipeline.sizing import concurrency, document, fleet, gateway, knee, kv, queueing, speed, tco, weights
from pipeline.sizing.units import GIB, MIB, SizingError, exact, plain

Inputs = Mapping[str, Any]
Formula = Callable[[Inputs, Mapping[str, Any]], Any]

_FORMULAS: dict[tuple[str, frozenset[str]], Formula] = {}


def _case(group: str, names: str) -> Callable[[Formula], Formula]:
    def register(formula: Formula) -> Formula:
        _FORMULAS[group, frozenset(names.split())] = formula
        return formula

    return register


def _over(value: Any, formula: Callable[[Any], Any]) -> Any:
    """Apply to a number, or to every number of a list; a refused element becomes null with its reason."""
    if isinstance(value, list):
        return [_over(item, formula) for item in value]
    try:
        return formula(value)
    except SizingError as refused:
        print(f"refused: {refused}", file=sys.stderr)
        return None


def _number(value: Decimal | float | None) -> float | None:
    return None if value is None else float(value)


# -- kv_cache


def _per_token(i: Inputs) -> Any:
    return kv.bytes_per_token(i["layers"], i["kv_heads"], i["head_dim"], i["bytes"])


@_case("kv_cache", "layers kv_heads head_dim bytes")
def _kv_per_token(i: Inputs, row: Mapping[str, Any]) -> Any:
    unit = str(row.get("unit") or row["id"]).lower()
    scale = MIB if "mib" in unit else GIB if "gib" in unit else 1
    return _over(i["bytes"], lambda b: plain(_per_token({**i, "bytes": b}) / scale))


@_case("kv_cache", "layers kv_heads head_dim bytes context")
def _kv_per_sequence(i: Inputs, row: Mapping[str, Any]) -> Any:
    return _over(i["context"], lambda c: kv.sequence_gib(_per_token(i), c))


@_case("kv_cache", "kv_bytes context kv_per_token")
def _kv_sequences(i: Inputs, row: Mapping[str, Any]) -> Any:
    return _over(i["context"], lambda c: kv.max_sequences(i["kv_bytes"], c, i["kv_per_token"]))


@_case("kv_cache", "kv_bytes kv_per_token")
def _kv_live(i: Inputs, row: Mapping[str, Any]) -> Any:
    return kv.live_tokens(i["kv_bytes"], i["kv_per_token"])


# -- agents


@_case("agents", "failing_turns failing_factor subagent_sessions subagents")
def _amplification(i: Inputs, row: Mapping[str, Any]) -> Any:
    return concurrency.amplification(**i)


@_case("agents", "calls output_tokens tok_s session_min")
def _duty(i: Inputs, row: Mapping[str, Any]) -> Any:
    return concurrency.duty_cycle(**i)


@_case("agents", "people duty amplification")
def _concurrency(i: Inputs, row: Mapping[str, Any]) -> Any:
    return _over(i["people"], lambda d: concurrency.concurrency(d, i["duty"], i["amplification"]))


@_case("agents", "sequences gib_per_seq weights_gb gpu_gb gpu_memory_utilization tp spare_replicas")
def _agent_fleet(i: Inputs, row: Mapping[str, Any]) -> Any:
    result = fleet.agent_fleet(
        i["sequences"],
        i["gib_per_seq"],
        weights_gb=i["weights_gb"],
        gpu_gb=i["gpu_gb"],
        gpu_memory_utilization=i["gpu_memory_utilization"],
        tensor_parallel=i["tp"],
        spare_replicas=i["spare_replicas"],
    )
    names = ("kv_need_gib", "kv_per_gpu_gb", "kv_replica_gb", "gpus_per_replica", "gpus_total")
    return {name: getattr(result, name) for name in names}


@_case("agents", "kv_gb gib_per_seq")
def _contrast(i: Inputs, row: Mapping[str, Any]) -> Any:
    return fleet.sequences_in(i["kv_gb"], i["gib_per_seq"])


# -- gateway


@_case("gateway", "people calls session_min")
def _mean_rps(i: Inputs, row: Mapping[str, Any]) -> Any:
    return _over(i["people"], lambda d: concurrency.mean_rps(d, i["calls"], i["session_min"]))


@_case("gateway", "slots count_s vcpu cpu_s")
def _admissions(i: Inputs, row: Mapping[str, Any]) -> Any:
    return gateway.admissions_per_s(i["slots"], i["count_s"], i["vcpu"], i["cpu_s"])


@_case("gateway", "limit_rpm workers replicas")
def _limit(i: Inputs, row: Mapping[str, Any]) -> Any:
    return gateway.limit_without_redis(**i)


@_case("gateway", "replicas workers pool")
def _connections(i: Inputs, row: Mapping[str, Any]) -> Any:
    return gateway.postgres_connections(**i)


# -- slo_chain


@_case("slo_chain", "requests_per_day output_tokens")
def _average(i: Inputs, row: Mapping[str, Any]) -> Any:
    return fleet.average_tok_s(**i)


@_case("slo_chain", "requests_per_day output_tokens peak_factor active_hours")
def _peak(i: Inputs, row: Mapping[str, Any]) -> Any:
    return _over(
        i["peak_factor"],
        lambda k: fleet.peak_tok_s(i["requests_per_day"], i["output_tokens"], k, i["active_hours"]),
    )


@_case("slo_chain", "peak_tok_s rho_max")
def _required(i: Inputs, row: Mapping[str, Any]) -> Any:
    return _over(i["rho_max"], lambda rho: fleet.required_tok_s(i["peak_tok_s"], rho))


@_case("slo_chain", "required_tok_s gpu_tok_s")
def _gpus(i: Inputs, row: Mapping[str, Any]) -> Any:
    return fleet.gpus_for(i["required_tok_s"], i["gpu_tok_s"])


@_case("slo_chain", "gpus gpus_per_node")
def _nodes(i: Inputs, row: Mapping[str, Any]) -> Any:
    return fleet.nodes_for(i["gpus"], i["gpus_per_node"])


@_case("slo_chain", "nodes headroom")
def _nodes_final(i: Inputs, row: Mapping[str, Any]) -> Any:
    return fleet.with_headroom(i["nodes"], i["headroom"])


@_case("slo_chain", "requests_per_day output_tokens active_hours gpu_tok_s peak_factor rho_max")
def _sensitivity(i: Inputs, row: Mapping[str, Any]) -> Any:
    def gpus(k: float, rho: float) -> int:
        return fleet.chain_gpus(
            i["requests_per_day"],
            i["output_tokens"],
            peak_factor=k,
            active_hours=i["active_hours"],
            rho_max=rho,
            gpu_tok_s=i["gpu_tok_s"],
        )

    return _over(i["peak_factor"], lambda k: _over(i["rho_max"], lambda rho: gpus(k, rho)))


@_case("slo_chain", "ttft_p99_ms")
def _rho_max(i: Inputs, row: Mapping[str, Any]) -> Any:
    return _over(i["ttft_p99_ms"], queueing.rho_max_published)


@_case("slo_chain", "wait_s service_s")
def _rho_mm1(i: Inputs, row: Mapping[str, Any]) -> Any:
    return _over(i["wait_s"], lambda w: queueing.rho_max_mm1(w, i["service_s"]))


# -- tco


@_case("tco", "eur_node_year gpus_per_node hours_year rho")
def _gpu_hour(i: Inputs, row: Mapping[str, Any]) -> Any:
    cost = tco.money(i["eur_node_year"])
    return _over(i["rho"], lambda u: float(tco.per_gpu_hour(cost, i["gpus_per_node"], u, i["hours_year"])))


@_case("tco", "eur_node_year gpus_per_node hours_year gpu_tok_s rho")
def _mtok(i: Inputs, row: Mapping[str, Any]) -> Any:
    cost = tco.money(i["eur_node_year"])

    def one(u: float) -> float:
        hour = tco.per_gpu_hour(cost, i["gpus_per_node"], u, i["hours_year"])
        return float(tco.per_million_tokens(hour, i["gpu_tok_s"]))

    return _over(i["rho"], one)


def _even(cost: Any, i: Inputs, cloud: Any) -> float:
    return float(tco.break_even_utilisation(cost, i["gpus_per_node"], tco.money(cloud), i["hours_year"]))


@_case("tco", "eur_node_year gpus_per_node hours_year cloud_eur_gpu_h")
def _break_even(i: Inputs, row: Mapping[str, Any]) -> Any:
    return _over(i["cloud_eur_gpu_h"], lambda c: _even(tco.money(i["eur_node_year"]), i, c))


@_case("tco", "eur_node_year_ex_energy energy_eur_node_year gpus_per_node hours_year cloud_eur_gpu_h")
def _energy_even(i: Inputs, row: Mapping[str, Any]) -> Any:
    base = tco.money(i["eur_node_year_ex_energy"])
    return _over(i["energy_eur_node_year"], lambda e: _even(base + tco.money(e), i, i["cloud_eur_gpu_h"]))


@_case("tco", "capex_eur_node_year opex_eur_node_year gpus_per_node hours_year cloud_eur_gpu_h")
def _opex_even(i: Inputs, row: Mapping[str, Any]) -> Any:
    base = tco.money(i["capex_eur_node_year"])
    return _over(i["opex_eur_node_year"], lambda o: _even(base + tco.money(o), i, i["cloud_eur_gpu_h"]))


@_case("tco", "capex_eur opex_eur_node_year nodes gpus_per_node hours_year rows")
def _payback(i: Inputs, row: Mapping[str, Any]) -> Any:
    return [
        _number(
            tco.payback_years(
                tco.money(i["capex_eur"]),
                tco.money(r["cloud"]),
                r["rho"],
                nodes=i["nodes"],
                gpus_per_node=i["gpus_per_node"],
                opex_node_year=tco.money(i["opex_eur_node_year"]),
                hours_year=i["hours_year"],
            )
        )
        for r in i["rows"]
    ]


@_case("tco", "cloud rho nodes gpus_per_node hours_year capex_eur")
def _simple_payback(i: Inputs, row: Mapping[str, Any]) -> Any:
    def months(cloud: Any, utilisation: float) -> float | None:
        years = tco.payback_years(
            tco.money(i["capex_eur"]),
            tco.money(cloud),
            utilisation,
            nodes=i["nodes"],
            gpus_per_node=i["gpus_per_node"],
            hours_year=i["hours_year"],
        )
        return None if years is None else float(years * 12)

    return _over(i["rho"], lambda u: _over(i["cloud"], lambda c: months(c, u)))


@_case("tco", "rho0 growth")
def _saturation(i: Inputs, row: Mapping[str, Any]) -> Any:
    return _over(i["growth"], lambda g: tco.years_to_saturation(i["rho0"], g))


@_case("tco", "share node_year nodes")
def _headroom(i: Inputs, row: Mapping[str, Any]) -> Any:
    return float(tco.headroom_cost(i["share"], tco.money(i["node_year"]), i["nodes"]))


# -- chat_worksheet


@_case("chat_worksheet", "gpu_gb weights_gb activations_gb overhead_gb tp")
def _budget(i: Inputs, row: Mapping[str, Any]) -> Any:
    room = kv.budget(
        i["gpu_gb"],
        i["weights_gb"],
        activations_gb=i["activations_gb"],
        overhead_gb=i["overhead_gb"],
        gpus=i["tp"],
    )
    return {"per_gpu": room.per_gpu_gb, "replica": room.replica_gb}


@_case("chat_worksheet", "weights_gb_per_gpu hbm_gb_s")
def _tpot(i: Inputs, row: Mapping[str, Any]) -> Any:
    return speed.tpot_floor_ms(**i)


@_case("chat_worksheet", "gpus tflops eta params")
def _prefill(i: Inputs, row: Mapping[str, Any]) -> Any:
    return speed.prefill_tok_s(i["gpus"], i["tflops"], i["eta"], i["params"])


@_case("chat_worksheet", "prompt prefill_tok_s output tpot_s")
def _request(i: Inputs, row: Mapping[str, Any]) -> Any:
    return speed.request_s(i["prompt"], i["prefill_tok_s"], i["output"], i["tpot_s"])


@_case("chat_worksheet", "rps concurrency request_s")
def _replicas(i: Inputs, row: Mapping[str, Any]) -> Any:
    return _over(i["rps"], lambda r: fleet.replicas_for_rate(r, i["concurrency"], i["request_s"]))


@_case("chat_worksheet", "params_b bytes")
def _moe(i: Inputs, row: Mapping[str, Any]) -> Any:
    return plain(exact(weights.weights_gb(i["params_b"], i["bytes"])))


# -- guidellm_knee


@_case("guidellm_knee", "ttft_p99_ms goodput_share_min rounds")
def _knee(i: Inputs, row: Mapping[str, Any]) -> Any:
    rounds = [
        knee.Round(rate=r[0], ttft_ms=r[1], itl_ms=r[2], throughput_tok_s=r[3], goodput_tok_s=r[4])
        for r in i["rounds"]
    ]
    slo = knee.KneeSlo(ttft_ms=i["ttft_p99_ms"], goodput_share_min=i["goodput_share_min"])
    found = knee.find_knee(rounds, slo)
    return {"rate": found.at.rate, "goodput_tok_s": found.goodput_tok_s}


@_case("guidellm_knee", "target_tok_s goodput_tok_s")
def _knee_replicas(i: Inputs, row: Mapping[str, Any]) -> Any:
    return fleet.replicas_for_goodput(i["target_tok_s"], i["goodput_tok_s"])


@_case("guidellm_knee", "eur_replica_hour goodput_tok_s")
def _knee_cost(i: Inputs, row: Mapping[str, Any]) -> Any:
    return float(knee.eur_per_million_tokens(tco.money(i["eur_replica_hour"]), i["goodput_tok_s"]))


class UnknownCase(LookupError):
    """A row whose group and input names match no formula."""


def compute(group: str, row: Mapping[str, Any]) -> Any:
    """Value of one row.

    Raises:
        UnknownCase: no formula has these input names in this group.
    """
    inputs = row["in"]
    formula = _FORMULAS.get((group, frozenset(inputs)))
    if formula is None:
        raise UnknownCase(f"{group}: {row.get('id')}: no formula takes {', '.join(sorted(inputs))}")
    try:
        return formula(inputs, row)
    except SizingError as refused:
        print(f"{row.get('id')}: refused: {refused}", file=sys.stderr)
        return None


def main(argv: list[str]) -> int:
    """Compute the file named by the only argument."""
    if len(argv) != 1:
        print("usage: golden_sizing.py FILE", file=sys.stderr)
        return 2
    try:
        cases = document.parse(Path(argv[0]).read_text(encoding="utf-8"), argv[0]).data
        values = {row["id"]: compute(group, row) for group, rows in cases.items() for row in rows}
    except (OSError, SizingError, AttributeError, TypeError, KeyError, UnknownCase) as error:
        print(f"{argv[0]}: {error}", file=sys.stderr)
        return 2
    print(json.dumps(values, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
