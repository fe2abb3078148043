"""Scrape ``/metrics`` of engines and exporters at an interval into ``raw/metrics``.

Every attempt also writes a sample ``up`` (1 or 0), so that a gap in the data is visible as a gap.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from pipeline.errors import ConfigError
from pipeline.extract.metrics_text import Sample, parse
from pipeline.lake import Lake, connect

_ORDER: Final = "name, labels, target, ts"
#: Samples held in memory before they are written, whatever the flush interval.
_MAX_SAMPLES: Final = 500_000
_MAX_BODY_BYTES: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Target:
    """One endpoint: its address and the name that its samples carry."""

    url: str
    name: str


@dataclass(slots=True)
class ScrapeReport:
    """What one run of the scraper did."""

    scrapes: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    skipped: int = 0
    samples: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    files: int = 0
    last_error: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return {
            "scrapes": self.scrapes,
            "failed": dict(sorted(self.failed.items())),
            "skipped_ticks": self.skipped,
            "samples": self.samples,
            "rejected": dict(sorted(self.rejected.items())),
            "files": self.files,
            "last_error": self.last_error,
        }


def targets(urls: Sequence[str], names: Sequence[str]) -> list[Target]:
    """Pair addresses with names; the default name is host:port, the default path ``/metrics``.

    Raises:
        ConfigError: an address is none, or the numbers of addresses and names differ.
    """
    if names and len(names) != len(urls):
        raise ConfigError(
            f"There are {len(urls)} addresses and {len(names)} target names.",
            why="Each --target-name belongs to the address at the same place.",
            next_step="Give one --target-name for each address, or none.",
        )
    found = []
    for i, url in enumerate(urls):
        full = url if "://" in url else f"http://{url}"
        parts = urlsplit(full)
        if parts.scheme not in {"http", "https"} or not parts.netloc:
            raise ConfigError(f"{url} is no address to scrape.", next_step="Write http://host:port/metrics.")
        if parts.path in {"", "/"}:
            full = parts._replace(path="/metrics").geturl()
        found.append(Target(full, names[i] if names else parts.netloc.rpartition("@")[2]))
    if len({t.name for t in found}) != len(found):
        raise ConfigError("Two targets have the same name.", next_step="Give each its own --target-name.")
    return found


class Scraper:
    """Scrapes targets side by side, each on its own clock, into shared files."""

    def __init__(
        self,
        lake: Lake,
        endpoints: Sequence[Target],
        *,
        interval_s: float,
        match: str | None = None,
        timeout_s: float = 10.0,
        flush_s: float = 60.0,
        progress: Callable[[ScrapeReport], None] = lambda _: None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._lake = lake
        self._targets = endpoints
        self._interval_s = interval_s
        self._match = match
        self._timeout_s = timeout_s
        self._flush_s = flush_s
        self._progress = progress
        self._transport = transport
        self._buffer: list[tuple[str, Sample]] = []
        self.report = ScrapeReport()

    async def run(self, for_s: float | None, stop: asyncio.Event) -> ScrapeReport:
        """Scrape until *for_s* seconds have passed or *stop* is set; then write what is left."""
        deadline = None if for_s is None else time.monotonic() + for_s
        done = asyncio.Event()
        async with httpx.AsyncClient(
            timeout=self._timeout_s,
            transport=self._transport,
            headers={"accept": "text/plain;version=0.0.4"},
            follow_redirects=True,
        ) as client:
            writer = asyncio.create_task(self._write_regularly(done))
            loops = asyncio.gather(*(self._loop(client, t, deadline, stop) for t in self._targets))
            try:
                # A writer that fails (a full disk) ends the scraping: nobody would empty the buffer.
                either: set[asyncio.Future[Any]] = {writer, loops}
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                if loops.done():
                    loops.result()
            finally:
                loops.cancel()
                done.set()
                await writer
        return self.report

    async def _loop(
        self, client: httpx.AsyncClient, target: Target, deadline: float | None, stop: asyncio.Event
    ) -> None:
        begin = time.monotonic()
        tick = 0
        while not stop.is_set():
            await self._scrape(client, target)
            self._progress(self.report)
            # The next tick on the grid that lies ahead; those that a slow answer ate are counted.
            due = int((time.monotonic() - begin) / self._interval_s) + 1
            self.report.skipped += due - tick - 1
            tick = due
            wake = begin + tick * self._interval_s
            if deadline is not None and wake >= deadline:
                wake = deadline
            if await _is_set_within(stop, wake - time.monotonic()):
                return
            if deadline is not None and time.monotonic() >= deadline:
                return

    async def _scrape(self, client: httpx.AsyncClient, target: Target) -> None:
        at = datetime.now(UTC).replace(tzinfo=None)
        report = self.report
        report.scrapes += 1
        up = 1.0
        try:
            # A deadline over the whole exchange: the client's own one starts anew with every chunk.
            async with asyncio.timeout(self._timeout_s):
                answer = await client.get(target.url)
                answer.raise_for_status()
            if len(answer.content) > _MAX_BODY_BYTES:
                raise ValueError("the body is above 64 MiB")
            parsed = parse(answer.text, at, self._match)
        except httpx.HTTPStatusError as error:  # its text holds the address, maybe with a password
            up = self._failed(target, f"HTTP {error.response.status_code}")
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, ValueError) as error:
            up = self._failed(target, str(error) or type(error).__name__)
        else:
            report.rejected.update(parsed.rejected)
            self._buffer += [(target.name, sample) for sample in parsed.samples]
        self._buffer.append((target.name, Sample(at, "up", "{}", up, "gauge")))

    def _failed(self, target: Target, why: str) -> float:
        self.report.failed[target.name] += 1
        self.report.last_error = f"{target.name}: {why}"
        return 0.0

    async def _write_regularly(self, done: asyncio.Event) -> None:
        due = time.monotonic() + self._flush_s
        while not await _is_set_within(done, min(1.0, self._flush_s)):
            if time.monotonic() >= due or len(self._buffer) >= _MAX_SAMPLES:
                await self._write()
                due = time.monotonic() + self._flush_s
        await self._write()

    async def _write(self) -> None:
        samples, self._buffer = self._buffer, []
        if samples:
            self.report.files += await asyncio.to_thread(write_samples, self._lake, samples)
            self.report.samples += len(samples)
            self._progress(self.report)


def write_samples(lake: Lake, samples: Sequence[tuple[str, Sample]], name: str | None = None) -> int:
    """Write (target, sample) pairs, one file a date; return the number of files.

    A *name* makes the write repeatable: the same name replaces the same files.
    """
    by_date: dict[date, list[list[Any]]] = {}
    for target, s in samples:
        by_date.setdefault(s.ts.date(), []).append([s.ts, target, s.name, s.labels, s.value, s.kind])
    stem = name or f"scrape-{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"
    with connect() as con:
        for day, rows in by_date.items():
            path = Path("raw/metrics") / f"date={day.isoformat()}" / f"{stem}.parquet"
            lake.write_columns(con, "raw/metrics", path, rows, _ORDER)
    return len(by_date)


async def _is_set_within(event: asyncio.Event, seconds: float) -> bool:
    try:
        await asyncio.wait_for(event.wait(), max(0.0, seconds))
    except TimeoutError:
        return False
    return True
