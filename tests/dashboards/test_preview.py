"""Every dashboard drawn by Grafana's own front-end libraries in a browser, with what the services say."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dashboards.preview.bundle import bundle
from dashboards.src import frame, queries
from deploy.local.process import ManagedProcess
from tests.dashboards.live import WINDOW, Live
from tests.dashboards.test_sql import END, START, ask

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.browser import Browser

pytestmark = pytest.mark.integration
DESKTOP, PHONE = 1280, 360
#: Every panel has drawn something: a picture with a painted pixel, a table, or that there is nothing.
_DRAWN = """(count) => {
  const panels = [...document.querySelectorAll('[data-viz-panel-id]')];
  const painted = (canvas) => canvas.width * canvas.height > 0 &&
    canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.some((byte) => byte);
  return panels.length === count && panels.every((panel) => {
    const pictures = [...panel.querySelectorAll('canvas')];
    return /no data/i.test(panel.innerText) || panel.querySelector('[role=gridcell]')?.innerText ||
      (pictures.length ? pictures.every(painted) : /\\d|up|down/.test(panel.innerText.split('\\n').at(-1)));
  });
}"""
_PANELS = """() => Object.fromEntries([...document.querySelectorAll('[data-viz-panel-id]')].map(
  (panel) => [panel.dataset.vizPanelId.replace('panel-', ''), panel.innerText]))"""


@dataclass
class Drawn:
    """What a reader sees of a dashboard, and what went wrong meanwhile."""

    states: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    panels: dict[str, str] = field(default_factory=dict)
    links: list[str] = field(default_factory=list)
    too_wide: int = 0
    background: str = ""

    def panel(self, title: str) -> str:
        """Return the text of the panel of that title."""
        (text,) = [t for t in self.panels.values() if t.split("\n")[0] == title]
        return text


def board(name: str) -> dict[str, Any]:
    return queries.dashboards()[f"{name}.json"]


def draw(
    browser: Browser,
    address: str,
    *,
    width: int = DESKTOP,
    dark: bool = False,
    now: str = "",
    picture: str = "",
) -> Drawn:
    """Open an address, wait until all is drawn at full height, and look; *now* stops the clock there."""
    from tests.browser import PICTURES

    name = next(n for n, (uid, _) in frame.BOARDS.items() if f"/d/{uid}" in address)
    count = len(list(queries.panels(board(name))))

    def look(page: Page) -> Drawn:
        drawn = Drawn()
        page.on("console", lambda m: drawn.errors.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda error: drawn.errors.append(str(error)))
        page.on("response", lambda r: drawn.errors.append(f"{r.status} {r.url}") if r.status >= 400 else None)
        if now:
            page.clock.set_fixed_time(now)
        page.goto(address, wait_until="load")
        done = "window.preview.states?.().every((state) => ['Done', 'Error'].includes(state))"
        page.wait_for_function(done, timeout=60_000)
        # Tables and long pages draw only what is in view.
        height = page.evaluate("document.documentElement.scrollHeight")
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_function(_DRAWN, arg=count, timeout=60_000)
        drawn.states = page.evaluate("window.preview.states()")
        drawn.panels = page.evaluate(_PANELS)
        drawn.links = page.evaluate("[...document.querySelectorAll('a')].map((a) => a.getAttribute('href'))")
        drawn.too_wide = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        drawn.background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        if picture:
            PICTURES.mkdir(parents=True, exist_ok=True)
            page.screenshot(path=PICTURES / f"{picture}.png")
        return drawn

    return browser.open(look, width=width, dark=dark)


@pytest.fixture(scope="module")
def preview(live: Live, exported_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of the preview of the running services."""
    bundle()
    log = tmp_path_factory.mktemp("preview") / "preview.log"
    process = ManagedProcess(
        "the preview",
        [
            sys.executable, "-m", "dashboards.preview", "--prometheus", live.url, "--postgres", exported_url,
            "--scrape-interval", "3", "--port", "0",
        ],
        log=log,
        cwd=queries.ROOT.parent,
    )  # fmt: skip
    with process:
        process.wait_until(lambda: "http://" in said(log), timeout_s=60, advice="see its log")
        yield said(log).split()[-1].rstrip("/")


def said(log: Path) -> str:
    return log.read_text(encoding="utf-8") if log.exists() else ""


def instants(live: Live, name: str) -> list[int]:
    """Return the time range of a dashboard's visit, in milliseconds."""
    weeks = [datetime.fromisoformat(at).timestamp() for at in (START, END)]
    return [round(at * 1000) for at in (weeks if name == "sizing" else live.span)]


def address(preview: str, live: Live, name: str, **variables: str) -> str:
    start, end = instants(live, name)
    chosen = "".join(f"&var-{key}={value}" for key, value in variables.items())
    return f"{preview}/d/{frame.BOARDS[name][0]}?from={start}&to={end}{chosen}"


def must_show(live: Live, name: str) -> set[str]:
    """Return the ids of the panels of which a query had a number while calls passed."""
    found = set()
    for panel in queries.panels(board(name)):
        for target in panel["targets"]:
            text = queries.filled(target["expr"], window=WINDOW) if "expr" in target else ""
            values = [float(series["value"][1]) for series in live.answers.get(text, ())]
            if any(not math.isnan(value) for value in values):
                found.add(str(panel["id"]))
    return found


