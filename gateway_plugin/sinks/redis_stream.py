"""Event records into a Redis stream: bounded queue, one background task, batches, fail-open.

The request path only calls :meth:`RedisStreamSink.put`, which never waits. The task writes batches with
``XADD … MAXLEN ~`` in one pipeline under its own deadline. When Redis fails, a circuit breaker opens for a
growing pause; records wait in the bounded queue and the oldest are dropped and counted when it is full.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, Final

from redis.exceptions import RedisError

from gateway_plugin.event import STREAM_FIELD, STREAM_KEY, encode

log = logging.getLogger("agentwatt")

_PAUSES_S: Final = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)

#: What a broken network or server can raise; anything else is a bug and is counted as such.
_EXPECTED: Final = (RedisError, OSError, asyncio.TimeoutError)


class RedisStreamSink:
    """Bounded, batched, non-blocking writer of event records.

    ``counts`` holds what happened so far: queued, written, and losses by reason
    (``dropped_queue_full``, ``dropped_unencodable``, ``dropped_shutdown``) beside ``write_errors``.
    """

    def __init__(
        self,
        connect: Callable[[], Any],
        *,
        stream_max_len: int,
        queue_max_events: int,
        batch_max_events: int,
        flush_interval_s: float,
        redis_timeout_s: float,
        shutdown_flush_s: float,
    ) -> None:
        self._connect_new = connect
        self._max_len = stream_max_len
        self._queue: deque[bytes] = deque()
        self._queue_max = queue_max_events
        self._batch_max = batch_max_events
        self._interval = flush_interval_s
        self._timeout = redis_timeout_s
        self._shutdown = shutdown_flush_s
        self._client: Any = None
        self._task: asyncio.Task[None] | None = None
        self._wake: asyncio.Event | None = None
        self._failures = 0
        self.breaker_open = False
        self.counts: Counter[str] = Counter()

    @property
    def depth(self) -> int:
        """Records waiting in the queue."""
        return len(self._queue)

    def put(self, record: Mapping[str, Any]) -> None:
        """Queue one record; never waits, never raises for a full queue (the oldest record is dropped)."""
        try:
            raw = encode(dict(record))
        except TypeError:
            self.counts["dropped_unencodable"] += 1
            return
        if len(self._queue) >= self._queue_max:
            self._queue.popleft()
            self.counts["dropped_queue_full"] += 1
        self._queue.append(raw)
        self.counts["queued"] += 1
        self._ensure_task()
        if self._wake is not None and len(self._queue) >= self._batch_max:
            self._wake.set()

    def _ensure_task(self) -> None:
        if self._task is not None and not self._task.done():
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # no loop yet: the next put inside one starts the task
        if self._task is not None and not self._task.cancelled() and self._task.exception() is not None:
            self.counts["writer_restarts"] += 1
        self._wake = asyncio.Event()
        self._task = loop.create_task(self._run(), name="agentwatt-redis-stream")

    async def _run(self) -> None:
        assert self._wake is not None
        try:
            while True:
                pause = self._interval
                if self._failures:
                    pause = _PAUSES_S[min(self._failures, len(_PAUSES_S)) - 1]
                try:
                    await asyncio.wait_for(self._wake.wait(), pause)
                    if self._failures:
                        # A full batch must not turn the breaker's pause into a busy loop.
                        await asyncio.sleep(pause)
                except TimeoutError:
                    pass
                self._wake.clear()
                while self._queue and await self._write_batch():
                    pass
        except asyncio.CancelledError:
            await self._last_flush()
            raise

    async def _last_flush(self) -> None:
        """Write what is left within the shutdown time; count what could not be written."""
        try:
            async with asyncio.timeout(self._shutdown):
                while self._queue and await self._write_batch():
                    pass
        except (TimeoutError, asyncio.CancelledError):
            pass
        if self._queue:
            self.counts["dropped_shutdown"] += len(self._queue)
            log.warning("agentwatt: %d call records could not be written at shutdown", len(self._queue))
            self._queue.clear()
        await self.close()

    async def _write_batch(self) -> bool:
        """Write up to one batch; on failure put nothing back, since records leave the queue only after it."""
        batch = list(islice(self._queue, self._batch_max))
        marker = self.counts["dropped_queue_full"]
        try:
            async with asyncio.timeout(self._timeout):
                pipe = self._connect().pipeline(transaction=False)
                for raw in batch:
                    pipe.xadd(STREAM_KEY, {STREAM_FIELD: raw}, maxlen=self._max_len, approximate=True)
                await pipe.execute()
        except _EXPECTED as error:
            self._failed(error)
            return False
        # Records that a full queue pushed out while we were writing are already gone from the left end.
        pushed_out = self.counts["dropped_queue_full"] - marker
        self.counts["dropped_queue_full"] -= min(pushed_out, len(batch))
        for _ in range(len(batch) - min(pushed_out, len(batch))):
            self._queue.popleft()
        self.counts["written"] += len(batch)
        if self.breaker_open:
            log.warning("agentwatt: event stream is being written again")
        self._failures, self.breaker_open = 0, False
        return True

    def _failed(self, error: BaseException) -> None:
        self._failures += 1
        self.counts["write_errors"] += 1
        if not self.breaker_open:
            self.breaker_open = True
            log.warning(
                "agentwatt: event stream cannot be written (%s); requests go on, records wait in memory",
                type(error).__name__,
            )

    def _connect(self) -> Any:
        if self._client is None:
            self._client = self._connect_new()
        return self._client

    async def close(self) -> None:
        """Close the connection; the sink can be used again afterwards."""
        client, self._client = self._client, None
        if client is not None:
            try:
                async with asyncio.timeout(0.5):
                    await client.aclose()
            except _EXPECTED:
                self.counts["close_errors"] += 1

    async def drain(self) -> None:
        """Cancel the background task, which flushes within the shutdown time, and wait for its end."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
