"""Errors of our own never reach a request: they are swallowed, counted, and logged at most once a minute."""

from __future__ import annotations

import logging
import time
from collections import Counter
from types import TracebackType

log = logging.getLogger("agentwatt")

_LOG_INTERVAL_S = 60.0


class Guard:
    """A context manager per hook; ``counts`` holds the errors by hook."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._last_log = float("-inf")
        self._hooks: dict[str, _Guarded] = {}

    def __call__(self, hook: str) -> _Guarded:
        """Swallow any error of the body: it is ours, and a request must not feel it."""
        guarded = self._hooks.get(hook)
        if guarded is None:
            guarded = self._hooks[hook] = _Guarded(self, hook)
        return guarded

    def note(self, hook: str, error: Exception) -> None:
        """Count *error* and log it, unless one was logged within the last minute."""
        self.counts[hook] += 1
        if time.monotonic() - self._last_log <= _LOG_INTERVAL_S:
            return
        self._last_log = time.monotonic()
        # Type and place only: a message may quote prompt text.
        frame = error.__traceback__
        while frame is not None and frame.tb_next is not None:
            frame = frame.tb_next
        place = f"{frame.tb_frame.f_code.co_filename}:{frame.tb_lineno}" if frame else "?"
        log.error("agentwatt: %s in %s at %s; the request is not affected", type(error).__name__, hook, place)


class _Guarded:
    """The guard of one hook. It holds nothing of a single use, so one serves all, nested ones too."""

    __slots__ = ("_guard", "_hook")

    def __init__(self, guard: Guard, hook: str) -> None:
        self._guard, self._hook = guard, hook

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        self._guard.note(self._hook, error)
        return True
