"""What a week measured, as inputs of a plan: taken where the figures have it, named where they do not.

Reads the figures' JSON (``report.json``). Nothing is invented to fill a gap: a key that the week does not
give keeps the value of the plan or its published default, and the report says which of the two.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from pipeline.sizing import plan_file
from pipeline.sizing.concurrency import Tag
from pipeline.sizing.inputs import BY_KEY, Input
from pipeline.sizing.plan_file import Plan
from pipeline.sizing.units import SizingError

#: Idle cap that the person-based inputs are read at, seconds; the report prints 5, 15 and 30 min.
IDLE_CAP_S: Final = 900
#: Working day that turns the human-hours of the busiest day into people at work at once (declared).
WORKING_DAY_H: Final = 8.0

FIGURES: Final = ("calls_per_human_hour", "prompt_length", "prefix_hit", "agents_per_megawatt")


@dataclass(frozen=True, slots=True)
class Reading:
    """One input taken from the week, or the reason why it could not be."""

    key: str
    value: float | None
    reason: str | None
    source: str
    tag: Tag = "measured"


@dataclass(frozen=True)
class Week:
    """Inputs read from the figures of one window, and the concurrency samples when they are there."""

    window: str
    date: str
    hours: float | None
    readings: tuple[Reading, ...]
    samples: Mapping[int, tuple[float, ...]]
    peak_calls: float | None
    agents: Mapping[str, float]
    report: Mapping[str, Any]

    def value(self, key: str) -> float | None:
        """The measured value of an input; None when the week does not have it."""
        return next((r.value for r in self.readings if r.key == key), None)


def _at(data: Any, *path: str) -> Any:
    for name in path:
        data = data.get(name) if isinstance(data, Mapping) else None
    return data


def _number(value: Any) -> float | None:
    if isinstance(value, Mapping):
        value = value.get("value")
    good = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if good else None


def load(path: Path) -> Week:
    """Read a ``report.json``.

    Raises:
        SizingError: unreadable, not JSON, or none of the four figures is in it.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SizingError(f"{path}: {error.strerror or error}") from error
    except json.JSONDecodeError as error:
        raise SizingError(f"{path}: not JSON: {error}") from error
    return read(data, path.name)


def read(data: Any, name: str = "report.json") -> Week:
    """Inputs of a plan from the figures of a window.

    Raises:
        SizingError: none of the four figures is in the document.
    """
    if not isinstance(data, Mapping) or not any(isinstance(data.get(f), Mapping) for f in FIGURES):
        raise SizingError(f"{name}: none of {', '.join(FIGURES)} is in it: not a figures report")
    start, end = _at(data, "meta", "window", "start"), _at(data, "meta", "window", "end")
    window = f"{start} to {end}" if start and end else "window not stated"
    human = data.get("calls_per_human_hour") or {}
    readings = (*_human(human, data), *_prompts(data), _hit(data), _agents_reading(data))
    return Week(
        window=window,
        date=str(end)[:10] if end else "0000-00-00",
        hours=_number(_at(data, "meta", "window", "hours")),
        readings=readings,
        samples=_samples(human),
        peak_calls=_number(human.get("peak_concurrent_calls")),
        agents=_agents(data),
        report=data,
    )


def _row(human: Mapping[str, Any]) -> Mapping[str, Any]:
    """The row of the figure at our idle cap."""
    for row in human.get("values") or ():
        if isinstance(row, Mapping) and row.get("idle_cap_s") == IDLE_CAP_S:
            return row
    return {}


def _reading(key: str, value: float | None, missing: str, source: str, tag: Tag = "measured") -> Reading:
    spec = BY_KEY[key]
    if value is None:
        return Reading(key, None, missing, source, tag)
    if (spec.low is not None and value < spec.low) or (spec.high is not None and value > spec.high):
        return Reading(key, None, f"measured {value:g} lies outside {spec.low} to {spec.high}", source, tag)
    return Reading(key, value, None, source, tag)


def _human(human: Mapping[str, Any], data: Mapping[str, Any]) -> list[Reading]:
    row = _row(human)
    why = human.get("reason") or "no human-hours at an idle cap of 15 min"
    rate = _number(row.get("value"))
    if rate is None:
        rate = _number(_at(human, "value", "15 min"))
    source = "calls_per_human_hour, idle cap 15 min"
    days = [
        float(d["human_hours"])
        for d in human.get("by_day") or ()
        if d.get("idle_cap_s") == IDLE_CAP_S and _number(d.get("human_hours")) is not None
    ]
    rho, factor = _number(row.get("duty_cycle")), _number(row.get("amplification"))
    if rho is None or factor is None:
        # Half of the pair is useless: a published half must not be put beside a measured one.
        rho = factor = None
    return [
        _reading("calls.per_human_hour", rate, why, source),
        _reading("people.duty_cycle", rho, "duty cycle and amplification are not both measured", source),
        _reading(
            "people.amplification", factor, "duty cycle and amplification are not both measured", source
        ),
        _active(row, days, data),
    ]


def _active(row: Mapping[str, Any], days: Sequence[float], data: Mapping[str, Any]) -> Reading:
    """People at work at once: from the busiest day's human-hours, or the mean of a window below a day.

    A window of minutes holds no working day, so dividing its human-hours by one would find nobody at work.
    """
    hours = _number(_at(data.get("meta") or {}, "window", "hours"))
    if hours is not None and hours < 24:
        source = f"mean active people over a window of {hours:.3g} h, shorter than a day"
        return _reading("people.active", _number(row.get("mean_active_people")), "nobody active", source)
    busiest = max(days) / WORKING_DAY_H if days and max(days) > 0 else None
    source = f"human-hours of the busiest day over a declared working day of {WORKING_DAY_H:g} h"
    return _reading("people.active", busiest, "no human-hours by day", source, "declared")


