"""Units and exact rounding: decimal (GB) and binary (GiB) bytes never mix, and a ceiling is never off by one.

A ceiling of a product of decimals must not depend on binary rounding: ``ceil(100 * 1.1)`` is 111 in floating
point and 110 on paper. Every count of GPUs, nodes, replicas and sequences therefore goes through
:func:`exact`, which reads a float as the decimal number a person wrote.
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Final

KIB: Final = 2**10
MIB: Final = 2**20
GIB: Final = 2**30
GB: Final = 10**9

SECONDS_PER_DAY: Final = 86_400
SECONDS_PER_HOUR: Final = 3_600
HOURS_PER_YEAR: Final = 8_760

Number = int | float | Decimal | Fraction


class SizingError(ValueError):
    """An input that the sizing model cannot use; the message names the field and says what is wrong."""


class OutOfRange(SizingError):
    """A published table was asked outside the range that was published."""


def exact(value: Number) -> Fraction:
    """The number as written: a float is read through its shortest decimal form, not its binary one.

    Raises:
        SizingError: the value is not finite.
    """
    if isinstance(value, float):
        if not math.isfinite(value):
            raise SizingError(f"a finite number is needed, not {value}")
        return Fraction(repr(value))
    return Fraction(value)


def ceil_div(amount: Number, unit: Number) -> int:
    """Smallest whole number of ``unit`` that covers ``amount`` (same unit both)."""
    divisor = exact(unit)
    if divisor <= 0:
        raise SizingError(f"cannot divide by {unit}: a positive capacity is needed")
    return math.ceil(exact(amount) / divisor)


def floor_div(amount: Number, unit: Number) -> int:
    """How many whole ``unit`` fit into ``amount`` (same unit both)."""
    divisor = exact(unit)
    if divisor <= 0:
        raise SizingError(f"cannot divide by {unit}: a positive size is needed")
    return math.floor(exact(amount) / divisor)


def round_up(amount: Number, multiple: int) -> int:
    """``amount`` rounded up to the next multiple of ``multiple``."""
    if multiple < 1:
        raise SizingError(f"a multiple of at least 1 is needed, not {multiple}")
    return ceil_div(amount, multiple) * multiple


def plain(value: Fraction) -> int | float:
    """An int when the number is whole, else the nearest float: for output."""
    return value.numerator if value.denominator == 1 else float(value)


def gib_to_gb(gib: Number) -> float:
    """Gibibytes to gigabytes (1 GiB = 1.073741824 GB)."""
    return float(exact(gib) * GIB / GB)


def gb_to_gib(gb: Number) -> float:
    """Gigabytes to gibibytes."""
    return float(exact(gb) * GB / GIB)


def positive(name: str, value: float) -> float:
    """``value`` when it is finite and above zero.

    Raises:
        SizingError: it is not; the message carries ``name``.
    """
    if not math.isfinite(value) or value <= 0:
        raise SizingError(f"{name} must be above 0, not {value}")
    return value


def share(name: str, value: float) -> float:
    """``value`` when it lies in 0..1.

    Raises:
        SizingError: it does not; the message carries ``name``.
    """
    if not 0 <= value <= 1:
        raise SizingError(f"{name} must lie between 0 and 1, not {value}")
    return value
