"""Mooncake request traces: arrival, lengths and global block ids, no session and no end of a call.

Ids of 512-token blocks are the same over the whole trace, so the prefix that a call shares is the one with
any earlier call at all. With neither durations nor sessions, a block was touched when its call arrived.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from pipeline.extract.traces.blocks import BlockTouches, prefix_fields, runs_of
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
)

KIND: Final = "mooncake"
BLOCK_TOKENS: Final = 512


def _matches(head: Head) -> bool:
    return {"timestamp", "input_length", "output_length", "hash_ids"} <= head.keys


def _read(records: Iterable[Record | Rejected], reading: Reading) -> Iterator[Item]:
    touches = BlockTouches()

    def convert(record: Record) -> Event:
        row = record.value
        arrived_ms = amount(row.get("timestamp"), "timestamp", needed=True) or 0.0
        tokens = count(row.get("input_length"), "input_length", needed=True) or 0
        output = count(row.get("output_length"), "output_length")
        ids = row.get("hash_ids")
        if not isinstance(ids, list) or not all(type(n) is int for n in ids):
            raise BadRowError("hash_ids are no list of whole numbers")
        at_s = arrived_ms / 1000
        event = call(
            KIND,
            reading.row_id(record.place),
            EPOCH_US + round(arrived_ms * 1000),
            input_tokens=tokens,
            output_tokens=output,
        )
        return event | prefix_fields(touches, runs_of(ids), BLOCK_TOKENS, tokens, at_s, at_s)

    return each(records, convert)


SOURCE: Final = Source(
    kind=KIND,
    title="Mooncake request traces",
    gives=frozenset({Need.INPUT, Need.OUTPUT, Need.BLOCKS}),
    lacks={
        Need.CACHED: "what was reused was not recorded; block ids give the potential instead",
        Need.CALENDAR: "times are milliseconds since the trace's start, so hours and days are unknown",
    },
    matches=_matches,
    read=_read,
    notes=(
        "Potential prefix over the whole trace: block ids are global and there are no sessions, so it is "
        "what one cache for everybody could reuse, not the reuse within a session.",
        "Ends of calls are unknown: a block's age counts from the arrival of the last call that held it.",
    ),
)
