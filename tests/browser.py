"""A page as a reader's browser shows it: the system's headless Chromium, driven from a thread of its own.

Nothing is downloaded: Playwright brings only its driver, the browser is the one that the system has.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from playwright.sync_api import Browser as Driven
from playwright.sync_api import Page, Playwright, sync_playwright

HINT: Final = "Chromium is not installed: apt-get install --no-install-recommends chromium"
#: Where pictures of pages go; continuous integration keeps the folder.
PICTURES: Final = Path(os.environ.get("AGENTWATT_SCREENSHOTS") or "out/screenshots")
DESKTOP: Final = 1280
PHONE: Final = 360
_FLAGS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
#: How wide the page is against its window; what scrolls inside a box of its own is no overflow.
_WIDTHS: Final = """() => ({
  scroll: Math.max(document.documentElement.scrollWidth, document.body.scrollWidth),
  window: window.innerWidth,
})"""

Result = TypeVar("Result")


@dataclass(slots=True)
class Visit:
    """What a reader met on a page."""

    text: str = ""
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    scroll_width: int = 0
    window_width: int = 0
    background: str = ""
    answer: Any = None

    @property
    def overflows(self) -> bool:
        """Whether the page is wider than its window."""
        return self.scroll_width > self.window_width


def executable() -> str | None:
    """Return the path of the system's Chromium, or None."""
    named = os.environ.get("AGENTWATT_CHROMIUM")
    return (
        named or shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    )


class Browser:
    """One Chromium for a whole test run.

    Playwright's synchronous interface keeps an event loop running in its thread, which would break every
    asynchronous test that comes after; so all of it stays in one worker thread.
    """

    def __init__(self, path: str) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="browser")
        self._path = path
        self._playwright: Playwright | None = None
        self._browser: Driven | None = None

    def __enter__(self) -> Self:
        self._thread.submit(self._start).result()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.submit(self._stop).result()
        self._thread.shutdown()

    def _start(self) -> None:
        self._playwright = sync_playwright().start()
        self._browser = self._playwright.chromium.launch(executable_path=self._path, args=list(_FLAGS))

    def _stop(self) -> None:
        if self._browser is not None:
            self._browser.close()
        if self._playwright is not None:
            self._playwright.stop()

    def visit(
        self,
        page: Path | str,
        *,
        width: int = DESKTOP,
        height: int = 900,
        dark: bool = False,
        picture: str | None = None,
        ask: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Visit:
        """Open a file or an address and return what a reader meets there.

        ``picture`` names a PNG of the whole page under ``PICTURES``; ``ask`` is a JavaScript function whose
        value is returned as ``answer``. Errors are console errors, uncaught exceptions and failed requests;
        requests are all but the page itself.
        """

        def look(opened: Page) -> Visit:
            visit = Visit()
            address = page.resolve().as_uri() if isinstance(page, Path) else page
            opened.on("console", lambda m: visit.errors.append(m.text) if m.type == "error" else None)
            opened.on("pageerror", lambda error: visit.errors.append(str(error)))
            opened.on("requestfailed", lambda r: visit.errors.append(f"{r.url}: {r.failure}"))
            opened.on("request", lambda r: visit.requests.append(r.url) if r.url != address else None)
            opened.goto(address, wait_until="load")
            widths = opened.evaluate(_WIDTHS)
            visit.scroll_width, visit.window_width = widths["scroll"], widths["window"]
            visit.text = opened.inner_text("body")
            visit.background = opened.evaluate("() => getComputedStyle(document.body).backgroundColor")
            if ask is not None:
                visit.answer = opened.evaluate(ask)
            if picture is not None:
                PICTURES.mkdir(parents=True, exist_ok=True)
                opened.screenshot(path=PICTURES / f"{picture}.png", full_page=True)
            return visit

        return self.open(look, width=width, height=height, dark=dark, headers=headers)

    def print(self, page: Path) -> bytes:
        """Return the page as the PDF that a reader would print, on A4."""

        def printed(opened: Page) -> bytes:
            opened.goto(page.resolve().as_uri(), wait_until="load")
            return opened.pdf(format="A4", prefer_css_page_size=True)

        return self.open(printed)

    def open(
        self,
        action: Callable[[Page], Result],
        *,
        width: int = DESKTOP,
        height: int = 900,
        dark: bool = False,
        headers: Mapping[str, str] | None = None,
    ) -> Result:
        """Run an action on a fresh page, in a context of its own, in the browser's thread."""

        def run() -> Result:
            assert self._browser is not None
            context = self._browser.new_context(
                viewport={"width": width, "height": height},
                color_scheme="dark" if dark else "light",
                extra_http_headers=dict(headers or {}),
            )
            try:
                return action(context.new_page())
            finally:
                context.close()

        return self._thread.submit(run).result(timeout=120)
