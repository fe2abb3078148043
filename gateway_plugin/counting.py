"""The meter of LiteLLM's token counter: how often, how long, where in the request, and for how many tokens.

What the hook has to call, and nothing else::

    meter = counting.install(exact=…, incremental=…)   # once, when the plugin starts in a worker
    spent = meter.begin()                               # in async_pre_call_hook; keep it with the call
    spent.mark("router" | "attempt" | "handoff" | "answer")   # in the later hooks that exist; optional
    record |= spent.facts()                             # when the final record is built
    meter.uninstall()                                   # at shutdown; tests

Two layers. **Always on**: instants of hooks (:func:`gateway_phases`); LiteLLM is not touched. **Exact**
(opt-in): wraps the one cached function through which LiteLLM calls its counter, the counter that stops at a
threshold (since 1.106), the limiter of concurrent counts and the count of the budget reservation, which also
covers the native counter (1.102 with ``LITELLM_RUST=1``). These are private parts: an unknown version or
shape switches the layer off with one warning and a reason in every record. The accumulator travels in a
ContextVar, which worker threads copy, so a count in a thread finds its request. Counts before our first hook
belong to the phase ``auth``.

``incremental=True`` also puts :class:`~gateway_plugin.counting_incremental.IncrementalCounter` in place.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextvars import ContextVar, Token
from typing import Any

from gateway_plugin import counting_stock as stock_parts
from gateway_plugin.counting_check import Background
from gateway_plugin.counting_incremental import IncrementalCounter
from gateway_plugin.counting_stock import Stock, UnknownShape
from gateway_plugin.counting_tally import (
    PHASES,
    Accumulator,
    Count,
    PhaseTally,
    add_to,
    as_dict,
    gateway_phases,
    phase_of_caller,
)

__all__ = ["Accumulator", "Meter", "gateway_phases", "install"]

log = logging.getLogger("agentwatt")

_current: ContextVar[Accumulator | None] = ContextVar("agentwatt_counting", default=None)
#: Phase of the code that hands a count to a worker thread: the thread's own stack does not show it.
_handed_over: ContextVar[str | None] = ContextVar("agentwatt_counting_phase", default=None)


def _on_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _numbers(result: object) -> list[int]:
    return [n for n in result.values() if isinstance(n, int)] if isinstance(result, Mapping) else []


class Meter:
    """Measures every count that goes through LiteLLM's choke points. One per worker; see :func:`install`."""

    def __init__(self, *, reason: str | None = "off") -> None:
        """Make a meter that measures nothing yet; *reason* tells why."""
        self.reason = reason
        self.counter: IncrementalCounter | None = None
        self.stock: Stock | None = None
        self.unseen: tuple[str, ...] = ()
        self.background = Background()
        self.counts: Counter[str] = Counter()
        self._totals = {name: PhaseTally() for name in PHASES}
        self._lock = threading.Lock()
        self._restore: list[tuple[Any, str, Any, Any]] = []
        self._catalogues: IncrementalCounter | None = None
        self._measuring = False

    # -- per request

    def begin(self) -> Accumulator:
        """Start (or take over from authentication) the accumulator of the request in this task."""
        spent = _current.get()
        if spent is None or spent.claimed:
            spent = Accumulator(reason=self.reason)
            _current.set(spent)
        spent.claimed = True
        spent.mark("pre_call")
        return spent

    def snapshot(self) -> dict[str, Any]:
        """Return the totals of this worker since its start: by phase, of the cache, and what is not seen."""
        with self._lock:
            phases = {
                name: as_dict(tally) for name, tally in self._totals.items() if tally.calls or tally.wait_ms
            }
        result: dict[str, Any] = {
            "reason": self.reason,
            "phases": phases,
            "unseen": list(self.unseen),
            "meter_errors": self.counts["meter_error"],
        }
        if self.counter is not None:
            store = self.counter.store
            result["cache"] = {
                "active": self.counter.active,
                "entries": store.entries,
                "bytes": store.bytes,
                "max_bytes": store.max_bytes,
                "counts": dict(self.counter.counts),
                "checks": dict(self.counter.background.counts),
            }
        return result

    # -- measuring

    def _note(self, begin: float, arguments: dict[str, Any], result: Any, error: bool) -> None:
        """Enter one finished count; never raises."""
        ms = (time.perf_counter() - begin) * 1e3
        try:
            spent = _current.get()
            phase = self._phase(spent)
            is_count = isinstance(result, int) and not isinstance(result, bool)
            count = Count(
                phase=phase,
                ms=ms,
                tokens=result if is_count else None,
                tokenizer=self._tokenizer(arguments),
                on_loop=_on_event_loop(),
                error=error,
                catalogue_tokens=self._catalogue(arguments),
            )
            self._enter(spent, count)
        except Exception:  # noqa: BLE001 - the count itself has succeeded; ours is counted
            self.counts["meter_error"] += 1

    def _enter(self, spent: Accumulator | None, count: Count) -> None:
        with self._lock:
            add_to(self._totals[count.phase], count)
        if spent is not None:
            spent.add(count)

    def _phase(self, spent: Accumulator | None) -> str:
        if spent is not None and "answer" in spent.marks:
            return "post_call"
        known = _handed_over.get() or phase_of_caller(sys._getframe(2))
        if known is not None:
            return known
        return "auth" if spent is None or not spent.claimed else spent.phase

    def _tokenizer(self, arguments: dict[str, Any]) -> str:
        if arguments.get("custom_tokenizer") is not None:
            return "custom"
        model = arguments.get("model")
        if self.stock is None or not isinstance(model, str):
            return "tiktoken" if model is None else "unknown"
        return self.stock.tokenizer(model)[0]

    def _catalogue(self, arguments: dict[str, Any]) -> int | None:
        """Return the tokens of the catalogue just counted; unknown ones are counted in the background."""
        tools = arguments.get("tools")
        if not tools:
            return None
        if self.counter is not None and self.counter.active:
            return self.counter.last_catalogue
        if self._catalogues is None or type(tools) is not list:
            return None
        return self._catalogues.learn_catalogue(str(arguments.get("model")), tools)

    def _timed(self, inner: Callable[..., Any], names: tuple[str, ...]) -> Callable[..., Any]:
        @functools.wraps(inner)
        def timed(*args: Any, **kwargs: Any) -> Any:
            if not self._measuring:
                return inner(*args, **kwargs)
            begin = time.perf_counter()
            result, failed = None, True
            try:
                result = inner(*args, **kwargs)
                failed = False
            finally:
                self._note(begin, dict(zip(names, args, strict=False)) | kwargs, result, failed)
            return result

        return timed

    def _timed_reservation(self, inner: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(inner)
        async def timed(*args: Any, **kwargs: Any) -> Any:
            if not self._measuring:
                return await inner(*args, **kwargs)
            spent = _current.get()
            if spent is None or spent.claimed:
                # This runs in the request's own task, so the pre-call hook will find it.
                spent = Accumulator(reason=self.reason)
                _current.set(spent)
            before, begin = spent.calls, time.perf_counter()
            token = _handed_over.set("auth")
            try:
                result = await inner(*args, **kwargs)
            finally:
                _handed_over.reset(token)
            tokens = max(_numbers(result), default=0)
            if tokens > 0 and spent.calls == before:
                # Tokens without a run of the Python counter: the native one ran.
                ms = (time.perf_counter() - begin) * 1e3
                self._enter(spent, Count("auth", ms, tokens, "native", on_loop=False))
            return result

        return timed

    # -- installing

    def _replace(self, owner: Any, name: str, value: Any) -> None:
        self._restore.append((owner, name, getattr(owner, name), value))
        setattr(owner, name, value)

    def _install(self, stock: Stock, *, exact: bool) -> None:
        lazy, core = sys.modules[stock_parts.LAZY_MODULE], sys.modules[stock_parts.COUNTER_MODULE]
        counter: Callable[..., Any] = self.counter.token_counter if self.counter else stock.token_counter
        reach: Callable[..., Any] | None = stock.reach
        if self.counter is not None and reach is not None:
            reach = self.counter.messages_reach_token_count
        if exact:
            counter = self._timed(counter, stock_parts.COUNTER_ARGUMENTS)
            if reach is not None:
                reach = self._timed(reach, stock_parts.REACH_ARGUMENTS)
            self._install_limiter(core)
            self._install_reservation()
        self._replace(lazy, "_token_counter_new_func", counter)
        if reach is not None:
            self._replace(lazy, "_messages_reach_token_count_func", reach)
        self.unseen += stock_parts.direct_callers()

    def _install_limiter(self, core: Any) -> None:
        name = "_count_offload_limiter_for_this_loop"
        inner = getattr(core, name, None)
        if inner is None:
            self.unseen += ("limiter waits",)
            return
        self._replace(core, name, lambda: _TimedLimiter(inner(), self))

    def _install_reservation(self) -> None:
        module = sys.modules.get(stock_parts.RESERVATION_MODULE)
        inner = getattr(module, stock_parts.RESERVATION_FUNCTION, None)
        if inner is None or not asyncio.iscoroutinefunction(inner):
            # Counts of the reservation are still seen, but not whose they are, nor native ones.
            self.unseen += ("request of counts in worker threads during authentication", "native counter")
            return
        self._replace(module, stock_parts.RESERVATION_FUNCTION, self._timed_reservation(inner))

    def uninstall(self) -> None:
        """Give LiteLLM its own functions back, unless someone else has replaced ours since.

        Does not block: checks that are still queued are dropped.
        """
        self._measuring = False
        while self._restore:
            owner, name, before, ours = self._restore.pop()
            if getattr(owner, name, None) is ours:
                setattr(owner, name, before)
        if self.counter is not None:
            self.counter.active = False
            self.counter.store.clear()
        self.background.close(wait=False)
        self.reason = "off"


class _TimedLimiter:
    """LiteLLM's limiter of concurrent counts, with the wait timed. One object per use."""

    def __init__(self, inner: Any, meter: Meter) -> None:
        self._inner = inner
        self._meter = meter
        self._token: Token[str | None] | None = None

    async def __aenter__(self) -> None:
        spent = _current.get()
        phase = self._meter._phase(spent)
        begin = time.perf_counter()
        await self._inner.__aenter__()
        ms = (time.perf_counter() - begin) * 1e3
        with self._meter._lock:
            self._meter._totals[phase].wait_ms += ms
        if spent is not None:
            spent.add_wait(phase, ms)
        self._token = _handed_over.set(phase)

    async def __aexit__(self, *exc_info: object) -> None:
        if self._token is not None:
            with contextlib.suppress(ValueError):  # ended in another context: nothing to reset there
                _handed_over.reset(self._token)
        await self._inner.__aexit__(*exc_info)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def install(
    *,
    exact: bool = False,
    incremental: bool = False,
    max_bytes: int = 32 << 20,
    check_share: float = 0.01,
) -> Meter:
    """Start measuring in this worker and, when asked, put the incremental counter in place.

    Never raises because of LiteLLM: on an unknown version or shape it logs one warning and returns a meter
    whose records carry the reason.

    Args:
        exact: wrap LiteLLM's private choke points and measure every count.
        incremental: replace LiteLLM's counter by the exactly equal sum of remembered counts.
        max_bytes: bound of the incremental counter's memory, bytes.
        check_share: share of requests that are also counted the stock way, off the loop.

    Raises:
        ValueError: *max_bytes* or *check_share* is out of range.
    """
    meter = Meter()
    if not (exact or incremental):
        return meter
    try:
        stock = stock_parts.load()
    except UnknownShape as error:
        log.warning("agentwatt: token counts are not measured and not cached: %s", error)
        meter.reason = "unknown_shape"
        return meter
    meter.stock = stock
    if incremental:
        meter.counter = IncrementalCounter(
            stock, max_bytes=max_bytes, check_share=check_share, background=meter.background
        )
    if exact:
        meter.reason = None
        meter._measuring = True
        if not incremental:
            meter._catalogues = IncrementalCounter(
                stock, max_bytes=1 << 18, check_share=0.0, background=meter.background
            )
    meter._install(stock, exact=exact)
    return meter
