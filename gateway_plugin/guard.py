"""Errors of our own never reach a request: they are swallowed, counted, and logged at most once a minute."""

from __future__ import annotations

import contextlib
import logging
import time
from collections import Counter
from collections.abc import Iterator

log = logging.getLogger("agentwatt")

_LOG_INTERVAL_S = 60.0


class Guard:
    """A context manager per hook; ``counts`` holds the errors by hook."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._last_log = float("-inf")

    @contextlib.contextmanager
    def __call__(self, hook: str) -> Iterator[None]:
        """Swallow any error of the body: it is ours, and a request must not feel it."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - the one place where everything is caught, and counted
            self.counts[hook] += 1
            if time.monotonic() - self._last_log > _LOG_INTERVAL_S:
                self._last_log = time.monotonic()
                # Type and place only: a message may quote prompt text.
                frame = error.__traceback__
                while frame is not None and frame.tb_next is not None:
                    frame = frame.tb_next
                place = f"{frame.tb_frame.f_code.co_filename}:{frame.tb_lineno}" if frame else "?"
                log.error(
                    "agentwatt: %s in %s at %s; the request is not affected",
                    type(error).__name__,
                    hook,
                    place,
                )
