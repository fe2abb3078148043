"""Staging: text of any kind comes through; times in every spelling; merging is idempotent."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.extract.spend_row import TEXT_COLUMNS
from pipeline.extract.spend_staging import SpendStaging
from pipeline.lake import Lake, connect

NOW = datetime(2026, 3, 30, 12)


def text_row(**values: Any) -> list[str | None]:
    base = {"request_id": "r", "start_time": "2026-03-29 12:00:00", "end_time": "2026-03-29 12:00:01"}
    return [{**base, **values}.get(name) for name in TEXT_COLUMNS]


def stored(lake: Lake, columns: str) -> list[tuple[Any, ...]]:
    with connect() as con:
        lake.view(con, "raw/spend_logs", "s")
        return con.execute(f"SELECT {columns} FROM s ORDER BY ALL").fetchall()


# PostgreSQL text holds anything but NUL; an empty text is null here.
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=40)


@settings(max_examples=40)
@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=20, unique_by=lambda pair: pair[0]))
def test_any_text_survives_the_way_through_csv(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]]
) -> None:
    lake = Lake(tmp_path_factory.mktemp("lake"))
    with connect() as con:
        staging = SpendStaging(con, lake, NOW)
        staging.add([text_row(request_id=a, model=b) for a, b in pairs])
        flushed = staging.flush()
    assert (flushed.rows, flushed.rejected, flushed.repaired) == (len(pairs), {}, {})
    assert stored(lake, "request_id, model") == sorted(pairs, key=lambda p: (p[0].encode(), p[1].encode()))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-03-29T12:00:00Z", datetime(2026, 3, 29, 12)),
        ("2026-03-29T12:00:00+00:00", datetime(2026, 3, 29, 12)),
        ("2026-03-29 14:00:00+02", datetime(2026, 3, 29, 12)),
        ("2026-03-29 12:00:00", datetime(2026, 3, 29, 12)),
        ("2026-03-29 12:00:00.123456", datetime(2026, 3, 29, 12, 0, 0, 123456)),
        ("1774785600.25", datetime(2026, 3, 29, 12, 0, 0, 250000)),
        ("2026-03-29T02:30:00+01:00", datetime(2026, 3, 29, 1, 30)),
    ],
)
def test_an_instant_is_the_same_in_every_spelling(lake: Lake, text: str, expected: datetime) -> None:
    with connect() as con:
        staging = SpendStaging(con, lake, NOW)
        staging.add([text_row(start_time=text, end_time=None)])
        staging.flush()
    assert stored(lake, "start_time") == [(expected,)]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "start_time unreadable"),
        ("soon", "start_time unreadable"),
        ("infinity", "start_time unreadable"),
        ("1e300", "start_time unreadable"),
        ("1970-01-01 00:00:00", "start_time out of range"),
        ("2026-04-02 00:00:00", "start_time out of range"),
    ],
)
def test_a_row_without_a_plausible_start_is_set_aside(lake: Lake, text: str | None, reason: str) -> None:
    with connect() as con:
        staging = SpendStaging(con, lake, NOW)
        staging.add([text_row(start_time=text)])
        assert staging.flush().rejected == {reason: 1}
    assert stored(lake, "1") == []


def test_staging_the_same_rows_again_touches_no_file(lake: Lake) -> None:
    def stage(now: datetime, **values: Any) -> None:
        with connect() as con:
            staging = SpendStaging(con, lake, now)
            staging.add([text_row(request_id=f"r{i}", **values) for i in range(3)])
            staging.flush()

    stage(NOW)
    (path,) = lake.files("raw/spend_logs")
    before = path.stat().st_mtime_ns
    stage(NOW + timedelta(hours=1))
    assert path.stat().st_mtime_ns == before
    stage(NOW + timedelta(hours=2), status="success")
    assert path.stat().st_mtime_ns != before
    assert stored(lake, "request_id, status") == [(f"r{i}", "success") for i in range(3)]


def test_a_repeated_row_keeps_what_was_read_last(lake: Lake) -> None:
    with connect() as con:
        for n, status in enumerate(["open", "success"]):
            staging = SpendStaging(con, lake, NOW + timedelta(hours=n))
            staging.add([text_row(status=status)])
            staging.flush()
            con.execute("DROP TABLE staged")
    assert stored(lake, "status") == [("success",)]


def test_a_flush_without_rows_writes_nothing(lake: Lake) -> None:
    with connect() as con:
        staging = SpendStaging(con, lake, NOW)
        flushed = [staging.flush(), staging.flush()]
    assert [(f.rows, f.dates, f.rejected, f.repaired) for f in flushed] == [(0, set(), {}, {})] * 2
    assert lake.files("raw/spend_logs") == []
