"""Streams over Redis for several workers: asked for at pre-call without waiting, merged when a call ends.

A look-up is a small object that a background task fills in; nobody awaits it. What has not arrived when a
call's final record is built is ``late``. Values expire; when Redis is away, look-ups fail at once for a while
and the worker goes on with what it knows itself.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any, Final

import xxhash

from gateway_plugin.sinks.connection import UNREACHABLE, Trips
from gateway_plugin.state import Stream
from gateway_plugin.state_codec import Known, decode, encode

_PREFIX: Final = "{agentwatt}:s:"
#: Streams asked for and written in one round trip: to encode them is one step of about 2 ms.
_BATCH: Final = 64
_PENDING_MAX: Final = 10_000
_PAUSE_S: Final = 5.0
#: How long questions gather, seconds: a call takes longer than that, and its answer is due at its end.
_GATHER_S: Final = 0.25


def heed_cancellation() -> None:
    """Raise CancelledError when this task was cancelled and a library swallowed it.

    A client that is cancelled while it connects may turn that into an error of its own; a background task
    that then went on would hold up the end of the process for ever.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


class Lookup:
    """One question: ``done`` once answered, ``failed`` without one; ``known`` is what another worker knew."""

    __slots__ = ("done", "failed", "key", "known", "stream")

    def __init__(self, key: str, stream: Stream) -> None:
        self.key = key
        self.stream = stream
        self.known: Known | None = None
        self.done = False
        self.failed = False

    @property
    def state(self) -> str:
        """``ok``, ``late`` or ``local``, as in the event."""
        return "ok" if self.done else "local" if self.failed else "late"


class SharedState:
    """Reads and writes streams in Redis from one background task. Event loop only."""

    def __init__(self, connect: Callable[[], Any], *, ttl_s: int, timeout_s: float) -> None:
        self._trips = Trips(connect)
        self._ttl_s = ttl_s
        self._timeout = timeout_s
        self._asked: list[Lookup] = []
        self._dirty: OrderedDict[str, Stream] = OrderedDict()
        self._task: asyncio.Task[None] | None = None
        self._wake: asyncio.Event | None = None
        self._exchanging = asyncio.Lock()
        self._retry_at = 0.0
        self.counts: Counter[str] = Counter()

    @staticmethod
    def key(session_key: str, agent_id: str) -> str:
        """Return the Redis key of a stream."""
        return f"{_PREFIX}{session_key}:{agent_id}"

    def look_up(self, session_key: str, agent_id: str, stream: Stream) -> Lookup:
        """Ask what other workers know of a stream; never waits."""
        lookup = Lookup(self.key(session_key, agent_id), stream)
        if time.monotonic() < self._retry_at or len(self._asked) >= _PENDING_MAX:
            lookup.failed = True
        else:
            self._asked.append(lookup)
            self._ensure_task()
        return lookup

    def publish(self, session_key: str, agent_id: str, stream: Stream) -> None:
        """Let others know of a stream; many ends of one stream are one write."""
        key = self.key(session_key, agent_id)
        self._dirty[key] = stream
        self._dirty.move_to_end(key)
        while len(self._dirty) > _PENDING_MAX:
            self._dirty.popitem(last=False)
            self.counts["publish_dropped"] += 1
        self._ensure_task()

    def _ensure_task(self) -> None:
        if self._task is None or self._task.done():
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:
                return
            self._wake = asyncio.Event()
            self._task = loop.create_task(self._run(), name="agentwatt-shared-state")
        if self._wake is not None:
            self._wake.set()

    async def _run(self) -> None:
        assert self._wake is not None
        while True:
            await self._wake.wait()
            # An answer is needed when the call ends, so questions may gather: one round trip for many calls.
            await asyncio.sleep(_GATHER_S)
            self._wake.clear()
            await self.exchange()
            heed_cancellation()

    async def exchange(self) -> None:
        """Answer the open questions and write what is new, in one round trip per batch."""
        async with self._exchanging:
            await self._exchange()

    async def _exchange(self) -> None:
        # Only what waits now: what comes in meanwhile gathers for the next round trip.
        for _ in range(max(len(self._asked), len(self._dirty)) // _BATCH + 1):
            asked, self._asked = self._asked[:_BATCH], self._asked[_BATCH:]
            if not asked and not self._dirty:
                return
            writes = [self._dirty.popitem(last=False) for _ in range(min(_BATCH, len(self._dirty)))]
            if time.monotonic() < self._retry_at:
                self._fail(asked, writes)
                continue
            try:
                async with asyncio.timeout(self._timeout):
                    await self._round_trip(asked, writes)
            except UNREACHABLE:
                self._retry_at = time.monotonic() + _PAUSE_S
                self.counts["state_error"] += 1
                self._fail(asked, writes)
                await self._close()

    def _fail(self, asked: list[Lookup], writes: list[tuple[str, Stream]]) -> None:
        for lookup in asked:
            lookup.failed = True
        self.counts["publish_dropped"] += len(writes)

    async def _round_trip(self, asked: list[Lookup], writes: list[tuple[str, Stream]]) -> None:
        commands: list[tuple[Any, ...]] = [("GET", lookup.key) for lookup in asked]
        # Questions are answered before the writes of the same trip.
        own = [lookup.stream.published for lookup in asked]
        for key, stream in writes:
            if (value := encode(stream)) is not None:
                commands.append(("SET", key, value, "EX", self._ttl_s))
                stream.published = xxhash.xxh3_64_intdigest(value)
        answers = await self._trips.send(commands) if commands else []
        for lookup, published, answer in zip(asked, own, answers, strict=False):
            # What this worker wrote last says nothing new when it comes back.
            if isinstance(answer, bytes) and published != xxhash.xxh3_64_intdigest(answer):
                lookup.known = decode(answer)
            lookup.done = True

    async def _close(self) -> None:
        try:
            async with asyncio.timeout(0.5):
                await self._trips.close()
        except UNREACHABLE:
            self.counts["close_error"] += 1

    async def drain(self) -> None:
        """Stop the background task and close the connection."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        await self._close()
