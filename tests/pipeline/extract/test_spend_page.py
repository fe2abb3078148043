"""The engine reads plain rows exactly as the row reader does, and hands it every other one."""

from __future__ import annotations

import json
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from gateway_plugin.hashing import Hasher
from pipeline.extract.arrow_stream import ArrowRows
from pipeline.extract.identity_hash import user_digest
from pipeline.extract.spend_page import Page, SpendPages
from pipeline.extract.spend_row import SOURCE_COLUMNS, RowReader
from pipeline.extract.spend_staging import SpendStaging
from pipeline.lake import Lake, connect

NOW = datetime(2026, 3, 3)
OBJECT = {
    "schema": 1,
    "event_id": "e1",
    "outcome": "success",
    "started_us": 1772409600000000,
    "ttft_ms": 812.25,
}
USAGE = {"prompt_tokens": 100, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 60}}
#: Name -> what differs from a plain row.
PLAIN: dict[str, dict[str, Any]] = {
    "everything": {},
    "no object": {"aw": None},
    "no usage": {"usage": None, "extra_cached": "5"},
    "details are null": {"usage": USAGE | {"prompt_tokens_details": None, "cache_read_input_tokens": 9}},
    "spread answer": {"usage": {"prompt_tokens": 100, "output_tokens": 4, "cache_creation_input_tokens": 3}},
    "numbers as text": {"usage": USAGE | {"prompt_tokens": "100"}},
    "details that are none": {"usage": USAGE | {"prompt_tokens_details": "unknown"}},
    "a response-cache hit": {"cache_hit": " True "},
    "a failure": {
        "status": "failure",
        "error_class": "Timeout",
        "error_code": "408",
        "attempted_retries": "2",
    },
    "whole milliseconds": {"aw": OBJECT | {"ttft_ms": 812}},
    "line breaks and quotes": {"model": 'a "b"\r\nc', "team_id": "t,1"},
    "a session in the user": {"end_user": "user_ab_account__session_0198c0de-0000-7000-8000-000000000000"},
}
ODD: dict[str, dict[str, Any]] = {
    "unreadable object": {"aw": "{not json"},
    "foreign keys in the object": {"aw": OBJECT | {"prompt": "secret"}},
    "a wrong type in the object": {"aw": OBJECT | {"schema": "1"}},
    "a null in the object": {"aw": OBJECT | {"outcome": None}},
    "an object without our id": {"aw": {"schema": 1}},
    "an object in an object": {"aw": {"agentwatt": OBJECT}},
    "a member twice": {"aw": '{"event_id": "e1", "event_id": "e2"}'},
    "a number for an object": {"aw": "5"},
    "a list for an object": {"aw": '["event_id"]'},
    "a null for an object": {"aw": "null"},
    "usage as text": {"usage": "nothing"},
    "a fraction of a token": {"usage": USAGE | {"prompt_tokens": 100.5}},
    "tokens that are a truth value": {"usage": USAGE | {"completion_tokens": True}},
    "numbers with a point": {"usage": USAGE | {"prompt_tokens": 100.0}},
    "negative tokens": {"usage": USAGE | {"prompt_tokens_details": {"cached_tokens": -1}}},
    "more cached than input": {"usage": USAGE | {"prompt_tokens_details": {"cached_tokens": 101}}},
    "tokens of the Responses API": {
        "usage": {"input_tokens": 9, "input_tokens_details": {"cached_tokens": 3}}
    },
    "metadata in a string": {"usage": None, "aw": None, "metadata_text": json.dumps({"usage_object": USAGE})},
    "an error with a text in it": {"error_class": "it failed for ada@example.org"},
    "retries that are no number": {"attempted_retries": "many"},
}


def source_row(changes: dict[str, Any]) -> list[str | None]:
    row: dict[str, Any] = dict.fromkeys(SOURCE_COLUMNS) | {
        "request_id": "r1", "litellm_call_id": "c1", "api_key": "k1", "spend": "0.25", "prompt_tokens": "100",
        "completion_tokens": "7", "total_tokens": "107", "start_time": "2026-03-02 08:00:00.125",
        "end_time": "2026-03-02 08:00:04", "model_group": "coder", "end_user": "ada", "user": "u1",
        "team_id": "t1",
        "session_id": "0198c0de-0000-7000-8000-000000000000", "status": "success", "cache_hit": "False",
        "usage": USAGE, "aw": OBJECT,
    } | changes  # fmt: skip
    return [json.dumps(v) if isinstance(v, dict) else v for v in row.values()]


