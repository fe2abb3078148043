"""Where records go: the sinks of one worker, made from its settings and driven by one background task."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import logging
import time
import weakref
from collections.abc import Callable
from typing import Any, Final

from gateway_plugin import preflight, proxy_gauges
from gateway_plugin.call import OpenCall
from gateway_plugin.guard import Guard
from gateway_plugin.recorder import Recorder
from gateway_plugin.settings import PluginSettings
from gateway_plugin.shared_state import SharedState
from gateway_plugin.shutdown import logged, run_at_shutdown
from gateway_plugin.sinks import metric_table as table
from gateway_plugin.sinks import metrics as prometheus
from gateway_plugin.sinks.connection import connect
from gateway_plugin.sinks.redis_stream import RedisStreamSink
from gateway_plugin.sinks.spans import Spans, parent_span
from gateway_plugin.sinks.spool import Spool

log = logging.getLogger("agentwatt")

#: How often the lateness of the event loop is looked at.
_LAG_INTERVAL_S: Final = 0.5

#: Ended calls that wait for the metrics at most: entering them all is a step of a millisecond.
_ENDED_MAX: Final = 64

_LOST: Final = "dropped_"


class Outputs:
    """The sinks of one worker.

    Raises:
        AddressError: the Redis address cannot be used.
    """

    def __init__(self, settings: PluginSettings, guard: Guard) -> None:
        self._settings = settings
        self._guard = guard
        self._task: asyncio.Task[None] | None = None
        self._recorder: Recorder | None = None
        self._ends_with_server = False
        self._worst_lag = 0.0
        self._ended: list[tuple[dict[str, Any], OpenCall, bool]] = []
        self.link: Callable[[], Any] | None = None
        self.stream: RedisStreamSink | None = None
        self.shared: SharedState | None = None
        self.metrics = prometheus.make() if settings.metrics else None
        self.spans = Spans(settings.genai_semconv) if settings.spans else None
        if settings.redis_url is not None:
            self.link = functools.partial(
                connect, settings.redis_url.get_secret_value(), timeout_s=settings.redis_timeout_s
            )
            self.link()  # opens nothing; an address that cannot be used is told now, not with the first call
            if settings.shared_state:
                self.shared = SharedState(
                    self.link, ttl_s=settings.shared_state_ttl_s, timeout_s=settings.redis_timeout_s
                )
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

    def attach(self, recorder: Recorder) -> None:
        """Take the final records and the state of *recorder*."""
        self._recorder = recorder
        recorder.on_final = self._final
        recorder.placement.shared = self.shared

    def emit(self, record: dict[str, Any]) -> None:
        """Hand one record to the stream; never waits."""
        if self.stream is not None:
            self.stream.put(record)

    def begun(self, call: OpenCall, auth: object, bucket: dict[str, Any] | None) -> None:
        """Write what is known of a call at its begin onto its span, if the proxy traces."""
        if self.spans is not None and (span := parent_span(auth, bucket)) is not None:
            with self._guard("spans"):
                if self.spans.write(span, call.record):
                    call.span = span

    def _final(self, record: dict[str, Any], call: OpenCall, revised: bool) -> None:
        if self.spans is not None and call.span is not None:
            with self._guard("spans"):
                self.spans.write(call.span, record)
            call.span = None
        if self.metrics is not None:
            self._ended.append((record, call, revised))
            if len(self._ended) >= _ENDED_MAX:
                self.enter_ended()

    def enter_ended(self) -> None:
        """Enter the calls that ended into the metrics: together, which costs half of one at a time."""
        ended, self._ended = self._ended, []
        if self.metrics is None:
            return
        for record, call, revised in ended:
            with self._guard("metrics"):
                self.metrics.observe(record, revised=revised)
                if call.counting is not None and not revised:
                    self.metrics.count_phases(call.counting.facts()["count_by_phase"] or {})

    # -- background

    def ensure_task(self) -> None:
        """Start the background task in this worker's loop; it runs for as long as the loop."""
        if self._task is None or self._task.done():
            if not self._ends_with_server:
                self._ends_with_server = True
                with self._guard("shutdown"):
                    run_at_shutdown(self._end)
            self._task = asyncio.get_running_loop().create_task(self._watch(), name="agentwatt-watch")

    async def _watch(self) -> None:
        with self._guard("watch"):
            for text in preflight.warnings(self._settings):
                log.warning("agentwatt: %s", text)
        interval = self._settings.sample_interval_s
        pause = min(_LAG_INTERVAL_S, interval)
        sample_at = time.monotonic() + interval
        while True:
            due = time.monotonic() + pause
            await asyncio.sleep(pause)
            now = time.monotonic()
            self._worst_lag = max(self._worst_lag, now - due)
            self.enter_ended()
            if now >= sample_at:
                sample_at = now + interval
                with self._guard("watch"):
                    while self._recorder is not None and self._recorder.close_stale():  # noqa: ASYNC110
                        await asyncio.sleep(0)  # lets requests in, waits for nothing
                    self.tick()
                if self._settings.db_connections and self.metrics is not None:
                    with self._guard("metrics"):
                        self.metrics.set(await proxy_gauges.db_connections(interval))

    def tick(self) -> None:
        """Set the gauges and bring the counters up to date."""
        self.enter_ended()
        if self.metrics is not None:
            with self._guard("metrics"):
                self._sample(self.metrics)

    def _sample(self, metrics: prometheus.Metrics) -> None:
        metrics.late(self._worst_lag)
        gauges = {table.LOOP_LAG: self._worst_lag} | proxy_gauges.sample()
        self._worst_lag = 0.0
        odd: dict[str, int] = {}
        if (recorder := self._recorder) is not None:
            odd |= recorder.counts + recorder.placement.counts
            odd |= {"stream_evicted": recorder.state.evicted, "head_cut": recorder.state.heads_cut}
            gauges[table.OPEN_CALLS] = len(recorder.open_calls)
            gauges[table.STATE_STREAMS] = len(recorder.state)
            gauges[table.STATE_BYTES] = recorder.state.nbytes
        if self.shared is not None:
            odd["state_error"] = self.shared.counts["state_error"]
        if (stream := self.stream) is not None:
            spool = stream.spool
            counts = stream.counts + spool.counts if spool is not None else stream.counts
            odd |= {
                "write_error": counts["write_errors"],
                "spool_error": counts["spool_errors"],
                "writer_restart": counts["writer_restarts"],
            }
            metrics.advance(table.EVENTS_WRITTEN, {"stream": counts["written"], "spool": counts["spooled"]})
            lost = {k.removeprefix(_LOST): v for k, v in counts.items() if k.startswith(_LOST)}
            metrics.advance(table.EVENTS_LOST, lost)
            gauges[table.QUEUE_RECORDS] = stream.depth
            gauges[table.SPOOL_RECORDS] = spool.pending_records if spool is not None else 0
            gauges[table.SPOOL_BYTES] = spool.pending_bytes if spool is not None else 0
            gauges[table.TELEMETRY_UP] = 0.0 if stream.breaker_open else 1.0
        metrics.advance(table.ODDITIES, {k: v for k, v in odd.items() if k in _KINDS})
        metrics.advance(table.PLUGIN_ERRORS, self._guard.counts)
        metrics.set(gauges)

    async def _end(self) -> None:
        """Close at the end of the server, after what LiteLLM has still to log, all within our time."""
        with self._guard("shutdown"):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(logged(), self._settings.shutdown_flush_s / 2)
            await self.close()

    async def close(self) -> None:
        """Stop the background tasks and flush within the shutdown time."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        self.enter_ended()
        if self.shared is not None:
            await self.shared.drain()
        if self.stream is not None:
            await self.stream.drain()


_KINDS: Final = frozenset(table.LABELS["kind"])


def _flush_at_exit(sink: RedisStreamSink) -> None:
    """Put what is left onto disk when the process ends without cancelling its tasks."""
    reference = weakref.ref(sink)

    def flush() -> None:
        if (alive := reference()) is not None:
            alive.last_resort()

    atexit.register(flush)
