"""What tests of every part share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.browser import Browser


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The system's Chromium, or a skip with the way to install it."""
    # The oldest supported proxy is tested in an environment without Playwright.
    pytest.importorskip("playwright", reason="Playwright is not installed: pip install playwright")
    from tests.browser import HINT, Browser, executable

    path = executable()
    if path is None:
        pytest.skip(HINT)
    with Browser(path) as opened:
        yield opened
