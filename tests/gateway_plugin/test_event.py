from __future__ import annotations

import time
import uuid

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_plugin import event

_VALUES = {
    "str": st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=300),
    "int": st.integers(0, 2**53),
    "float": st.floats(0, 1e12),
    "bool": st.booleans(),
    "steps": st.lists(st.tuples(st.floats(0, 1e6), st.integers(0, 1 << 40)), max_size=4),
}


def test_event_ids_are_uuid_version_7_and_sort_by_time() -> None:
    ids = [
        event.new_event_id(ms * 1_000_000) for ms in (1_700_000_000_000, 1_700_000_000_001, 1_800_000_000_000)
    ]
    parsed = [uuid.UUID(i) for i in ids]
    assert [u.version for u in parsed] == [7, 7, 7]
    assert {u.variant for u in parsed} == {uuid.RFC_4122}
    assert ids == sorted(ids)
    assert parsed[0].int >> 80 == 1_700_000_000_000


def test_event_ids_do_not_repeat() -> None:
    now = time.time_ns()
    assert len({event.new_event_id(now) for _ in range(10_000)}) == 10_000


def test_encode_writes_known_fields_only_and_leaves_nulls_out() -> None:
    raw = event.encode({"schema": 1, "turn_id": None, "shared_bytes": 0, "prompt_text": "secret"})
    assert orjson.loads(raw) == {"schema": 1, "shared_bytes": 0}


def test_encode_refuses_values_that_are_not_json() -> None:
    with pytest.raises(TypeError):
        event.encode({"turn_id": object()})


def test_field_names_are_unique_and_every_field_says_what_it_means() -> None:
    names = [f.name for f in event.FIELDS]
    assert len(names) == len(set(names))
    assert all(len(f.meaning) > 5 for f in event.FIELDS)
    assert {f.type for f in event.FIELDS} <= {"str", "int", "float", "bool", "steps"}


def test_outcomes_are_ranked_success_over_failure_over_aborted_over_open() -> None:
    rank = event.OUTCOME_RANK
    assert rank["success"] > rank["failure"] > rank["rejected"] > rank["aborted"] > rank["open"]


@given(st.fixed_dictionaries({f.name: st.none() | _VALUES[f.type] for f in event.FIELDS}))
def test_a_row_object_never_exceeds_its_limit_and_keeps_the_event_id(record: dict[str, object]) -> None:
    record["event_id"] = event.new_event_id()
    row = event.row_object(record)
    assert len(orjson.dumps(row)) <= event.ROW_LIMIT_BYTES
    assert row["event_id"] == record["event_id"]
    assert set(row) <= set(event.ROW_FIELDS)
    assert None not in row.values()
