"""The measurement of the evidence classes: its scores, its minima and its last line."""

from __future__ import annotations

import gzip
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

PROGRAM = Path(__file__).resolve().parents[2] / "benchmarks" / "turn_evidence.py"


@pytest.fixture(scope="module")
def program() -> ModuleType:
    spec = importlib.util.spec_from_file_location("turn_evidence", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def figures(program: ModuleType) -> dict[str, Any]:
    return dict(program.collect({"generated": program.generated(3, 2)}, None))


def test_a_partition_is_scored_over_pairs_of_calls(program: ModuleType) -> None:
    score = program.partitioned([("a", 1), ("a", 1), ("a", 2), ("b", 2)])
    assert (score.tp, score.fp, score.fn) == (1, 1, 2)
    assert program.partitioned([("a", 1)]).recall is None


def test_the_generated_conversations_meet_every_minimum(program: ModuleType, figures: dict[str, Any]) -> None:
    assert program.missed_minima(figures) == []
    assert len(figures["runs"]) == 3 * 4 * 2


def test_a_worse_initiator_and_a_wrong_explicit_id_are_missed_minima(
    program: ModuleType, figures: dict[str, Any]
) -> None:
    worse = json.loads(json.dumps(figures))
    worse["runs"]["generated/chat/agents/E2-"]["start"]["recall"] = 0.97
    worse["runs"]["generated/messages/told/E2+"]["turn"]["precision"] = 0.999
    assert len(program.missed_minima(worse)) == 2


def test_lineage_finds_sessions_that_the_head_lost_and_joins_none_that_differ(
    figures: dict[str, Any],
) -> None:
    without, with_ = (figures["variations"][f"first message lost/bare/{c}"] for c in ("E2-", "E2+"))
    assert without["session"]["recall"] < 0.5
    assert (with_["session"]["precision"], with_["session"]["recall"]) == (1.0, 1.0)
    assert with_["session_evidence"]["E2"] > 0
    assert all(run["session"]["precision"] == 1.0 for run in figures["lineage_alone"].values())


def test_nothing_that_names_a_session_is_left_in_a_bare_request(program: ModuleType) -> None:
    for calls in program.generated(3, 2):
        for planned in calls:
            for shape in program.SHAPES:
                text = json.dumps(program.bare_body(planned, shape))
                assert planned.session.session_id not in text
                assert planned.call.prompt_id not in text


def test_recorded_traces_are_exact_and_subagents_left_out(program: ModuleType, tmp_path: Path) -> None:
    kinds = [["text"], ["tool_result"], ["text", "tool_result", "tool_use"], ["text", "thinking"]]
    requests = [{"type": "n", "input_types": k} for k in kinds] + [{"type": "subagent"}, {"type": "n"}]
    path = tmp_path / "traces.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps({"requests": requests}).encode()))
    found = program.weka(path)
    for shape in program.SHAPES:
        assert (found[shape]["calls"], found[shape]["tp"]) == (4, 2)
        assert (found[shape]["fp"], found[shape]["fn"]) == (0, 0)
    assert found["without_input_types"] == 1


def test_the_last_line_is_one_object_with_every_figure(
    program: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.main(["--size", "none", "--copies", "1"]) == 0
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert set(last) == {"runs", "lineage_alone", "variations", "weka", "minimum_e3", "missed"}


def test_an_absent_trace_file_is_a_usage_error(program: ModuleType) -> None:
    assert program.main(["--weka", "no-such-file.gz"]) == 2
