"""The browser of the tests notices what it is there to notice."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.browser import Browser

GOOD = (
    "<!doctype html><html><head><meta name=viewport content='width=device-width'></head>"
    "<body>{}</body></html>"
)


def page(folder: Path, body: str) -> Path:
    path = folder / "page.html"
    path.write_text(GOOD.format(body), encoding="utf-8")
    return path


def test_a_plain_page_has_no_errors_no_requests_and_no_overflow(browser: Browser, tmp_path: Path) -> None:
    met = browser.visit(page(tmp_path, "<p>Quiet</p>"), width=360)
    assert (met.text, met.errors, met.requests, met.overflows) == ("Quiet", [], [], False)


def test_errors_in_scripts_and_on_the_console_are_seen(browser: Browser, tmp_path: Path) -> None:
    met = browser.visit(page(tmp_path, "<script>console.error('one'); throw new Error('two')</script>"))
    assert sorted(met.errors) == ["one", "two"]


def test_a_request_for_a_missing_picture_is_seen(browser: Browser, tmp_path: Path) -> None:
    met = browser.visit(page(tmp_path, "<img src='missing.png'>"))
    assert [r.rsplit("/", 1)[1] for r in met.requests] == ["missing.png"]
    assert met.errors


def test_a_box_wider_than_the_phone_overflows(browser: Browser, tmp_path: Path) -> None:
    wide = page(tmp_path, "<div style='width: 500px'>wide</div>")
    assert browser.visit(wide, width=360).overflows
    assert not browser.visit(wide, width=1280).overflows


def test_the_colour_scheme_reaches_the_page(browser: Browser, tmp_path: Path) -> None:
    style = "<style>@media (prefers-color-scheme: dark) { body { background: rgb(1, 2, 3) } }</style>"
    assert browser.visit(page(tmp_path, style), dark=True).background == "rgb(1, 2, 3)"
    assert browser.visit(page(tmp_path, style)).background != "rgb(1, 2, 3)"


def test_a_page_prints_as_a_pdf(browser: Browser, tmp_path: Path) -> None:
    assert browser.print(page(tmp_path, "<p>Paper</p>")).startswith(b"%PDF-")


async def test_asynchronous_tests_run_beside_the_browser(browser: Browser, tmp_path: Path) -> None:
    met = await asyncio.to_thread(browser.visit, page(tmp_path, "<p>Beside</p>"))
    assert met.text == "Beside"
