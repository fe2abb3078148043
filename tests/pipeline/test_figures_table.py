"""Tables for notebooks: plain rows, Arrow and pandas."""

from __future__ import annotations

import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from pipeline import figures, run
from pipeline.errors import ConfigError
from pipeline.figures import table
from pipeline.settings import Settings
from tests.pipeline.sql.synthetic import MONDAY, event, write


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A built lake of two days with one call each."""
    for n in range(2):
        write(tmp_path, "raw_event", [event(f"e{n}", MONDAY + timedelta(days=n), input_tokens=100 + n)])
    run.build(tmp_path, Settings(lake=tmp_path))
    return tmp_path


def test_rows_are_plain_values_under_their_columns(lake: Path) -> None:
    calls = figures.load(lake, "facts/call", columns=["call_id", "start_at", "input_tokens", "cached_tokens"])
    assert calls.columns == ["call_id", "start_at", "input_tokens", "cached_tokens"]
    assert len(calls) == 2
    rows = sorted(calls.rows(), key=lambda r: r["call_id"])
    assert rows[0] == {"call_id": "e0", "start_at": MONDAY, "input_tokens": 100, "cached_tokens": 0}
    assert isinstance(rows[0]["start_at"], datetime)


def test_every_table_that_is_in_the_lake_can_be_opened(lake: Path) -> None:
    present = {"raw/events", "facts/call", "facts/turn", "facts/session"}
    opened = set()
    for name in (n for n in figures.names() if "/" in n):  # the others are computed, not stored
        try:
            opened.add(figures.load(lake, name).name)
        except ConfigError as error:
            assert "holds nothing" in str(error)  # noqa: PT017 - the rest must open
    assert present <= opened
    assert any(name.startswith("marts/") for name in opened)


def test_days_choose_the_files(lake: Path) -> None:
    second = figures.load(lake, "raw/events", since=MONDAY.date() + timedelta(days=1))
    assert [r["event_id"] for r in second.rows()] == ["e1"]
    first = figures.load(lake, "facts/call", until=MONDAY.date() + timedelta(days=1))
    assert [r["call_id"] for r in first.rows()] == ["e0"]


def test_the_relation_can_be_queried_further(lake: Path) -> None:
    calls = figures.load(lake, "facts/call")
    assert calls.relation.filter("input_tokens > 100").aggregate("COUNT(*)").fetchone() == (1,)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("facts/nothing", {}, "no table"),
        ("raw/metrics", {}, "holds nothing"),
        ("facts/call", {"since": MONDAY.date() + timedelta(days=9)}, "holds nothing"),
        ("facts/call", {"columns": ["nothing"]}, "no column nothing"),
        ("marts/call_day", {"since": MONDAY.date() + timedelta(days=9)}, "holds nothing"),
        ("marts/call_day", {"until": MONDAY.date()}, "holds nothing of marts/call_day there"),
    ],
)
def test_what_cannot_be_opened_is_explained(
    lake: Path, name: str, options: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        figures.load(lake, name, **options)  # type: ignore[arg-type]


def test_arrow_holds_the_same_rows(lake: Path) -> None:
    arrow = figures.load(lake, "facts/call", columns=["call_id", "input_tokens"]).arrow()
    assert sorted(map(tuple, (r.values() for r in arrow.to_pylist()))) == [("e0", 100), ("e1", 101)]


def test_pandas_holds_the_same_rows(lake: Path) -> None:
    frame = figures.load(lake, "facts/call").pandas()
    assert sorted(frame["input_tokens"]) == [100, 101]


def test_an_absent_package_is_named_with_the_way_out(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "find_spec", lambda name: None)
    calls = figures.load(lake, "facts/call")
    with pytest.raises(ConfigError, match="pyarrow is not installed"):
        calls.arrow()
    with pytest.raises(ConfigError, match="pandas and numpy is not installed"):
        calls.pandas()


def test_neither_importing_nor_reading_rows_loads_arrow_pandas_or_numpy(lake: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from pipeline import figures; "
        f"assert len(figures.load(Path({str(lake)!r}), 'facts/call').rows()) == 2; "
        "print([m for m in ('pandas', 'pyarrow', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"
