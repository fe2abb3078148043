"""Read series out of a Prometheus server into ``raw/metrics``: ``query_range`` in chunks that it accepts.

Samples lie on the grid of *step* seconds since the epoch, and Prometheus repeats the last value of a series
for up to five minutes after it ended; scraping directly has neither property.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from pipeline.errors import ConfigError, UnreachableError
from pipeline.extract.metrics_text import Sample, kind_of, label_text
from pipeline.extract.scrape import write_samples
from pipeline.lake import Lake
from pipeline.settings import MetricsSettings

#: Prometheus refuses more than 11,000 points a series.
_MAX_POINTS: Final = 5_000
_EPOCH: Final = datetime(1970, 1, 1)


@dataclass(slots=True)
class QueryReport:
    """What one reading brought."""

    chunks: int = 0
    samples: int = 0
    series: set[tuple[str, str, str]] = field(default_factory=set)
    warnings: set[str] = field(default_factory=set)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return {
            "chunks": self.chunks,
            "samples": self.samples,
            "series": len(self.series),
            "warnings": sorted(self.warnings),
        }


class PrometheusClient:
    """The two calls of the HTTP API that are needed."""

    def __init__(
        self, url: str, settings: MetricsSettings, transport: httpx.BaseTransport | None = None
    ) -> None:
        token = settings.prometheus_token
        headers = {"authorization": f"Bearer {token.get_secret_value()}"} if token else {}
        self._url = url.rstrip("/")
        parts = urlsplit(self._url)
        self._place = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()  # without a password
        self._http = httpx.Client(timeout=settings.timeout_s, headers=headers, transport=transport)

    def __enter__(self) -> PrometheusClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def query_range(
        self, query: str, start: datetime, end: datetime, step_s: float
    ) -> tuple[list[dict[str, Any]], list[str]]:
        """One ``query_range`` call, both ends inclusive: (matrix, warnings)."""
        body = self._call(
            "query_range",
            {"query": query, "start": _seconds(start), "end": _seconds(end), "step": f"{step_s:g}"},
        )
        data = body.get("data", {})
        if data.get("resultType") != "matrix":
            raise ConfigError(
                "The query gives no series.", why=f"It is a {data.get('resultType')}, not a range of samples."
            )
        return data["result"], [str(w) for w in body.get("warnings", [])]

    def kinds(self) -> dict[str, str]:
        """Declared type of each metric family; empty when the server keeps no metadata."""
        data = self._call("metadata", {}).get("data", {})
        return {name: entries[0].get("type", "unknown") for name, entries in data.items() if entries}

    def _call(self, path: str, form: Mapping[str, str]) -> dict[str, Any]:
        url = f"{self._url}/api/v1/{path}"
        try:
            answer = self._http.post(url, data=form) if form else self._http.get(url)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise UnreachableError(
                f"Prometheus at {self._place} did not answer.",
                why=str(error) or type(error).__name__,
                next_step="Check --prometheus or metrics.prometheus_url.",
            ) from None
        try:
            body = answer.json()
        except ValueError:
            body = {}
        if isinstance(body, dict) and body.get("status") == "success":
            return body
        reason = body.get("error") if isinstance(body, dict) else None
        why = f"HTTP {answer.status_code}: {reason or answer.text[:200]}"
        if answer.status_code in {400, 422}:
            raise ConfigError("Prometheus refused the query.", why=why)
        raise UnreachableError(f"Prometheus at {self._place} gave no result.", why=why)


def chunks(start: datetime, end: datetime, step_s: float) -> Iterator[tuple[datetime, datetime]]:
    """Cut ``[start, end)`` into inclusive ranges on the step's grid, none across a UTC midnight."""
    step = timedelta(seconds=step_s)
    at = _EPOCH + -((_EPOCH - start) // step) * step  # the first point of the grid at or after start
    while at < end:
        midnight = datetime(at.year, at.month, at.day) + timedelta(days=1)
        limit = min(end, midnight, at + _MAX_POINTS * step)
        count = -(-(limit - at) // step)
        yield at, at + (count - 1) * step
        at += count * step


def read(
    lake: Lake,
    client: PrometheusClient,
    query: str,
    start: datetime,
    end: datetime,
    *,
    step_s: float,
    target_label: str,
    progress: Callable[[QueryReport], None] = lambda _: None,
) -> QueryReport:
    """Write the samples of *query* in ``[start, end)`` (naive UTC); the same call replaces its own files.

    Raises:
        ConfigError: the query or the window is wrong.
        UnreachableError: the server does not answer.
    """
    if not start < end:
        raise ConfigError("The window is empty.", why=f"{start} is not before {end}.")
    report = QueryReport()
    kinds = client.kinds()
    key = hashlib.blake2b(f"{query}\0{step_s}\0{target_label}".encode(), digest_size=8).hexdigest()
    for first, last in chunks(start, end, step_s):
        matrix, warnings = client.query_range(query, first, last, step_s)
        report.warnings.update(warnings)
        samples: list[tuple[str, Sample]] = []
        for series in matrix:
            labels = dict(series["metric"])
            name = labels.pop("__name__", query)
            target = labels.pop(target_label, "prometheus")
            text, kind = label_text(labels), kind_of(name, kinds)
            report.series.add((target, name, text))
            for seconds, value in series.get("values", []):
                ts = _EPOCH + timedelta(seconds=float(seconds))
                samples.append((target, Sample(ts, name, text, float(value), kind)))
        if samples:
            write_samples(lake, samples, f"query-{key}-{first:%Y%m%dT%H%M%S}-{last:%H%M%S}")
        report.chunks += 1
        report.samples += len(samples)
        progress(report)
    return report


def _seconds(moment: datetime) -> str:
    return f"{moment.replace(tzinfo=UTC).timestamp():.3f}"
