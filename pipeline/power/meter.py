"""Read a meter's own log (CSV or Parquet) into ``raw/metrics``, as one more series to declare as a source.

A row gives an instant, a number and, where the file holds several devices, a device. Rows that cannot be read
are counted by reason and left out; a file that gives no row is an error. The same file replaces its own rows.
"""

# ruff: noqa: S608 - names of columns and the path are quoted; there is no other input

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pipeline.errors import ConfigError
from pipeline.extract.metrics_text import Sample, label_text
from pipeline.extract.scrape import write_samples
from pipeline.lake import Lake, connect

_EPOCH: Final = datetime(1970, 1, 1)
_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_BATCH: Final = 50_000
#: Seconds since 1970 reach this in the year 5138; a larger number counts milliseconds.
_MILLISECONDS_FROM: Final = 1e11


@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns of the file mean what, and the zone of its times that name none."""

    time: str
    value: str
    device: str | None = None
    zone: str = "UTC"


@dataclass(slots=True)
class MeterReport:
    """What one file brought."""

    file: str
    samples: int = 0
    devices: set[str] = field(default_factory=set)
    first: datetime | None = None
    last: datetime | None = None
    rejected: Counter[str] = field(default_factory=Counter)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return {
            "file": self.file,
            "samples": self.samples,
            "devices": len(self.devices),
            "first": self.first.isoformat() if self.first else None,
            "last": self.last.isoformat() if self.last else None,
            "rejected": dict(self.rejected),
        }


def read(lake: Lake, path: Path, *, metric: str, target: str, columns: Columns) -> MeterReport:
    """Write the readings of *path* under the series name *metric*, label ``device``.

    Args:
        lake: where to write.
        path: a ``.csv`` or ``.parquet`` file.
        metric: series name, which ``power.sources`` declares with unit and scope.
        target: scrape target to write, as pools name it.
        columns: time (ISO 8601, or seconds or milliseconds since 1970), value, device.

    Raises:
        ConfigError: the file or a column is missing, or no row can be read.
    """
    if not _NAME.fullmatch(metric):
        raise ConfigError(f"{metric!r} is no metric name.", why="Letters, digits, underscore and colon.")
    try:
        zone = ZoneInfo(columns.zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigError(f"{columns.zone!r} is no IANA time zone such as Europe/Berlin.") from None
    report = MeterReport(str(path))
    samples: list[tuple[str, Sample]] = []
    for moment, value, device in _rows(path, columns):
        at = _instant(moment, zone)
        number = _number(value)
        if at is None:
            report.rejected["no time"] += 1
        elif number is None:
            report.rejected["no number"] += 1
        else:
            name = str(device) if device not in (None, "") else ""
            labels = label_text({"device": name}) if name else "{}"
            report.devices.add(name)
            report.first = min(report.first or at, at)
            report.last = max(report.last or at, at)
            samples.append((target, Sample(at, metric, labels, number, "untyped")))
    if not samples:
        reasons = ", ".join(f"{n} with {why}" for why, n in report.rejected.items()) or "it is empty"
        raise ConfigError(f"No reading was found in {path}.", why=f"{reasons}.")
    report.samples = len(samples)
    key = hashlib.blake2b(f"{metric}\0{target}\0{path.name}".encode(), digest_size=8).hexdigest()
    write_samples(lake, samples, f"meter-{key}")
    return report


def _rows(path: Path, columns: Columns) -> Iterator[tuple[Any, Any, Any]]:
    if not path.is_file():
        raise ConfigError(f"There is no file {path}.")
    quoted = "'" + str(path).replace("'", "''") + "'"
    if path.suffix.lower() == ".parquet":
        source = f"read_parquet({quoted})"
    elif path.suffix.lower() in {".csv", ".txt", ".tsv"}:
        source = f"read_csv({quoted}, all_varchar = true, header = true)"
    else:
        raise ConfigError(f"{path} is neither CSV nor Parquet.", next_step="Name it .csv or .parquet.")
    import duckdb

    with connect() as con:
        try:
            described = con.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()
        except duckdb.Error as error:
            raise ConfigError(f"{path} cannot be read.", why=str(error).splitlines()[0]) from None
        known = [row[0] for row in described]
        wanted = [columns.time, columns.value, *([columns.device] if columns.device else [])]
        _check(path, known, wanted)
        chosen = ", ".join('"' + c.replace('"', '""') + '"' for c in wanted)
        cursor = con.execute(f"SELECT {chosen} FROM {source}")
        while batch := cursor.fetchmany(_BATCH):
            for row in batch:
                yield row[0], row[1], row[2] if columns.device else None


def _check(path: Path, known: Sequence[str], wanted: Sequence[str]) -> None:
    missing = [c for c in wanted if c not in known]
    if missing:
        raise ConfigError(f"{path} has no column {', '.join(missing)}.", why=f"It has {', '.join(known)}.")


def _instant(value: Any, zone: ZoneInfo) -> datetime | None:
    """Return naive UTC; a time without an offset is of *zone* (the first of two equal hours)."""
    if isinstance(value, datetime):
        moment = value
    else:
        number = _number(value)
        if number is not None:
            seconds = number / 1e3 if abs(number) >= _MILLISECONDS_FROM else number
            return _EPOCH + timedelta(seconds=seconds) if abs(seconds) < _MILLISECONDS_FROM else None
        try:
            moment = datetime.fromisoformat(str(value).strip())
        except ValueError:
            return None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=zone)
    return aware.astimezone(UTC).replace(tzinfo=None)


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None
