"""The parts of a plan that are not single inputs: model configuration, profiles, samples, rental offers."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, get_args

from pipeline.sizing import document
from pipeline.sizing.concurrency import HOURS_PER_WEEK, Profile, Tag, combine
from pipeline.sizing.geometry import Geometry, parse_config
from pipeline.sizing.tco import CloudOffer, money
from pipeline.sizing.units import SizingError

TAGS: Final = get_args(Tag)
DATE: Final = re.compile(r"^\d{4}-\d{2}-\d{2}$")


class PlanError(SizingError):
    """A plan that cannot be used; ``problems`` holds one ``file:line: key: message`` each."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class Problems:
    """Collects complaints so that one run names them all."""

    def __init__(self, doc: document.Document) -> None:
        self.doc = doc
        self.found: list[str] = []

    def add(self, path: str, message: str) -> None:
        """Note that the entry at a dotted path is wrong."""
        self.found.append(f"{self.doc.name}:{self.doc.line(path)}: {path}: {message}")


def is_number(value: Any) -> bool:
    """A finite number; a truth value is none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def geometry(reference: Any, folder: Path, problems: Problems) -> Geometry | None:
    """Model geometry from a configuration beside the plan, or written into it."""
    if reference is None:
        return None
    try:
        if isinstance(reference, Mapping):
            return parse_config(reference)
        path = folder / str(reference)
        return parse_config(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        problems.add("model_config", f"{reference}: {error.strerror or error}")
    except json.JSONDecodeError as error:
        problems.add("model_config", f"{reference}: not JSON: {error}")
    except SizingError as error:
        problems.add("model_config", str(error))
    return None


def profiles(entries: Any, problems: Problems) -> tuple[Profile, ...]:
    """People by kind, each with its own duty cycle and amplification."""
    if entries is None:
        return ()
    if not isinstance(entries, Mapping):
        problems.add("profiles", "a mapping of profile names is needed")
        return ()
    found: list[Profile] = []
    for name, entry in entries.items():
        path = f"profiles.{name}"
        try:
            tag = entry["tag"]
            if tag not in TAGS:
                problems.add(f"{path}.tag", f"one of {', '.join(TAGS)} is needed, not {tag!r}")
                continue
            factor = entry.get("amplification")
            duty = combine(float(entry["duty_cycle"]), tag, None if factor is None else float(factor), tag)
            found.append(Profile(str(name), float(entry["people"]), duty))
        except (KeyError, TypeError, ValueError) as error:
            what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            problems.add(path, f"people, duty_cycle, amplification and tag are needed: {what}")
    return tuple(found)


def samples(entry: Any, problems: Problems) -> tuple[dict[int, tuple[float, ...]], str]:
    """Measured concurrency by hour of week, and where it comes from."""
    if entry is None:
        return {}, ""
    hours = entry.get("hours") if isinstance(entry, Mapping) else None
    if not isinstance(hours, Mapping) or not entry.get("source"):
        problems.add("concurrency_by_hour", "source and hours (hour of week 0..167 -> samples) are needed")
        return {}, ""
    found: dict[int, tuple[float, ...]] = {}
    for hour, values in hours.items():
        listed = values if isinstance(values, list) else [values]
        if (
            not isinstance(hour, int)
            or not 0 <= hour < HOURS_PER_WEEK
            or not all(is_number(v) and v >= 0 for v in listed)
        ):
            problems.add(f"concurrency_by_hour.hours.{hour}", "an hour of week 0..167 with numbers is needed")
            continue
        found[hour] = tuple(float(v) for v in listed)
    return found, str(entry["source"])


def offers(entries: Any, problems: Problems) -> tuple[CloudOffer, ...]:
    """Rental prices with the day each was read."""
    found: list[CloudOffer] = []
    for index, entry in enumerate(entries or []):
        path = f"offers[{index}]"
        if not isinstance(entry, Mapping) or not {"name", "gpu_hour", "date"} <= set(entry):
            problems.add(path, "name, gpu_hour and date (when the price was read) are needed")
            continue
        if not DATE.match(str(entry["date"])):
            problems.add(f"{path}.date", f"a date like 2026-11-29 is needed, not {entry['date']!r}")
            continue
        try:
            found.append(CloudOffer(str(entry["name"]), money(entry["gpu_hour"]), str(entry["date"])))
        except SizingError as error:
            problems.add(f"{path}.gpu_hour", str(error))
    return tuple(found)


def chance(entry: Any, problems: Problems) -> tuple[int, int, float]:
    """Number of draws, seed and confidence of the intervals."""
    if entry is None:
        entry = {}
    if not isinstance(entry, Mapping):
        problems.add("uncertainty", "a mapping of draws, seed and confidence is needed")
        return 0, 0, 0.0
    draws, seed, confidence = (
        entry.get("draws", 400), entry.get("seed", 20260101), entry.get("confidence", 0.9),
    )  # fmt: skip
    if not isinstance(draws, int) or not 10 <= draws <= 100_000:
        problems.add("uncertainty.draws", f"a whole number of 10 to 100000 is needed, not {draws!r}")
    if not isinstance(seed, int):
        problems.add("uncertainty.seed", f"a whole number is needed, not {seed!r}")
    if not is_number(confidence) or not 0 < confidence < 1:
        problems.add("uncertainty.confidence", f"a share between 0 and 1 is needed, not {confidence!r}")
    for name in sorted(set(entry) - {"draws", "seed", "confidence"}):
        problems.add(f"uncertainty.{name}", "unknown; known: draws, seed, confidence")
    return draws, seed, confidence
