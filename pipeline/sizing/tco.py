"""Money: cost per GPU-hour and per million tokens, comparison with rented GPUs, payback, growth.

Amounts are :class:`~decimal.Decimal`, in one currency that the plan declares; nothing here converts.
The utilisation of the denominator is the share of hours in which the GPUs do paid work.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal, localcontext

from pipeline.sizing.units import HOURS_PER_YEAR, SECONDS_PER_HOUR, SizingError

Money = Decimal
_MILLION = Decimal(10**6)


def money(amount: int | float | str | Decimal) -> Money:
    """An amount as written: a float is read through its shortest decimal form.

    Raises:
        SizingError: it is not a finite number.
    """
    try:
        value = amount if isinstance(amount, Decimal) else Decimal(str(amount))
    except ArithmeticError as error:
        raise SizingError(f"not an amount of money: {amount!r}") from error
    if not value.is_finite():
        raise SizingError(f"not an amount of money: {amount!r}")
    return value


def _divide(amount: Money, by: Money, what: str) -> Money:
    if by <= 0:
        raise SizingError(f"{what} must be above 0, not {by}")
    with localcontext(prec=34):
        return amount / by


def node_year(capex: Money, years: int | Decimal, opex_year: Money) -> Money:
    """Cost of a node per year: straight-line amortisation plus operation."""
    return _divide(capex, Decimal(years), "years of amortisation") + opex_year


def per_gpu_hour(
    cost_node_year: Money,
    gpus_per_node: int,
    utilisation: float | Decimal = 1,
    hours_year: int = HOURS_PER_YEAR,
) -> Money:
    """Cost of one *used* GPU-hour at a utilisation."""
    hours = Decimal(gpus_per_node) * Decimal(hours_year) * money(utilisation)
    return _divide(cost_node_year, hours, "used hours per year")


def per_million_tokens(cost_hour: Money, tok_s: float) -> Money:
    """Cost of a million tokens when an hour costs ``cost_hour`` and gives ``tok_s`` tokens per second.

    For a fleet, ``tok_s`` is goodput (tokens within the SLO), never catalogue throughput.
    """
    return _divide(cost_hour * _MILLION, money(tok_s) * SECONDS_PER_HOUR, "tokens per hour")


def break_even_utilisation(
    cost_node_year: Money, gpus_per_node: int, cloud_gpu_hour: Money, hours_year: int = HOURS_PER_YEAR
) -> Decimal:
    """Utilisation above which owning is cheaper than renting; above 1 means never."""
    return _divide(cost_node_year, Decimal(gpus_per_node) * hours_year * cloud_gpu_hour, "cloud price")


def cloud_year(
    cloud_gpu_hour: Money,
    utilisation: float | Decimal,
    nodes: int,
    gpus_per_node: int,
    hours_year: int = HOURS_PER_YEAR,
) -> Money:
    """What the same used GPU-hours cost in a year when rented."""
    return cloud_gpu_hour * Decimal(gpus_per_node) * hours_year * Decimal(nodes) * money(utilisation)


def payback_years(
    capex: Money,
    cloud_gpu_hour: Money,
    utilisation: float | Decimal,
    *,
    nodes: int,
    gpus_per_node: int,
    opex_node_year: Money = Decimal(0),
    hours_year: int = HOURS_PER_YEAR,
) -> Decimal | None:
    """Years until the rent saved, less own operation, equals the capital spent; None when it never does.

    The saving must not be computed over a price that already contains the amortisation: that counts the
    capital twice.
    """
    saving = (
        cloud_year(cloud_gpu_hour, utilisation, nodes, gpus_per_node, hours_year) - opex_node_year * nodes
    )
    if saving <= 0:
        return None
    return _divide(capex, saving, "saving")


def years_to_saturation(utilisation: float, growth: float) -> float | None:
    """Years until a utilisation that grows by ``growth`` a year reaches 1; None when it does not grow."""
    if not 0 < utilisation <= 1:
        raise SizingError(f"utilisation must lie in 0..1, not {utilisation}")
    if growth <= 0:
        return None
    return math.log(1 / utilisation) / math.log1p(growth)


def headroom_cost(share: float | Decimal, cost_node_year: Money, nodes: int) -> Money:
    """Yearly cost of the share of nodes kept free."""
    return money(share) * cost_node_year * nodes


def energy_node_year(
    kw: float, price_kwh: Money, pue: float = 1.0, hours_year: int = HOURS_PER_YEAR
) -> Money:
    """Yearly energy cost of a node that draws ``kw`` on average at the IT boundary, times PUE."""
    return money(kw) * money(pue) * price_kwh * hours_year


@dataclass(frozen=True, slots=True)
class CloudOffer:
    """A rental price with the date it was read."""

    name: str
    gpu_hour: Money
    read_on: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """Owning against one offer at the planned utilisation."""

    offer: str
    read_on: str
    cloud_gpu_hour: Money
    cloud_per_million_tokens: Money
    break_even: Decimal
    worth_owning: bool
    payback_years: Decimal | None
    reason: str | None


def compare(
    offer: CloudOffer,
    *,
    capex_node: Money,
    opex_node_year: Money,
    amortisation_years: int,
    nodes: int,
    gpus_per_node: int,
    utilisation: float,
    gpu_goodput_tok_s: float,
) -> Comparison:
    """Owning ``nodes`` against renting the same used GPU-hours."""
    cost = node_year(capex_node, amortisation_years, opex_node_year)
    even = break_even_utilisation(cost, gpus_per_node, offer.gpu_hour)
    payback = payback_years(
        capex_node * nodes,
        offer.gpu_hour,
        utilisation,
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        opex_node_year=opex_node_year,
    )
    reason = None
    if even > 1:
        reason = "break-even above 100 % utilisation: never"
    elif payback is None:
        reason = "own operation costs more than the rent at this utilisation"
    return Comparison(
        offer.name,
        offer.read_on,
        offer.gpu_hour,
        per_million_tokens(offer.gpu_hour, gpu_goodput_tok_s),
        even,
        money(utilisation) >= even,
        payback,
        reason,
    )
