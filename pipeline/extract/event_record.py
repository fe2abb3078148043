"""One event record: from bytes to a row of ``raw/events``, or a reason why not."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import orjson

from gateway_plugin.event import FIELD_NAMES, FIELDS, OUTCOME_RANK, SCHEMA_VERSION
from pipeline.lake import Lake, connect
from pipeline.schema import SCHEMAS

#: A record above this size is set aside: the plugin writes at most a few kilobytes.
MAX_RECORD_BYTES: Final = 256 * 1024
EXCERPT_BYTES: Final = 512
_REQUIRED: Final = ("schema", "event_id", "stage", "outcome", "started_us")
_INT64: Final = 2**63
_STARTED_MIN_US: Final = 1_577_836_800_000_000  # 2020-01-01
_STARTED_MAX_US: Final = 4_102_444_800_000_000  # 2100-01-01
#: A clock may be this far ahead of the collector's, as rows of the ledger may; a call of 2099 is no call.
_AHEAD_US: Final = 86_400_000_000
#: Steps of a prefix: one for each head that is kept of a stream and model, and for those of other workers.
_STEPS_MAX: Final = 256
_EPOCH: Final = datetime(1970, 1, 1)


class RejectedRecordError(ValueError):
    """A record that cannot become a row; the text is the reason, from a closed list of forms."""


def _steps(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(step, list)
        and len(step) == 2
        and all(isinstance(n, int | float) and not isinstance(n, bool) for n in step)
        for step in value
    )


_FITS: Final[dict[str, Callable[[object], bool]]] = {
    "str": lambda v: isinstance(v, str),
    "int": lambda v: isinstance(v, int) and not isinstance(v, bool) and -_INT64 <= v < _INT64,
    "float": lambda v: isinstance(v, int | float) and not isinstance(v, bool),
    "bool": lambda v: isinstance(v, bool),
    "steps": _steps,
}


def fits(type_: str, value: object) -> bool:
    """Whether a JSON *value* is of the contract's *type_*."""
    return _FITS[type_](value)


def parse(payload: bytes | None) -> tuple[dict[str, Any], bool]:
    """Return the checked record and whether it carries keys this version does not know.

    Raises:
        RejectedRecordError: with the reason.
    """
    if payload is None:
        raise RejectedRecordError("no payload field")
    if len(payload) > MAX_RECORD_BYTES:
        raise RejectedRecordError("too large")
    try:
        record = orjson.loads(payload)
    except orjson.JSONDecodeError:
        raise RejectedRecordError("not JSON") from None
    if not isinstance(record, dict):
        raise RejectedRecordError("not an object")
    for name in _REQUIRED:
        if record.get(name) is None:
            raise RejectedRecordError(f"missing {name}")
    for f in FIELDS:
        value = record.get(f.name)
        if value is not None and not fits(f.type, value):
            raise RejectedRecordError(f"wrong type of {f.name}")
    if len(record.get("prefix_steps") or ()) > _STEPS_MAX:
        raise RejectedRecordError("too many prefix_steps")
    if not 1 <= record["schema"] <= SCHEMA_VERSION:
        raise RejectedRecordError("unknown schema")
    if record["stage"] not in {"open", "final"}:
        raise RejectedRecordError("unknown stage")
    if record["outcome"] not in OUTCOME_RANK:
        raise RejectedRecordError("unknown outcome")
    if not _STARTED_MIN_US <= record["started_us"] < _STARTED_MAX_US:
        raise RejectedRecordError("started_us out of range")
    return record, not record.keys() <= FIELD_NAMES


@dataclass(slots=True)
class EventBatch:
    """Records waiting to be written: rows by UTC date of ``started_us``, and those set aside."""

    collected_at: datetime
    rows: dict[date, list[list[Any]]] = field(default_factory=dict)
    rejects: list[list[Any]] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    ids: list[str] = field(default_factory=list)
    size: int = 0
    unknown_fields: int = 0
    oldest: float = 0.0

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def age_s(self) -> float:
        """Seconds since the first entry was added (monotonic clock)."""
        return time.monotonic() - self.oldest

    def add(self, stream_id: str, payload: bytes | None) -> None:
        """Take one entry; a bad one is set aside with its reason, never raised."""
        if not self.ids:
            self.oldest = time.monotonic()
        self.ids.append(stream_id)
        self.size += len(payload or b"")
        try:
            record, unknown = parse(payload)
            if record["started_us"] > self._latest_us():
                raise RejectedRecordError("started_us in the future")
        except RejectedRecordError as reason:
            raw = payload or b""
            excerpt = raw[:EXCERPT_BYTES].decode("utf-8", "replace")
            self.rejects.append([stream_id, str(reason), len(raw), excerpt, self.collected_at])
            self.reasons[str(reason)] += 1
            return
        self.unknown_fields += unknown
        day = (_EPOCH + timedelta(microseconds=record["started_us"])).date()
        row = [_value(f.type, record.get(f.name)) for f in FIELDS]
        self.rows.setdefault(day, []).append([*row, stream_id, self.collected_at])

    def _latest_us(self) -> int:
        return round((self.collected_at - _EPOCH) / timedelta(microseconds=1)) + _AHEAD_US

    def write(self, lake: Lake) -> int:
        """Write all files of the batch; only after that may its source be told that they are safe."""
        name = _file_name(self.ids[0], self.ids[-1])
        written = 0
        with connect() as con:
            for day, rows in self.rows.items():
                path = Path("raw/events") / f"date={day.isoformat()}" / name
                written += lake.write_columns(con, "raw/events", path, rows, "started_us, stream_id")
            if self.rejects:
                path = Path("rejects/events") / f"date={self.collected_at.date().isoformat()}" / name
                lake.write_columns(con, "rejects/events", path, self.rejects, "stream_id")
        return written


def new_batch() -> EventBatch:
    """Return an empty batch stamped with the present instant (naive UTC)."""
    return EventBatch(datetime.now(UTC).replace(tzinfo=None))


def _value(type_: str, value: Any) -> Any:
    if value is None:
        return None
    if type_ == "steps":
        return orjson.dumps(value).decode()
    return float(value) if type_ == "float" else value


def _file_name(first: str, last: str) -> str:
    """Name a file by the entries in it: the same batch, read again, replaces its own file."""
    safe = ["".join(c if c.isalnum() or c in "-." else "_" for c in text)[-80:] for text in (first, last)]
    return f"events-{safe[0]}--{safe[1]}.parquet"


assert len(SCHEMAS["raw/events"]) == len(FIELDS) + 2
