"""Advice on tool catalogues: what is resent, what fewer tools would save, and what is only estimated."""

from __future__ import annotations

from typing import Any

import pytest

from gateway_plugin.counting_advice import advise


def record(**changes: Any) -> dict[str, Any]:
    base = {
        "key_alias": "ci",
        "team_id": "t1",
        "tool_count": 200,
        "tools_bytes": 250_000,
        "tools_digest": "d1",
        "count_catalogue_tokens": 50_000,
        "count_ms": 150.0,
        "count_calls": 2,
        "count_tokens": 300_000,
    }
    return base | changes


def test_what_fewer_tools_would_save_is_told_per_call_in_tokens_and_milliseconds() -> None:
    [advice] = advise([record(), record()], keep=20)
    assert (advice.name, advice.calls, advice.catalogues, advice.source) == ("ci", 2, 1, "measured")
    assert advice.catalogue_tokens_per_call == 50_000
    assert advice.catalogue_tokens_total == 100_000
    # 150 ms for 300,000 tokens is 0.0005 ms a token; the catalogue is counted twice per call.
    assert advice.catalogue_ms_per_call == pytest.approx(50.0)
    assert advice.saved_tokens_per_call == pytest.approx(45_000)
    assert advice.saved_tokens_total == 90_000
    assert advice.saved_ms_per_call == pytest.approx(45.0)


def test_without_the_exact_meter_times_are_null_and_tokens_estimated_from_bytes() -> None:
    unknown = dict.fromkeys(("count_catalogue_tokens", "count_ms", "count_calls", "count_tokens"))
    [advice] = advise([record(**unknown)])
    assert (advice.source, advice.catalogue_tokens_per_call) == ("estimated", 62_500)
    assert (advice.catalogue_ms_per_call, advice.saved_ms_per_call, advice.counts_per_call) == (
        None,
        None,
        None,
    )


def test_an_estimate_uses_the_bytes_per_token_that_other_calls_measured() -> None:
    measured = record(key_alias="a")
    estimated = record(key_alias="b", count_catalogue_tokens=None)
    advices = {a.name: a for a in advise([measured, estimated])}
    assert advices["b"].catalogue_tokens_per_call == pytest.approx(50_000)
    assert (advices["a"].source, advices["b"].source) == ("measured", "estimated")


def test_calls_without_tools_count_as_calls_and_resend_nothing() -> None:
    [advice] = advise([record(tool_count=0, tools_bytes=0, count_catalogue_tokens=None)])
    assert (advice.calls, advice.calls_with_tools, advice.source) == (1, 0, "none")
    assert (advice.catalogue_tokens_per_call, advice.saved_tokens_total) == (None, None)


def test_a_catalogue_that_is_small_enough_saves_nothing() -> None:
    [advice] = advise([record(tool_count=10)], keep=20)
    assert (advice.saved_tokens_per_call, advice.saved_ms_per_call) == (0.0, 0.0)


def test_groups_are_teams_on_request_and_the_most_resent_come_first() -> None:
    rows = [record(team_id="small", tool_count=5, count_catalogue_tokens=100), record(team_id=None)]
    assert [a.name for a in advise(rows, by="team_id")] == [None, "small"]


def test_a_negative_number_of_tools_is_an_error() -> None:
    with pytest.raises(ValueError, match="keep"):
        advise([], keep=-1)
    assert advise([]) == []


def test_a_record_for_several_equal_calls_gives_the_same_advice_as_the_calls_themselves() -> None:
    one = {
        "key_alias": "a",
        "tool_count": 50,
        "tools_bytes": 8000,
        "tools_digest": "d",
        "count_catalogue_tokens": 2000,
    }
    metered = one | {"count_ms": 6.0, "count_calls": 3, "count_tokens": 9000}
    bare = one | {"tool_count": 10, "tools_bytes": 1000, "tools_digest": "e", "count_catalogue_tokens": None}
    together = [
        metered | {"calls": 4, "counted": 4, "count_ms": 24.0, "count_calls": 12, "count_tokens": 36000},
        bare | {"calls": 3, "counted": 3},
    ]
    assert advise(together, keep=20) == advise([metered] * 4 + [bare] * 3, keep=20)
