"""The report as readers see it: at a desk, on a phone and on paper, light and dark, in weeks of any size."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipeline import report, run
from pipeline.settings import Settings
from tests.pipeline.report import weeks
from tests.pipeline.sql import synthetic

if TYPE_CHECKING:
    from tests.browser import Browser

ROOT = Path(__file__).parents[3]
DESK, PHONE = 1280, 360
PAGES = 6
#: Smallest text of the drawings as it is shown, px: the font of each text times the scale of its drawing.
SMALLEST = """() => Math.min(...[...document.querySelectorAll('svg text')].map(
  t => parseFloat(getComputedStyle(t).fontSize) * t.getScreenCTM().a))"""
#: Texts of drawings that reach over the edge of their drawing.
CUT = """() => [...document.querySelectorAll('figure svg')].flatMap(svg => {
  const box = svg.getBoundingClientRect();
  return [...svg.querySelectorAll('text')].filter(t => t.textContent.trim()).filter(t => {
    const b = t.getBoundingClientRect(), edge = 1;
    return b.left < box.left - edge || b.right > box.right + edge || b.top < box.top - edge
      || b.bottom > box.bottom + edge;
  }).map(t => t.textContent);
})"""
#: Bottom of the cards of the four figures, px from the top.
FOLD = "() => document.querySelector('.cards').getBoundingClientRect().bottom"


def write(lake: Path, settings: Settings, out: Path, **window: datetime) -> Path:
    run.build(lake, settings)
    report.write(lake, settings, out, sizing=settings.sizing, **window)
    return out / "report.html"


def whole_week() -> dict[str, datetime]:
    start = datetime.combine(weeks.MONDAY, datetime.min.time())
    return {"since": start, "until": start + timedelta(days=7)}


def declared(**more: Any) -> Settings:
    return Settings(**weeks.settings(), **more)


@pytest.fixture(scope="module")
def week(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two weeks of a team with a plan, an inventory and a proxy configuration."""
    lake = tmp_path_factory.mktemp("lake")
    weeks.write(lake, 150, weeks=2)
    sizing = {
        "plan": ROOT / "docs/examples/twenty_developers.yaml",
        "installed": {"gpus": 24, "replicas": 12, "workers": 4, "source": "inventory"},
        "proxy_config": ROOT / "config.yaml",
    }
    return write(lake, declared(sizing=sizing), tmp_path_factory.mktemp("week"), **whole_week())


@pytest.fixture(scope="module")
def sparse(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Windows that lack something: any call, a second call, power, reports of cached tokens."""
    pages = {}
    for name in ("empty", "one-call", "no-power", "no-cache"):
        folder = tmp_path_factory.mktemp(name)
        lake = folder / "lake"
        if name == "empty":
            lake.mkdir()
            report.write(lake, Settings(), folder / "out")
            pages[name] = folder / "out/report.html"
            continue
        if name == "one-call":
            synthetic.write(lake, "raw_event", [synthetic.event("a", synthetic.MONDAY, initiator="user")])
        elif name == "no-power":
            weeks.write(lake, 30, power=False)
        else:
            bare = {"cached_tokens": None, "prompt_bytes": None, "shared_bytes": None, "prefix_steps": None}
            events = synthetic.session("s", synthetic.MONDAY, turns=2, calls=3)
            synthetic.write(lake, "raw_event", [e | bare for e in events])
        pages[name] = write(lake, declared(), folder / "out")
    return pages


def assert_reads_well(browser: Browser, page: Path, name: str, width: int, dark: bool) -> str:
    """Open the page, keep a picture of it, and return its text."""
    picture = f"report-{name}-{width}-{'dark' if dark else 'light'}"
    met = browser.visit(page, width=width, dark=dark, picture=picture)
    assert met.errors == []
    assert met.requests == []
    assert not met.overflows, (met.scroll_width, met.window_width)
    assert (met.background == "rgb(18, 22, 27)") is dark
    return met.text


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [DESK, PHONE])
def test_a_week_reads_well_at_a_desk_and_on_a_phone(
    browser: Browser, week: Path, width: int, dark: bool
) -> None:
    shown = assert_reads_well(browser, week, "week", width, dark)
    document = json.loads((week.parent / "report.json").read_text(encoding="utf-8"))
    assert "Mon 9 Mar to Sun 15 Mar 2026, week 11 (UTC)" in shown
    for row in document["decision"]["rows"]:
        assert re.search(rf"{row['unit']}\s+{row['needed']}\b", shown)
        assert str(row["installed"]) in shown
    for value in (
        report.text.number(document["calls_per_human_hour"]["value"]["15 min"]),
        report.text.number(document["prompt_length"]["value"]["p50"]),
        report.text.share(document["prefix_hit"]["value"]["realised"]),
        report.text.number(document["agents_per_megawatt"]["value"]),
    ):
        assert value in shown


@pytest.mark.parametrize("width", [DESK, PHONE])
def test_text_in_charts_is_readable_and_inside_its_chart(browser: Browser, week: Path, width: int) -> None:
    assert browser.visit(week, width=width, ask=SMALLEST).answer >= 10
    assert browser.visit(week, width=width, ask=CUT).answer == []


def test_the_four_figures_stand_on_the_first_screen(browser: Browser, week: Path) -> None:
    assert browser.visit(week, width=DESK, ask=FOLD).answer <= 900


@pytest.mark.parametrize("name", ["empty", "one-call", "no-power", "no-cache"])
def test_a_sparse_week_reads_well_and_says_what_is_missing(
    browser: Browser, sparse: dict[str, Path], name: str
) -> None:
    for width, dark in ((DESK, False), (PHONE, True)):
        shown = assert_reads_well(browser, sparse[name], name, width, dark)
        assert "None" not in shown
        assert "nan" not in shown.lower().split()
        assert ("No decision: " in shown) is (name != "no-power")
        expected = {
            "empty": "The lake holds no call in the window.",
            "one-call": "1 call, 1 of them reached an engine",
            "no-power": "no power was measured in the window",
            "no-cache": "no backend reported cached tokens",
        }[name]
        assert expected in shown
    assert pages_of(browser.print(sparse[name])) <= PAGES


def pages_of(pdf: bytes) -> int:
    """Count the pages of a PDF by the objects that are pages."""
    return len(re.findall(rb"/Type\s*/Page\b(?!s)", pdf))


def test_a_week_prints_on_six_pages(browser: Browser, week: Path) -> None:
    pdf = browser.print(week)
    browser_pictures().joinpath("report-week.pdf").write_bytes(pdf)
    assert 1 <= pages_of(pdf) <= PAGES


def browser_pictures() -> Path:
    from tests.browser import PICTURES

    PICTURES.mkdir(parents=True, exist_ok=True)
    return PICTURES


@pytest.mark.integration
@pytest.mark.timeout(900)
def test_a_week_of_fifty_thousand_sessions_reads_well_and_prints_on_six_pages(
    browser: Browser, tmp_path: Path
) -> None:
    weeks.write(tmp_path / "lake", 50_000, people=900)
    page = write(tmp_path / "lake", declared(), tmp_path / "out", **whole_week())
    for width in (DESK, PHONE):
        shown = assert_reads_well(browser, page, "large", width, dark=False)
        assert "the window needs" in shown
    assert page.stat().st_size < 1_000_000
    assert browser.visit(page, width=PHONE, ask=CUT).answer == []
    assert pages_of(browser.print(page)) <= PAGES