@pytest.mark.parametrize(("width", "dark"), [(DESKTOP, True), (PHONE, False)], ids=["desktop", "phone"])
@pytest.mark.parametrize("name", list(frame.BOARDS))
def test_a_dashboard_is_drawn_without_errors_and_fits(
    name: str, width: int, dark: bool, browser: Browser, preview: str, live: Live
) -> None:
    picture = f"dashboard-{name}-{width}-{'dark' if dark else 'light'}"
    drawn = draw(browser, address(preview, live, name), width=width, dark=dark, picture=picture)
    assert drawn.errors == []
    assert set(drawn.states) == {"Done"}
    assert drawn.too_wide <= 0
    shades = [int(shade) for shade in drawn.background.strip("rgb()").split(",")[:3]]
    assert (max(shades) < 64) if dark else (min(shades) > 192)
    titles = {str(panel["id"]): panel["title"] for panel in queries.panels(board(name))}
    assert {key: text.split("\n")[0] for key, text in drawn.panels.items()} == titles
    empty = {titles[key] for key in must_show(live, name) if "no data" in drawn.panels[key].lower()}
    assert empty == set()


def test_what_is_drawn_on_the_live_dashboards_is_what_the_services_say(
    browser: Browser, preview: str, live: Live
) -> None:
    drawn = draw(browser, address(preview, live, "power"))
    assert drawn.panel("Boards measured").endswith("2")
    assert {"stand-in"} <= set(drawn.panel("Power by host").split("\n"))
    drawn = draw(browser, address(preview, live, "prefix"))
    assert drawn.panel("Coverage").endswith("100%")
    for model in ("coder-large", "claude-standin"):
        assert model in drawn.panel("Load by engine")
    drawn = draw(browser, address(preview, live, "gateway"))
    assert drawn.panel("Event stream").endswith("up")
    assert "limit of a worker" in drawn.panel("SpendLogs queue")


def test_the_weekly_figures_are_drawn_as_they_stand_in_the_database(
    browser: Browser, preview: str, live: Live, exported_url: str
) -> None:
    rows = ask(exported_url, "SELECT figure, name, value FROM agentwatt.agentwatt_figure")
    values = {(row["figure"], row["name"]): row["value"] for row in rows}
    drawn = draw(browser, address(preview, live, "sizing"))

    def number(title: str) -> str:
        return "".join(drawn.panel(title).split("\n")[1:])

    assert number("Calls per human-hour") == f"{values['calls_per_human_hour', 'gaps up to 15 min']:.3g}"
    assert number("Prompt length, P95").replace(" ", "") == f"{values['prompt_length', 'P95'] / 1000:.1f}K"
    assert number("Realised prefix hit") == f"{values['prefix_hit', 'realised'] * 100:.1f}%"
    first = next(value for (figure, name), value in values.items() if name.startswith("in-turn, 20 tok/s"))
    assert number("Agents in a turn per megawatt") == f"{first:.2f}"
    assert "gaps up to 30 min" in drawn.panel("Calls per human-hour by week")
    assert "boundary" in drawn.panel("Prefix hit by category")


def test_weekly_panels_beside_live_ones_show_the_past_weeks_whatever_the_time_range(
    browser: Browser, preview: str
) -> None:
    url = f"{preview}/d/{frame.BOARDS['power'][0]}?from=now-6h&to=now"
    drawn = draw(browser, url, now=END, picture="dashboard-power-weekly")
    weekly = board("power")["panels"]
    start = next(n for n, p in enumerate(weekly) if p["title"].startswith("Weekly truth"))
    for panel in weekly[start + 1 :]:
        assert "no data" not in drawn.panels[str(panel["id"])].lower(), panel["title"]


def test_a_chosen_model_narrows_the_panels(browser: Browser, preview: str, live: Live) -> None:
    drawn = draw(browser, address(preview, live, "engines", model="coder-large"))
    assert "coder-large" in drawn.panel("Prompt tokens")
    assert "claude-standin" not in drawn.panel("Prompt tokens")


def test_links_lead_to_the_other_dashboards_with_the_same_time_and_variables(
    browser: Browser, preview: str, live: Live
) -> None:
    drawn = draw(browser, address(preview, live, "engines", model="coder-large"))
    start, _ = instants(live, "engines")
    others = {uid for name, (uid, _) in frame.BOARDS.items() if name != "engines"}
    linked = {link.split("?")[0].removeprefix("/d/") for link in drawn.links if link.startswith("/d/")}
    assert others <= linked
    (link, *_) = [link for link in drawn.links if link.startswith("/d/agentwatt-prefix")]
    assert "var-model=coder-large" in link
    there = draw(browser, preview + link)
    assert there.errors == []
    assert "claude-standin" not in there.panel("Load by engine")
    kept = datetime.fromisoformat(link.split("from=")[1].split("&")[0])
    assert kept.timestamp() * 1000 == pytest.approx(start, abs=1)


def test_only_committed_queries_reach_the_database(browser: Browser, preview: str, live: Live) -> None:
    asked = json.dumps({"sql": "SELECT 1", "from": START, "to": END, "model_group": []})
    answer = browser.open(
        lambda page: (
            page.goto(address(preview, live, "overview")),
            page.evaluate(f"fetch('/api/sql', {{method: 'POST', body: {asked!r}}}).then((a) => a.json())"),
        )[1]
    )
    assert answer == {"error": "this is no query of a committed dashboard"}
