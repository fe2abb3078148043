"""Power of a planned fleet and the agents per megawatt that it predicts.

A prediction is labelled with its state and boundary and stands beside the measured figure, never in its
place: the plan assumes the card's draw and an even load, the measurement contains nights and failures.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from pipeline.sizing import tco
from pipeline.sizing.units import HOURS_PER_YEAR, SizingError, positive, share

Boundary = Literal["board", "node", "rack", "facility"]


@dataclass(frozen=True, slots=True)
class PowerModel:
    """Draw of a node: idle and busy power of a board, what surrounds the boards, PUE of the building."""

    board_busy_w: float
    board_idle_w: float
    node_overhead_w: float
    gpus_per_node: int
    pue: float = 1.0

    def __post_init__(self) -> None:
        positive("energy.board_busy_w", self.board_busy_w)
        if self.board_idle_w > self.board_busy_w:
            raise SizingError("energy.board_idle_w must not exceed energy.board_busy_w")
        if self.pue < 1:
            raise SizingError(f"energy.pue must be at least 1, not {self.pue}")

    def board_kw(self, utilisation: float) -> float:
        """Mean draw of one board, kW, linear between idle and busy."""
        share("utilisation", utilisation)
        return (self.board_idle_w + (self.board_busy_w - self.board_idle_w) * utilisation) / 1e3

    def node_kw(self, utilisation: float) -> float:
        """Mean draw of a node at its plug, kW."""
        return self.board_kw(utilisation) * self.gpus_per_node + self.node_overhead_w / 1e3


@dataclass(frozen=True, slots=True)
class FleetPower:
    """Mean power of a fleet by boundary, kW, and its energy cost per year."""

    board_kw: float
    node_kw: float
    facility_kw: float
    energy_year: Decimal


def fleet_power(
    model: PowerModel, nodes: int, gpus: int, utilisation: float, price_kwh: Decimal
) -> FleetPower:
    """Power of ``gpus`` boards in ``nodes`` nodes; boards beyond ``gpus`` idle."""
    idle_boards = max(0, nodes * model.gpus_per_node - gpus)
    board = model.board_kw(utilisation) * gpus + model.board_idle_w / 1e3 * idle_boards
    node = board + model.node_overhead_w / 1e3 * nodes
    facility = node * model.pue
    yearly = tco.money(round(facility, 6)) * price_kwh * HOURS_PER_YEAR
    return FleetPower(board, node, facility, yearly)


def agents_per_megawatt(mean_agents: float, kw: float) -> float:
    """Agents per megawatt: mean number of agents in a state over the power of the same boundary."""
    return mean_agents / (positive("power", kw) / 1e3)


def energy_sensitivity(
    cost_node_year_ex_energy: Decimal,
    node_kw: float,
    pue: float,
    prices_kwh: tuple[Decimal, ...],
    *,
    gpus_per_node: int,
    cloud_gpu_hour: Decimal,
) -> tuple[tuple[Decimal, Decimal, Decimal], ...]:
    """(price per kWh, energy per node and year, break-even utilisation) for every price."""
    rows = []
    for price in prices_kwh:
        yearly = tco.energy_node_year(round(node_kw, 6), price, pue)
        even = tco.break_even_utilisation(cost_node_year_ex_energy + yearly, gpus_per_node, cloud_gpu_hour)
        rows.append((price, yearly, even))
    return tuple(rows)
