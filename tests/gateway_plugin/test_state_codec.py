from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_plugin import prefix, state_codec
from gateway_plugin.blocks import items_of
from gateway_plugin.state import SessionState, Stream
from tests.gateway_plugin.builders import TOOLS, answer, chat, user


def filled(branches: int = 2, length: int = 5) -> Stream:
    state = SessionState(max_streams=10, max_bytes=1 << 24, heads_per_model=4, seed=1)
    stream = state.stream("s", "main")
    for n in range(branches):
        body = chat(user(f"branch {n}"), *[answer(f"{i}") for i in range(length)], tools=TOOLS)
        chain = prefix.build(body, items_of(body), seed=1, max_bytes=1 << 22)
        entry = state.begin(
            stream, chain, body, model=f"m{n % 2}", event_id=f"e{n}", now_us=n, compaction_hint=False
        )
        state.end(entry, 1000 + n)
    stream.turn_id, stream.turn_index, stream.call_index = "t", 3, 7
    return stream


def test_what_is_written_is_read_back() -> None:
    stream = filled(3)
    value = state_codec.encode(stream)
    assert value is not None
    known = state_codec.decode(value)
    assert known is not None
    assert (known.event_id, known.model, known.end_us) == ("e2", "m0", 1002)
    assert (known.turn_id, known.turn_index, known.call_index) == ("t", 3, 7)
    assert known.tool_set == stream.work.tool_set
    for model, heads in stream.heads.items():
        assert [(list(h.chain.digests), list(h.chain.ends), h.touched_us) for h in heads] == [
            (list(h.chain.digests), list(h.chain.ends), h.touched_us) for h in known.heads[model]
        ]
    assert known.last_chain is not None
    assert stream.work.chain is not None
    assert list(known.last_chain.digests) == list(stream.work.chain.digests)
    assert known.last_chain.tail_start == stream.work.chain.tail_start


def test_an_empty_stream_can_be_written() -> None:
    value = state_codec.encode(Stream())
    assert value is not None
    known = state_codec.decode(value)
    assert known is not None
    assert (known.event_id, known.heads) == (None, {})


def test_a_value_above_the_bound_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_codec, "MAX_BYTES", 100)
    assert state_codec.encode(filled()) is None


def test_values_of_another_version_or_length_are_no_values() -> None:
    value = state_codec.encode(filled())
    assert value is not None
    assert state_codec.decode(value.replace(b'"v":1', b'"v":2')) is None
    assert state_codec.decode(value[:-8]) is None
    assert state_codec.decode(value + b"12345678") is None
    assert state_codec.decode(b"") is None


@given(st.binary(max_size=200), st.integers(0, 400))
def test_damaged_values_never_raise(noise: bytes, position: int) -> None:
    value = state_codec.encode(filled())
    assert value is not None
    state_codec.decode(noise)
    state_codec.decode(value[:position] + noise + value[position + len(noise) :])


_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=10) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@given(
    st.fixed_dictionaries(
        {
            "v": st.just(1) | _json,
            "event": _json,
            "model": _json,
            "end": _json,
            "tool_set": _json,
            "turn": _json,
            "last": _json,
            "heads": _json,
        }
    )
)
def test_any_header_is_read_or_refused(header: dict[str, Any]) -> None:
    import json

    state_codec.decode(json.dumps(header).encode() + b"\n")
