"""The plan file: YAML in, a validated plan out, with every complaint pointing at its line and key.

A plan states where each number comes from. A value without tag, unit, source and date is refused: a sizing
whose assumptions are not written down cannot be checked a year later.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, get_args

from pipeline.sizing import document
from pipeline.sizing import plan_parts as parts
from pipeline.sizing.concurrency import Duty, Profile, combine, published_split
from pipeline.sizing.geometry import Geometry
from pipeline.sizing.inputs import BY_KEY, SECTIONS, SPECS, Input, Method, Spec, default_input
from pipeline.sizing.plan_parts import DATE, TAGS, PlanError, Problems, is_number
from pipeline.sizing.tco import CloudOffer
from pipeline.sizing.units import SizingError

_CURRENCY: Final = re.compile(r"^[A-Z]{3}$")
_TOP: Final = (
    "plan",
    "model_config",
    "profiles",
    "concurrency_by_hour",
    "offers",
    "uncertainty",
    "proxy",
    *sorted(SECTIONS),
)
_FIELDS: Final = {"value", "unit", "tag", "source", "date", "low", "high", "note"}


@dataclass(frozen=True)
class Plan:
    """A validated plan. ``inputs`` holds every key that has a value, stated or default."""

    name: str
    method: Method
    currency: str
    date: str
    inputs: Mapping[str, Input]
    geometry: Geometry | None = None
    profiles: tuple[Profile, ...] = ()
    samples: Mapping[int, tuple[float, ...]] = field(default_factory=dict)
    samples_from: str = ""
    offers: tuple[CloudOffer, ...] = ()
    draws: int = 400
    seed: int = 20260101
    confidence: float = 0.9
    week: str | None = None

    def defaults(self) -> tuple[Input, ...]:
        """Inputs that nobody stated."""
        return tuple(i for i in self.inputs.values() if i.is_default)


def load(path: Path) -> Plan:
    """Read and validate a plan file; a model configuration is resolved beside it.

    Raises:
        PlanError: unreadable, or one or more entries are wrong.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise PlanError([f"{path}: {error.strerror or error}"]) from error
    return parse(text, path.name, path.parent)


def parse(text: str, name: str = "<plan>", folder: Path | None = None) -> Plan:
    """Validate the text of a plan.

    Raises:
        PlanError: one or more entries are wrong; every one is named.
    """
    try:
        doc = document.parse(text, name)
    except document.DocumentError as error:
        raise PlanError([str(error)]) from error
    problems = Problems(doc)
    data = doc.data
    if not isinstance(data, Mapping):
        raise PlanError([f"{name}:1: a plan is a mapping of sections"])
    for key in data:
        if key not in _TOP:
            problems.add(str(key), f"unknown section; known: {', '.join(_TOP)}")
    head = data.get("plan")
    if not isinstance(head, Mapping):
        raise PlanError([*problems.found, f"{name}:1: plan: missing (name, method, currency, date)"])
    method = _head(head, problems)
    inputs = _inputs(data, doc, problems)
    geometry = parts.geometry(data.get("model_config"), folder or Path(), problems)
    _required(method, inputs, geometry, problems)
    profiles = _people(data.get("profiles"), method, inputs, problems)
    samples, samples_from = parts.samples(data.get("concurrency_by_hour"), problems)
    offers = parts.offers(data.get("offers"), problems)
    draws, seed, confidence = parts.chance(data.get("uncertainty"), problems)
    if problems.found:
        raise PlanError(problems.found)
    return Plan(
        name=str(head["name"]),
        method=method,
        currency=str(head["currency"]),
        date=str(head["date"]),
        inputs=inputs,
        geometry=geometry,
        profiles=profiles,
        samples=samples,
        samples_from=samples_from,
        offers=offers,
        draws=draws,
        seed=seed,
        confidence=confidence,
        week=None if head.get("week") is None else str(head["week"]),
    )


def _head(head: Mapping[str, Any], problems: Problems) -> Method:
    for key in ("name", "method", "currency", "date"):
        if not head.get(key):
            problems.add(f"plan.{key}", "missing")
    if head.get("date") and not DATE.match(str(head["date"])):
        problems.add("plan.date", f"a date like 2026-11-29 is needed, not {head['date']!r}")
    if head.get("currency") and not _CURRENCY.match(str(head["currency"])):
        problems.add("plan.currency", f"a three-letter currency code is needed, not {head['currency']!r}")
    if head.get("method") not in (None, *get_args(Method)):
        problems.add("plan.method", f"agents or throughput, not {head['method']!r}")
    return "throughput" if head.get("method") == "throughput" else "agents"


def _inputs(data: Mapping[str, Any], doc: document.Document, problems: Problems) -> dict[str, Input]:
    stated: dict[str, Input] = {}
    for section in sorted(SECTIONS & set(data)):
        entries = data[section]
        if not isinstance(entries, Mapping):
            problems.add(section, "a mapping of inputs is needed")
            continue
        for name, entry in entries.items():
            key = f"{section}.{name}"
            spec = BY_KEY.get(key)
            if spec is None:
                known = ", ".join(s.key.split(".")[1] for s in SPECS if s.key.startswith(f"{section}."))
                problems.add(key, f"unknown input; known in {section}: {known}")
                continue
            found = _input(key, entry, spec, doc, problems)
            if found is not None:
                stated[key] = found
    result: dict[str, Input] = {}
    for spec in SPECS:
        one = stated.get(spec.key) or default_input(spec)
        if one is not None:
            result[spec.key] = one
    return result


