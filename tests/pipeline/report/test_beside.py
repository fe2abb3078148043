"""Markdown, CSV and the terminal tell everything about agents per megawatt that the page tells."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pipeline import report
from pipeline.report import beside, terminal
from tests.pipeline.power.cases import HOUR, Pool, Source, at, one_tier, turns, watts
from tests.pipeline.sql.synthetic import MONDAY, build, event, metric


@dataclass(frozen=True)
class Declared:
    name: str = "nodes"
    watts: float = 10_000
    count: int = 2
    source: str = "name plate"


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two pools, one of them shared; a rack; a board elsewhere; external work; declared power."""
    lake = tmp_path_factory.mktemp("beside")
    settings = one_tier(
        provisioned=[Declared()],
        pools=[
            Pool("large", ["large"], devices=["GPU-a", "rack*"]),
            Pool("both", ["small", "titles"], devices=["GPU-b", "row*"], split="none"),
        ],
        sources=[
            Source("boards", "DCGM_FI_DEV_POWER_USAGE", "gauge", "board", identity_labels=["UUID"]),
            Source("racks", "rack_watts", "gauge", "rack", identity_labels=["UUID"], accuracy_percent=1),
        ],
        gpu_model="H200",
        pue=1.25,
        pue_source="building meter",
    )
    events = [
        *turns("s1", 0, 600, model_group="large"),
        *turns("s2", 100, model_group="small"),
        *turns("s3", 100, ttft_ms=None, model_group="titles"),
        event("x", at(0), session_key="x", turn_id="x", initiator="user", provider="anthropic",
              model_group="hosted", duration_ms=100_000, output_tokens=7000, ttft_ms=1000),
    ]  # fmt: skip
    metrics = [
        *watts("GPU-a", 500), *watts("GPU-b", 300), *watts("GPU-x", 90),
        *watts("rack-1", 1500, metric_name="rack_watts", target="rack"),
        *watts("row-2", 900, metric_name="rack_watts", target="row"),
        metric(at(60), "vllm:num_requests_waiting", 0, "node-1"),
    ]  # fmt: skip
    build(lake / "lake", events, metrics=metrics, settings=settings)
    report.write(lake / "lake", settings, lake / "out", since=MONDAY, until=MONDAY + HOUR)
    return lake / "out"


@pytest.fixture(scope="module")
def figure(out: Path) -> dict[str, Any]:
    document = json.loads((out / "report.json").read_text(encoding="utf-8"))
    found: dict[str, Any] = document["agents_per_megawatt"]
    assert found["value"] is not None, found["reason"]
    return found


def numbers(value: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """Every number below *value*, with where it stands."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from numbers(part, f"{path}.{key}")
    elif isinstance(value, list):
        for number, part in enumerate(value):
            yield from numbers(part, f"{path}[{number}]")
    elif isinstance(value, float):
        yield path, value


def test_the_table_of_numbers_holds_every_number_of_the_figure(out: Path, figure: dict[str, Any]) -> None:
    with (out / "figures.csv").open(encoding="utf-8", newline="") as file:
        told = {float(r["value"]) for r in csv.DictReader(file) if r["value"]}
    wanted = {
        **{f"values[{i}]": {k: row[k] for k in (
            "value", "value_upper", "any_conformity", "pooled_rule", "measurement_interval", "week_interval"
        )} for i, row in enumerate(figure["values"])},
        "estimate": [row["estimate"]["value"] for row in figure["values"] if "estimate" in row],
        "sensitivity": [row["sensitivity"] for row in figure["values"][:1]],
        "weeks": [
            [w["value"], w["measurement_interval"]] for w in figure["values"][0]["by_week"]
        ],
        "groups": [
            [g[k] for k in ("contribution", "value", "measurement_interval")]
            for g in figure["values"][0]["by_model_group"]
        ],
        "profiles": [
            [p[k] for k in ("contribution", "contribution_interval")]
            for p in figure["values"][0]["by_profile"]
        ],
        "companions": [
            {k: v for k, v in c.items() if k not in ("coverage", "counts", "reasons")}
            for c in figure["companions"]
        ],
        "provisioned": [
            [p[k] for k in ("agents_per_provisioned_megawatt", "provisioned_megawatts")]
            for p in figure["provisioned"].values()
        ],
        "external": figure["external"]["agent_hours"],
        "little": {k: figure["littles_law"][k] for k in ("residual", "mean_agents_in_turn")},
        "unknown": figure["coverage"]["turns_of_unknown_conformity"],
        "boundaries": [
            [b[k] for k in ("megawatt_hours", "mean_watts", "coverage", "excluded_s", "accuracy_percent")]
            for b in figure["boundaries"]
        ],
    }  # fmt: skip
    found = list(numbers(wanted))
    assert len(found) > 60
    assert [(path, number) for path, number in found if number not in told] == []


def test_markdown_tells_numbers_reasons_and_what_they_do_not_mean(out: Path) -> None:
    page = (out / "report.md").read_text(encoding="utf-8")
    for phrase in (
        "measurement interval, from",
        "week to week (needs at least two measured week days, has 1)",
        "unknown turns as passes",
        "tool cap 60 s",
        "idle cap 300 s",
        "capacity: in-turn, 50 tok/s, 5 s, board (needs at least 8 measured hours",
        "model group large, on its own energy (sole group of its pool)",
        "shares its pool with titles and no split is declared",
        "profile chat-only",
        "PUE (building meter)",
        "energy per million new tokens, board",
        "idle share of the energy, rack",
        "in a turn per GPU, board",
        "provisioned, public constants, not measured",
        "planned and not measured",
        "InferenceX",
        "at providers without our power, not in the ratio, in-turn",
        "Little's law, residual",
        "measured, in no pool: GPU-x",
        "The engine was never near its limit",
    ):
        assert phrase in page, phrase


def test_the_terminal_tells_it_in_sentences(figure: dict[str, Any]) -> None:
    nothing = {name: {"value": None} for name in ("calls_per_human_hour", "prompt_length", "prefix_hit")}
    printed = " ".join(terminal.summary({**nothing, "agents_per_megawatt": figure}).split())
    for phrase in (
        "by conformity; measurement interval",
        "week to week none (needs at least two measured week days",
        "By tool cap, in-turn: 60 s",
        "By idle cap, open: 300 s",
        "Of the value: large adds",
        "Capacity, not served: n/a (needs at least 8",
        "Little's law over the window: off by",
        "Energy of the work, an allocation, board:",
        "agents in a turn per GPU",
        "Provisioned, not measured, agents per megawatt: declared",
        "planned and not measured",
        "At providers without our power, not in the ratio, agent-hours:",
        "Measured, in no pool: GPU-x, board.",
    ):
        assert phrase in printed, phrase


def test_a_refused_figure_tells_its_reasons_and_what_was_declared(tmp_path: Path) -> None:
    settings = one_tier(provisioned=[Declared()])
    lake = build(tmp_path / "lake", [*turns("s1", 0), *turns("s2", 0)], settings=settings)
    report.write(lake, settings, tmp_path / "out", since=MONDAY, until=MONDAY + HOUR)
    found = json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))["agents_per_megawatt"]
    assert found["value"] is None
    names = {line.name: line for line in beside.lines(found)}
    declared = names["provisioned, declared, not measured"]
    assert (declared.value, declared.reason) == (None, "the mean number of conformant agents is unknown")
    assert names["capacity"].value is None
    assert any("Capacity, not served: n/a" in s for s in beside.sentences(found))
    assert beside.lines({"value": None, "reason": "no call"}) == []
    assert beside.sentences({"value": None}) == beside.remarks({"value": None}) == []
