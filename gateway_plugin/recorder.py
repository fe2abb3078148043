"""From facts about a request and its end to event records: the heart of the plugin, without LiteLLM.

:meth:`Recorder.begin` runs on the request path: identity, turn, digests, prefix, an ``open`` record.
:meth:`Recorder.finish` runs after the answer: one ``final`` record, whatever fires how often.
"""

from __future__ import annotations

import dataclasses
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final

from gateway_plugin import continuation, prefix, turns
from gateway_plugin import identity as ident
from gateway_plugin.agents import MAIN, Agents
from gateway_plugin.call import Arrival, Ending, OpenCall, now_us
from gateway_plugin.event import FIELD_NAMES, OUTCOME_RANK, SCHEMA_VERSION, new_event_id
from gateway_plugin.hashing import Hasher
from gateway_plugin.sessions import Request, canonical_headers
from gateway_plugin.settings import PluginSettings
from gateway_plugin.shared_state import SharedState
from gateway_plugin.state import SessionState
from gateway_plugin.text import storable

#: Ended calls remembered so that a second ending of the same call is a counted no-op.
_FINISHED_MAX: Final = 10_000
_OPEN_MAX: Final = 50_000


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
        self.state = SessionState(
            max_streams=settings.max_streams,
            max_bytes=settings.max_state_bytes,
            heads_per_model=settings.heads_per_model,
            seed=seed,
        )
        self.agents = Agents(settings.max_streams)
        #: Streams of other workers, when they share them.
        self.shared: SharedState | None = None
        self.open_calls: OrderedDict[str, OpenCall] = OrderedDict()
        self._finished: OrderedDict[str, OpenCall] = OrderedDict()
        self.counts: Counter[str] = Counter()
        #: Called with each final record, its call, and whether it revises an earlier ending of the call.
        self.on_final: Callable[[dict[str, Any], OpenCall, bool], None] | None = None

    # -- request path

    def begin(self, arrival: Arrival) -> OpenCall:
        """Enter one request and emit its ``open`` record."""
        started = time.monotonic()
        body = arrival.body
        items = turns.items_of(body)
        chain = prefix.build(body, items, seed=self._seed, max_bytes=self._settings.max_prompt_bytes)
        # The text, not the message: harnesses add and drop injected parts beside it from call to call.
        opening = turns.first_human_text(items)
        chain.first_user_digest = prefix.text_digest(opening, self._seed)
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
        self._place(call, arrival, items, chain, opening, link=not headerless)
        if headerless and record["session_evidence"] != "E1":
            call.unplaced = (arrival, items, chain, opening)
        elif headerless:
            self._place(call, arrival, items, chain, opening)
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

    def _place(
        self,
        call: OpenCall,
        arrival: Arrival,
        items: list[Any],
        chain: prefix.Chain,
        opening: str,
        *,
        link: bool = True,
    ) -> None:
        """Find who calls and the call's turn; with *link* also its place in the stream and its prefix."""
        body, hasher, record = arrival.body, self._hasher, call.record
        request = Request(
            headers=canonical_headers(arrival.headers),
            body=body,
            metadata=arrival.client_metadata,
            proxy_session=arrival.proxy_session,
        )
        material = (f"{chain.system_digest:016x}", f"{chain.first_user_digest:016x}" if opening else "")
        who = ident.resolve(
            request,
            arrival.auth,
            hasher,
            head_material=material,
            user_precedence=self._settings.user_precedence,
        )
        if link:
            agent_id, agent_kind, side = self._agent(who, chain, body, items)
            who = self._tie_side_call(who, opening, beside=side is not None)
        else:
            agent_id, agent_kind, side = who.agent_id, who.agent_kind, None
        turn = turns.analyse(
            body,
            who.hints,
            hasher,
            session_key=who.session_key,
            agent_id=agent_id,
            agent_kind=agent_kind,
            side_evidence=side,
        )
        record |= {
            "session_key": who.session_key,
            "session_id": who.session_id,
            "session_source": who.session_source,
            "session_evidence": who.session_evidence,
            "agent_id": agent_id,
            "agent_kind": agent_kind,
            "parent_agent_id": who.parent_agent_id or (MAIN if agent_kind == "subagent" else None),
            "turn_id": turn.turn_id,
            "turn_index": turn.turn_index,
            "call_index": turn.call_index,
            "turn_evidence": turn.evidence,
            "initiator": turn.initiator,
            "client": who.client,
            "client_version": who.client_version,
            "user_hash": who.user_hash,
            "user_source": who.user_source,
            "tool_ms": who.hints.tool_ms,
        }
        if link and who.session_key and items:
            self._link(call, arrival, chain, turn, who)

    def _link(
        self, call: OpenCall, arrival: Arrival, chain: prefix.Chain, turn: turns.Turn, who: ident.Identity
    ) -> None:
        record = call.record
        beside = turn.initiator == "auxiliary"
        stream = self.state.stream(str(who.session_key), str(record["agent_id"]))
        call.entry = self.state.begin(
            stream,
            chain,
            arrival.body,
            model=str(record["model_group"]),
            event_id=call.event_id,
            now_us=arrival.received_us,
            compaction_hint=turn.after_compaction,
            side=beside,
        )
        if self.shared is not None:
            call.lookup = self.shared.look_up(str(who.session_key), str(record["agent_id"]))
        facts = call.entry.facts
        call.entry.own_turn, call.entry.own_turn_index = turn.turn_id, turn.turn_index
        turn_id, turn_index, call_index = self.state.settle_turn(stream, turn, side=beside)
        record |= {
            "turn_id": turn_id,
            "turn_index": turn_index,
            "call_index": call_index,
            "shared_bytes": facts.shared_bytes,
            "prefix_steps": [[round(age, 3), size] for age, size in facts.steps],
            "break_reason": facts.reason,
            # A compacted conversation shows its summary in every later call; only the first one broke.
            "compaction_hint": True
            if who.hints.after_compaction or (turn.after_compaction and facts.reason == "compaction")
            else None,
            "idle_ms": facts.idle_ms,
            "previous_event_id": facts.previous_event_id,
            "state": "local",
        }

    def _agent(
        self, who: ident.Identity, chain: prefix.Chain, body: Mapping[str, Any], items: list[Any]
    ) -> tuple[str, str, str | None]:
        """Return (agent id, kind, evidence that the call is beside the work or None).

        What a client states about its agents is never second-guessed.
        """
        told = who.hints.request_class is not None or who.hints.initiator is not None
        side = None
        if not told and not who.hints.compaction and items:
            if turns.is_side_call(body, items):
                side = "E3"
            elif (
                who.session_evidence == "E1"
                and who.agent_kind == MAIN
                and self.agents.is_beside(str(who.session_key), chain, len(items))
            ):
                side = "E4"
        if who.agent_kind != MAIN or not items or not who.session_key:
            return who.agent_id, who.agent_kind, side
        if side is not None or who.hints.initiator == "auxiliary":
            return MAIN, MAIN, side
        agent = self.agents.agent_of(who.session_key, chain, len(items))
        if who.hints.names_agents or agent == MAIN:
            return MAIN, MAIN, None
        return agent, "subagent", None

    def _tie_side_call(self, who: ident.Identity, opening: str, *, beside: bool) -> ident.Identity:
        """Give a call beside the work that names no session the session whose opening text it quotes."""
        if not opening or who.session_key is None:
            return who
        user = who.user_hash or ""
        if who.session_evidence == "E1":
            if not beside:
                self.agents.link(user, opening, (who.session_key, who.session_id))
            return who
        found = self.agents.linked(user, opening) if beside else None
        if found is None:
            return who
        return dataclasses.replace(
            who, session_key=found[0], session_id=found[1], session_source="quoted_opening"
        )

    def _stored(self, domain: str, *values: int) -> str | None:
        """Return what may be stored of an in-memory digest: a keyed one, 16 hex; None for nothing."""
        if not any(values):
            return None
        return self._hasher.digest(domain, b"".join(v.to_bytes(8, "big") for v in values))

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
                arrival = dataclasses.replace(
                    arrival, headers=late.headers, client_metadata=late.client_metadata
                )
            self._place(call, arrival, items, chain, opening)
        first_time = call.rank < 0
        call.rank = rank
        self._finished[event_id] = call
        while len(self._finished) > _FINISHED_MAX:
            self._finished.popitem(last=False)
        self.open_calls.pop(event_id, None)
        if first_time and call.lookup is not None and call.entry is not None:
            record = call.record
            record["state"] = call.lookup.state
            if call.lookup.state == "late":
                self.counts["state_late"] += 1
            if call.lookup.known is not None:
                continuation.merge(record, call.entry, call.lookup.known, self.state)
            call.lookup = None
        record = call.final = self._final_record(call, ending)
        if call.entry is not None:
            if first_time:
                sent = ending.outcome != "rejected" and not ending.response_cache_hit
                self.state.end(call.entry, record["ended_us"], sent=sent)
                if sent and self.shared is not None:
                    self.shared.publish(record["session_key"], record["agent_id"], call.entry.stream)
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

    def close_stale(self) -> int:
        """Close calls that nothing will end as aborted (a later success still wins); return how many.

        Those are calls whose request task ended without any event (the client went away before the first
        token), and calls open for longer than any call takes.
        """
        now = time.monotonic()
        oldest, left = now - self._settings.open_timeout_s, now - self._settings.left_grace_s
        stale = [
            c
            for c in self.open_calls.values()
            if c.mono < oldest or (c.left_mono is not None and c.left_mono <= left)
        ]
        for call in stale:
            self._close_aborted(call)
        if stale:
            self.counts["watchdog_aborted"] += len(stale)
        return len(stale)
