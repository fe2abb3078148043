"""SpendLogs rows as text: usage, our object, identities; nothing in a row may raise."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_plugin.event import ROW_FIELDS
from gateway_plugin.hashing import Hasher
from pipeline.extract.identity_hash import person, safe_id
from pipeline.extract.spend_row import SOURCE_COLUMNS, TEXT_COLUMNS, RowReader, read_aw, read_usage

HASHER = Hasher(b"secret")
PRECEDENCE = ("end_user", "user_id", "key")


def usage(
    value: Any, cached: str | None = None, written: str | None = None
) -> tuple[list[str | None], Counter[str]]:
    counted: Counter[str] = Counter()
    text = value if isinstance(value, str | None) else json.dumps(value)
    return read_usage(text, cached, written, lambda reason: counted.update([reason])), counted


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        # LiteLLM's prompt_tokens includes what was cached; Anthropic's own input_tokens does not.
        (
            {"prompt_tokens": 17000, "cache_read_input_tokens": 16000, "completion_tokens": 3},
            ["17000", "16000", None, "3"],
        ),
        (
            {"input_tokens": 1000, "cache_read_input_tokens": 16000, "output_tokens": 3},
            ["17000", "16000", None, "3"],
        ),
        (
            {"input_tokens": 1000, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 500},
            ["1500", "0", "500", None],
        ),
        ({"input_tokens": 1000, "input_tokens_details": {"cached_tokens": 900}}, ["1000", "900", None, None]),
        (
            {
                "prompt_tokens": 240,
                "prompt_tokens_details": {"cached_tokens": 224, "created_cache_tokens": 0},
            },
            ["240", "224", "0", None],
        ),
        # Absent is unknown, zero is a miss.
        ({"prompt_tokens": 10}, ["10", None, None, None]),
        ({"prompt_tokens": 10, "prompt_tokens_details": None}, ["10", None, None, None]),
        ({"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": None}}, ["10", None, None, None]),
        ({"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 0}}, ["10", "0", None, None]),
        ({"prompt_tokens": "10", "completion_tokens": 2.0}, ["10", None, None, "2"]),
        ({"prompt_tokens": True, "completion_tokens": "many"}, [None, None, None, None]),
        (None, [None, None, None, None]),
    ],
)
def test_usage_is_one_meaning_in_many_spellings(value: Any, expected: list[str | None]) -> None:
    assert usage(value) == (expected, {})


def test_the_extra_values_fill_in_only_what_usage_lacks() -> None:
    assert usage({"prompt_tokens": 10}, "4", "1")[0] == ["10", "4", "1", None]
    assert usage({"prompt_tokens": 10, "cache_read_input_tokens": 0}, "4")[0][1] == "0"


def test_impossible_usage_is_unknown_and_counted() -> None:
    assert usage({"prompt_tokens": 10, "cache_read_input_tokens": 11}) == (
        ["10", None, None, None],
        {"cached tokens above input tokens": 1},
    )
    assert usage({"prompt_tokens": -3, "completion_tokens": 1}) == (
        [None, None, None, "1"],
        {"negative token count": 1},
    )
    assert usage("[1]") == ([None] * 4, {"usage_object unreadable": 1})
    assert usage("{broken") == ([None] * 4, {"usage_object unreadable": 1})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"event_id": "e"}', '{"event_id":"e"}'),
        ('{"agentwatt": {"event_id": "e"}}', '{"event_id":"e"}'),
        ('{"agentwatt": "{\\"event_id\\": \\"e\\"}"}', '{"event_id":"e"}'),
        ('"{\\"event_id\\": \\"e\\"}"', '{"event_id":"e"}'),
        (
            '{"event_id": "e", "stream": "yes", "prompt": "text of the user", "call_index": 2}',
            '{"event_id":"e","call_index":2}',
        ),
        ('{"team": "x"}', None),
        ('{"initiator": "user"}', None),
        ("null", None),
        ("[]", None),
        ("{broken", None),
        (None, None),
    ],
)
def test_our_object_keeps_known_keys_of_the_right_type_only(text: str | None, expected: str | None) -> None:
    assert read_aw(text, lambda _: None) == expected


def test_an_object_of_every_row_field_comes_through() -> None:
    value = dict.fromkeys(ROW_FIELDS) | {"event_id": "e", "schema": 1, "cached_tokens": 5}
    assert json.loads(read_aw(json.dumps(value), lambda _: None) or "") == {
        "event_id": "e",
        "schema": 1,
        "cached_tokens": 5,
    }


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [*TEXT_COLUMNS, "usage_object", "agentwatt", "prompt_tokens", "cached_tokens", "x"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
CELL = st.none() | st.text(max_size=20) | JSON.map(json.dumps) | JSON.map(lambda v: json.dumps(json.dumps(v)))


@given(st.lists(CELL, min_size=len(SOURCE_COLUMNS), max_size=len(SOURCE_COLUMNS)))
def test_no_row_makes_the_reader_fail(cells: list[str | None]) -> None:
    row = RowReader(HASHER, PRECEDENCE).read(cells)
    assert len(row) == len(TEXT_COLUMNS)
    assert all(cell is None or isinstance(cell, str) for cell in row)
    named = dict(zip(TEXT_COLUMNS, row, strict=True))
    if named["usage_cached"] is not None and named["usage_input"] is not None:
        assert 0 <= int(named["usage_cached"]) <= int(named["usage_input"])


def test_the_first_name_of_the_precedence_that_names_somebody_counts() -> None:
    values = {"end_user": None, "user_id": "default_user_id", "key": "hash"}
    assert person(values, PRECEDENCE) == "hash"
    assert person({**values, "user_id": "u"}, PRECEDENCE) == "u"
    assert person({**values, "end_user": "e"}, ("key", "end_user")) == "hash"
    assert person({}, PRECEDENCE) is None


@pytest.mark.parametrize(
    ("end_user", "expected"),
    [
        ("user_abc_account__session_0f9d2c1e-1111-4222-8333-444455556666", "user_abc_account_"),
        ('{"device_id": "d", "account_uuid": "a", "session_id": "s"}', "d/a"),
        ('{"session_id": "s"}', None),
        ("{not json", "{not json"),
        ("alice@corp.example", "alice@corp.example"),
    ],
)
def test_a_session_inside_the_user_id_does_not_split_a_person(end_user: str, expected: str | None) -> None:
    assert person({"end_user": end_user}, PRECEDENCE) == expected


def test_only_machine_made_ids_are_kept_as_they_are() -> None:
    assert safe_id(HASHER, "3f2b8c1e-0000-4000") == "3f2b8c1e-0000-4000"
    assert safe_id(None, "3f2b8c1e-0000-4000") == "3f2b8c1e-0000-4000"
    assert safe_id(HASHER, "bob@corp.example") == HASHER.keep_or_hash("bob@corp.example")
    assert safe_id(None, "bob@corp.example") is None
    assert safe_id(HASHER, "") is None


def test_error_texts_are_cut_to_names_and_codes() -> None:
    cells = dict.fromkeys(SOURCE_COLUMNS) | {
        "error_class": "Error: the user said …",
        "error_code": "500 oops",
    }
    row = dict(zip(TEXT_COLUMNS, RowReader(None, PRECEDENCE).read(list(cells.values())), strict=True))
    assert (row["error_class"], row["error_code"]) == ("other", None)
