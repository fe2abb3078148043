"""Scraping endpoints: what is written, what fails, and how it ends."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from pipeline.errors import ConfigError
from pipeline.extract.scrape import Scraper, ScrapeReport, Target, targets
from pipeline.lake import Lake, connect

TEXT = '# TYPE vllm:hits counter\nvllm:hits_total{engine="0"} 5\nprocess_open_fds 3\n'


def scraper(lake: Lake, answer: Any, names: tuple[str, ...] = ("engine",), **options: Any) -> Scraper:
    endpoints = [Target(f"http://{name}/metrics", name) for name in names]
    return Scraper(
        lake,
        endpoints,
        **{"interval_s": 0.02, "flush_s": 60.0, "timeout_s": 5.0, **options},
        transport=httpx.MockTransport(answer),
    )


def stored(lake: Lake) -> list[tuple[Any, ...]]:
    with connect() as con:
        lake.view(con, "raw/metrics", "m")
        return con.execute("SELECT target, name, labels, value, kind FROM m ORDER BY ALL").fetchall()


async def until(scrapes: int, lake: Lake, answer: Any, **options: Any) -> ScrapeReport:
    """Scrape until *scrapes* attempts were made."""
    stop = asyncio.Event()

    def count(report: ScrapeReport) -> None:
        if report.scrapes >= scrapes:
            stop.set()

    return await scraper(lake, answer, progress=count, **options).run(None, stop)


async def test_a_stop_writes_what_was_read(lake: Lake) -> None:
    report = await until(3, lake, lambda _: httpx.Response(200, text=TEXT), match="vllm:")
    assert (report.scrapes, report.samples, report.files) == (3, 6, 1)
    assert set(stored(lake)) == {
        ("engine", "vllm:hits_total", '{"engine":"0"}', 5.0, "counter"),
        ("engine", "up", "{}", 1.0, "gauge"),
    }


async def test_a_failing_endpoint_is_down_in_the_data_and_does_not_stop_the_others(lake: Lake) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.host == "broken":
            return httpx.Response(503, text="vllm:hits_total 99\n")
        if request.url.host == "gone":
            raise httpx.ConnectError("refused")
        return httpx.Response(200, text=TEXT)

    report = await until(6, lake, answer, names=("engine", "broken", "gone"))
    assert report.failed["broken"] >= 1
    assert report.failed["gone"] >= 1
    up = {(target, value) for target, name, _, value, _ in stored(lake) if name == "up"}
    assert up == {("engine", 1.0), ("broken", 0.0), ("gone", 0.0)}
    assert not any(target == "broken" and name != "up" for target, name, *_ in stored(lake))


async def test_an_answer_that_hangs_ends_at_the_deadline(lake: Lake) -> None:
    async def answer(_: httpx.Request) -> httpx.Response:
        await asyncio.Event().wait()
        raise AssertionError

    report = await until(1, lake, answer, timeout_s=0.05)
    assert report.failed == {"engine": 1}
    assert report.skipped >= 1


async def test_a_duration_ends_the_scraping(lake: Lake) -> None:
    report = await scraper(lake, lambda _: httpx.Response(200, text=TEXT)).run(0.1, asyncio.Event())
    assert 1 <= report.scrapes <= 6
    assert report.samples == report.scrapes * 3


async def test_samples_are_written_while_scraping_goes_on(lake: Lake) -> None:
    stop = asyncio.Event()

    def written(report: ScrapeReport) -> None:
        if report.files >= 2:
            stop.set()

    await scraper(lake, lambda _: httpx.Response(200, text=TEXT), flush_s=0.01, progress=written).run(
        None, stop
    )
    assert len(lake.files("raw/metrics")) >= 2


async def test_a_disk_that_is_full_is_an_error_and_not_a_loss_in_silence(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> int:
        raise OSError("no space left")

    monkeypatch.setattr(Lake, "write_columns", full)
    with pytest.raises(OSError, match="no space left"):
        # Nobody stops it: the failed write does.
        await scraper(lake, lambda _: httpx.Response(200, text=TEXT), flush_s=0.01).run(None, asyncio.Event())


async def test_a_password_in_an_address_is_not_in_the_report(lake: Lake) -> None:
    stop = asyncio.Event()
    endpoint = targets(["http://user:hunter2@h:1"], [])[0]
    transport = httpx.MockTransport(lambda _: httpx.Response(401))
    scraping = Scraper(lake, [endpoint], interval_s=1, progress=lambda _: stop.set(), transport=transport)
    report = await scraping.run(None, stop)
    assert report.last_error == "h:1: HTTP 401"
    assert "hunter2" not in str(report.as_dict())


def test_addresses_get_their_usual_parts() -> None:
    assert targets(["localhost:8000", "https://h/custom"], []) == [
        Target("http://localhost:8000/metrics", "localhost:8000"),
        Target("https://h/custom", "h"),
    ]
    assert targets(["http://u:p@h:1"], [])[0].name == "h:1"
    assert targets(["a:1"], ["engine"])[0].name == "engine"


@pytest.mark.parametrize(
    ("urls", "names", "message"),
    [
        (["a:1", "b:1"], ["x"], "2 addresses and 1 target names"),
        (["ftp://a"], [], "no address"),
        (["a:1", "b:1"], ["x", "x"], "same name"),
    ],
)
def test_wrong_addresses_are_explained(urls: list[str], names: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        targets(urls, names)
