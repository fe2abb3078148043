"""What a published quantity is: the shape of an entry of the registry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pipeline.extract.traces.needs import Need

Coverage = tuple[str, str]
ALL: Final = ("all", "team", "key", "client", "model", "profile")
WORK_NEEDS: Final = (Need.SESSIONS, Need.INITIATORS)
#: Coverage of what needs the length of a prompt.
KNOWN_LENGTH: Final[Coverage] = ("SUM(input_calls)", "SUM(engine_calls)")


@dataclass(frozen=True, slots=True)
class Quantity:
    """One quantity. Expressions are SQL over the rows of a period and of one member of a dimension.

    Args:
        name: its name, and its heading in ``docs/definitions.md``.
        unit: unit of the value.
        formula: the formula for people.
        relation: the rows it is made of, a key of :data:`pipeline.figures.series.RELATIONS`.
        top: aggregate above the line; empty for a spread.
        bottom: aggregate below the line.
        value: expression of one row whose spread is told; empty for a ratio.
        stats: p50, p90, … (linear interpolation; time-weighted where rows last), slow90, mean or max.
        part: expression that splits it further; rows where it is null are left out.
        dimensions: what it may be split by.
        coverage: aggregates over ``mart_call_sum``: calls that carry what it needs, and all that should.
        needs: what imported calls must carry for it.
        reason: why it is null where nothing carries what it needs.
    """

    name: str
    unit: str
    formula: str
    relation: str
    coverage: Coverage
    needs: tuple[Need, ...]
    reason: str
    top: str = ""
    bottom: str = ""
    value: str = ""
    stats: tuple[str, ...] = ()
    part: str = "'all'"
    dimensions: tuple[str, ...] = ALL


def ratio(
    name: str,
    unit: str,
    formula: str,
    top: str,
    bottom: str,
    *,
    coverage: Coverage,
    needs: tuple[Need, ...],
    reason: str,
    relation: str = "call_sum",
    part: str = "'all'",
    dimensions: tuple[str, ...] = ALL,
) -> Quantity:
    """Return a quantity that is one aggregate over another."""
    return Quantity(
        name, unit, formula, relation, coverage, needs, reason, top, bottom, part=part, dimensions=dimensions
    )


def spread(
    name: str,
    unit: str,
    formula: str,
    relation: str,
    value: str,
    stats: tuple[str, ...],
    *,
    coverage: Coverage,
    needs: tuple[Need, ...],
    reason: str,
    part: str = "'all'",
    dimensions: tuple[str, ...] = ALL,
) -> Quantity:
    """Return a quantity that is a distribution."""
    return Quantity(
        name,
        unit,
        formula,
        relation,
        coverage,
        needs,
        reason,
        value=value,
        stats=stats,
        part=part,
        dimensions=dimensions,
    )
