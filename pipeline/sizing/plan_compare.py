"""Plans over time: what changed between two weeks, and whether last plan's assumptions held.

``diff`` sets two computed plans side by side. ``check`` sets a prediction against a measured week and names
the assumption that moved most, because "concurrency was wrong" helps nobody while "the duty cycle was twice
what was assumed" does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from pipeline.sizing.measured import Week
from pipeline.sizing.units import SizingError

Verdict = Literal["holds", "broke", "unknown"]

#: Without an interval of its own an assumption holds within this share of its value.
TOLERANCE: Final = 0.20

#: Inputs that a week measures, and what each stands for.
ASSUMPTIONS: Final[Mapping[str, str]] = {
    "people.duty_cycle": "rho, the duty cycle",
    "people.amplification": "A, the amplification by failures and subagents",
    "calls.per_human_hour": "calls per human-hour",
    "calls.prompt_tokens_p50": "the median prompt",
    "calls.prompt_tokens_p95": "the 95th percentile of the prompt",
    "calls.output_tokens": "the output of a call",
    "calls.prefix_hit": "the prefix hit",
}


def _flat(data: Any, path: str = "") -> dict[str, Any]:
    if isinstance(data, Mapping):
        return {
            k: v
            for name, part in data.items()
            for k, v in _flat(part, f"{path}.{name}" if path else str(name)).items()
        }
    if isinstance(data, list):
        return {k: v for index, part in enumerate(data) for k, v in _flat(part, f"{path}[{index}]").items()}
    return {path: data}


def _report(data: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(data, Mapping) or not {"plan", "inputs", "results"} <= set(data):
        raise SizingError(f"{name}: not a computed plan (plan, inputs and results are needed)")
    return data


def diff(before: Any, after: Any) -> dict[str, Any]:
    """Inputs and results that differ between two computed plans.

    Raises:
        SizingError: one of them is not a computed plan.
    """
    old, new = _report(before, "before"), _report(after, "after")
    result: dict[str, Any] = {
        "before": {k: old["plan"].get(k) for k in ("name", "date", "week", "inputs_digest")},
        "after": {k: new["plan"].get(k) for k in ("name", "date", "week", "inputs_digest")},
    }
    result["inputs"] = _changes(
        {k: v.get("value") for k, v in old["inputs"].items()},
        {k: v.get("value") for k, v in new["inputs"].items()},
    )
    result["tags"] = [
        {"input": k, "before": old["inputs"][k]["tag"], "after": v["tag"]}
        for k, v in new["inputs"].items()
        if k in old["inputs"] and old["inputs"][k]["tag"] != v["tag"]
    ]
    result["results"] = _changes(_flat(old["results"]), _flat(new["results"]))
    return result


def _changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for key in sorted(set(old) | set(new)):
        a, b = old.get(key), new.get(key)
        if a == b:
            continue
        row: dict[str, Any] = {"key": key, "before": a, "after": b}
        numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in (a, b))
        if numbers and a:
            row["change"] = round(b / a - 1, 4)
        rows.append(row)
    return rows


@dataclass(frozen=True, slots=True)
class Verified:
    """One assumption against the week. ``low`` and ``high`` bound what still counts as held."""

    name: str
    meaning: str
    predicted: float | None
    low: float | None
    high: float | None
    measured: float | None
    ratio: float | None
    verdict: Verdict
    reason: str | None = None


def check(predicted: Any, week: Week) -> dict[str, Any]:
    """Prediction of a computed plan against the measured week.

    Raises:
        SizingError: ``predicted`` is not a computed plan.
    """
    plan = _report(predicted, "plan")
    rows = [_verify(key, meaning, plan["inputs"].get(key), week) for key, meaning in ASSUMPTIONS.items()]
    rows.append(_peak(plan, week))
    rows += _agents(plan, week)
    broken = [r for r in rows if r.verdict == "broke"]
    worst = max(broken, key=_distance, default=None)
    return {
        "plan": {k: plan["plan"].get(k) for k in ("name", "date", "inputs_digest")},
        "week": week.window,
        "holds": not broken,
        "broke": [r.name for r in broken],
        "first_suspect": None if worst is None else f"{worst.meaning} ({worst.name})",
        "concurrency": _decompose(plan, week),
        "rows": [{f: getattr(r, f) for f in Verified.__slots__} for r in rows],
    }


def _distance(row: Verified) -> float:
    if not row.ratio or row.ratio <= 0:
        return math.inf
    return abs(math.log(row.ratio))


def _judge(
    name: str, meaning: str, value: float, low: float, high: float, measured: float | None, why: str
) -> Verified:
    if measured is None:
        return Verified(name, meaning, value, low, high, None, None, "unknown", why)
    ratio = measured / value if value else None
    verdict: Verdict = "holds" if low <= measured <= high else "broke"
    return Verified(name, meaning, value, low, high, measured, ratio, verdict)


def _verify(key: str, meaning: str, stated: Mapping[str, Any] | None, week: Week) -> Verified:
    if stated is None:
        return Verified(key, meaning, None, None, None, week.value(key), None, "unknown", "not in the plan")
    value = float(stated["value"])
    low = float(stated.get("low", value * (1 - TOLERANCE)))
    high = float(stated.get("high", value * (1 + TOLERANCE)))
    why = next((r.reason for r in week.readings if r.key == key), None) or "not measured"
    if key == "calls.prefix_hit" and "low" not in stated:
        # A share near 1 is judged by what misses: 0.96 to 0.92 doubles the prefill.
        low, high = 1 - (1 - value) * (1 + TOLERANCE), 1.0
    return _judge(key, meaning, value, low, high, week.value(key), why)


def _peak(plan: Mapping[str, Any], week: Week) -> Verified:
    """The busiest moment of the week against the sequences the fleet was sized for; less is fine."""
    meaning = "calls in flight at the busiest moment"
    sized = (plan["results"].get("concurrency") or {}).get("sequences")
    if sized is None:
        return Verified(
            "peak_concurrency",
            meaning,
            None,
            None,
            None,
            week.peak_calls,
            None,
            "unknown",
            "no sequences in the plan",
        )
    return _judge(
        "peak_concurrency", meaning, float(sized), 0.0, float(sized), week.peak_calls, "no peak in the report"
    )


def _agents(plan: Mapping[str, Any], week: Week) -> list[Verified]:
    predicted = (plan["results"].get("energy") or {}).get("predicted_agents_per_megawatt") or {}
    rows = []
    for state, by_boundary in predicted.items():
        for boundary, value in by_boundary.items():
            measured = week.agents.get(f"{state}/{boundary}")
            if measured is not None:
                name = f"agents_per_megawatt.{state}.{boundary}"
                rows.append(
                    _judge(
                        name, "agents per megawatt", value, value * (1 - TOLERANCE), math.inf, measured, ""
                    )
                )
    return rows


def _decompose(plan: Mapping[str, Any], week: Week) -> dict[str, Any]:
    """Which factor moved the concurrency per person: log shares of rho and A."""
    parts: dict[str, float] = {}
    for key in ("people.duty_cycle", "people.amplification"):
        stated, measured = plan["inputs"].get(key), week.value(key)
        if stated is None or measured is None or measured <= 0:
            return {"value": None, "reason": f"{key} is not on both sides"}
        parts[key] = math.log(measured / float(stated["value"]))
    total = sum(parts.values())
    return {
        "value": round(math.exp(total), 4),
        "meaning": "measured over predicted concurrent calls per active person",
        "factors": {key: round(math.exp(part), 4) for key, part in parts.items()},
    }
