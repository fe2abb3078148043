"""Ground truth: one record for every request that reached the engine, and their sums.

Records are kept for the life of the program (some 500 bytes each): a run is minutes, not weeks.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any


def now_us() -> int:
    """UTC epoch microseconds."""
    return time.time_ns() // 1000


@dataclass(slots=True)
class Served:
    """One request.

    Tokens are 0 for a request that was refused before it ran; ``input_tokens`` of an aborted one are those
    that it asked for. ``status`` is 0 while nothing has been answered, and 499 when the client left before
    it was.
    """

    n: int
    route: str
    body_sha256: str
    started_us: int
    model: str = ""
    stream: bool = False
    marker: str | None = None
    words_sha256: str | None = None
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

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.records: list[Served] = []
        self._clock = clock
        self._start = self._since = clock()
        self._running = 0
        self._running_seconds = 0.0

    def open(self, route: str, body_sha256: str) -> Served:
        """Enter a request that has arrived."""
        record = Served(len(self.records), route, body_sha256, now_us())
        self.records.append(record)
        return record

    def running(self, requests: int) -> None:
        """Enter how many requests run from now on."""
        now = self._clock()
        self._running_seconds += self._running * (now - self._since)
        self._since, self._running = now, requests

    def lines(self) -> bytes:
        """Return all records as JSON lines."""
        return b"".join(json.dumps(asdict(r), separators=(",", ":")).encode() + b"\n" for r in self.records)

    def summary(self, energy_joules: float) -> dict[str, Any]:
        """Return the sums; ``mean_running`` is the time average of running requests since the start.

        It is null when no time has passed.
        """
        self.running(self._running)
        seconds = self._since - self._start
        return {
            "requests": len(self.records),
            "input_tokens": sum(r.input_tokens for r in self.records),
            "cached_tokens": sum(r.cached_tokens for r in self.records),
            "output_tokens": sum(r.output_tokens for r in self.records),
            "energy_joules": energy_joules,
            "seconds": seconds,
            "mean_running": self._running_seconds / seconds if seconds > 0 else None,
        }
