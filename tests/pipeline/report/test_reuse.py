"""Lost reuse and failures: the worked example of docs/report.md, and what is left out."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pipeline import figures
from pipeline.figures import failures, reuse
from pipeline.report import extras, planning
from pipeline.sizing import measured, plan
from pipeline.sql.parameters import Window
from tests.pipeline.sql.synthetic import MONDAY, Settings, build, event
from tests.pipeline.test_figures_definitions import SETTINGS, clock, table

TEXT = (Path(__file__).resolve().parents[3] / "docs/report.md").read_text(encoding="utf-8")
WORDS = re.sub(r"\s+", " ", TEXT)
HOUR = timedelta(hours=1)


def parts(lake: Path, settings: Settings = SETTINGS, until: datetime = MONDAY + HOUR) -> dict[str, Any]:
    def more(con: Any, window: Window) -> dict[str, Any]:
        return {"reuse": reuse.compute(con, window), "failures": failures.compute(con, window)}

    return figures.compute(lake, settings, MONDAY, until, more).more


def test_lost_reuse_of_the_worked_example(tmp_path: Path) -> None:
    other = event(
        "e", clock("08:05:00"), session_key="s2", user_hash="u2", initiator="user", duration_ms=10_000
    )
    found = parts(build(tmp_path, [*table(), other], settings=SETTINGS))["reuse"]
    assert found["value"] == pytest.approx(600)
    assert found["share_of_input"] == pytest.approx(600 / 8000)
    assert [r["lost_tokens"] for r in found["by_age"]] == pytest.approx([600, 0, 0])
    assert found["coverage"] == {"calls": 4, "share_of_calls": 0.8}
    assert "600 of 8,000 tokens = 7.5 %" in WORDS
    stated = measured.published()
    values = plan.stated_values(stated)
    week = planning.Planned(stated, plan.compute(stated), {}, measured.read({"prompt_length": {}}), True)
    cost = extras.cost(found, week)["cost"]
    assert values["hardware.gpu"] == "h100-sxm-80gb"
    assert cost["gpu_tok_s"] == pytest.approx(8242, abs=1)
    assert cost["gpu_hours"] == pytest.approx(2.0e-5, rel=0.02)
    assert "8,242 tokens per second and GPU: 600 ÷ 8,242 ÷ 3,600 = 2.0 × 10⁻⁵ GPU-hours" in WORDS


def call(name: str, second: int, **fields: Any) -> dict[str, Any]:
    shared = {"prompt_bytes": 4000, "shared_bytes": 3200, "input_tokens": 1000, "cached_tokens": 0}
    return event(name, MONDAY + timedelta(seconds=second), **(shared | {"initiator": "user"} | fields))


def test_lost_tokens_are_told_by_the_age_of_their_prefix(tmp_path: Path) -> None:
    steps = {"young": 100, "middle": 2000, "old": 9000}
    calls = [call(n, 10 * i, prefix_steps=f"[[{age}, 3200]]") for i, (n, age) in enumerate(steps.items())]
    found = parts(build(tmp_path, calls))["reuse"]
    assert [(r["age"], r["lost_tokens"]) for r in found["by_age"]] == [
        ("within 5 min", pytest.approx(800)),
        ("5 min to 1 h", pytest.approx(800)),
        ("more than 1 h", pytest.approx(800)),
    ]


def test_what_other_sessions_shared_hides_no_loss(tmp_path: Path) -> None:
    calls = [
        call("lost", 0, prefix_steps="[[10, 3200]]"),
        call("won", 10, shared_bytes=0, prefix_steps="[]", cached_tokens=800),
    ]
    assert parts(build(tmp_path, calls))["reuse"]["value"] == pytest.approx(800)


def test_work_at_providers_and_unknown_cache_use_are_outside(tmp_path: Path) -> None:
    calls = [
        call("theirs", 0, provider="anthropic", model_group="hosted", prefix_steps="[[10, 3200]]"),
        call("unknown", 10, cached_tokens=None, prefix_steps="[[10, 3200]]"),
    ]
    found = parts(build(tmp_path, calls))["reuse"]
    assert found["value"] is None
    assert found["reason"] == "no call of ours has both reported cached tokens and a known prefix chain"


def test_new_tokens_behind_a_break_are_told_apart_from_growth(tmp_path: Path) -> None:
    steps = {"prefix_steps": "[[10, 3200]]"}
    calls = [
        call("grown", 0, break_reason="none", **steps),
        call("tools", 10, break_reason="tools_changed", shared_bytes=400, prefix_steps="[[10, 400]]"),
    ]
    found = parts(build(tmp_path, calls))["reuse"]
    assert found["broken"]["value"] == pytest.approx(900)


def test_failures_are_counted_by_outcome_and_error_class_with_their_attempts(tmp_path: Path) -> None:
    calls = [
        event("good", MONDAY, attempts=3),
        event("late", MONDAY, outcome="failure", error_class="Timeout", attempts=2, duration_ms=9000.0),
        event("later", MONDAY, outcome="failure", error_class="Timeout", duration_ms=11000.0),
        event("gone", MONDAY, outcome="aborted", error_class="ClientDisconnected"),
    ]
    found = parts(build(tmp_path, calls))["failures"]
    assert (found["calls"], found["unsuccessful"], found["share"]) == (4, 3, 0.75)
    assert [(r["outcome"], r["error_class"], r["calls"], r["attempts"]) for r in found["rows"]] == [
        ("failure", "Timeout", 2, 3),
        ("aborted", "ClientDisconnected", 1, 1),
    ]
    assert found["rows"][0]["median_s"] == pytest.approx(10)
    assert (found["retried_calls"], found["extra_attempts"]) == (2, 3)
