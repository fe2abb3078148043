"""Reading a Prometheus server in chunks."""

from __future__ import annotations

import itertools
import json
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import parse_qs

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from pipeline.errors import ConfigError, UnreachableError
from pipeline.extract.prometheus import PrometheusClient, chunks, read
from pipeline.lake import Lake, connect
from pipeline.settings import MetricsSettings

START = datetime(2026, 3, 28, 23, 59)
END = datetime(2026, 3, 29, 0, 2)


class FakeServer:
    """Answers like the HTTP API: a counter that rises by one each second."""

    def __init__(self) -> None:
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        if request.url.path.endswith("/metadata"):
            return httpx.Response(200, json={"status": "success", "data": {"hits": [{"type": "counter"}]}})
        form = {k: v[0] for k, v in parse_qs(request.content.decode()).items()}
        start, end, step = float(form["start"]), float(form["end"]), float(form["step"])
        count = round((end - start) / step) + 1
        values = [[start + i * step, str(start + i * step)] for i in range(count)]
        series = {
            "metric": {"__name__": "hits_total", "instance": "engine:1", "job": "vllm"},
            "values": values,
        }
        return httpx.Response(
            200,
            json={
                "status": "success",
                "data": {"resultType": "matrix", "result": [series]},
                "warnings": ["slow"],
            },
        )


def client(answer: Any, **settings: Any) -> PrometheusClient:
    return PrometheusClient("http://prom:9090/", MetricsSettings(**settings), httpx.MockTransport(answer))


def test_samples_of_every_chunk_are_written_under_their_date(lake: Lake) -> None:
    server = FakeServer()
    with client(server, prometheus_token=SecretStr("tok")) as prometheus:
        report = read(lake, prometheus, "hits_total", START, END, step_s=15, target_label="instance")
    assert (report.samples, report.chunks, len(report.series), report.warnings) == (12, 2, 1, {"slow"})
    assert server.requests[0].headers["authorization"] == "Bearer tok"
    with connect() as con:
        lake.view(con, "raw/metrics", "m")
        rows = con.execute("SELECT date, ts, target, name, labels, value, kind FROM m ORDER BY ts").fetchall()
    assert [r[1] for r in rows] == [START + timedelta(seconds=15 * i) for i in range(12)]
    assert all(r[0] == r[1].date() for r in rows)
    assert {(r[2], r[3], json.loads(r[4])["job"], r[6]) for r in rows} == {
        ("engine:1", "hits_total", "vllm", "counter")
    }


def test_reading_the_same_window_again_changes_nothing(lake: Lake) -> None:
    for _ in range(2):
        with client(FakeServer()) as prometheus:
            read(lake, prometheus, "hits_total", START, END, step_s=15, target_label="instance")
    assert len(lake.files("raw/metrics")) == 2


@given(
    st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1)),
    st.timedeltas(timedelta(seconds=1), timedelta(days=4)),
    st.integers(1, 3600),
)
def test_chunks_cover_each_grid_point_of_the_window_once(
    start: datetime, length: timedelta, step: int
) -> None:
    end = start + length
    points: list[datetime] = []
    for first, last in chunks(start, end, step):
        assert first.date() == last.date()
        n = round((last - first).total_seconds() / step) + 1
        assert n <= 5000
        points += [first + timedelta(seconds=i * step) for i in range(n)]
    epoch = datetime(1970, 1, 1)
    assert all(start <= p < end and (p - epoch).total_seconds() % step == 0 for p in points)
    assert all((b - a).total_seconds() == step for a, b in itertools.pairwise(points))
    assert abs(len(points) - length.total_seconds() / step) <= 1


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        (httpx.Response(400, json={"status": "error", "error": "parse error"}), ConfigError, "parse error"),
        (httpx.Response(503, text="<html>overloaded"), UnreachableError, "HTTP 503"),
        (httpx.Response(200, text="<html>a login page"), UnreachableError, "login page"),
        (httpx.ConnectError("refused"), UnreachableError, "did not answer"),
    ],
)
def test_errors_are_explained(
    lake: Lake, answer: httpx.Response | Exception, error: type[Exception], message: str
) -> None:
    def respond(_: httpx.Request) -> httpx.Response:
        if isinstance(answer, Exception):
            raise answer
        return answer

    with client(respond) as prometheus, pytest.raises(error, match=message):
        read(lake, prometheus, "hits_total", START, END, step_s=15, target_label="instance")


def test_an_empty_window_is_refused(lake: Lake) -> None:
    with client(FakeServer()) as prometheus, pytest.raises(ConfigError, match="empty"):
        read(lake, prometheus, "hits_total", END, START, step_s=15, target_label="instance")
