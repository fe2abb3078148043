"""The golden file of worked examples, recomputed by the product, and the errata that go with it."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pipeline.sizing import document

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT.parent / "shared" / "golden" / "sizing_cases.yaml"
PROGRAM = ROOT / "benchmarks" / "golden_sizing.py"
ERRATA = ROOT / "docs" / "errata.md"

needs_golden = pytest.mark.skipif(not GOLDEN.exists(), reason="the golden file is not beside the repository")


def _rows() -> list[tuple[str, dict[str, Any]]]:
    if not GOLDEN.exists():
        return []
    cases = document.parse(GOLDEN.read_text(encoding="utf-8"), GOLDEN.name).data
    return [(group, row) for group, rows in cases.items() for row in rows]


def _program() -> ModuleType:
    spec = importlib.util.spec_from_file_location("golden_sizing", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PROGRAM_MODULE = _program()


def _assert_equal(got: Any, want: Any, row: dict[str, Any]) -> None:
    if isinstance(want, list):
        assert len(got) == len(want)
        for one, other in zip(got, want, strict=True):
            _assert_equal(one, other, row)
    elif isinstance(want, dict):
        assert set(got) == set(want)
        for key, value in want.items():
            _assert_equal(got[key], value, row)
    elif row.get("exact"):
        assert got == want
    else:
        assert got == pytest.approx(want, rel=row["rel_tol"])


@needs_golden
@pytest.mark.parametrize(("group", "row"), _rows(), ids=[row["id"] for _, row in _rows()])
def test_worked_example_is_recomputed_from_its_inputs(group: str, row: dict[str, Any]) -> None:
    _assert_equal(PROGRAM_MODULE.compute(group, row), row["value"], row)


@needs_golden
def test_program_prints_one_value_for_every_row() -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(GOLDEN)], capture_output=True, text=True, check=True, timeout=120
    )
    assert set(json.loads(done.stdout)) == {row["id"] for _, row in _rows()}
    assert done.stderr == ""


@needs_golden
def test_errata_list_every_row_where_the_article_differs() -> None:
    text = ERRATA.read_text(encoding="utf-8")
    listed = {line.split("|")[1].strip(" `") for line in text.splitlines() if line.startswith("| `")}
    differing = {row["id"] for _, row in _rows() if "article" in row}
    assert differing
    assert differing - listed == set()


@needs_golden
def test_errata_state_the_number_of_the_article_and_of_the_formula() -> None:
    text = ERRATA.read_text(encoding="utf-8")
    cells = {
        line.split("|")[1].strip(" `"): [cell.strip() for cell in line.split("|")[2:4]]
        for line in text.splitlines()
        if line.startswith("| `")
    }
    for _, row in _rows():
        if "article" not in row:
            continue
        printed, computed = cells[row["id"]]
        for number in _numbers(row["article"]):
            assert number in printed.replace(",", ""), (row["id"], number)
        for number in _numbers(row["value"]):
            assert number in computed.replace(",", ""), (row["id"], number)


def _numbers(value: Any) -> list[str]:
    if isinstance(value, list):
        return [n for item in value for n in _numbers(item)]
    if isinstance(value, int | float):
        return [f"{value:g}" if abs(value) < 1e5 else str(value)]
    return []


def test_other_numbers_give_other_results_through_the_same_formula() -> None:
    row = {
        "id": "any_name",
        "in": {"layers": 61, "kv_heads": 4, "head_dim": 64, "bytes": 1},
        "unit": "B/token",
    }
    assert PROGRAM_MODULE.compute("kv_cache", row) == 2 * 61 * 4 * 64
    chain = {"id": "x", "in": {"nodes": 100, "headroom": 0.10}}
    assert PROGRAM_MODULE.compute("slo_chain", chain) == 110


def test_unpublished_range_and_unbroken_sweep_are_refused_not_guessed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    outside = {"id": "rho", "in": {"ttft_p99_ms": [199, 250, 501]}}
    assert PROGRAM_MODULE.compute("slo_chain", outside) == [None, pytest.approx(0.59), None]
    rounds = [[1, 50, 10, 100, 100], [2, 60, 10, 200, 200]]
    calm = {"id": "knee", "in": {"ttft_p99_ms": 500, "goodput_share_min": 0.95, "rounds": rounds}}
    assert PROGRAM_MODULE.compute("guidellm_knee", calm) is None
    assert "never broke" in capsys.readouterr().err


def test_row_with_unknown_inputs_is_reported_and_not_skipped(tmp_path: Path) -> None:
    file = tmp_path / "odd.yaml"
    file.write_text("tco:\n  - {id: odd, in: {colour: 3}}\n", encoding="utf-8")
    assert PROGRAM_MODULE.main([str(file)]) == 2
    assert PROGRAM_MODULE.main([str(tmp_path / "absent.yaml")]) == 2
