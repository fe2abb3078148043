"""Weka and AgentX session traces: one session a record, its calls with block ids and timings, no text.

Times are seconds since the session's start, so there is no calendar; every session gets an instant of its own
out of its content, the same in every import. Block ids are local to a session. A call is user-initiated when
its input holds no tool result.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from pipeline.extract.traces.blocks import BlockTouches, Run, prefix_fields, runs_of
from pipeline.extract.traces.documents import Head, Record, Rejected
from pipeline.extract.traces.needs import Need
from pipeline.extract.traces.source import (
    EPOCH_US,
    BadRowError,
    Event,
    Item,
    Reading,
    Source,
    amount,
    call,
    count,
    each,
    rejected,
    text,
)

KIND: Final = "weka"
#: Sessions start on whole minutes within this many minutes of the epoch: where, their content says.
_SPREAD_MINUTES: Final = 4 * 24 * 60


def _matches(head: Head) -> bool:
    requests = head.record.get("requests")
    return isinstance(requests, list) and "block_size" in head.keys


def _read(records: Iterable[Record | Rejected], reading: Reading) -> Iterator[Item]:
    return each(records, lambda record: _Session(record, reading).items())


class _Session:
    """One session on its way to events."""

    def __init__(self, record: Record, reading: Reading) -> None:
        trace = record.value
        self._record = record
        name = text(trace.get("id"))
        if name is None:
            raise BadRowError("no id")
        if not isinstance(trace.get("requests"), list):
            raise BadRowError("no requests")
        block = count(trace.get("block_size"), "block_size", needed=True)
        if not block:
            raise BadRowError("block_size is 0")
        self._block = block
        self._requests: list[Any] = trace["requests"]
        # Ids such as trace_0002 are unique in one collection only: the content keeps sessions apart, and is
        # the same whether blocks are run-length encoded or not.
        seal = hashlib.blake2b(repr(_shape(self._requests)).encode(), digest_size=8)
        self._key = f"{reading.dataset}/{name}/{seal.hexdigest()}"
        self._id = name
        self._start_us = EPOCH_US + int.from_bytes(seal.digest()) % _SPREAD_MINUTES * 60_000_000
        self._touches: dict[tuple[str, str], BlockTouches] = {}
        self._number = 0

    def items(self) -> Iterator[Item]:
        """Events of all calls, subagents included, in the order of the record."""
        return self._stream(self._requests, "main", None, 0.0, "")

    def _stream(
        self, requests: Sequence[Any], agent: str, parent: str | None, offset_s: float, place: str
    ) -> Iterator[Item]:
        for position, request in enumerate(requests, 1):
            part = f"{place}, request {position}"
            try:
                if not isinstance(request, dict):
                    raise BadRowError("request is not an object")
                began = offset_s + (amount(request.get("t"), "t", needed=True) or 0.0)
                if request.get("type") == "subagent":
                    children = request.get("requests")
                    name = text(request.get("agent_id"))
                    if not isinstance(children, list) or name is None:
                        raise BadRowError("subagent without agent_id or requests")
                    yield from self._stream(children, name, agent, began, part)
                    continue
                yield self._call(request, agent, parent, began)
            except BadRowError as reason:
                yield rejected(self._record, str(reason), part)

    def _call(self, request: dict[str, Any], agent: str, parent: str | None, began: float) -> Event:
        took = amount(request.get("api_time"), "api_time")
        ttft = amount(request.get("ttft"), "ttft")
        tokens = count(request.get("in"), "in", needed=True) or 0
        kinds = request.get("input_types")
        initiator = "unknown"
        if isinstance(kinds, list):
            initiator = "agent" if "tool_result" in kinds else "user"
        model = text(request.get("model"))
        runs = request.get("runs")
        if isinstance(runs, str):
            raise BadRowError(runs)
        prefix: dict[str, Any] = {}
        if runs is not None:
            touches = self._touches.setdefault((agent, model or ""), BlockTouches())
            # A missing length of a call counts as 0 for the age of its blocks.
            prefix = prefix_fields(touches, runs, self._block, tokens, began, began + (took or 0.0))
        self._number += 1
        return call(
            KIND,
            f"{self._key}/{self._number:06d}",
            self._start_us + round(began * 1e6),
            duration_ms=None if took is None else took * 1000,
            session_key=self._key,
            session_id=self._id,
            session_source=KIND,
            session_evidence="E1",
            agent_id=agent,
            agent_kind="main" if parent is None else "subagent",
            parent_agent_id=parent,
            turn_evidence="E5" if initiator == "unknown" else "E3",
            initiator=initiator,
            client="claude-code",
            route="messages",
            stream={"s": True, "n": False}.get(str(request.get("type"))),
            model_group=model,
            model=model,
            provider="anthropic",
            input_tokens=tokens,
            output_tokens=count(request.get("out"), "out"),
            ttft_ms=None if ttft is None else ttft * 1000,
            **prefix,
        )


def _pack(request: dict[str, Any]) -> list[Run] | str | None:
    """The blocks of a call as runs, however they are written; None where it has none, text where unreadable.

    They replace what the record holds: a plain list of ids is walked once.
    """
    packed, plain = request.pop("hash_ids_rle", None), request.pop("hash_ids", None)
    runs: list[Run] | str | None = None
    try:
        if isinstance(packed, list):
            runs = [(int(first), int(length)) for first, length in packed if int(length) > 0]
        elif isinstance(plain, list):
            runs = runs_of(map(int, plain))
    except (TypeError, ValueError, OverflowError):
        runs = "block ids are no whole numbers"
    request["runs"] = runs
    return runs


def _shape(requests: Sequence[Any]) -> list[Any]:
    """What tells two sessions apart: times, models, sizes and blocks of their calls."""
    shape: list[Any] = []
    for request in requests:
        if not isinstance(request, dict):
            continue
        if isinstance(request.get("requests"), list):
            shape.append((request.get("t"), request.get("agent_id"), _shape(request["requests"])))
        else:
            named = (request.get(k) for k in ("t", "model", "in", "out"))
            shape.append((*named, _pack(request)))
    return shape


SOURCE: Final = Source(
    kind=KIND,
    title="Weka and AgentX session traces",
    gives=frozenset({Need.SESSIONS, Need.INITIATORS, Need.DURATIONS, Need.INPUT, Need.OUTPUT, Need.BLOCKS}),
    sometimes=frozenset({Need.FIRST_TOKEN}),
    lacks={
        Need.CACHED: "what the provider reused was not recorded; block ids give the potential instead",
        Need.CALENDAR: "times are seconds since each session's start, so hours, days and what ran at once "
        "are unknown",
    },
    matches=_matches,
    read=_read,
    notes=(
        "Block ids are local to a session: sharing between sessions is not in the potential prefix.",
        "A call without a recorded length counts as 0 s.",
    ),
)
