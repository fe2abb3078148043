"""The benchmark over recorded sessions prints the published figures, through the product's importer."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[4]
TRACES = ROOT.parent / "shared/data/weka_cc_traces/traces_rle.jsonl.gz"
GOLDEN = ROOT.parent / "shared/golden/weka_530.json"


def differing(found: Any, expected: Any, place: str = "") -> list[str]:
    """Every place where counts differ at all, ratios by more than 1e-9, or the shape."""
    if isinstance(expected, dict):
        if not isinstance(found, dict) or found.keys() != expected.keys():
            return [f"{place}: {found} instead of {expected}"]
        return [d for key in expected for d in differing(found[key], expected[key], f"{place}/{key}")]
    exact = isinstance(expected, int)
    equal = (
        found == expected and isinstance(found, int) if exact else found == pytest.approx(expected, rel=1e-9)
    )
    return [] if equal else [f"{place}: {found} instead of {expected}"]


@pytest.mark.skipif(not TRACES.exists() or not GOLDEN.exists(), reason=f"recorded traces not at {TRACES}")
def test_the_recorded_sessions_give_the_published_figures() -> None:
    done = subprocess.run(
        [sys.executable, "benchmarks/weka_figures.py", str(TRACES)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert differing(json.loads(done.stdout), json.loads(GOLDEN.read_text(encoding="utf-8"))) == []
    assert "36,804 calls, 0 records set aside" in done.stderr


def test_a_difference_of_a_count_or_of_a_billionth_is_seen() -> None:
    assert differing({"a": 2, "b": 1.0}, {"a": 2, "b": 1.0 + 1e-10}) == []
    assert differing({"a": 3, "b": 1.0}, {"a": 2, "b": 1.0 + 1e-8}) == [
        "/a: 3 instead of 2",
        "/b: 1.0 instead of 1.00000001",
    ]
