"""Power of the building: a meter of its own, or rack × a declared PUE with its source, never a guess."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pipeline.power.energy import Energy
from pipeline.sql import parameters

#: Keys of ratios over energy, in a row and in its parts.
_RATIOS: Final = frozenset(
    {"value", "value_upper", "any_conformity", "any_conformity_interval", "pooled_rule", "subagents_beside",
     "contribution", "contribution_upper", "contribution_interval", "measurement_interval", "interval",
     "sensitivity"}
)  # fmt: skip


def energy(settings: parameters.Conventions, measured: Sequence[Energy]) -> dict[str, Any]:
    """Return the energy of the building: measured, or rack × PUE with its source, or null with the reason."""
    pue, source = settings.power.pue, settings.power.pue_source
    own = {"pue": pue, "pue_source": source}
    if any(e.scope == "facility" for e in measured):
        return {"value": "measured", "reason": None, **own}
    rack = next((e for e in measured if e.scope == "rack"), None)
    if pue is not None and pue < 1:
        reason = f"a PUE of {pue:g} is below 1: no building gives back"
        return {"megawatt_hours": None, **own, "reason": reason}
    if pue is None or rack is None:
        missing = "no PUE is declared" if pue is None else "no rack power is measured"
        return {"megawatt_hours": None, **own, "reason": f"facility is rack × PUE; {missing}"}
    return {"megawatt_hours": rack.mwh * pue, **own, "reason": None}


def add(settings: parameters.Conventions, figure: dict[str, Any]) -> None:
    """Add the rack's rows on the power of the building to *figure*, where that is rack × PUE."""
    pue = settings.power.pue
    if pue is None or figure["facility"].get("megawatt_hours") is None:
        return
    named = {"boundary": "facility", "pue": pue, "pue_source": settings.power.pue_source}
    for rows, more in (
        (figure["values"], {"power": "rack measured × PUE"}),
        (figure["pooled"], {"power": "rack measured × PUE"}),
        (figure["capacity"]["rows"], {}),
    ):
        rows += [on_facility(r, pue) | named | more for r in rows if r["boundary"] == "rack"]
    if any(r["boundary"] == "facility" for r in figure["values"]):
        figure["coverage"]["power"]["facility"] = figure["coverage"]["power"]["rack"]


def on_facility(content: Any, pue: float) -> Any:
    """Return a row with every ratio in it, and in its parts, over *pue* times the energy."""
    if isinstance(content, list):
        return [on_facility(part, pue) for part in content]
    if not isinstance(content, dict):
        return content
    found = {}
    for key, held in content.items():
        if key == "megawatt_hours":
            found[key] = held * pue
        elif key in _RATIOS:
            found[key] = _divided(held, pue)
        else:
            found[key] = on_facility(held, pue)
    return found


def _divided(held: Any, pue: float) -> Any:
    if isinstance(held, dict):
        return {key: _divided(part, pue) for key, part in held.items()}
    if isinstance(held, list):
        return [_divided(part, pue) for part in held]
    return held / pue if isinstance(held, float) else held
