"""Parse the Prometheus text format of ``/metrics`` into samples, with the names as exposed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import orjson
from prometheus_client.parser import text_string_to_metric_families

_TYPE_LINE: Final = re.compile(r"^#\s*TYPE\s+(\S+)\s+(\w+)\s*$")
_NAME: Final = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)")
_SUFFIXES: Final = ("_bucket", "_count", "_sum", "_created", "_total")
_KINDS: Final = {"counter": "counter", "gauge": "gauge", "histogram": "histogram"}
_EPOCH: Final = datetime(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of one series. *labels* is JSON with sorted keys; *ts* is naive UTC."""

    ts: datetime
    name: str
    labels: str
    value: float
    kind: str


@dataclass(slots=True)
class Parsed:
    """Samples of one scrape, and the lines that could not be read, by reason."""

    samples: list[Sample] = field(default_factory=list)
    rejected: Counter[str] = field(default_factory=Counter)


def parse(text: str, at: datetime, match: str | None = None) -> Parsed:
    """Read one scrape.

    Args:
        text: the body of ``/metrics`` (text format 0.0.4).
        at: the scrape's instant, naive UTC; a timestamp on a line wins over it.
        match: regular expression, found at the start of the name; other lines are skipped unparsed.

    ``_created`` series (creation times that client libraries add) are left out.
    """
    wanted = re.compile(match) if match else None
    kinds: dict[str, str] = {}
    lines: list[str] = []
    for line in text.split("\n"):
        if line.startswith("#"):
            if found := _TYPE_LINE.match(line):
                kinds[found[1]] = found[2]
            continue
        name = _NAME.match(line.strip())
        if name is None:
            if line.strip():
                lines.append(line)  # the parser will reject it, with a count
            continue
        if not name[1].endswith("_created") and (wanted is None or wanted.match(name[1])):
            lines.append(line)
    parsed = Parsed()
    try:
        parsed.samples = _samples(lines, kinds, at)
    except (ValueError, OverflowError):
        # One bad line spoils a whole text for the parser: find it by reading line by line.
        for line in lines:
            try:
                parsed.samples += _samples([line], kinds, at)
            except (ValueError, OverflowError):
                parsed.rejected["unreadable line"] += 1
    return parsed


def label_text(labels: Mapping[str, str]) -> str:
    """Labels as JSON with sorted keys: one text per series."""
    return orjson.dumps(dict(labels), option=orjson.OPT_SORT_KEYS).decode()


def kind_of(name: str, kinds: Mapping[str, str]) -> str:
    """Kind of the series *name*, given the declared types of families."""
    if name in kinds:
        return _KINDS.get(kinds[name], "untyped")
    for suffix in _SUFFIXES:
        family = name.removesuffix(suffix)
        if family != name and family in kinds:
            return _KINDS.get(kinds[family], "untyped")
    return "untyped"


def _samples(lines: Iterable[str], kinds: Mapping[str, str], at: datetime) -> list[Sample]:
    # Without TYPE lines the parser leaves every name as it is exposed; with them it would add _total to
    # counters that do not have it, such as those of DCGM.
    samples = []
    for family in text_string_to_metric_families("\n".join(lines) + "\n"):
        for s in family.samples:
            ts = at if s.timestamp is None else _EPOCH + timedelta(seconds=float(s.timestamp))
            samples.append(Sample(ts, s.name, label_text(s.labels), float(s.value), kind_of(s.name, kinds)))
    return samples
