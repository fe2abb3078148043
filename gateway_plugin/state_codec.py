"""What one worker tells the others about a stream: one compact value, read back without trust.

A JSON header line, then the arrays of every kept head as 64-bit little-endian integers. A value that is not
exactly of this form, or of another version, is no value.
"""

from __future__ import annotations

import sys
from array import array
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from gateway_plugin.prefix import Chain, Head
from gateway_plugin.state import Stream

VERSION: Final = 1

#: A value larger than this is not written: prompts of many thousand messages in several branches.
MAX_BYTES: Final = 1 << 20
_MAX_HEADS: Final = 64


@dataclass(slots=True)
class Known:
    """What another worker knew of a stream when it last ended a call of it."""

    event_id: str | None = None
    model: str | None = None
    end_us: int | None = None
    tool_set: int | None = None
    turn_id: str | None = None
    turn_index: int = 0
    call_index: int = 0
    last_chain: Chain | None = None
    heads: dict[str, list[Head]] = field(default_factory=dict)


def encode(stream: Stream) -> bytes | None:
    """Return the value for *stream*; None when it would be too large."""
    lane = stream.work
    rows: list[list[Any]] = []
    arrays: list[bytes] = []
    last = None
    for model, heads in stream.heads.items():
        for head in heads:
            chain = head.chain
            if chain is lane.chain:
                last = len(rows)
            rows.append(
                [
                    model,
                    len(chain.digests),
                    head.touched_us,
                    head.side,
                    chain.tools_digest,
                    chain.system_digest,
                    chain.tool_count,
                    chain.tail_start,
                    chain.truncated,
                ]
            )
            arrays += [_little(chain.digests), _little(chain.ends)]
    header = orjson.dumps(
        {
            "v": VERSION,
            "event": lane.event_id,
            "model": lane.model,
            "end": lane.end_us,
            "tool_set": lane.tool_set,
            "turn": [stream.turn_id, stream.turn_index, stream.call_index],
            "last": last,
            "heads": rows,
        }
    )
    value = b"".join([header, b"\n", *arrays])
    return value if len(value) <= MAX_BYTES else None


def _little(values: array[int]) -> bytes:
    if sys.byteorder == "little":
        return values.tobytes()
    swapped = array("Q", values)
    swapped.byteswap()
    return swapped.tobytes()


def decode(value: bytes) -> Known | None:
    """Return what *value* tells, or None when it is not a value of ours."""
    try:
        return _decode(value)
    except (ValueError, TypeError, KeyError, IndexError, OverflowError):
        return None


def _decode(value: bytes) -> Known | None:
    line, _, body = value.partition(b"\n")
    header = orjson.loads(line)
    if header["v"] != VERSION or len(header["heads"]) > _MAX_HEADS:
        return None
    known = Known(
        event_id=_optional(header["event"], str),
        model=_optional(header["model"], str),
        end_us=_optional(header["end"], int),
        tool_set=_optional(header["tool_set"], int),
        turn_id=_optional(header["turn"][0], str),
        turn_index=int(header["turn"][1]),
        call_index=int(header["turn"][2]),
    )
    position = 0
    for number, row in enumerate(header["heads"]):
        model, length, touched, side, tools, system, tool_count, tail, truncated = row
        size = 8 * int(length)
        digests, ends = body[position : position + size], body[position + size : position + 2 * size]
        position += 2 * size
        if length < 0 or len(ends) != size:
            return None
        chain = Chain(
            digests=_array(digests),
            ends=_array(ends),
            tools_digest=int(tools),
            system_digest=int(system),
            tool_count=int(tool_count),
            tail_start=int(tail),
            truncated=bool(truncated),
        )
        known.heads.setdefault(str(model), []).append(Head(chain, _optional(touched, int), bool(side)))
        if number == header["last"]:
            known.last_chain = chain
    return known if position == len(body) else None


def _array(raw: bytes) -> array[int]:
    values = array("Q")
    values.frombytes(raw)
    if sys.byteorder != "little":
        values.byteswap()
    return values


def _optional(value: Any, kind: type) -> Any:
    if value is None or type(value) is kind:
        return value
    raise TypeError(kind.__name__)
