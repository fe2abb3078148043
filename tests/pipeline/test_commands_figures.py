"""The command that prints quantities by day and week and by who."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipeline import run
from pipeline.cli import app
from pipeline.errors import ConfigError
from pipeline.figures.registry import QUANTITIES
from tests.pipeline.sql.synthetic import Settings, scenario


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("lake")
    scenario(root)
    run.build(root, Settings())
    return root


def test_the_list_needs_no_lake_and_names_unit_and_formula_of_every_figure() -> None:
    result = CliRunner().invoke(app, ["figures", "--list"])
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [r["figure"] for r in rows] == list(QUANTITIES)
    assert all(r["unit"] and r["formula"] for r in rows)


def test_figures_come_by_day_with_their_profiles_coverage_and_evidence(lake: Path) -> None:
    arguments = ["figures", "calls_per_turn", "--period", "day", "--lake", str(lake)]
    result = CliRunner().invoke(app, arguments)
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(r["start"], r["dimension"]) for r in rows] == [
        ("2026-03-02", "all"), ("2026-03-03", "all"), ("2026-03-02", "profile"), ("2026-03-03", "profile"),
    ]  # fmt: skip
    assert rows[1]["value"] == pytest.approx(3)
    assert rows[0]["coverage"] == pytest.approx(38 / 44)
    assert rows[0]["session_e1"] == 1


def test_people_get_a_short_table_of_what_they_asked_for(lake: Path) -> None:
    arguments = ["figures", "realised_hit", "--by", "team", "--format", "table", "--lake", str(lake)]
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "300"})
    assert "session_e1" not in result.stdout
    assert {"t1", "t2"} <= set(result.stdout.split())


def test_a_name_that_does_not_exist_is_explained(lake: Path) -> None:
    result = CliRunner().invoke(app, ["figures", "speed", "--lake", str(lake)])
    assert isinstance(result.exception, ConfigError)
    assert "There is no figure speed" in str(result.exception)
