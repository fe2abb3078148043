"""What this worker remembers of each stream (session and agent): a bounded LRU, never awaited.

The state only improves what the request itself tells: it links a call to the previous one, keeps the prefix
chains of the last few distinct heads per model, gives the turn of a call that carries no human text, and
tells a subagent that its client does not name from the main agent.

Calls beside the work (titles, topics) share the heads of their stream but not its line of calls, so that a
title on a small model is no model switch of the work around it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from gateway_plugin import canonical, prefix
from gateway_plugin.prefix import Chain, Head
from gateway_plugin.recent import Recent
from gateway_plugin.turns import Turn

#: Models of one stream whose heads are kept, and catalogues whose order-free digest is remembered.
_MODELS_PER_STREAM: Final = 4
_TOOL_SETS: Final = 512


@dataclass(slots=True)
class Lane:
    """A line of calls inside a stream: what the latest of them was."""

    model: str | None = None
    event_id: str | None = None
    end_us: int | None = None
    chain: Chain | None = None
    tool_set: int | None = None
    in_flight: int = 0


@dataclass(slots=True)
class Stream:
    """History of one (session, agent)."""

    work: Lane = field(default_factory=Lane)
    side: Lane = field(default_factory=Lane)
    turn_id: str | None = None
    turn_index: int = 0
    call_index: int = 0
    heads: OrderedDict[str, list[Head]] = field(default_factory=OrderedDict)
    #: Digest of the value that other workers were last given; 0 for none.
    published: int = 0
    #: False once the store let go of it: calls in flight may still hold it, its bytes are accounted no more.
    kept: bool = True

    @property
    def nbytes(self) -> int:
        """Approximate memory of the stream, bytes."""
        return 700 + sum(h.chain.nbytes for heads in self.heads.values() for h in heads)


class PrefixFacts(NamedTuple):
    """Prefix and lineage of one call against its stream."""

    shared_bytes: int
    steps: list[tuple[float, int]]
    reason: str
    idle_ms: float | None
    previous_event_id: str | None


@dataclass(slots=True)
class Entry:
    """A call's place in its stream; what it replaced comes back if it never reached a provider."""

    stream: Stream
    lane: Lane
    chain: Chain
    model: str
    event_id: str
    facts: PrefixFacts
    replaced: list[Head]
    previous: tuple[str | None, str | None, Chain | None, int | None]
    previous_end_us: int | None
    tool_set: int | None
    compaction_hint: bool
    own_turn: str | None = None
    own_turn_index: int | None = None