def _input(key: str, entry: Any, spec: Spec, doc: document.Document, problems: Problems) -> Input | None:
    if not isinstance(entry, Mapping):
        problems.add(key, f"write it as {{value, unit: {spec.unit}, tag, source, date}}")
        return None
    wrong = len(problems.found)
    for name in sorted(set(entry) - _FIELDS):
        problems.add(f"{key}.{name}", f"unknown field; known: {', '.join(sorted(_FIELDS))}")
    for name in ("value", "unit", "tag", "source", "date"):
        if entry.get(name) is None:
            problems.add(key, f"{name} is missing")
    if entry.get("unit") is not None and str(entry["unit"]) != spec.unit:
        problems.add(f"{key}.unit", f"{spec.unit} is needed, not {entry['unit']!r}")
    if entry.get("tag") is not None and entry["tag"] not in TAGS:
        problems.add(f"{key}.tag", f"one of {', '.join(TAGS)} is needed, not {entry['tag']!r}")
    if entry.get("date") is not None and not DATE.match(str(entry["date"])):
        problems.add(f"{key}.date", f"a date like 2026-11-29 is needed, not {entry['date']!r}")
    for name in ("value", "low", "high"):
        if entry.get(name) is not None:
            complaint = _complaint(entry[name], spec)
            if complaint:
                problems.add(f"{key}.{name}", complaint)
    low, high, value = entry.get("low"), entry.get("high"), entry.get("value")
    if spec.kind in ("text", "flag", "numbers") and (low is not None or high is not None):
        problems.add(key, "only a number has low and high")
    elif (low is None) != (high is None):
        problems.add(key, "an interval needs both low and high")
    elif low is not None and high is not None and len(problems.found) == wrong and not low <= value <= high:
        problems.add(key, f"low {low}, value {value}, high {high} are not in order")
    if len(problems.found) > wrong:
        return None
    return Input(
        key,
        value,
        spec.unit,
        entry["tag"],
        str(entry["source"]),
        str(entry["date"]),
        low,
        high,
        doc.line(key),
    )


def _complaint(value: Any, spec: Spec) -> str | None:
    if spec.kind == "text":
        return None if isinstance(value, str) else f"text is needed, not {value!r}"
    if spec.kind == "flag":
        return None if isinstance(value, bool) else f"true or false is needed, not {value!r}"
    if spec.kind == "numbers":
        good = isinstance(value, list) and value and all(is_number(v) for v in value)
        return None if good else f"a list of numbers is needed, not {value!r}"
    if not is_number(value):
        return f"a number is needed, not {value!r}"
    if spec.kind == "count" and value != int(value):
        return f"a whole number is needed, not {value!r}"
    if spec.low is not None and value < spec.low:
        return f"at least {spec.low:g} is needed, not {value!r}"
    if spec.high is not None and value > spec.high:
        return f"at most {spec.high:g} is allowed, not {value!r}"
    return None


def _required(
    method: Method, inputs: Mapping[str, Input], geometry: Geometry | None, problems: Problems
) -> None:
    missing = [s.key for s in SPECS if method in s.required and s.key not in inputs]
    if method == "agents":
        if geometry is None:
            wanted = (
                "model.layers",
                "model.kv_heads",
                "model.head_dim",
                "model.weights_gb",
                "model.active_params_b",
            )
            missing += [key for key in wanted if key not in inputs]
        if "hardware.gpu" not in inputs:
            card = ("hardware.memory_gb", "hardware.hbm_gb_s", "hardware.bf16_tflops")
            missing += [key for key in card if key not in inputs]
    # A key that is written, but wrong, has its complaint already.
    for key in (m for m in missing if m not in problems.doc.lines):
        hint = "; or give model_config" if key.startswith("model.") else ""
        hint = hint or (
            "; or give hardware.gpu" if key.startswith("hardware.") and "per_node" not in key else ""
        )
        problems.add(key, f"missing: {BY_KEY[key].meaning} ({BY_KEY[key].unit}){hint}")
    context = inputs.get("fleet.context")
    if context is not None and context.value not in ("p50", "p95", "max"):
        problems.add("fleet.context", f"p50, p95 or max, not {context.value!r}")
    counter = inputs.get("gateway.counter")
    if counter is not None and counter.value not in ("stock", "incremental"):
        problems.add("gateway.counter", f"stock or incremental, not {counter.value!r}")
    elif counter is not None and counter.value == "incremental":
        for key in ("gateway.count_wall_s", "gateway.count_cpu_s"):
            if inputs[key].is_default:
                problems.add("gateway.counter", f"{key}: state what the incremental counter was measured at")
    if method == "agents" and "people.duty_cycle" in inputs:
        try:
            duty_of(inputs)
        except SizingError as error:
            key, _, message = str(error).partition(": ")
            problems.add(key, message)


def _people(
    entries: Any, method: Method, inputs: Mapping[str, Input], problems: Problems
) -> tuple[Profile, ...]:
    """Profiles as stated, or ``published``: the people of the plan over the published profiles."""
    if entries != "published":
        return parts.profiles(entries, problems)
    people = inputs.get("people.active")
    if method != "agents" or people is None or problems.found:
        return ()
    duty = duty_of(inputs)
    if "measured" in (duty.rho_tag, duty.amplification_tag):
        problems.add("profiles", "published profiles must not divide a measured duty cycle")
        return ()
    return published_split(float(people.value), duty)


def duty_of(inputs: Mapping[str, Input]) -> Duty:
    """Duty cycle and amplification of a plan, refusing a published factor on a measured duty cycle."""
    rho, factor = inputs["people.duty_cycle"], inputs["people.amplification"]
    return combine(float(rho.value), rho.tag, float(factor.value), factor.tag)
