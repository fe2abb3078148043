from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_plugin.call import Ending
from gateway_plugin.event import encode, row_object
from gateway_plugin.text import storable
from tests.gateway_plugin.builders import Recording, arrival, chat, user


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("gpt-4o", "gpt-4o"),
        ("a\x00b", "a\ufffdb"),
        ("\ud83d", "\ufffd"),
        ("naïve 模型", "naïve 模型"),
        ("", None),
        (None, None),
        (7, None),
        ("x" * 999, "x" * 128),
    ],
)
def test_only_what_can_be_stored_is_kept(value: object, kept: str | None) -> None:
    assert storable(value) == kept


@given(st.text(alphabet=st.characters()))
def test_any_text_becomes_valid_utf_8_without_nul(value: str) -> None:
    kept = storable(value)
    assert kept is None or (b"\x00" not in kept.encode() and len(kept) <= 128)


def test_hostile_names_chosen_by_a_client_lose_neither_record_nor_row() -> None:
    rec = Recording()
    body = chat(user("hi")) | {"model": "a\x00b\ud83d" + "x" * 10_000}
    call = rec.recorder.begin(arrival(body, {"x-session-id": "s\x00\ud83d"}, litellm_call_id="ok"))
    rec.recorder.finish(call, Ending("success"))
    for record in rec.records:
        for raw in (encode(record), orjson.dumps(row_object(record))):
            assert b"\\u0000" not in raw
            assert len(raw) < 4096
