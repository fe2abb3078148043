"""Where records go: the sinks of one worker, made from its settings and driven by one background task."""

from __future__ import annotations

import asyncio
import atexit
import functools
import logging
import weakref
from collections.abc import Callable
from typing import Any

from gateway_plugin.guard import Guard
from gateway_plugin.settings import PluginSettings
from gateway_plugin.sinks.connection import connect
from gateway_plugin.sinks.redis_stream import RedisStreamSink
from gateway_plugin.sinks.spool import Spool

log = logging.getLogger("agentwatt")


class Outputs:
    """The sinks of one worker.

    Raises:
        AddressError: the Redis address cannot be used.
    """

    def __init__(self, settings: PluginSettings, guard: Guard) -> None:
        self._settings = settings
        self._guard = guard
        self._task: asyncio.Task[None] | None = None
        self.link: Callable[[], Any] | None = None
        self.stream: RedisStreamSink | None = None
        if settings.redis_url is not None:
            self.link = functools.partial(
                connect, settings.redis_url.get_secret_value(), timeout_s=settings.redis_timeout_s
            )
            self.link()  # opens nothing; an address that cannot be used is told now, not with the first call
        spool = None
        if settings.spool_dir is not None:
            spool = Spool(settings.spool_dir, max_bytes=settings.spool_max_bytes)
        if self.link is not None or spool is not None:
            self.stream = RedisStreamSink(
                self.link,
                stream_max_len=settings.stream_max_len,
                stream_ttl_s=settings.stream_ttl_s,
                queue_max_events=settings.queue_max_events,
                batch_max_events=settings.batch_max_events,
                flush_interval_s=settings.flush_interval_s,
                redis_timeout_s=settings.redis_timeout_s,
                shutdown_flush_s=settings.shutdown_flush_s,
                spool=spool,
            )
            _flush_at_exit(self.stream)
        else:
            log.warning("agentwatt: no Redis address and no spool: calls are recorded in SpendLogs rows only")

    def emit(self, record: dict[str, Any]) -> None:
        """Hand one record to every sink; never waits."""
        if self.stream is not None:
            self.stream.put(record)

    def ensure_task(self, interval_s: float, tick: Callable[[], None]) -> None:
        """Start the background task of this worker's loop, which calls *tick* every *interval_s* seconds."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(
                self._watch(interval_s, tick), name="agentwatt-watch"
            )

    async def _watch(self, interval_s: float, tick: Callable[[], None]) -> None:
        while True:
            await asyncio.sleep(interval_s)
            with self._guard("watch"):
                tick()

    async def close(self) -> None:
        """Stop the background tasks and flush within the shutdown time."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        if self.stream is not None:
            await self.stream.drain()


def _flush_at_exit(sink: RedisStreamSink) -> None:
    """Put what is left onto disk when the process ends without cancelling its tasks."""
    reference = weakref.ref(sink)

    def flush() -> None:
        if (alive := reference()) is not None:
            alive.last_resort()

    atexit.register(flush)
