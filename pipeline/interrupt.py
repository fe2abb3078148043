"""Signals that end a command gently: what was read is written first."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_NUMBERS = (signal.SIGTERM, signal.SIGINT)


class Stop(threading.Event):
    """Set by the first SIGTERM or SIGINT; remembers which."""

    number: int = 0

    def note(self, number: int, _: Any = None) -> None:
        """Take a signal; a second SIGINT does not wait for anything."""
        if self.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.number = number
        self.set()


@contextmanager
def stop_signal() -> Iterator[Stop]:
    """Turn signals into a flag while the block runs."""
    stop = Stop()
    before = {n: signal.signal(n, stop.note) for n in _NUMBERS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def stop_event(stop: Stop) -> asyncio.Event:
    """Return an event of the running loop that a signal sets, beside *stop*."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def note(number: int) -> None:
        ended.set()
        stop.note(number)

    for n in _NUMBERS:
        loop.add_signal_handler(n, note, n)
    return ended
