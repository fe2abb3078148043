from __future__ import annotations

from typing import Any

import pytest

from gateway_plugin.event import SPEND_LOGS_NAMESPACE
from gateway_plugin.sinks import spend_logs

RECORD = {"schema": 1, "event_id": "e-1", "stage": "open", "outcome": "open"}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"metadata": {"a": 1}}, {"a": 1}),
        ({"metadata": {"client": 1}, "litellm_metadata": {"b": 1}}, {"b": 1}),
        ({"litellm_metadata": {"b": 1}}, {"b": 1}),
        ({}, None),
        *[({"metadata": odd}, None) for odd in (None, "text", [1], 7)],
        *[({"metadata": {"theirs": 1}, "litellm_metadata": odd}, None) for odd in (None, "text", [1], 7)],
    ],
)
def test_the_bucket_is_the_proxys_own_or_none(data: dict[str, Any], expected: Any) -> None:
    assert spend_logs.bucket_of(data) == expected


def test_writing_copies_what_others_share() -> None:
    shared = {"team": "x"}
    bucket: dict[str, Any] = {"spend_logs_metadata": shared}
    spend_logs.write(bucket, RECORD)
    assert shared == {"team": "x"}
    assert bucket["spend_logs_metadata"]["team"] == "x"
    assert bucket["spend_logs_metadata"][SPEND_LOGS_NAMESPACE]["event_id"] == "e-1"


def test_what_a_client_sent_under_our_name_is_overwritten() -> None:
    bucket: dict[str, Any] = {"spend_logs_metadata": {SPEND_LOGS_NAMESPACE: {"event_id": "forged"}}}
    spend_logs.write(bucket, RECORD)
    assert spend_logs.read_event_id({"metadata": bucket}) == "e-1"


@pytest.mark.parametrize("odd", [None, "text", [1], 7])
def test_odd_values_in_the_place_of_the_dict_are_replaced(odd: Any) -> None:
    bucket = {"spend_logs_metadata": odd}
    spend_logs.write(bucket, RECORD)
    assert spend_logs.read_event_id({"litellm_metadata": bucket}) == "e-1"


@pytest.mark.parametrize(
    "params",
    [
        None,
        "x",
        {},
        {"metadata": None},
        {"metadata": {"spend_logs_metadata": None}},
        {"metadata": {"spend_logs_metadata": {SPEND_LOGS_NAMESPACE: "x"}}},
        {"metadata": {"spend_logs_metadata": {SPEND_LOGS_NAMESPACE: {"event_id": 7}}}},
    ],
)
def test_no_event_id_is_found_where_none_is(params: Any) -> None:
    assert spend_logs.read_event_id(params) is None


def test_only_plain_json_values_are_written() -> None:
    bucket: dict[str, Any] = {}
    spend_logs.write(bucket, RECORD | {"duration_ms": 1.5, "stream": True})
    values = bucket["spend_logs_metadata"][SPEND_LOGS_NAMESPACE].values()
    assert all(isinstance(v, (str, int, float, bool)) for v in values)
