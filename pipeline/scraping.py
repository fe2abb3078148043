"""The command ``scrape``: endpoints on a clock, or a Prometheus server by query."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, time
from typing import Any

from pipeline.errors import ConfigError
from pipeline.extract.prometheus import PrometheusClient, read
from pipeline.extract.scrape import Scraper, ScrapeReport, targets
from pipeline.interrupt import Stop, stop_event
from pipeline.lake import Lake
from pipeline.settings import Settings

Show = Callable[[str], None]


def scrape(
    settings: Settings,
    urls: Sequence[str],
    names: Sequence[str],
    interval_s: float,
    for_s: float | None,
    match: str | None,
    stop: Stop,
    show: Show,
) -> ScrapeReport:
    """Scrape *urls* until the time is over or *stop* is set; what was read is always written."""
    import re

    try:
        re.compile(match or "")
    except re.error as error:
        raise ConfigError(f"--match {match} is no regular expression.", why=str(error)) from None
    lake = Lake(settings.lake)
    lake.prepare()
    scraper = Scraper(
        lake,
        targets(urls, names),
        interval_s=interval_s,
        match=match,
        timeout_s=settings.metrics.timeout_s,
        flush_s=settings.metrics.flush_s,
        progress=lambda r: show(f"{r.scrapes:,} scrapes, {r.failed.total():,} failed"),
    )

    async def scrape_until_stopped() -> ScrapeReport:
        return await scraper.run(for_s, stop_event(stop))

    return asyncio.run(scrape_until_stopped())


def read_prometheus(
    settings: Settings,
    url: str,
    queries: Sequence[str],
    since: date,
    until: date | None,
    step_s: float,
    show: Show,
) -> Iterator[dict[str, Any]]:
    """Read each query over ``[since, until)`` (default: now); yield one report per query."""
    lake = Lake(settings.lake)
    lake.prepare()
    end = datetime.combine(until, time()) if until else datetime.now(UTC).replace(tzinfo=None)
    with PrometheusClient(url, settings.metrics) as client:
        for query in queries:
            report = read(
                lake,
                client,
                query,
                datetime.combine(since, time()),
                end,
                step_s=step_s,
                target_label=settings.metrics.target_label,
                progress=lambda r: show(f"{r.samples:,} samples"),
            )
            yield {"query": query, **report.as_dict()}