def arrow_of(rows: list[list[str | None]]) -> ArrowRows:
    """Rows as the database's driver gives them."""
    columns = [pa.array([row[n] for row in rows], pa.string()) for n in range(len(SOURCE_COLUMNS))]
    for name, kind in (("start_time", "timestamp[us]"), ("end_time", "timestamp[us]")):
        place = SOURCE_COLUMNS.index(name)
        columns[place] = columns[place].cast(kind)
    return ArrowRows(pa.Table.from_arrays(columns, list(SOURCE_COLUMNS)).__arrow_c_stream__())


def staged(folder: Path, rows: list[list[str | None]], *, by_hand: bool, monkeypatch: Any) -> tuple[Any, ...]:
    """What a page becomes: rows, what was nulled, and how many rows the engine read by itself."""
    reader = RowReader(Hasher(b"a secret of the tests"), ("end_user", "user_id", "key"))
    handed: list[Any] = []
    with connect() as con, monkeypatch.context() as patch:
        staging = SpendStaging(con, Lake(folder), NOW)
        add = staging.add
        patch.setattr(staging, "add", lambda some: (handed.extend(some), add(some)))
        if by_hand:
            patch.setattr("pipeline.extract.spend_page._PLAIN", "FALSE")
        pages = SpendPages(con, staging, reader)
        page = Page.of(arrow_of(rows))
        assert (page.rows, page.key) == (len(rows), (datetime(2026, 3, 2, 8, 0, 0, 125_000), "r1"))
        pages.stage(page)
        gathered = con.execute(f"SELECT * FROM {staging.gather()}")
        columns = [c[0] for c in gathered.description]
        found = [dict(zip(columns, r, strict=True)) for r in gathered.fetchall()]
        for row in found:
            row["aw"] = None if row["aw"] is None else json.loads(row["aw"])
        nulled = staging.flush().repaired
        tables = {t for (t,) in con.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
        assert not [t for t in tables if t.startswith("page_")], "what was staged is forgotten"
    return found, nulled, dict(reader.repairs), len(rows) - len(handed)


@pytest.mark.parametrize("name", [*PLAIN, *ODD])
def test_the_engine_and_the_reader_make_the_same_of_a_row(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = source_row((PLAIN | ODD)[name])
    fast = staged(tmp_path, [row], by_hand=False, monkeypatch=monkeypatch)
    slow = staged(tmp_path, [row], by_hand=True, monkeypatch=monkeypatch)
    assert fast[:3] == slow[:3]
    assert (fast[3], slow[3]) == (1 if name in PLAIN else 0, 0)


def test_plain_and_odd_rows_of_one_page_all_arrive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [source_row(changes) for changes in (*PLAIN.values(), *ODD.values())]
    found, _, _, by_engine = staged(tmp_path, rows, by_hand=False, monkeypatch=monkeypatch)
    assert (len(found), by_engine) == (len(rows), len(PLAIN))


def test_a_page_keeps_the_order_of_the_database(tmp_path: Path) -> None:
    rows = [source_row({"request_id": f"r{n}"}) for n in (3, 1, 2)]
    with connect() as con:
        staging = SpendStaging(con, Lake(tmp_path), NOW)
        pages = SpendPages(con, staging, RowReader(Hasher(b"a secret of the tests"), ("key",)))
        first = Page.of(arrow_of(rows))
        second = Page.of(arrow_of(rows[:2]))  # before the first one is staged
        assert (first.key[1], second.key[1]) == ("r2", "r1")
        pages.stage(first)
        pages.stage(second)
        assert con.execute(f"SELECT request_id FROM {staging.gather()}").fetchall() == [
            ("r3",), ("r1",), ("r2",), ("r3",), ("r1",),
        ]  # fmt: skip


def test_an_empty_page_has_no_rows_and_no_key() -> None:
    page = Page.of(arrow_of([]))
    assert (page.rows, page.key) == (0, "")


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (2, 3, 0, 1), (0, 1, 1, 2, 3)])
def test_a_file_is_in_order_and_holds_a_row_once_however_rows_came(
    tmp_path: Path, order: tuple[int, ...]
) -> None:
    lake = Lake(tmp_path)
    changes: list[dict[str, Any]] = [
        {"request_id": f"r{n}", "start_time": f"2026-03-02 08:00:0{n // 2}", "end_user": f"user {n}"}
        for n in range(4)
    ]
    changes[3] |= ODD["a null in the object"]  # one that is read by hand is merged with the others
    with connect() as con:
        staging = SpendStaging(con, lake, NOW)
        pages = SpendPages(con, staging, RowReader(Hasher(b"a secret of the tests"), ("end_user",)))
        for number in order:
            pages.stage(Page.of(arrow_of([source_row(changes[number])])))
        flushed = staging.flush()
        (path,) = lake.files("raw/spend_logs")
        stored = con.execute(f"SELECT request_id, user_hash FROM read_parquet('{path}')").fetchall()
    assert (flushed.rows, staging.rows) == (len(order), 0)
    digests = [user_digest(Hasher(b"a secret of the tests"), f"user {n}") for n in range(4)]
    assert stored == [(f"r{n}", digests[n]) for n in range(4)]


