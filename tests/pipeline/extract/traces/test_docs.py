"""The guide to traces says what the code does."""

from __future__ import annotations

from pathlib import Path

from pipeline.extract.traces import registry, table
from pipeline.extract.traces.needs import FIGURES, MEANING, Need

GUIDE = (Path(__file__).resolve().parents[4] / "docs/traces.md").read_text(encoding="utf-8")


def test_the_guide_holds_the_whole_matrix() -> None:
    rows = registry.matrix()
    assert len(rows) == len(FIGURES)
    assert "| " + " | ".join(rows[0]) + " |" in GUIDE
    for row in rows:
        assert "| " + " | ".join(row.values()) + " |" in GUIDE


def test_the_guide_names_every_kind_and_every_field_of_a_table() -> None:
    for kind in registry.SOURCES:
        assert f"| `{kind}` |" in GUIDE
    for field, meaning in table.TARGETS.items():
        assert f"| `{field}` | {meaning} |" in GUIDE


def test_every_lack_has_words_and_every_figure_needs_something() -> None:
    assert set(MEANING) == set(Need)
    assert all(figure.needs and figure.paths for figure in FIGURES)