def _prompts(data: Mapping[str, Any]) -> list[Reading]:
    length = data.get("prompt_length") or {}
    why = length.get("reason") or "no prompt length of that percentile"
    mean, ratio = _number(_at(length, "value", "mean")), _number(length.get("input_to_output"))
    output = mean / ratio if mean is not None and ratio else None
    return [
        _reading("calls.prompt_tokens_p50", _number(_at(length, "value", "p50")), why, "prompt_length P50"),
        _reading("calls.prompt_tokens_p95", _number(_at(length, "value", "p95")), why, "prompt_length P95"),
        _reading(
            "calls.output_tokens",
            output,
            "no ratio of input to output tokens",
            "prompt_length: mean prompt over input-to-output ratio",
        ),
    ]


def _hit(data: Mapping[str, Any]) -> Reading:
    figure = data.get("prefix_hit") or {}
    realised = _number(figure.get("realised"))
    if realised is None:
        realised = _number(_at(figure, "value", "realised"))
    why = _at(figure, "realised", "reason") or figure.get("reason") or "no realised hit"
    covered = _number(_at(figure, "coverage", "share_of_input_tokens"))
    source = "prefix_hit, realised" + (
        f" over {covered:.0%} of the input tokens" if covered is not None else ""
    )
    return _reading("calls.prefix_hit", realised, str(why), source)


def _agents(data: Mapping[str, Any]) -> dict[str, float]:
    """Measured agents per megawatt by ``state/boundary``, first tier of each."""
    found: dict[str, float] = {}
    for row in (data.get("agents_per_megawatt") or {}).get("values") or ():
        value = _number(row.get("value"))
        if value is not None and not row.get("synthetic"):
            found.setdefault(f"{row.get('state')}/{row.get('boundary')}", value)
    return found


def _agents_reading(data: Mapping[str, Any]) -> Reading:
    figure = data.get("agents_per_megawatt") or {}
    value = _number(figure.get("value"))
    why = figure.get("reason") or "no headline value"
    if figure.get("synthetic"):
        value, why = None, "the power of that window is synthetic"
    where = figure.get("headline") or {}
    source = "agents_per_megawatt " + " ".join(str(v) for v in where.values())
    return _reading("energy.measured_agents_per_megawatt", value, str(why), source.strip())


def _samples(human: Mapping[str, Any]) -> dict[int, tuple[float, ...]]:
    """Concurrency by hour of week, where the figures carry it: hour -> samples, or -> one number."""
    hours = human.get("concurrency_by_hour_of_week")
    rows = hours.items() if isinstance(hours, Mapping) else ()
    samples: dict[int, tuple[float, ...]] = {}
    for hour, values in rows:
        listed = values if isinstance(values, list) else [values]
        numbers = tuple(n for n in (_number(v) for v in listed) if n is not None)
        if str(hour).isdigit() and numbers:
            samples[int(hour)] = numbers
    return samples


def overlay(plan: Plan, week: Week) -> tuple[Plan, dict[str, Any]]:
    """The plan with everything the week measured in place, and an account of what was taken and what was not.

    ``people.active`` is derived, so a number that the plan states wins over it.
    """
    inputs = dict(plan.inputs)
    taken: list[str] = []
    missing: list[dict[str, Any]] = []
    for reading in week.readings:
        present = inputs.get(reading.key)
        if reading.key == "people.active" and present is not None and not present.is_default:
            continue
        if reading.value is None:
            missing.append({"input": reading.key, "why": reading.reason, **_filled(present)})
            continue
        spec = BY_KEY[reading.key]
        inputs[reading.key] = Input(
            reading.key, reading.value, spec.unit, reading.tag, f"{reading.source}; {week.window}", week.date
        )
        taken.append(reading.key)
    samples, samples_from = plan.samples, plan.samples_from
    if week.samples:
        samples, samples_from = week.samples, week.window
        taken.append("concurrency_by_hour")
    elif not samples:
        missing.append(
            {
                "input": "concurrency_by_hour",
                "why": "the report carries no concurrency by hour of week",
                "filled_with": "D x rho x A (a mean)",
                "from": "default",
            }
        )
    account = {"window": week.window, "hours": week.hours, "taken": taken, "missing": missing}
    changed = replace(plan, inputs=inputs, samples=samples, samples_from=samples_from, week=week.window)
    return changed, account


def _filled(present: Input | None) -> dict[str, Any]:
    if present is None:
        return {"filled_with": None, "from": "nothing: the output that needs it stays null"}
    kind = "default" if present.is_default else "plan"
    return {"filled_with": present.value, "from": f"{kind}: {present.source}, {present.date}"}


def as_defaults(plan: Plan) -> Plan:
    """A plan all of whose inputs count as defaults: the published base under a week without a plan."""
    return replace(plan, inputs={k: replace(i, is_default=True) for k, i in plan.inputs.items()})


def published() -> Plan:
    """The published example, all of it defaults: what stands in where nobody has written a plan."""
    text = files("pipeline.sizing").joinpath("base_plan.yaml").read_text(encoding="utf-8")
    return as_defaults(plan_file.parse(text, "base_plan.yaml"))
