"""What tests of every part share, and the rule that a skipped test fails continuous integration.

Everything that the tests need is installed there, so a skip would hide that something was not tested.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.browser import Browser

#: Exit code of a run in which no test failed but some were skipped.
SKIPPED = pytest.ExitCode.TESTS_FAILED


def in_continuous_integration() -> bool:
    """Return whether the variable CI is set to anything but ``0``, ``false`` or nothing."""
    return os.environ.get("CI", "").strip().lower() not in {"", "0", "false"}


def _skipped(config: pytest.Config) -> Iterator[str]:
    """Yield a line for each skipped test or module of the whole run, whichever process ran it."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    for report in reporter.stats.get("skipped", ()) if reporter else ():
        if hasattr(report, "wasxfail"):
            continue
        place = report.longrepr
        reason = place[2] if isinstance(place, tuple) else str(place)
        yield f"{report.nodeid}: {reason.removeprefix('Skipped: ')}"


def _fails_on_skips(config: pytest.Config) -> bool:
    # A process of xdist reports to the one that started it, which decides.
    return in_continuous_integration() and not hasattr(config, "workerinput")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Name every skipped test with its reason."""
    lines = sorted(_skipped(config)) if _fails_on_skips(config) else []
    if lines:
        terminalreporter.section(f"{len(lines)} skipped, and CI is set: that fails the run", red=True)
        for line in lines:
            terminalreporter.write_line(line)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Turn success into failure when anything was skipped."""
    succeeded = session.exitstatus == pytest.ExitCode.OK
    if succeeded and _fails_on_skips(session.config) and any(_skipped(session.config)):
        session.exitstatus = SKIPPED


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
