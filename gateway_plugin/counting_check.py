"""The continuous self-check: a sample of requests is counted the stock way too, in the background.

Also the background worker that it runs on: one daemon thread behind a short queue, so that neither the event
loop nor a burst of requests ever waits for a check. A full queue skips the check and counts the skip.
"""

from __future__ import annotations

import contextlib
import queue
import random
import threading
from collections import Counter
from collections.abc import Callable


class Background:
    """One daemon thread that runs small jobs in order; started with the first job."""

    def __init__(self, *, max_jobs: int = 4, name: str = "agentwatt-count-check") -> None:
        self._jobs: queue.Queue[Callable[[], None] | None] = queue.Queue(max_jobs)
        self._name = name
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self.counts: Counter[str] = Counter()

    def submit(self, job: Callable[[], None]) -> bool:
        """Queue *job*; False (and counted as ``skipped``) when the queue is full."""
        try:
            self._jobs.put_nowait(job)
        except queue.Full:
            self.counts["skipped"] += 1
            return False
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
        return True

    def _run(self) -> None:
        while True:
            job = self._jobs.get()
            try:
                if job is None:
                    return
                job()
                self.counts["run"] += 1
            except Exception:  # noqa: BLE001 - a failed check must not end the checks; it is counted
                self.counts["failed"] += 1
            finally:
                self._jobs.task_done()

    def drain(self) -> None:
        """Wait until every queued job has run (tests and benchmarks)."""
        self._jobs.join()

    def close(self, *, wait: bool = True) -> None:
        """Stop the thread: after the queued jobs when *wait*, else drop them and return at once."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is None or not thread.is_alive():
            return
        if not wait:
            with contextlib.suppress(queue.Empty):
                while True:
                    self._jobs.get_nowait()
                    self._jobs.task_done()
                    self.counts["skipped"] += 1
            with contextlib.suppress(queue.Full):  # refilled meanwhile: the daemon thread just stays
                self._jobs.put_nowait(None)
            return
        self._jobs.put(None)
        thread.join()


class Sampler:
    """Says which requests are checked: the first few of each tokenizer, then a random share."""

    def __init__(self, share: float, *, first: int = 3, seed: int | None = None) -> None:
        """Make a sampler of *share* (0 to 1); raises ValueError outside that."""
        if not 0.0 <= share <= 1.0:
            raise ValueError(f"the share of checked requests must be between 0 and 1, not {share}")
        self.share = share
        self._first = first
        self._random = random.Random(seed)  # noqa: S311 - sampling, no secret

    def wants(self, checked: int) -> bool:
        """Return whether a request is to be checked when *checked* like it have been."""
        if self.share == 0.0:
            return False
        return checked < self._first or self._random.random() < self.share