def test_a_small_day_after_many_people_is_written_in_order(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    many = [
        source_row({"request_id": f"r{n:05}", "start_time": "2026-03-01 08:00:00", "end_user": f"user {n}"})
        for n in range(8000)
    ]
    few = [
        source_row(
            {"request_id": f"r{n:05}", "start_time": "2026-03-02", "end_user": f"user {n * 7919 % 8000}"}
        )
        for n in range(400)
    ]
    with connect() as con:
        staging = SpendStaging(con, lake, NOW)
        pages = SpendPages(con, staging, RowReader(Hasher(b"a secret of the tests"), ("end_user",)))
        pages.stage(Page.of(arrow_of(many)))
        pages.stage(Page.of(arrow_of(few)))
        staging.flush()
        stored = con.execute(f"SELECT request_id FROM read_parquet('{lake.files('raw/spend_logs')[1]}')")
        assert stored.fetchall() == [(f"r{n:05}",) for n in range(400)]


def test_a_flush_before_an_instant_leaves_the_rest_staged(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    changes: list[dict[str, Any]] = [
        {"request_id": "r0", "start_time": "2026-03-01 23:59:59"},
        {"request_id": "r1", "start_time": "2026-03-01 23:59:59.5"} | ODD["a null in the object"],
        {"request_id": "r2", "start_time": "2026-03-02 00:00:00"},
        {"request_id": None, "start_time": "2026-03-02 00:00:00"},
        {"request_id": "r3", "start_time": "2026-03-02 00:00:01"} | ODD["a null in the object"],
    ]
    with connect() as con:
        staging = SpendStaging(con, lake, NOW)
        pages = SpendPages(con, staging, RowReader(Hasher(b"a secret of the tests"), ("end_user",)))
        pages.stage(Page.of(arrow_of([source_row(c) for c in changes[:3]])))
        pages.stage(Page.of(arrow_of([source_row(c) for c in changes[3:]])))
        first = staging.flush(datetime(2026, 3, 2))
        assert (first.rows, first.dates, first.rejected) == (2, {date(2026, 3, 1)}, {})
        assert staging.rows == 3
        second = staging.flush()
        assert (second.rows, second.dates) == (2, {date(2026, 3, 2)})
        assert second.rejected == {"missing request_id": 1}
        assert (staging.rows, staging.attached, staging.flushes) == (0, [], 2)
        listed = ", ".join(f"'{path}'" for path in lake.files("raw/spend_logs"))
        stored = con.execute(f"SELECT request_id FROM read_parquet([{listed}])").fetchall()
    assert stored == [("r0",), ("r1",), ("r2",), ("r3",)]


def test_identities_are_forgotten_only_when_no_staged_row_refers_to_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.extract.spend_page._KNOWN", 1)
    hasher = Hasher(b"a secret of the tests")
    rows = [
        source_row({"request_id": f"r{n}", "start_time": f"2026-03-0{1 + n // 2}", "end_user": f"user {n}",
                    "session_id": f"session of {n}"})
        for n in range(4)
    ]  # fmt: skip
    with connect() as con:
        staging = SpendStaging(con, Lake(tmp_path), NOW)
        pages = SpendPages(con, staging, RowReader(hasher, ("end_user",)))
        pages.stage(Page.of(arrow_of(rows[:3])))
        staging.flush(datetime(2026, 3, 2))
        pages.stage(Page.of(arrow_of(rows[3:])))
        for memory in ("people", "sessions"):
            assert con.execute(f"SELECT COUNT(*) FROM {memory}").fetchone() == (2,), memory
        staging.flush()
        (path,) = Lake(tmp_path).day_files("raw/spend_logs", date(2026, 3, 2))
        stored = con.execute(f"SELECT user_hash, row_session_id FROM read_parquet('{path}')").fetchall()
    assert stored == [
        (user_digest(hasher, f"user {n}"), hasher.keep_or_hash(f"session of {n}")) for n in (2, 3)
    ]
