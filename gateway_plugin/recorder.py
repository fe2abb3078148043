"""From facts about a request and its end to event records: the heart of the plugin, without LiteLLM.

:meth:`Recorder.begin` runs on the request path: identity, turn, digests, prefix, an ``open`` record.
:meth:`Recorder.finish` runs after the answer: one ``final`` record, whatever fires how often.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from itertools import islice
from typing import Any, Final

from gateway_plugin import blocks, prefix
from gateway_plugin.beginnings import Beginnings
from gateway_plugin.call import Arrival, Ending, OpenCall, now_us
from gateway_plugin.event import FIELD_NAMES, OUTCOME_RANK, SCHEMA_VERSION, new_event_id
from gateway_plugin.hashing import Hasher
from gateway_plugin.placement import Placement
from gateway_plugin.recent import Recent
from gateway_plugin.settings import PluginSettings
from gateway_plugin.state import SessionState
from gateway_plugin.text import storable

#: How long the watchdog works on the event loop at a time, seconds, and how often it looks at the clock.
_CLOSING_S: Final = 0.001
_CLOSING_BATCH: Final = 5

#: Ended calls remembered so that a second ending of the same call is a counted no-op.
_FINISHED_MAX: Final = 10_000
_OPEN_MAX: Final = 50_000
_DIGESTS_MAX: Final = 1_500


class Recorder:
    """Builds records and hands them to the sinks. Single-threaded: event loop only."""

    def __init__(
        self,
        settings: PluginSettings,
        hasher: Hasher,
        *,
        emit: Callable[[dict[str, Any]], None],
        versions: tuple[str, str],
        seed: int,
    ) -> None:
        self._settings = settings
        self._hasher = hasher
        self._emit = emit
        self._litellm_version, self._plugin_version = versions
        self._seed = seed
        self._beginnings = Beginnings(settings.max_state_bytes // 8, seed)
        self.placement = Placement(settings, hasher, seed=seed)
        self.open_calls: OrderedDict[str, OpenCall] = OrderedDict()
        self._finished: Recent[str, OpenCall] = Recent(_FINISHED_MAX)
        #: Keyed digests by what they are of: a session shows the same system prompt and tools in every call.
        self._stored_digests: Recent[tuple[object, ...], str] = Recent(_DIGESTS_MAX)
        #: Calls without an end whose requests the proxy is done with, in the order in which they left.
        self._left: deque[str] = deque(maxlen=_OPEN_MAX)
        self.counts: Counter[str] = Counter()
        #: Called with each final record, its call, and whether it revises an earlier ending of the call.
        self.on_final: Callable[[dict[str, Any], OpenCall, bool], None] | None = None

    @property
    def state(self) -> SessionState:
        """What this worker remembers of streams."""
        return self.placement.state

    # -- request path

    def begin(self, arrival: Arrival) -> OpenCall:
        """Enter one request and emit its ``open`` record."""
        started = time.monotonic()
        body = arrival.body
        items = blocks.items_of(body)
        opening = blocks.first_human_text(items)
        limit = self._settings.max_prompt_bytes
        chain = prefix.build(
            body, items, seed=self._seed, max_bytes=limit, opening=opening, beginnings=self._beginnings
        )
        seen = now_us()
        record: dict[str, Any] = {
            "schema": SCHEMA_VERSION,
            "event_id": new_event_id(seen * 1000),
            "stage": "open",
            "outcome": "open",
            "started_us": arrival.received_us,
            "service_key": arrival.auth.key_alias in self._settings.service_keys,
            "key_alias": storable(arrival.auth.key_alias),
            "team_id": storable(arrival.auth.team_id),
            "route": arrival.route,
            "call_type": arrival.call_type,
            "stream": body.get("stream") is True,
            "model_group": storable(body.get("model")) or "",
            "litellm_call_id": arrival.litellm_call_id,
            "litellm_version": self._litellm_version,
            "plugin_version": self._plugin_version,
            "message_count": len(items),
            "prompt_bytes": chain.total_bytes,
            "system_digest": self._stored("system", chain.system_digest),
            "tools_digest": self._stored("tools", chain.tools_digest),
            "head_digest": self._stored(
                "head", chain.tools_digest, chain.system_digest, chain.first_user_digest
            ),
            "tool_count": chain.tool_count,
            "tools_bytes": chain.tools_bytes,
            "truncated": chain.truncated or None,
            "queue_ms": arrival.queue_ms,
            "state": "off",
        }
        if chain.fallbacks:
            self.counts["serialise_fallback"] += chain.fallbacks
        call = OpenCall(record, started, seen)
        # A pass-through request shows its headers only when it is logged: it finds its stream then.
        headerless = arrival.route == "pass_through" and not arrival.headers
        self.placement.place(call, arrival, items, chain, opening, link=not headerless)
        if headerless and record["session_evidence"] != "E1":
            call.unplaced = (arrival, items, chain, opening)
        elif headerless:
            self.placement.place(call, arrival, items, chain, opening)
        self.open_calls[call.event_id] = call
        if len(self.open_calls) > _OPEN_MAX:
            _, oldest = self.open_calls.popitem(last=False)
            self.counts["open_table_full"] += 1
            self._close_aborted(oldest)
        call.plugin_s = time.monotonic() - started
        record["plugin_ms"] = round(call.plugin_s * 1e3, 3)
        self._emit(record)
        self.counts["begun"] += 1
        return call

    def _stored(self, domain: str, *values: int) -> str | None:
        """Return what may be stored of an in-memory digest: a keyed one, 16 hex; None for nothing."""
        if not any(values):
            return None
        key = (domain, *values)
        if (known := self._stored_digests.use(key)) is None:
            known = self._hasher.digest(domain, b"".join(v.to_bytes(8, "big") for v in values))
            self._stored_digests.put(key, known)
        return known

    # -- after the answer

    def find(self, event_id: str) -> OpenCall | None:
        """Return the call of *event_id*, open or lately ended."""
        return self.open_calls.get(event_id) or self._finished.get(event_id)

    def finish(self, call: OpenCall, ending: Ending, late: Arrival | None = None) -> dict[str, Any] | None:
        """Emit the final record of *call*; return it, or None when it had ended as well before.

        *late* tells headers and metadata of a request that did not show them when it began.
        """
        event_id = call.event_id
        rank = OUTCOME_RANK[ending.outcome]
        if rank <= call.rank:
            self.counts["duplicate_ending"] += 1
            return None
        if call.unplaced is not None:
            arrival, items, chain, opening = call.unplaced
            call.unplaced = None
            if late is not None:
                arrival = arrival._replace(headers=late.headers, client_metadata=late.client_metadata)
            self.placement.place(call, arrival, items, chain, opening)
        first_time = call.rank < 0
        call.rank = rank
        self._finished.put(event_id, call)
        self.open_calls.pop(event_id, None)
        self.placement.take_answer(call)
        record = call.final = self._final_record(call, ending)
        sent = ending.outcome != "rejected" and not ending.response_cache_hit
        self.placement.leave(call, record["ended_us"], sent=sent)
        self.placement.remember_answer(record, ending.tool_call_ids)
        call.entry = None
        self._emit(record)
        self.counts[f"final_{ending.outcome}"] += 1
        if not first_time:
            self.counts["outcome_revised"] += 1
        if self.on_final is not None:
            self.on_final(record, call, not first_time)
        return record

    def _final_record(self, call: OpenCall, ending: Ending) -> dict[str, Any]:
        record = dict(call.record)
        received = int(record["started_us"])
        elapsed_us = (time.monotonic() - call.mono) * 1e6
        before_us = max(0, call.seen_us - received)
        lag_us = 0.0
        if ending.ended_us is not None:
            # The end was stamped on the wall clock before this code ran: take only that lag from it, within
            # the monotonic interval, so that a stepped clock cannot bend the duration.
            lag_us = min(max(0.0, now_us() - ending.ended_us), elapsed_us)
        duration_us = before_us + elapsed_us - lag_us

        def since_receipt(instant_us: int | None) -> float | None:
            if instant_us is None:
                return None
            ms = (instant_us - received) / 1e3
            return round(ms, 3) if -1.0 <= ms <= duration_us / 1e3 + 1.0 else None

        overhead = since_receipt(ending.handoff_us)
        ttft = since_receipt(ending.first_token_us) if record["stream"] else None
        usage = ending.usage
        record |= {
            "stage": "final",
            "outcome": ending.outcome,
            "ended_us": received + int(duration_us),
            "duration_ms": round(duration_us / 1e3, 3),
            "overhead_ms": overhead,
            "pre_call_ms": None if overhead is None else round(max(0.0, overhead - before_us / 1e3), 3),
            "ttft_ms": ttft,
            "model": ending.model,
            "deployment_id": ending.deployment_id,
            "provider": ending.provider,
            "input_tokens": usage.input,
            "cached_tokens": usage.cached,
            "cache_write_tokens": usage.cache_write,
            "output_tokens": usage.output,
            "reasoning_tokens": usage.reasoning,
            "usage_source": usage.source,
            "plugin_ms": round(call.plugin_s * 1e3, 3),
            "attempts": ending.attempts,
            "error_class": ending.error_class,
            "status_code": ending.status_code,
            "response_cache_hit": ending.response_cache_hit,
            "litellm_call_id": record["litellm_call_id"] or ending.litellm_call_id,
            "degraded": ending.degraded or None,
        }
        if ending.tool_calls is not None:
            record |= ending.tool_calls.fields()
        if call.counting is not None:
            record |= {k: v for k, v in call.counting.facts().items() if k in FIELD_NAMES and v is not None}
        if usage.suspect:
            self.counts["suspect_usage"] += 1
        return record

    def _close_aborted(self, call: OpenCall) -> None:
        ended = None
        if call.left_mono is not None:
            ended = now_us() - int((time.monotonic() - call.left_mono) * 1e6)
        self.finish(call, Ending("aborted", ended_us=ended, error_class="ClientDisconnected"))

    def left(self, call: OpenCall) -> None:
        """Note that the proxy is done with the request of *call*, however it ended."""
        call.left_mono = time.monotonic()
        if call.rank < 0:
            self._left.append(call.event_id)

    def close_stale(self) -> bool:
        """Close some of the calls that nothing will end as aborted (a later success still wins).

        Those are calls whose request task ended without any event (the client went away before the first
        token), and calls open for longer than any call takes.

        Returns:
            Whether more are waiting: a mass departure is closed bit by bit, for the event loop belongs to the
            requests.
        """
        until = time.monotonic() + _CLOSING_S
        while stale := self._stale():
            for call in stale:
                self._close_aborted(call)
            self.counts["watchdog_aborted"] += len(stale)
            if time.monotonic() > until:
                return True
        return False

    def _stale(self) -> list[OpenCall]:
        """Return the next few stale calls; both tables are in the order of time."""
        now = time.monotonic()
        stale: list[OpenCall] = []
        while self._left and len(stale) < _CLOSING_BATCH:
            call = self.open_calls.get(self._left[0])
            if call is not None:
                if call.left_mono is None or call.left_mono > now - self._settings.left_grace_s:
                    break
                stale.append(call)
            self._left.popleft()
        if not stale:
            for call in islice(self.open_calls.values(), _CLOSING_BATCH):
                if call.mono >= now - self._settings.open_timeout_s:
                    break
                stale.append(call)
        return stale
