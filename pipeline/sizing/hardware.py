"""Accelerators: data-sheet figures and the provisioned power of a whole system around one.

A plan may name a card instead of typing its figures; they enter as ``literature`` with the date below. The
provisioned kilowatts are the all-in utility constants of a public dashboard, never mixed with measured power.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pipeline.sizing.units import SizingError

#: Date the figures were read, and where from.
READ_ON: Final = "2026-11-29"
SOURCE: Final = "vendor data sheets (dense BF16); all-in kW per GPU: InferenceX constants"


@dataclass(frozen=True, slots=True)
class Gpu:
    """One accelerator. ``provisioned_kw`` is all-in utility power per GPU; None: not published."""

    name: str
    memory_gb: float
    hbm_gb_s: float
    bf16_tflops: float
    board_w: float
    provisioned_kw: float | None


GPUS: Final[dict[str, Gpu]] = {
    gpu.name: gpu
    for gpu in (
        Gpu("a100-80gb", 80, 2039, 312, 400, None),
        Gpu("h100-sxm-80gb", 80, 3350, 989, 700, 1.73),
        Gpu("h200-sxm-141gb", 141, 4800, 989, 700, 1.73),
        Gpu("b200-sxm-180gb", 180, 8000, 2250, 1000, 2.17),
        Gpu("gb300-nvl72", 288, 8000, 2500, 1400, 2.10),
        Gpu("mi300x", 192, 5300, 1307, 750, 1.79),
        Gpu("mi325x", 256, 6000, 1307, 1000, 2.18),
        Gpu("l40s", 48, 864, 362, 350, None),
    )
}


def find(name: str) -> Gpu:
    """A card by name.

    Raises:
        SizingError: the name is not in the list; the message gives the list.
    """
    gpu = GPUS.get(name.lower())
    if gpu is None:
        raise SizingError(f"hardware.gpu: unknown card {name!r}; known: {', '.join(sorted(GPUS))}")
    return gpu
