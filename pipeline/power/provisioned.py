"""Provisioned power: what was paid for, not what was drawn. It never shares a column with measured power."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pipeline.sql import parameters

#: All-in provisioned utility kilowatts per accelerator that public dashboards divide by.
PUBLIC_KW_PER_GPU: Final[Mapping[str, float]] = {
    "H100": 1.73,
    "H200": 1.73,
    "B200": 2.17,
    "B300": 2.17,
    "GB200": 2.10,
    "GB300": 2.10,
    "MI300X": 1.79,
    "MI325X": 2.18,
    "MI355X": 2.65,
}
PUBLIC_SOURCE: Final = (
    "InferenceX dashboards, all-in provisioned utility power per GPU (SemiAnalysis Datacenter Industry "
    "Model), InferenceX-app packages/app/src/lib/constants.ts at 77ca49a, read in 2026"
)
NOT_THE_SAME: Final = (
    "For a place beside published results only: the denominator is power that a building must provide for "
    "(chassis, network, cooling, conversion), planned and not measured; benchmark agents have no human "
    "between their turns, so only in-turn stands near them; models, prompt lengths and service levels differ."
)


def declared(
    settings: parameters.Conventions, mean_agents: float | None, where: Mapping[str, Any]
) -> dict[str, Any]:
    """Return agents per declared provisioned megawatt, or null with the reason.

    Args:
        settings: conventions with ``power.provisioned``.
        mean_agents: conformant agent-hours ÷ measured hours; None: unknown.
        where: state and tier of these agents.
    """
    entries = [
        {"name": p.name, "watts": p.watts, "count": p.count, "source": p.source}
        for p in settings.power.provisioned
    ]
    megawatts = sum(p.watts * p.count for p in settings.power.provisioned) / 1e6
    result: dict[str, Any] = {
        "agents_per_provisioned_megawatt": None,
        "provisioned_megawatts": megawatts if entries else None,
        "entries": entries,
        **where,
        "meaning": "declared, not measured",
    }
    if not entries:
        return result | {"reason": "no provisioned power is declared (power.provisioned)"}
    if mean_agents is None:
        return result | {"reason": "the mean number of conformant agents is unknown"}
    return result | {"agents_per_provisioned_megawatt": mean_agents / megawatts, "reason": None}


def public(
    models: Sequence[str | None], mean_agents: float | None, where: Mapping[str, Any]
) -> dict[str, Any]:
    """Return agents per megawatt on the public constants for accelerators of these model names."""
    result: dict[str, Any] = {
        "agents_per_provisioned_megawatt": None,
        **where,
        "gpus": len(models),
        "kw_per_gpu": dict(PUBLIC_KW_PER_GPU),
        "source": PUBLIC_SOURCE,
        "meaning": NOT_THE_SAME,
    }
    found = [constant(m) for m in models]
    if not models:
        return result | {"reason": "no boards are measured, so their number is unknown"}
    known = [kw for kw in found if kw is not None]
    if len(known) < len(found):
        names = ", ".join(sorted({str(m) for m, kw in zip(models, found, strict=True) if kw is None}))
        return result | {"reason": f"no public constant for {names} (power.gpu_model names the accelerator)"}
    if mean_agents is None:
        return result | {"reason": "the mean number of conformant agents is unknown"}
    megawatts = sum(known) / 1e3
    return result | {
        "provisioned_megawatts": megawatts,
        "agents_per_provisioned_megawatt": mean_agents / megawatts,
        "reason": None,
    }


def constant(model: str | None) -> float | None:
    """Return the public kilowatts of an accelerator by its model name; the longest name that fits counts."""
    text = (model or "").upper().replace(" ", "").replace("-", "")
    fits = [name for name in PUBLIC_KW_PER_GPU if name in text]
    return PUBLIC_KW_PER_GPU[max(fits, key=len)] if fits else None
