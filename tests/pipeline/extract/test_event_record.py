"""Records: what becomes a row, and the reasons why something does not."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway_plugin.event import FIELDS, SCHEMA_VERSION
from pipeline.extract.event_record import MAX_RECORD_BYTES, RejectedRecordError, new_batch, parse
from pipeline.lake import Lake, connect

GOOD: dict[str, Any] = {
    "schema": 1,
    "event_id": "018f0000-0000-7000-8000-000000000001",
    "stage": "final",
    "outcome": "success",
    "started_us": 1_774_828_799_999_999,  # the last microsecond of 2026-03-29
}


def encoded(**changes: Any) -> bytes:
    return orjson.dumps({k: v for k, v in {**GOOD, **changes}.items() if v is not None})


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (None, "no payload field"),
        (b"", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"{", "not JSON"),
        (b'{"schema": NaN}', "not JSON"),
        (b"[1]", "not an object"),
        (b"null", "not an object"),
        (encoded(event_id=None), "missing event_id"),
        (encoded(started_us=None), "missing started_us"),
        (encoded(schema=SCHEMA_VERSION + 1), "unknown schema"),
        (encoded(schema=0), "unknown schema"),
        (encoded(schema="1"), "wrong type of schema"),
        (encoded(schema=True), "wrong type of schema"),
        (encoded(input_tokens=1.5), "wrong type of input_tokens"),
        (encoded(input_tokens="7"), "wrong type of input_tokens"),
        (encoded(input_tokens=2**63), "wrong type of input_tokens"),
        (encoded(stream=1), "wrong type of stream"),
        (encoded(ttft_ms=True), "wrong type of ttft_ms"),
        (encoded(prefix_steps=[[1]]), "wrong type of prefix_steps"),
        (encoded(prefix_steps={"1": 2}), "wrong type of prefix_steps"),
        (encoded(prefix_steps=[[n, n] for n in range(257)]), "too many prefix_steps"),
        (encoded(stage="late"), "unknown stage"),
        (encoded(outcome="won"), "unknown outcome"),
        (encoded(started_us=1_774_785_600), "started_us out of range"),
        (encoded(started_us=2**62), "started_us out of range"),
        (encoded(session_id="x" * MAX_RECORD_BYTES), "too large"),
    ],
)
def test_a_bad_record_is_refused_with_its_reason(payload: bytes | None, reason: str) -> None:
    with pytest.raises(RejectedRecordError) as caught:
        parse(payload)
    assert str(caught.value) == reason


def test_keys_of_a_newer_plugin_are_accepted_and_told() -> None:
    assert parse(encoded())[1] is False
    assert parse(encoded(new_key=1))[1] is True


@given(st.binary(max_size=200))
def test_no_bytes_make_the_parser_fail_otherwise(payload: bytes) -> None:
    with pytest.raises(RejectedRecordError, match=r"."):
        parse(payload)


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "str": st.text(max_size=30),
    "int": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53),
    "bool": st.booleans(),
    "steps": st.lists(st.tuples(st.floats(0, 1e9), st.integers(0, 2**40)).map(list), max_size=3),
}
FIXED = {"schema", "stage", "outcome", "started_us"}


@settings(max_examples=30)
@given(st.fixed_dictionaries({}, optional={f.name: VALUES[f.type] for f in FIELDS if f.name not in FIXED}))
def test_every_value_of_the_contract_survives_the_way_into_parquet(
    tmp_path_factory: pytest.TempPathFactory, values: dict[str, Any]
) -> None:
    lake = Lake(tmp_path_factory.mktemp("lake"))
    record = {**GOOD, **values}
    batch = new_batch()
    batch.add("1-0", orjson.dumps(record))
    assert batch.write(lake) == 1
    with connect() as con:
        lake.view(con, "raw/events", "e")
        result = con.execute("SELECT * FROM e")
        row = dict(zip([d[0] for d in result.description or []], result.fetchone() or (), strict=True))
    for f in FIELDS:
        stored = row[f.name]
        if f.type == "steps" and stored is not None:
            stored = json.loads(stored)
        assert stored == record.get(f.name), f.name
    assert (row["stream_id"], row["date"]) == ("1-0", date(2026, 3, 29))


def test_records_go_to_the_utc_date_they_started_on_and_bad_ones_aside(lake: Lake) -> None:
    batch = new_batch()
    batch.add("1-0", encoded())
    batch.add("2-0", encoded(started_us=GOOD["started_us"] + 1))
    batch.add("3-0", b"{broken")
    assert batch.write(lake) == 2
    assert lake.dates("raw/events") == [date(2026, 3, 29), date(2026, 3, 30)]
    with connect() as con:
        lake.view(con, "rejects/events", "x")
        assert con.execute("SELECT stream_id, reason, bytes, excerpt FROM x").fetchall() == [
            ("3-0", "not JSON", 7, "{broken")
        ]


def test_writing_the_same_batch_again_replaces_its_file(lake: Lake) -> None:
    for _ in range(2):
        batch = new_batch()
        batch.add("1-0", encoded())
        batch.write(lake)
    assert len(lake.files("raw/events")) == 1
