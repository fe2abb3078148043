"""The one interface of every trace source, and the checks that turn a source's values into event fields."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from gateway_plugin.event import SCHEMA_VERSION
from gateway_plugin.hashing import Hasher
from pipeline.extract.traces.documents import Head, Record, Rejected
from pipeline.extract.traces.needs import Need

#: Traces without a calendar begin here (naive UTC), so that their calls have instants at all.
EPOCH: Final = datetime(2026, 1, 5)
EPOCH_US: Final = round(EPOCH.replace(tzinfo=UTC).timestamp() * 1e6)
#: What ``plugin_version`` says of an imported call: ``import:`` and the kind.
TAG: Final = "import:"
_MIN_US: Final = 1_577_836_800_000_000  # 2020-01-01
_MAX_US: Final = 4_102_444_800_000_000  # 2100-01-01
_UNIX: Final = datetime(1970, 1, 1)

Event = dict[str, Any]
Item = Event | Rejected


class BadRowError(ValueError):
    """A record that cannot become a call; the text is the reason, from a closed list of forms."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a source needs to know about the file that it reads.

    Args:
        digest: of the file's content; names calls that have no id of their own.
        dataset: keeps session ids of different collections apart.
        hasher: keyed digest of users and of ids that are not anonymous.
        columns: field of ours -> column of the file, where the file has no fixed columns.
    """

    digest: str
    dataset: str
    hasher: Hasher
    columns: Mapping[str, str] = field(default_factory=dict)

    def key(self, domain: str, *parts: str) -> str:
        """Return a digest of *parts* that is the same in every import into one lake."""
        return self.hasher.digest(domain, self.dataset, *parts, size=16)

    def row_id(self, place: str) -> str:
        """Return an id for a record without one: the content of its file, and its place in it."""
        return f"{self.dataset}/{self.digest[:16]}/{place}"


@dataclass(frozen=True, slots=True)
class Source:
    """One kind of trace.

    Args:
        kind: name on the command line.
        title: what it is, in words.
        gives: what its records hold.
        sometimes: what some files of this kind hold.
        lacks: why a missing thing is missing, where that needs more than the usual words.
        matches: whether a file's first record is of this kind.
        read: turns records into final events, in order.
        notes: what a reader of its figures must know.
    """

    kind: str
    title: str
    gives: frozenset[Need]
    matches: Callable[[Head], bool]
    read: Callable[[Iterable[Record | Rejected], Reading], Iterator[Item]]
    sometimes: frozenset[Need] = frozenset()
    lacks: Mapping[Need, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def each(
    records: Iterable[Record | Rejected], convert: Callable[[Record], Event | Iterable[Item]]
) -> Iterator[Item]:
    """Apply *convert* to every record; a :class:`BadRowError` sets that record aside."""
    for record in records:
        if isinstance(record, Rejected):
            yield record
            continue
        try:
            made = convert(record)
        except BadRowError as reason:
            yield rejected(record, str(reason))
            continue
        if isinstance(made, dict):
            yield made
        else:
            yield from made


def rejected(record: Record, reason: str, part: str = "") -> Rejected:
    """Set *record*, or the named *part* of it, aside."""
    keys = ", ".join(sorted(str(k)[:40] for k in list(record.value)[:40]))
    return Rejected(f"{record.place}{part}", reason, record.size, keys)


def call(
    kind: str, event_id: str, started_us: int, *, duration_ms: float | None = None, **fields: Any
) -> Event:
    """Return the final event of a call.

    Args:
        kind: of the trace.
        event_id: unique, and the same whenever this call is imported again.
        started_us: UTC epoch microseconds.
        duration_ms: from start to end; None where the trace does not tell.
        fields: further keys of the event; None means unknown.

    Raises:
        BadRowError: the start lies outside 2020 to 2100, or the duration is negative.
    """
    if not _MIN_US <= started_us < _MAX_US:
        raise BadRowError("start outside 2020 to 2100")
    if duration_ms is not None and duration_ms < 0:
        raise BadRowError("duration is negative")
    ended_us = None if duration_ms is None else started_us + round(duration_ms * 1000)
    event: Event = {
        "schema": SCHEMA_VERSION,
        "event_id": event_id,
        "stage": "final",
        "outcome": "success",
        "started_us": started_us,
        "ended_us": ended_us,
        "duration_ms": duration_ms,
        "agent_id": "main",
        "agent_kind": "main",
        "session_evidence": "E5",
        "turn_evidence": "E5",
        "initiator": "unknown",
        "client": "unknown",
        "user_source": "none",
        "route": "chat",
        "usage_source": "provider",
        "attempts": 1,
        "response_cache_hit": False,
        "plugin_version": TAG + kind,
        "stream_id": TAG + event_id,
        "collected_at": (_UNIX + timedelta(microseconds=ended_us or started_us)).isoformat(),
    }
    return event | fields


def count(value: object, name: str, *, needed: bool = False) -> int | None:
    """Return *value* as a whole number of at least 0, from a number or its text; None where it is absent.

    Raises:
        BadRowError: it is something else, or *needed* and absent.
    """
    number = amount(value, name, needed=needed)
    if number is None:
        return None
    if number != int(number) or number >= 2**53:
        raise BadRowError(f"{name} is no whole number")
    return int(number)


def amount(value: object, name: str, *, needed: bool = False) -> float | None:
    """Return *value* as a finite number of at least 0; None where it is absent.

    Raises:
        BadRowError: it is something else, or *needed* and absent.
    """
    if value is None or value == "":
        if needed:
            raise BadRowError(f"no {name}")
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise BadRowError(f"{name} is no number")
    try:
        number = float(value)
    except (ValueError, OverflowError):
        raise BadRowError(f"{name} is no number") from None
    if not math.isfinite(number):
        raise BadRowError(f"{name} is no number")
    if number < 0:
        raise BadRowError(f"{name} is negative")
    return number


def instant_us(value: object, name: str) -> int:
    """Return UTC epoch microseconds of an ISO date-time (no offset means UTC) or of an epoch number.

    The unit of a number is told by its size: seconds, milliseconds, microseconds or nanoseconds since 1970.

    Raises:
        BadRowError: it is no instant.
    """
    if isinstance(value, str) and value.strip():
        text = value.strip()
        if not _numeric(text):
            try:
                moment = datetime.fromisoformat(text)
            except ValueError:
                raise BadRowError(f"{name} is no time") from None
            moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
            return round((moment.replace(tzinfo=None) - _UNIX) / timedelta(microseconds=1))
    number = amount(value, name, needed=True)
    if number is None or number < 1e9:
        raise BadRowError(f"{name} is no absolute time")
    for limit, factor in ((1e11, 1e6), (1e14, 1e3), (1e17, 1.0)):
        if number < limit:
            return round(number * factor)
    return round(number / 1e3)


def text(value: object) -> str | None:
    """Return *value* as text without surrounding blanks; None where nothing is left."""
    if value is None or isinstance(value, dict | list):
        return None
    return str(value).strip() or None


def _numeric(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True
