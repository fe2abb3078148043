"""The worked example of docs/definitions.md, through the real models."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pipeline import figures
from pipeline.report.definitions import DEFINITIONS
from tests.pipeline.sql.synthetic import MONDAY, Settings, Tier, board_metrics, build, event

TEXT = (Path(__file__).resolve().parents[2] / "docs/definitions.md").read_text(encoding="utf-8")
SETTINGS = Settings(slo_tiers=(Tier(5, 10), Tier(5, 20)))


def clock(text: str) -> datetime:
    hour, minute, second = (int(part) for part in text.split(":"))
    return MONDAY.replace(hour=hour, minute=minute, second=second)


def table() -> list[dict[str, Any]]:
    """The calls of the example, read from the page itself."""
    events = []
    for line in TEXT.splitlines():
        cells = [c.strip() for c in line.strip("|").split("|")]
        if len(cells) == 8 and re.fullmatch(r"[a-d]", cells[0]):
            shared, total = (int(n.replace(",", "")) for n in cells[6].split(" of "))
            age = float(cells[7].removesuffix(" s")) if cells[7] else None
            events.append(
                event(
                    cells[0],
                    clock(cells[1]),
                    duration_ms=(clock(cells[2]) - clock(cells[1])) / timedelta(milliseconds=1),
                    initiator=cells[3],
                    input_tokens=int(cells[4].replace(",", "")),
                    cached_tokens=None if cells[5] == "not reported" else int(cells[5].replace(",", "")),
                    prompt_bytes=total,
                    shared_bytes=shared,
                    prefix_steps=json.dumps([] if age is None else [[age, shared]]),
                )
            )
    return events


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    calls = table()
    assert [c["event_id"] for c in calls] == ["a", "b", "c", "d"]
    other = event(
        "e", clock("08:05:00"), session_key="s2", user_hash="u2", initiator="user", duration_ms=10_000
    )
    metrics = board_metrics(MONDAY - timedelta(minutes=5), MONDAY + timedelta(hours=2), watts=500)
    lake = build(tmp_path_factory.mktemp("example"), [*calls, other], metrics=metrics, settings=SETTINGS)
    return figures.compute(lake, SETTINGS, MONDAY, MONDAY + timedelta(hours=1)).figures


def test_calls_per_human_hour(example: dict[str, dict[str, Any]]) -> None:
    figure = example["calls_per_human_hour"]
    assert figure["value"]["5 min"] == pytest.approx(225.0)
    assert figure["value"]["15 min"] == pytest.approx(26.47, abs=0.005)
    assert figure["calls_per_in_turn_hour"]["values"]["none"] == pytest.approx(225.0)
    assert figure["calls_per_in_turn_hour"]["values"]["60 s"] == pytest.approx(225.0)
    assert figure["calls_per_user_prompt"]["value"] == pytest.approx(1.67, abs=0.005)
    for shown in ("= 225.0 calls per human-hour", "= 26.47", "5 ÷ 3 = 1.67"):
        assert shown in TEXT


def test_concurrency_by_hour_of_the_week(example: dict[str, dict[str, Any]]) -> None:
    figure = example["calls_per_human_hour"]["concurrency_by_hour_of_week"]
    assert figure == {"8": [pytest.approx(50 / 3600)]}
    assert "50 s ÷ 3600 s = 0.0139" in TEXT


def test_prompt_length(example: dict[str, dict[str, Any]]) -> None:
    figure = example["prompt_length"]
    assert (figure["value"]["p50"], figure["value"]["p90"], figure["value"]["mean"]) == pytest.approx(
        (2000, 3600, 2200)
    )
    assert figure["input_to_output"]["value"] == pytest.approx(21.78, abs=0.005)
    assert figure["new_tokens_per_call"]["value"] == pytest.approx(1150)
    assert "P50 = 2,000, P90 = 3,600, mean = 2,200" in TEXT
    assert "= 21.78" in TEXT


def test_prefix_hit(example: dict[str, dict[str, Any]]) -> None:
    figure = example["prefix_hit"]
    assert figure["value"]["realised"] == pytest.approx(0.425)
    assert figure["coverage"]["share_of_calls"] == pytest.approx(4 / 5)
    assert figure["coverage"]["share_of_input_tokens"] == pytest.approx(8 / 11)
    assert figure["value"]["potential_inf"] == figure["value"]["potential_3600"] == pytest.approx(6 / 11)
    assert figure["value"]["potential_300"] == pytest.approx(4 / 11)
    for shown in ("= 42.5 %", "= 54.5 %", "36.4 %"):
        assert shown in TEXT


def test_agents_per_megawatt(example: dict[str, dict[str, Any]]) -> None:
    figure = example["agents_per_megawatt"]
    found = {(r["state"], r["tier"]): r["value"] for r in figure["values"]}
    assert found["in_turn", "10 tok/s, 5 s"] == pytest.approx(22.2, abs=0.05)
    assert found["open", "10 tok/s, 5 s"] == pytest.approx(188.9, abs=0.05)
    assert found["in_turn", "20 tok/s, 5 s"] == 0
    assert figure["values"][0]["megawatt_hours"] == pytest.approx(0.001)
    assert "= 22.2 agents per megawatt" in TEXT


def test_every_figure_has_a_section_with_formula_unit_inputs_coverage_errors_and_example() -> None:
    for definition in DEFINITIONS.values():
        section = TEXT.split(f"\n## {definition.title}\n")[1].split("\n## ")[0]
        for word in ("Formula", "Unit", "Inputs", "Coverage", "Error sources", "Example"):
            assert f"**{word}.**" in section
