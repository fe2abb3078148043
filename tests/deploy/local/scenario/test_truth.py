from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from deploy.local import truth
from deploy.local.truth import TruthCall, TruthError


def _call(number: int, **changes: Any) -> TruthCall:
    call = TruthCall(
        call=number,
        litellm_call_id=f"id-{number}",
        session="s",
        session_header=None,
        client="none",
        agent="main",
        parent_agent=None,
        turn=1,
        call_in_turn=number,
        initiator="user",
        route="chat",
        stream=True,
        model_group="coder-small",
        user="alice",
        expected_outcome="success",
        special=None,
        tool_count=1,
        sent_us=1000 * number,
        first_byte_us=None,
        done_us=1000 * number + 5,
        status=200,
        words_sha256="00",
    )
    return replace(call, **changes)


def test_a_file_gives_back_the_calls_that_were_written(tmp_path: Path) -> None:
    calls = [_call(1), _call(2, special="compaction", initiator="compaction")]
    path = tmp_path / "truth.jsonl"
    path.write_bytes(truth.dump(calls) + b"\n")
    assert truth.read(path) == calls


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"client": "browser"}, "client 'browser'"),
        ({"initiator": "robot"}, "initiator 'robot'"),
        ({"special": "magic"}, "special 'magic'"),
        ({"turn": 0}, "count from 1"),
    ],
)
def test_values_outside_their_closed_lists_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(TruthError, match=message):
        truth.parse(asdict(_call(1)) | change)


def test_missing_and_unknown_fields_are_named() -> None:
    record = asdict(_call(1)) | {"extra": 1}
    del record["status"]
    with pytest.raises(TruthError, match=r"missing fields \['status'\], unknown fields \['extra'\]"):
        truth.parse(record)


def test_a_bad_line_is_named_with_its_number(tmp_path: Path) -> None:
    path = tmp_path / "truth.jsonl"
    for line in (b"{broken", b"[1]"):
        path.write_bytes(truth.dump([_call(1)]) + line)
        with pytest.raises(TruthError, match=r"truth\.jsonl:2"):
            truth.read(path)


def test_repeated_call_numbers_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "truth.jsonl"
    path.write_bytes(truth.dump([_call(1), _call(1)]))
    with pytest.raises(TruthError, match="repeat"):
        truth.read(path)


def test_partitions_follow_the_order_of_sending() -> None:
    child = _call(3, agent="explore-1", parent_agent="main", call_in_turn=1, sent_us=1500)
    calls = [_call(2), child, _call(1), _call(4, session="t", turn=2)]
    assert {name: [c.call for c in group] for name, group in truth.sessions(calls).items()} == {
        "s": [1, 3, 2],
        "t": [4],
    }
    assert {key: [c.call for c in group] for key, group in truth.turns(calls).items()} == {
        ("s", "main", 1): [1, 2],
        ("s", "explore-1", 1): [3],
        ("t", "main", 2): [4],
    }
    assert set(truth.streams(calls)) == {("s", "main"), ("s", "explore-1"), ("t", "main")}


def test_counts_leave_out_calls_without_a_special_and_the_index_those_without_an_id() -> None:
    calls = [_call(1, special="aborted"), _call(2, litellm_call_id=None, client="codex")]
    assert truth.counts(calls)["special"] == {"aborted": 1}
    assert truth.counts(calls)["client"] == {"codex": 1, "none": 1}
    assert truth.by_litellm_call_id(calls) == {"id-1": calls[0]}
