"""Money and power of a planned fleet, from the inputs that were given; what was not given stays null."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from pipeline.sizing import energy, hardware, tco
from pipeline.sizing.tco import CloudOffer, money
from pipeline.sizing.units import HOURS_PER_YEAR, SECONDS_PER_HOUR

Values = Mapping[str, Any]


def _cents(amount: Decimal | None, digits: str = "0.001") -> str | None:
    """Money as text, so that no reader turns it into a binary float."""
    return None if amount is None else str(amount.quantize(Decimal(digits)))


def money_of(
    values: Values,
    currency: str,
    offers: Sequence[CloudOffer],
    *,
    nodes: int,
    gpus_per_node: int,
    fleet_tok_s: float,
    spare_nodes: int,
) -> dict[str, Any]:
    """Cost of a fleet and its comparison with rented GPUs.

    ``fleet_tok_s`` is output tokens per second within the SLO over the hours the fleet works; the year's
    tokens are that times the utilisation.
    """
    capex, opex = values.get("money.capex_node"), values.get("money.opex_node_year")
    if capex is None or opex is None:
        missing = [k for k in ("money.capex_node", "money.opex_node_year") if values.get(k) is None]
        return {"currency": currency, "value": None, "reason": f"{' and '.join(missing)} not given"}
    years = int(values["money.amortisation_years"])
    utilisation = values["money.utilisation"]
    node_year = tco.node_year(money(capex), years, money(opex))
    hour = tco.per_gpu_hour(node_year, gpus_per_node, utilisation)
    tokens_year = fleet_tok_s * SECONDS_PER_HOUR * HOURS_PER_YEAR * utilisation
    per_gpu_tok_s = fleet_tok_s / (nodes * gpus_per_node)
    fleet_year = node_year * nodes
    growth = values.get("money.growth")
    result: dict[str, Any] = {
        "currency": currency,
        "node_year": _cents(node_year, "0.01"),
        "fleet_year": _cents(fleet_year, "0.01"),
        "gpu_hour": _cents(hour),
        "million_tokens": _cents(fleet_year / money(tokens_year) * 10**6) if tokens_year > 0 else None,
        "million_tokens_denominator": "output tokens within the SLO",
        "utilisation": utilisation,
        "headroom_year": _cents(node_year * spare_nodes, "0.01"),
        "years_to_saturation": None if growth is None else tco.years_to_saturation(utilisation, growth),
        "offers": [],
    }
    for offer in offers:
        row = tco.compare(
            offer,
            capex_node=money(capex),
            opex_node_year=money(opex),
            amortisation_years=years,
            nodes=nodes,
            gpus_per_node=gpus_per_node,
            utilisation=utilisation,
            gpu_goodput_tok_s=max(per_gpu_tok_s, 1e-9),
        )
        result["offers"].append(
            {
                "offer": row.offer,
                "read_on": row.read_on,
                "gpu_hour": _cents(row.cloud_gpu_hour),
                "break_even_utilisation": float(round(row.break_even, 4)),
                "worth_owning": row.worth_owning,
                "payback_years": None if row.payback_years is None else float(round(row.payback_years, 3)),
                "reason": row.reason,
            }
        )
    return result


def power_of(
    values: Values,
    *,
    nodes: int,
    gpus: int,
    gpus_per_node: int,
    load: float,
    agents: Mapping[str, float],
    offers: Sequence[CloudOffer] = (),
) -> dict[str, Any]:
    """Predicted power of a fleet by boundary and predicted agents per megawatt, beside the measured figure.

    ``load`` is the share of the fleet's slots that is busy on average over the hours the prediction is for;
    ``agents`` maps an agent state to its mean number over the same hours.
    """
    card = hardware.find(values["hardware.gpu"]) if "hardware.gpu" in values else None
    busy = values.get("energy.board_busy_w") or (card.board_w if card else None)
    idle, overhead = values.get("energy.board_idle_w"), values.get("energy.node_overhead_w")
    if busy is None or idle is None or overhead is None:
        missing = [
            key
            for key, value in (
                ("energy.board_busy_w", busy),
                ("energy.board_idle_w", idle),
                ("energy.node_overhead_w", overhead),
            )
            if value is None
        ]
        return {"value": None, "reason": f"{', '.join(missing)} not given"}
    model = energy.PowerModel(busy, idle, overhead, gpus_per_node, values["energy.pue"])
    price = money(values.get("energy.price_kwh") or 0)
    power = energy.fleet_power(model, nodes, gpus, load, price)
    by_boundary = {"board": power.board_kw, "node": power.node_kw, "facility": power.facility_kw}
    result: dict[str, Any] = {
        "kind": "predicted, working hours at the planned load",
        "load": load,
        "kw": by_boundary,
        "energy_year_at_this_load": _cents(power.energy_year, "0.01") if price else None,
        "predicted_agents_per_megawatt": {
            state: {b: energy.agents_per_megawatt(count, kw) for b, kw in by_boundary.items()}
            for state, count in agents.items()
        },
        "measured_agents_per_megawatt": values.get("energy.measured_agents_per_megawatt"),
        "provisioned_kw": card.provisioned_kw * gpus if card and card.provisioned_kw else None,
    }
    prices = values.get("energy.prices_kwh")
    opex, capex = values.get("money.opex_node_year"), values.get("money.capex_node")
    if prices and offers and opex is not None and capex is not None and price:
        node_kw = model.node_kw(values["money.utilisation"])
        base = tco.node_year(money(capex), int(values["money.amortisation_years"]), money(opex))
        base -= tco.energy_node_year(round(node_kw, 6), price, model.pue)
        result["energy_price_sensitivity"] = {
            "offer": offers[0].name,
            "rows": [
                {
                    "price_kwh": str(p),
                    "energy_node_year": _cents(yearly, "0.01"),
                    "break_even_utilisation": float(round(even, 4)),
                }
                for p, yearly, even in energy.energy_sensitivity(
                    base,
                    node_kw,
                    model.pue,
                    tuple(money(p) for p in prices),
                    gpus_per_node=gpus_per_node,
                    cloud_gpu_hour=offers[0].gpu_hour,
                )
            ],
        }
    return result
