"""Event records into a Redis stream: bounded queue, one background task, batches, fail-open.

The request path only calls :meth:`RedisStreamSink.put`, which never waits. The task writes batches with
``XADD … MAXLEN ~`` in one round trip under its own deadline, connecting included. When Redis fails, a circuit
breaker opens for a growing pause; meanwhile records go to the spool when there is one, else they wait in the
bounded queue, whose oldest are dropped. What is on disk is written first when Redis is back, so the order of
the records stays. Every loss is counted by its reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from gateway_plugin.event import STREAM_FIELD, STREAM_KEY, encode
from gateway_plugin.sinks.connection import UNREACHABLE, Trips
from gateway_plugin.sinks.spool import Spool, SpoolError

log = logging.getLogger("agentwatt")

_PAUSES_S: Final = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_ADOPT_INTERVAL_S: Final = 60.0
#: Records encoded at a time, a third of a millisecond.
_AT_ONCE: Final = 32


class RedisStreamSink:
    """Bounded, batched, non-blocking writer of event records.

    ``counts`` holds what happened so far: ``queued``, ``written``, ``spooled``, ``write_errors``,
    ``spool_errors``, and losses by reason (``dropped_queue_full``, ``dropped_unencodable``,
    ``dropped_shutdown``); the spool counts its own.
    """

    def __init__(
        self,
        connect: Callable[[], Any] | None,
        *,
        stream_max_len: int,
        queue_max_events: int,
        batch_max_events: int,
        flush_interval_s: float,
        redis_timeout_s: float,
        shutdown_flush_s: float,
        stream_ttl_s: int = 0,
        spool: Spool | None = None,
    ) -> None:
        self._trips = Trips(connect) if connect is not None else None
        self._max_len = stream_max_len
        self._ttl_s = stream_ttl_s
        self._queue: deque[bytes | dict[str, Any]] = deque()
        self._queue_max = queue_max_events
        self._batch_max = batch_max_events
        self._interval = flush_interval_s
        self._timeout = redis_timeout_s
        self._shutdown = shutdown_flush_s
        self.spool = spool
        self._task: asyncio.Task[None] | None = None
        self._wake: asyncio.Event | None = None
        self._flushing = asyncio.Lock()
        self._failures = 0
        self._retry_at = 0.0
        self._adopt_at = 0.0
        self._in_write = 0
        self._pushed_out = 0
        self.breaker_open = False
        self.counts: Counter[str] = Counter()

    @property
    def depth(self) -> int:
        """Records waiting in the queue."""
        return len(self._queue)

    def put(self, record: Mapping[str, Any]) -> None:
        """Queue one record as it stands; never waits or raises (of a full queue the oldest is dropped).

        It is encoded with its batch: a batch at once costs a third of its records one by one.
        """
        if len(self._queue) >= self._queue_max:
            self._queue.popleft()
            if self._in_write > 0:
                # Being written right now: lost only if the write fails.
                self._in_write -= 1
                self._pushed_out += 1
            else:
                self.counts["dropped_queue_full"] += 1
        self._queue.append(dict(record))
        self.counts["queued"] += 1
        if self._task is None or self._task.done():
            self._start()
        if self._wake is not None and len(self._queue) >= self._batch_max:
            self._wake.set()

    def _start(self) -> None:
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
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), self._interval)
                self._wake.clear()
                await self.flush()
                # A library may swallow a cancellation while it connects; going on would hold up the exit.
                if (task := asyncio.current_task()) is not None and task.cancelling():
                    raise asyncio.CancelledError
                if self.breaker_open:
                    # A full queue must not turn the breaker's pause into a busy loop.
                    await asyncio.sleep(self._interval)
        except asyncio.CancelledError:
            await self._last_flush()
            raise

    async def flush(self) -> None:
        """Write what waits, disk first, to Redis or, while Redis is away, to the spool."""
        async with self._flushing:
            await self._flush()

    async def _flush(self) -> None:
        await self._adopt()
        while True:
            if self._trips is None or (self.breaker_open and time.monotonic() < self._retry_at):
                await self._to_spool()
                return
            if self.spool is not None and self.spool.pending_records:
                if not await self._replay() and not self.breaker_open:
                    return  # the disk fails, not Redis: the queue waits behind what is on disk
            elif not self._queue:
                return
            elif await self._write_queue() and len(self._queue) < self._batch_max:
                return  # what came in meanwhile waits for the next interval, so that batches stay batches

    async def _adopt(self) -> None:
        if self.spool is not None and self._trips is not None and time.monotonic() >= self._adopt_at:
            self._adopt_at = time.monotonic() + _ADOPT_INTERVAL_S
            try:
                await asyncio.to_thread(self.spool.adopt)
            except OSError:
                self.counts["spool_errors"] += 1

    async def _replay(self) -> bool:
        assert self.spool is not None
        try:
            batch = await asyncio.to_thread(self.spool.read, self._batch_max)
            if batch and not await self._send(batch):
                return False
            await asyncio.to_thread(self.spool.commit)
        except OSError:
            self.counts["spool_errors"] += 1
            return False
        self.counts["written"] += len(batch)
        return True

    async def _write_queue(self) -> bool:
        batch = await self._take_up()
        done = not batch or await self._send(batch)
        self._put_down(batch, done)
        if done:
            self.counts["written"] += len(batch)
        return done

    async def _to_spool(self) -> None:
        while self.spool is not None and self._queue:
            batch = await self._take_up()
            if not batch:
                return
            try:
                await asyncio.to_thread(self.spool.append, batch)
            except SpoolError as error:
                self._put_down(batch, False)
                self._spool_failed(error)
                return
            self._put_down(batch, True)
            self.counts["spooled"] += len(batch)

    async def _take_up(self) -> list[bytes]:
        """Return the next batch, encoded a part at a time: the event loop belongs to the requests.

        Its records stay in the queue until they are stored elsewhere.
        """
        batch: list[bytes] = []
        self._in_write = self._pushed_out = 0
        while self._encode(batch, min(len(batch) + _AT_ONCE, self._batch_max)):  # noqa: ASYNC110
            await asyncio.sleep(0)  # lets requests in, waits for nothing
        return batch

    def _encode(self, batch: list[bytes], limit: int) -> bool:
        """Encode records behind *batch* where they are and add them up to *limit*; return whether more wait.

        Of a batch some may have been pushed out of the queue by now.
        """
        while (place := len(batch) - self._pushed_out) < len(self._queue):
            if len(batch) >= limit:
                return limit < self._batch_max
            record = self._queue[place]
            if not isinstance(record, bytes):
                try:
                    record = self._queue[place] = encode(record)
                except TypeError:
                    del self._queue[place]
                    self.counts["dropped_unencodable"] += 1
                    continue
            batch.append(record)
            self._in_write += 1
        return False

    def _put_down(self, batch: list[bytes], stored: bool) -> None:
        """Take a stored batch out of the queue; a full queue may have pushed some of it out meanwhile."""
        if stored:
            for _ in range(len(batch) - self._pushed_out):
                self._queue.popleft()
        else:
            self.counts["dropped_queue_full"] += self._pushed_out
        self._in_write = self._pushed_out = 0

    def _spool_failed(self, error: SpoolError) -> None:
        if not self.counts["spool_errors"]:
            log.warning("agentwatt: %s; records wait in memory", error)
        self.counts["spool_errors"] += 1

    async def _send(self, batch: list[bytes]) -> bool:
        """Write *batch* to the stream within the deadline; open the breaker when that fails."""
        assert self._trips is not None
        bounded = ("XADD", STREAM_KEY, "MAXLEN", "~", self._max_len, "*", STREAM_FIELD)
        commands: list[tuple[Any, ...]] = [(*bounded, raw) for raw in batch]
        if self._ttl_s:
            commands.append(("EXPIRE", STREAM_KEY, self._ttl_s))
        try:
            async with asyncio.timeout(self._timeout):
                await self._trips.send(commands)
        except UNREACHABLE as error:
            await self._failed(error)
            return False
        if self.breaker_open:
            log.warning("agentwatt: event stream is being written again")
        self._failures, self.breaker_open = 0, False
        return True

    async def _failed(self, error: BaseException) -> None:
        self._retry_at = time.monotonic() + _PAUSES_S[min(self._failures, len(_PAUSES_S) - 1)]
        self._failures += 1
        self.counts["write_errors"] += 1
        if not self.breaker_open:
            self.breaker_open = True
            log.warning(
                "agentwatt: event stream cannot be written (%s); requests go on, records wait %s",
                type(error).__name__,
                "on disk" if self.spool is not None else "in memory",
            )
        await self.close()  # the next try resolves names, sentinels and slots anew

    async def _last_flush(self) -> None:
        """Write what is left within the shutdown time, the rest to the spool; count what is lost."""
        try:
            async with asyncio.timeout(self._shutdown):
                while self._queue and not self.breaker_open:
                    await self.flush()
                await self.close()
        except (TimeoutError, asyncio.CancelledError):
            pass
        self.last_resort()

    def last_resort(self) -> None:
        """Put what is left onto disk, without a loop: for the end of the process."""
        left: list[bytes] = []
        self._in_write = self._pushed_out = 0
        self._encode(left, len(self._queue))
        if not left:
            return
        if self.spool is not None:
            try:
                self.spool.append(left)
                self.counts["spooled"] += len(left)
                self._queue.clear()
                return
            except SpoolError as error:
                self._spool_failed(error)
        self.counts["dropped_shutdown"] += len(left)
        log.warning("agentwatt: %d call records could not be written at shutdown", len(left))
        self._queue.clear()

    async def close(self) -> None:
        """Close the connection; the sink can be used again afterwards."""
        if self._trips is not None:
            try:
                async with asyncio.timeout(0.5):
                    await self._trips.close()
            except UNREACHABLE:
                self.counts["close_errors"] += 1

    async def drain(self) -> None:
        """Cancel the background task, which flushes within the shutdown time, and wait for its end."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        if self._queue:
            await self._last_flush()  # the task was cancelled before its first step
