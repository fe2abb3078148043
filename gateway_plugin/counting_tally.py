"""What one request spent on token counting, by phase: the accumulator, and the phase of a caller.

Pure bookkeeping without LiteLLM. Times are monotonic; milliseconds in every result. A figure that was not
measured is None with a reason, never 0.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Final

#: Where in a request a count can happen. ``limits``: rate limiters and other proxy hooks; ``request``: while
#: the provider's request is built; ``other``: endpoints that count for a client, unknown callers.
PHASES: Final = ("auth", "limits", "router_checks", "routing_strategy", "request", "post_call", "other")

#: Instants that the hook can mark, in order; each opens the phase that follows it.
MARKS: Final = {
    "pre_call": "limits",
    "router": "router_checks",
    "attempt": "request",
    "handoff": "post_call",
    "answer": "post_call",
}

TOKENIZERS: Final = ("tiktoken", "huggingface", "native", "custom", "unknown")

#: Caller's module (or its parent package, with the trailing dot) -> phase. First match wins.
_CALLERS: Final = (
    ("litellm.proxy.spend_tracking.", "auth"),
    ("litellm.proxy.auth.", "auth"),
    ("litellm.proxy.hooks.", "limits"),
    ("litellm.router_utils.", "router_checks"),
    ("litellm.router_strategy.", "routing_strategy"),
    ("litellm.litellm_core_utils.streaming_chunk_builder_utils", "post_call"),
    ("litellm.cost_calculator", "post_call"),
    ("litellm.proxy.pass_through_endpoints.", "post_call"),
    ("litellm.proxy.utils", "post_call"),
    ("litellm.responses.", "post_call"),
    ("litellm.integrations.", "post_call"),
    ("litellm.proxy.proxy_server", "other"),
    ("litellm.proxy.anthropic_endpoints.", "other"),
    ("litellm.llms.", "request"),
    ("litellm.router", "router_checks"),
)
#: Frames that are part of the counter itself.
_COUNTER_FRAMES: Final = ("litellm.utils", "litellm.litellm_core_utils.token_counter", "gateway_plugin.")
_FRAMES_MAX: Final = 24


def phase_of_caller(frame: FrameType | None = None) -> str | None:
    """Return the phase that the code calling the counter belongs to, from its module; None when unknown."""
    frame = frame or sys._getframe(1)
    for _ in range(_FRAMES_MAX):
        if frame is None:
            return None
        module = frame.f_globals.get("__name__", "")
        if frame.f_code.co_name == "get_modified_max_tokens":
            return "request"
        if isinstance(module, str) and not module.startswith(_COUNTER_FRAMES):
            for prefix, phase in _CALLERS:
                if module == prefix or (prefix.endswith(".") and module.startswith(prefix)):
                    return phase
        frame = frame.f_back
    return None


@dataclass(slots=True)
class PhaseTally:
    """Sums of one phase: counts, milliseconds (of them on the event loop), wait at the limiter, tokens."""

    calls: int = 0
    ms: float = 0.0
    on_loop_ms: float = 0.0
    wait_ms: float = 0.0
    tokens: int = 0
    errors: int = 0


@dataclass(frozen=True, slots=True)
class Count:
    """One run of the counter. ``tokens`` is None when it raised or answered yes or no."""

    phase: str
    ms: float
    tokens: int | None
    tokenizer: str
    on_loop: bool
    error: bool = False
    catalogue_tokens: int | None = None


@dataclass(slots=True)
class Accumulator:
    """Counts of one request. Thread-safe: counts run in worker threads.

    ``reason`` says why nothing is measured (``off``, or what is wrong with this LiteLLM); None when the
    exact layer runs. ``claimed`` is set once the pre-call hook has taken it over; before that, its counts
    belong to authentication.
    """

    reason: str | None = None
    claimed: bool = False
    phase: str = "auth"
    phases: dict[str, PhaseTally] = field(default_factory=dict)
    tokenizers: set[str] = field(default_factory=set)
    catalogue_tokens: int | None = None
    catalogue_ms: float | None = None
    marks: dict[str, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def mark(self, name: str) -> None:
        """Note that the request has reached *name* (one of :data:`MARKS`); only the first time is kept."""
        if name in MARKS:
            self.marks.setdefault(name, time.perf_counter())
            self.phase = MARKS[name]

    def add(self, count: Count) -> None:
        """Enter one run of the counter."""
        with self._lock:
            tally = self.phases.setdefault(count.phase, PhaseTally())
            add_to(tally, count)
            self.tokenizers.add(count.tokenizer)
            if count.catalogue_tokens is not None:
                self.catalogue_tokens = count.catalogue_tokens
                if count.tokens:
                    share = min(1.0, count.catalogue_tokens / count.tokens)
                    self.catalogue_ms = (self.catalogue_ms or 0.0) + count.ms * share

    def add_wait(self, phase: str, ms: float) -> None:
        """Enter a wait at LiteLLM's limiter of concurrent counts."""
        with self._lock:
            self.phases.setdefault(phase, PhaseTally()).wait_ms += ms

    @property
    def calls(self) -> int:
        """Runs of the counter so far."""
        with self._lock:
            return sum(tally.calls for tally in self.phases.values())

    def facts(self) -> dict[str, Any]:
        """Return what was measured, ready for the event.

        Keys: ``count_ms``, ``count_calls``, ``count_wait_ms``, ``count_tokens`` (sum over all counts),
        ``count_on_loop_ms``, ``count_errors``, ``count_tokenizer`` (one of :data:`TOKENIZERS` or ``mixed``),
        ``count_catalogue_tokens`` (the tool catalogue alone; None when no count had one or it is not known
        yet), ``count_catalogue_ms`` (its share of the time by tokens: an estimate), ``count_by_phase``
        and ``count_reason``. Without the exact layer all are None but the reason.
        """
        if self.reason is not None:
            return dict.fromkeys(FACT_KEYS) | {"count_reason": self.reason}
        with self._lock:
            tallies = {name: self.phases[name] for name in PHASES if name in self.phases}
            total = PhaseTally()
            for tally in tallies.values():
                _merge(total, tally)
            return {
                "count_ms": round(total.ms, 3),
                "count_calls": total.calls,
                "count_wait_ms": round(total.wait_ms, 3),
                "count_tokens": total.tokens,
                "count_on_loop_ms": round(total.on_loop_ms, 3),
                "count_errors": total.errors,
                "count_tokenizer": _one_of(self.tokenizers),
                "count_auth_ms": _phase_ms(tallies, "auth"),
                "count_router_ms": _phase_ms(tallies, "router_checks", "routing_strategy"),
                "count_post_ms": _phase_ms(tallies, "post_call"),
                "count_catalogue_tokens": self.catalogue_tokens,
                "count_catalogue_ms": None if self.catalogue_ms is None else round(self.catalogue_ms, 3),
                "count_by_phase": {name: as_dict(tally) for name, tally in tallies.items()},
                "count_reason": None,
            }


