"""What would change the decision: each input of the plan moved alone, and where the answer turns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from pipeline.report.planning import Needs, Planned
from pipeline.sizing import plan
from pipeline.sizing.inputs import BY_KEY
from pipeline.sizing.plan_compare import TOLERANCE

#: How far an input is moved to find the value at which the answer turns, as a factor.
_REACH: Final = 4.0
_STEPS: Final = 18


@dataclass(frozen=True, slots=True)
class Lever:
    """One input a reader can picture. ``key`` as in a plan file, dots as ``__`` are not needed here."""

    key: str
    title: str
    unit: str
    is_share: bool = False


LEVERS: Final = (
    Lever("people.active", "People at work at once", "people"),
    Lever("people.duty_cycle", "Share of a working hour in which a call runs", "share", True),
    Lever("people.amplification", "Factor for subagents and failures", "factor"),
    Lever("calls.per_human_hour", "Calls per human-hour", "calls/h"),
    Lever("calls.prefix_hit", "Prefix hit", "share", True),
    Lever("calls.prompt_tokens_p50", "Median prompt", "tokens"),
    Lever("calls.prompt_tokens_p95", "95th percentile of prompts", "tokens"),
    Lever("calls.output_tokens", "Output of a call", "tokens"),
    Lever("calls.context_max", "Longest context admitted", "tokens"),
    Lever("slo.ttft_ms", "Promised time to first token", "ms"),
    Lever("slo.tpot_ms", "Promised time per token", "ms"),
    Lever("hardware.flops_efficiency", "Share of the arithmetic that prefill reaches", "share", True),
    Lever(
        "hardware.bandwidth_efficiency", "Share of the memory bandwidth that decode reaches", "share", True
    ),
    Lever("gateway.count_wall_s", "Token counting per call", "s"),
    Lever("demand.requests_per_day", "Requests per day", "1/day"),
    Lever("demand.gpu_tok_s", "Goodput of one GPU", "tok/s"),
)

#: The load of a plan that is sized on measured concurrency, as a factor on it; people do not enter there.
_LOAD: Final = Lever("concurrency", "Calls in flight that the fleet is sized for", "calls")


def levers(planned: Planned) -> list[dict[str, Any]]:
    """Return each input's effect on GPUs, replicas and workers, the strongest on GPUs first.

    An input moves between its own bounds (``low`` and ``high`` of the plan, or the week-to-week interval of
    a measured one), else by ± 20 %. ``turns`` gives the nearest lower and higher value at which the number
    of GPUs changes, within a factor of four; None where it does not.
    """
    base = planned.needs()
    if base is None:
        return []
    from_samples = bool(planned.stated.samples)
    rows = []
    for lever in LEVERS:
        one = planned.stated.inputs.get(lever.key)
        if one is None or (from_samples and lever.key.startswith("people.")):
            continue
        row = _row(lever, float(one.value), one.low, one.high, one.tag, base, _ask(planned, lever))
        if row is not None:
            rows.append(row)
    if from_samples:
        sized = float(planned.report["results"]["concurrency"]["sized_for"])
        peak = planned.week.peak_calls
        high = peak if peak is not None and peak > sized else None
        row = _row(_LOAD, sized, None, high, "measured", base, _load(planned, sized))
        if row is not None:
            rows.append(row | {"high_is": "the busiest instant of the window" if high else row["high_is"]})
    return sorted(rows, key=_strength, reverse=True)


def _ask(planned: Planned, lever: Lever) -> Callable[[float], Needs | None]:
    whole = BY_KEY[lever.key].kind == "count"
    return lambda value: planned.needs(**{lever.key.replace(".", "__"): round(value) if whole else value})


def _load(planned: Planned, sized: float) -> Callable[[float], Needs | None]:
    margin = float(plan.stated_values(planned.stated)["fleet.margin"])
    return lambda value: planned.needs(fleet__margin=(1 + margin) * value / sized - 1)


def _row(
    lever: Lever,
    value: float,
    low: float | None,
    high: float | None,
    tag: str,
    base: Needs,
    ask: Callable[[float], Needs | None],
) -> dict[str, Any] | None:
    """One input; None where moving it changes nothing in its bounds or beyond."""
    if not value:
        return None
    spec = BY_KEY.get(lever.key)
    whole = spec is not None and spec.kind == "count"
    floor = spec.low if spec and spec.low is not None else 0.0
    ceiling = 1.0 if lever.is_share else value * _REACH
    at = {
        "low": max(value * (1 - TOLERANCE), floor) if low is None else low,
        "high": min(value * (1 + TOLERANCE), ceiling) if high is None else high,
    }
    found = {end: ask(v) for end, v in at.items()}
    turns = {
        "below": _turn(value, max(value / _REACH, floor), base, ask, whole),
        "above": _turn(value, max(ceiling, at["high"]), base, ask, whole),
    }
    if all(n == base for n in found.values()) and not any(turns.values()):
        return None
    return {
        "input": lever.key, "title": lever.title, "unit": lever.unit, "is_share": lever.is_share,
        "value": value, "tag": tag, "low": at["low"], "high": at["high"],
        "low_is": "± 20 %" if low is None else "bound", "high_is": "± 20 %" if high is None else "bound",
        "gpus": [None if n is None else n.gpus for n in found.values()],
        "replicas": [None if n is None else n.replicas for n in found.values()],
        "workers": [None if n is None else n.workers for n in found.values()],
        "turns": turns,
    }  # fmt: skip


def _turn(
    start: float, end: float, base: Needs, ask: Callable[[float], Needs | None], whole: bool
) -> dict[str, Any] | None:
    """The value nearest to *start*, on the way to *end*, at which the number of GPUs differs from *base*."""

    def differs(value: float) -> bool:
        there = ask(value)
        return there is None or there.gpus != base.gpus

    if start == end or not differs(end):
        return None
    near, far = start, end
    for _ in range(_STEPS):
        middle = (near + far) / 2
        near, far = (near, middle) if differs(middle) else (middle, far)
    far = round(far) if whole else far
    there = ask(far)
    return {"value": far, "gpus": None if there is None else there.gpus}


def _strength(row: dict[str, Any]) -> tuple[float, float, float]:
    def spread(values: list[float | None]) -> float:
        known = [v for v in values if v is not None]
        return float("inf") if len(known) < len(values) else max(known) - min(known)

    nearest = min(
        (abs(t["value"] / row["value"] - 1) for t in row["turns"].values() if t), default=float("inf")
    )
    workers = [w for w in row["workers"] if w is not None]
    return spread(row["gpus"]), -nearest, (max(workers) - min(workers)) if workers else 0.0
