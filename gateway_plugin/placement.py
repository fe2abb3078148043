"""Where a call stands: who makes it, in which turn and stream, and what of its prompt was sent before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from gateway_plugin import continuation, prefix, turns
from gateway_plugin import identity as ident
from gateway_plugin.agents import MAIN, Agents
from gateway_plugin.blocks import Readings
from gateway_plugin.call import Arrival, OpenCall
from gateway_plugin.hashing import Hasher
from gateway_plugin.lineage import Descent, Lineage, Origin
from gateway_plugin.sessions import Request, canonical_headers
from gateway_plugin.settings import PluginSettings
from gateway_plugin.shared_state import SharedState
from gateway_plugin.state import SessionState


class Placement:
    """Finds the place of each call. Holds what this worker remembers of streams and agents."""

    def __init__(self, settings: PluginSettings, hasher: Hasher, *, seed: int) -> None:
        self._settings = settings
        self._hasher = hasher
        self.state = SessionState(
            max_streams=settings.max_streams,
            max_bytes=settings.max_state_bytes,
            heads_per_model=settings.heads_per_model,
            seed=seed,
        )
        self.agents = Agents(settings.max_streams)
        self.lineage = Lineage(seed)
        self.readings = Readings()
        #: Streams of other workers, when they share them.
        self.shared: SharedState | None = None
        self.counts: Counter[str] = Counter()

    def place(
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
        descent = self.lineage.descent(who.user_hash or "", items) if link else None
        who, descent = _descended(who, descent)
        if link:
            agent_id, agent_kind, side = self._agent(who, chain, body, items, descent)
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
            descent=descent if descent is not None and descent.origin.agent_id == agent_id else None,
            reading=self.readings.read(items, chain),
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
            call.lookup = self.shared.look_up(str(who.session_key), str(record["agent_id"]), stream)
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
        self,
        who: ident.Identity,
        chain: prefix.Chain,
        body: Mapping[str, Any],
        items: list[Any],
        descent: Descent | None,
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
        if descent is not None and not who.hints.names_agents:
            if descent.origin.agent_kind == MAIN:
                self.agents.learn_main(who.session_key, chain)
            return descent.origin.agent_id, descent.origin.agent_kind, None
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
        return who._replace(session_key=found[0], session_id=found[1], session_source="quoted_opening")

    def take_answer(self, call: OpenCall) -> None:
        """Improve a call that ends with what another worker knew of its stream, if that has arrived."""
        lookup, call.lookup = call.lookup, None
        if lookup is None or call.entry is None:
            return
        call.record["state"] = lookup.state
        if lookup.state == "late":
            self.counts["state_late"] += 1
        if lookup.known is not None:
            continuation.merge(call.record, call.entry, lookup.known, self.state)

    def remember_answer(self, record: Mapping[str, Any], tool_call_ids: tuple[str, ...]) -> None:
        """Remember whose answer named these tool calls, for the requests that bring their results."""
        if tool_call_ids and record["session_key"]:
            origin = Origin(
                str(record["session_key"]),
                record["session_id"],
                str(record["agent_id"]),
                str(record["agent_kind"]),
                record["turn_id"],
            )
            self.lineage.remember(record["user_hash"] or "", tool_call_ids, origin)

    def leave(self, call: OpenCall, ended_us: int, *, sent: bool) -> None:
        """Enter the end of a call into its stream; *sent* false when no provider saw it."""
        if call.entry is None:
            return
        self.state.end(call.entry, ended_us, sent=sent)
        if sent and self.shared is not None:
            self.shared.publish(
                str(call.record["session_key"]), str(call.record["agent_id"]), call.entry.stream
            )


def _descended(who: ident.Identity, descent: Descent | None) -> tuple[ident.Identity, Descent | None]:
    """Give a request that names no session the one that its tool results come from.

    An id on the wire wins: results of another session (a resumed or forked conversation) then tell nothing.
    """
    if descent is None:
        return who, None
    origin = descent.origin
    if who.session_evidence == "E1":
        return who, descent if origin.session_key == who.session_key else None
    who = who._replace(
        session_key=origin.session_key,
        session_id=origin.session_id,
        session_source="tool_call_lineage",
        session_evidence="E2",
    )
    return who, descent
