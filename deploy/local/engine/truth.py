"""Ground truth: one record for every request that reached the engine, and their sums."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from typing import Any


def now_us() -> int:
    """UTC epoch microseconds."""
    return time.time_ns() // 1000


@dataclass(slots=True)
class Served:
    """One request. Tokens are 0 for a request that was refused before it ran."""

    n: int
    route: str
    model: str
    stream: bool
    body_sha256: str
    started_us: int
    marker: str | None = None
    request_id: str | None = None
    first_token_us: int | None = None
    ended_us: int | None = None
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    status: int = 0
    aborted: bool = False


class TruthLog:
    """Everything served since the start, in order of arrival."""

    def __init__(self) -> None:
        self.records: list[Served] = []
        self._mono = time.monotonic()
        self.running_seconds = 0.0

    def open(self, route: str, model: str, stream: bool, body_sha256: str, marker: str | None) -> Served:
        """Enter a request that has arrived."""
        record = Served(len(self.records), route, model, stream, body_sha256, now_us(), marker)
        self.records.append(record)
        return record

    def lines(self) -> bytes:
        """Return all records as JSON lines."""
        return b"".join(json.dumps(asdict(r), separators=(",", ":")).encode() + b"\n" for r in self.records)

    def summary(self, energy_joules: float) -> dict[str, Any]:
        """Return the sums; ``mean_running`` is the time average of requests that were being served."""
        seconds = time.monotonic() - self._mono
        return {
            "requests": len(self.records),
            "input_tokens": sum(r.input_tokens for r in self.records),
            "cached_tokens": sum(r.cached_tokens for r in self.records),
            "output_tokens": sum(r.output_tokens for r in self.records),
            "energy_joules": energy_joules,
            "seconds": seconds,
            "mean_running": self.running_seconds / seconds if seconds > 0 else 0.0,
        }