class SessionState:
    """LRU of streams, bounded by number and by bytes. Single-threaded: used on the event loop only."""

    def __init__(self, *, max_streams: int, max_bytes: int, heads_per_model: int, seed: int) -> None:
        self._streams: Recent[tuple[str, str], Stream] = Recent(max_streams)
        self._tool_sets: OrderedDict[int, int] = OrderedDict()
        self._max_bytes = max_bytes
        self._heads = heads_per_model
        self._seed = seed
        self._bytes = 0
        self.evicted = 0
        self.heads_cut = 0

    def __len__(self) -> int:
        return len(self._streams)

    @property
    def nbytes(self) -> int:
        """Approximate memory of all streams, bytes."""
        return self._bytes

    def stream(self, session_key: str, agent_id: str) -> Stream:
        """Return the stream, made when new and marked as used."""
        key = (session_key, agent_id)
        stream = self._streams.use(key)
        if stream is None:
            stream = Stream()
            self._bytes += stream.nbytes
            if (old := self._streams.put(key, stream)) is not None:
                self._evict(old)
            self._shrink()
        return stream

    def _shrink(self) -> None:
        while self._bytes > self._max_bytes and len(self._streams) > 1:
            self._evict(self._streams.forget())

    def _evict(self, old: Stream) -> None:
        self._bytes -= old.nbytes
        old.kept = False
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
        side: bool = False,
    ) -> Entry:
        """Compare a call with its stream and enter it as in flight. Never raises on odd bodies."""
        before = stream.nbytes
        lane = stream.side if side else stream.work
        points = prefix.steps(stream.heads.get(model, []), chain, now_us)
        tool_set = self.tool_set(chain, body.get("tools"))
        reason = prefix.break_reason(
            lane.chain,
            chain,
            same_model=lane.model == model,
            compaction_hint=compaction_hint,
            previous_tool_set=lane.tool_set,
            tool_set=tool_set,
        )
        idle = None
        if lane.event_id is not None:
            busy = lane.in_flight > 0 or lane.end_us is None
            idle = 0.0 if busy else max(0.0, (now_us - (lane.end_us or now_us)) / 1e3)
        facts = PrefixFacts(points[-1][1] if points else 0, points, reason, idle, lane.event_id)
        previous = (lane.model, lane.event_id, lane.chain, lane.tool_set)
        previous_end_us = lane.end_us
        replaced = self._remember(stream, chain, model, side=side)
        lane.model, lane.event_id, lane.chain, lane.tool_set = model, event_id, chain, tool_set
        lane.in_flight += 1
        self._account(stream, before)
        return Entry(
            stream,
            lane,
            chain,
            model,
            event_id,
            facts,
            replaced,
            previous,
            previous_end_us,
            tool_set,
            compaction_hint,
        )

    def tool_set(self, chain: Chain, tools: object) -> int | None:
        """Return the order-free digest of a catalogue; it sorts every schema, so it is remembered."""
        if not isinstance(tools, list) or not tools:
            return None
        known = self._tool_sets.get(chain.tools_digest)
        if known is None:
            known = canonical.tool_set_digest(tools, self._seed)
            self._tool_sets[chain.tools_digest] = known
            while len(self._tool_sets) > _TOOL_SETS:
                self._tool_sets.popitem(last=False)
        else:
            self._tool_sets.move_to_end(chain.tools_digest)
        return known

    def _account(self, stream: Stream, before: int) -> None:
        if stream.kept:
            self._bytes += stream.nbytes - before
            self._shrink()

    def _remember(self, stream: Stream, chain: Chain, model: str, *, side: bool) -> list[Head]:
        """Keep *chain* as a head of *model*; heads that it extends are covered by it and go: return those."""
        heads = stream.heads.setdefault(model, [])
        stream.heads.move_to_end(model)
        covered = [h for h in heads if prefix.shared_segments(h.chain, chain) == len(h.chain.digests)]
        if covered:
            heads[:] = [h for h in heads if h not in covered]
        heads.append(Head(chain, None, side))
        while len(heads) > self._heads:
            # Calls beside the work are short and many; one slot is theirs, the rest belongs to the work.
            beside = [i for i, h in enumerate(heads) if h.side]
            del heads[beside[0] if len(beside) > 1 else 0]
            self.heads_cut += 1
        while len(stream.heads) > _MODELS_PER_STREAM:
            stream.heads.popitem(last=False)
        return covered

    def merge_heads(self, stream: Stream, model: str, heads: list[Head]) -> None:
        """Add *heads* that another worker knows to a stream of this one, below its own."""
        before = stream.nbytes
        own = stream.heads.setdefault(model, [])
        for head in heads:
            covered = any(prefix.shared_segments(head.chain, h.chain) == len(head.chain.digests) for h in own)
            if not covered and len(own) < self._heads:
                own.insert(0, head)
        self._account(stream, before)

    @staticmethod
    def settle_turn(
        stream: Stream, turn: Turn, *, side: bool = False
    ) -> tuple[str | None, int | None, int | None]:
        """Return (turn id, turn index, call index) of a call and move the stream on.

        A turn id of the client wins. Else a turn starts only with a call whose newest block is a human text;
        any other call (the agent's loop, a continuation after a compaction or an edit, a title) stays in the
        turn that the stream is in, whatever became of its history. The call index counts
        every call of the turn that was seen: never below what the request shows, growing with side calls.
        """
        if turn.inherited and stream.turn_id not in (None, turn.turn_id):
            # A late call of an earlier turn: the stream has moved on and stays where it is.
            return turn.turn_id, turn.turn_index, turn.call_index
        starts = turn.turn_id is not None and (turn.told or turn.call_index == 1) and not side
        if (
            not starts
            and stream.turn_id is not None
            and (turn.turn_id is None or turn.turn_id != stream.turn_id)
        ):
            stream.call_index = max(turn.call_index or 0, stream.call_index + 1)
            return stream.turn_id, stream.turn_index or None, stream.call_index
        if turn.turn_id is None or (side and stream.turn_id is None):
            return turn.turn_id, turn.turn_index, turn.call_index
        if turn.turn_id != stream.turn_id:
            stream.turn_id = turn.turn_id
            stream.turn_index = turn.turn_index or stream.turn_index + 1
            stream.call_index = turn.call_index or 1
        else:
            stream.call_index = max(turn.call_index or 0, stream.call_index + 1)
        return stream.turn_id, stream.turn_index or None, stream.call_index

    def end(self, entry: Entry, end_us: int, *, sent: bool = True) -> None:
        """Enter the end of a call at *end_us*: its chain was last touched then.

        A call that was refused before it reached a provider (*sent* false) leaves no prefix behind, and
        what it had replaced stands again.
        """
        stream, lane, chain = entry.stream, entry.lane, entry.chain
        lane.in_flight = max(0, lane.in_flight - 1)
        heads = stream.heads.get(entry.model)
        if not sent:
            if lane.event_id == entry.event_id:
                lane.model, lane.event_id, lane.chain, lane.tool_set = entry.previous
            if heads is not None:
                before = stream.nbytes
                position = next((i for i, h in enumerate(heads) if h.chain is chain), None)
                if position is not None:
                    heads[position : position + 1] = entry.replaced
                    del heads[: -self._heads]
                self._account(stream, before)
            return
        lane.end_us = max(end_us, lane.end_us or 0)
        for head in heads or ():
            if head.chain is chain:
                head.touched_us = max(end_us, head.touched_us or 0)