FACT_KEYS: Final = (
    "count_ms",
    "count_calls",
    "count_wait_ms",
    "count_tokens",
    "count_on_loop_ms",
    "count_errors",
    "count_tokenizer",
    "count_auth_ms",
    "count_router_ms",
    "count_post_ms",
    "count_catalogue_tokens",
    "count_catalogue_ms",
    "count_by_phase",
    "count_reason",
)


def _phase_ms(tallies: Mapping[Any, PhaseTally], *names: str) -> float:
    return round(sum(tallies[name].ms for name in names if name in tallies), 3)


def add_to(tally: PhaseTally, count: Count) -> None:
    """Add one run of the counter to *tally*."""
    tally.calls += 1
    tally.ms += count.ms
    tally.tokens += count.tokens or 0
    tally.errors += count.error
    if count.on_loop:
        tally.on_loop_ms += count.ms


def _merge(total: PhaseTally, other: PhaseTally) -> None:
    total.calls += other.calls
    total.ms += other.ms
    total.on_loop_ms += other.on_loop_ms
    total.wait_ms += other.wait_ms
    total.tokens += other.tokens
    total.errors += other.errors


def as_dict(tally: PhaseTally) -> dict[str, int | float]:
    """Return *tally* as JSON values."""
    return {
        "calls": tally.calls,
        "ms": round(tally.ms, 3),
        "on_loop_ms": round(tally.on_loop_ms, 3),
        "wait_ms": round(tally.wait_ms, 3),
        "tokens": tally.tokens,
        "errors": tally.errors,
    }


def _one_of(names: set[str]) -> str | None:
    if len(names) > 1:
        return "mixed"
    return next(iter(names), None)


def gateway_phases(marks: Mapping[str, float], queue_ms: float | None) -> dict[str, float | None]:
    """Return the always-on layer: milliseconds between the hooks, from their instants alone.

    Args:
        marks: instants of :attr:`Accumulator.marks`, seconds of one monotonic clock.
        queue_ms: LiteLLM's own time from receipt to the end of authentication; it contains the count of the
            budget reservation.

    Returns:
        ``auth``, ``limits`` (our pre-call hook to the router), ``routing`` (to the chosen deployment; holds
        the context-window count) and ``request`` (to the provider call); None where a hook did not run.
    """

    def between(first: str, last: str) -> float | None:
        if first not in marks or last not in marks:
            return None
        return round(max(0.0, marks[last] - marks[first]) * 1e3, 3)

    return {
        "auth": queue_ms,
        "limits": between("pre_call", "router"),
        "routing": between("router", "attempt"),
        "request": between("attempt", "handoff"),
    }
