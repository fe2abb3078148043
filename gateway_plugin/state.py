"""What this worker remembers of each stream (session and agent): a bounded LRU, never awaited.

The state only improves what the request itself tells: it links a call to the previous one, keeps the prefix
chains of the last few distinct heads per model, gives the turn of a call that carries no human text, and
tells a subagent that its client does not name from the main agent.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import xxhash

from gateway_plugin import prefix
from gateway_plugin.prefix import Chain, Head
from gateway_plugin.turns import Turn


@dataclass(slots=True)
class Stream:
    """History of one (session, agent)."""

    last_model: str | None = None
    last_event_id: str | None = None
    last_end_us: int | None = None
    last_chain: Chain | None = None
    last_tool_set: int | None = None
    in_flight: int = 0
    turn_id: str | None = None
    turn_index: int = 0
    call_index: int = 0
    heads: OrderedDict[str, list[Head]] = field(default_factory=OrderedDict)

    @property
    def nbytes(self) -> int:
        """Approximate memory of the stream, bytes."""
        return 500 + sum(h.chain.nbytes for heads in self.heads.values() for h in heads)


@dataclass(slots=True)
class _Known:
    """Heads by which the agents of a session are told apart when the client does not name them."""

    main_system: set[int] = field(default_factory=set)
    main_first_text: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class PrefixFacts:
    """Prefix and lineage of one call against its stream."""

    shared_bytes: int
    steps: list[tuple[float, int]]
    reason: str
    idle_ms: float | None
    previous_event_id: str | None


class SessionState:
    """LRU of streams, bounded by number and by bytes. Single-threaded: used on the event loop only."""

    def __init__(self, *, max_streams: int, max_bytes: int, heads_per_model: int, seed: int) -> None:
        self._streams: OrderedDict[tuple[str, str], Stream] = OrderedDict()
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._by_text: OrderedDict[tuple[str, int], tuple[str, str | None]] = OrderedDict()
        self._max_streams = max_streams
        self._max_bytes = max_bytes
        self._heads = heads_per_model
        self._seed = seed
        self._bytes = 0
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._streams)

    @property
    def nbytes(self) -> int:
        """Approximate memory of all streams, bytes."""
        return self._bytes

    def agent_of(self, session_key: str, system_digest: int, opening: str, message_count: int) -> str:
        """Return ``main`` or an inferred subagent id for a call whose client names no agent.

        A call belongs to the main agent when its system prompt or its first human text is one that the main
        agent of this session has used; otherwise a short conversation is a subagent, named by its head.
        """
        text = self._text_key("", opening)[1]
        known = self._known.get(session_key)
        if known is None:
            known = self._known[session_key] = _Known()
            while len(self._known) > self._max_streams:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(session_key)
            same = system_digest in known.main_system or (opening != "" and text in known.main_first_text)
            inferred = f"sub-{system_digest:016x}"
            if not same and (message_count <= 3 or (session_key, inferred) in self._streams):
                return inferred
        if len(known.main_system) < 16:
            known.main_system.add(system_digest)
        if opening and len(known.main_first_text) < 16:
            known.main_first_text.add(text)
        return "main"

    def link_text(self, user: str, text: str, session: tuple[str, str | None]) -> None:
        """Remember which session of *user* a conversation that starts with *text* belongs to."""
        key = self._text_key(user, text)
        self._by_text[key] = session
        self._by_text.move_to_end(key)
        while len(self._by_text) > self._max_streams:
            self._by_text.popitem(last=False)

    def session_of_text(self, user: str, text: str) -> tuple[str, str | None] | None:
        """Return the session of *user* whose conversation starts with *text*, if this worker saw it.

        Some clients send side calls (titles) without the session's headers; the human text is their only tie.
        """
        return self._by_text.get(self._text_key(user, text))

    def _text_key(self, user: str, text: str) -> tuple[str, int]:
        return user, xxhash.xxh3_64_intdigest(text[:200].encode("utf-8", "surrogatepass"), seed=self._seed)

    def stream(self, session_key: str, agent_id: str) -> Stream:
        """Return the stream, made when new and marked as used."""
        key = (session_key, agent_id)
        stream = self._streams.get(key)
        if stream is None:
            stream = self._streams[key] = Stream()
            self._bytes += stream.nbytes
            self._shrink()
        else:
            self._streams.move_to_end(key)
        return stream

    def _shrink(self) -> None:
        while len(self._streams) > self._max_streams or (
            self._bytes > self._max_bytes and len(self._streams) > 1
        ):
            _, old = self._streams.popitem(last=False)
            self._bytes -= old.nbytes
            self.evicted += 1

    def begin(
        self,
        stream: Stream,
        chain: Chain,
        body: Mapping[str, Any],
        *,
        model: str,
        event_id: str,
        now_us: int,
        compaction_hint: bool,
    ) -> PrefixFacts:
        """Compare a call with its stream and enter it as in flight. Never raises on odd bodies."""
        before = stream.nbytes
        heads = stream.heads.get(model, [])
        points = prefix.steps(heads, chain, now_us)
        tools = body.get("tools")
        last = stream.last_chain
        tool_set = stream.last_tool_set
        if last is None or last.tools_digest != chain.tools_digest:
            # The order-free digest costs a sort of every schema: only when the catalogue differs.
            tool_set = prefix.tool_set_digest(tools, self._seed) if isinstance(tools, list) else None
        reason = prefix.break_reason(
            last,
            chain,
            same_model=stream.last_model == model,
            compaction_hint=compaction_hint,
            previous_tool_set=stream.last_tool_set,
            tool_set=tool_set,
        )
        idle = None
        if stream.last_event_id is not None:
            busy = stream.in_flight > 0 or stream.last_end_us is None
            idle = 0.0 if busy else max(0.0, (now_us - (stream.last_end_us or now_us)) / 1e3)
        facts = PrefixFacts(points[-1][1] if points else 0, points, reason, idle, stream.last_event_id)
        self._remember(stream, chain, model)
        stream.last_tool_set = tool_set
        stream.last_chain, stream.last_model, stream.last_event_id = chain, model, event_id
        stream.in_flight += 1
        self._bytes += stream.nbytes - before
        self._shrink()
        return facts

    def _remember(self, stream: Stream, chain: Chain, model: str) -> None:
        """Keep *chain* as a head of *model*; heads that it extends are covered by it and go."""
        heads = stream.heads.setdefault(model, [])
        stream.heads.move_to_end(model)
        heads[:] = [h for h in heads if prefix.shared_segments(h.chain, chain) < len(h.chain.digests)]
        heads.append(Head(chain, None))
        del heads[: -self._heads]
        while len(stream.heads) > 4:
            stream.heads.popitem(last=False)

    @staticmethod
    def settle_turn(stream: Stream, turn: Turn) -> tuple[str | None, int | None, int | None]:
        """Return (turn id, turn index, call index) of a call and move the stream on.

        A client's own turn id wins. Without one, only a user-initiated call starts a turn: any other stays in
        the turn that the stream is in, whatever a compaction or an edit did to its history.
        """
        starts = turn.evidence == "E1" and turn.turn_id is not None
        starts = starts or (turn.initiator == "user" and turn.turn_id is not None)
        if not starts and stream.turn_id is not None:
            stream.call_index = max(turn.call_index or 0, stream.call_index + 1)
            return stream.turn_id, stream.turn_index or None, stream.call_index
        if turn.turn_id is None:
            return None, turn.turn_index, turn.call_index
        if turn.turn_id != stream.turn_id:
            stream.turn_id = turn.turn_id
            stream.turn_index = turn.turn_index or stream.turn_index + 1
            stream.call_index = turn.call_index or 1
        else:
            stream.call_index = max(turn.call_index or 0, stream.call_index + 1)
        return stream.turn_id, stream.turn_index, stream.call_index

    @staticmethod
    def end(stream: Stream, chain: Chain, model: str, end_us: int, *, sent: bool = True) -> None:
        """Enter the end of a call at *end_us*: its chain was last touched then.

        A call that was refused before it reached a provider (*sent* false) leaves no prefix behind.
        """
        stream.in_flight = max(0, stream.in_flight - 1)
        stream.last_end_us = max(end_us, stream.last_end_us or 0)
        heads = stream.heads.get(model)
        if not heads:
            return
        if not sent:
            heads[:] = [h for h in heads if h.chain is not chain]
            return
        for head in heads:
            if head.chain is chain:
                head.touched_us = max(end_us, head.touched_us or 0)
