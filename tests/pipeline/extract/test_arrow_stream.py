"""Rows of an Arrow stream are taken whole, read once, and let go of exactly once."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from pipeline.extract import arrow_stream
from pipeline.extract.arrow_stream import ArrowRows, ArrowStreamError

NOON = datetime(2026, 3, 2, 12, 0, 0, 125_000)
SCHEMA = pa.schema({"id": pa.string(), "at": pa.timestamp("us"), "n": pa.int64(), "long": pa.large_string()})


def batch(*rows: tuple[Any, ...]) -> pa.RecordBatch:
    columns = [pa.array([row[n] for row in rows], kind) for n, kind in enumerate(SCHEMA.types)]
    return pa.record_batch(columns, schema=SCHEMA)


def rows_of(*batches: pa.RecordBatch) -> ArrowRows:
    return ArrowRows(pa.RecordBatchReader.from_batches(SCHEMA, batches).__arrow_c_stream__())


def read(rows: ArrowRows, query: str = "FROM found") -> list[tuple[Any, ...]]:
    with duckdb.connect() as con:
        con.register("found", rows.capsule())
        return con.execute(query).fetchall()


FIRST = [("a", NOON, 1, "x" * 100), (None, None, None, None)]
SECOND = [("ünï", NOON.replace(year=1969), -3, "")]


def test_duckdb_reads_what_the_stream_held_in_its_order() -> None:
    rows = rows_of(batch(*FIRST), batch(), batch(*SECOND))
    assert (rows.count, rows.texts) == (3, {"id", "long"})
    assert read(rows) == FIRST + SECOND


def test_rows_are_there_once() -> None:
    rows = rows_of(batch(*FIRST))
    assert (len(read(rows)), read(rows)) == (2, [])


def test_rows_outlive_their_source() -> None:
    batches = [batch(*FIRST), batch(*SECOND)]
    rows = rows_of(*batches)
    batches.clear()
    assert read(ArrowRows(rows.capsule())) == FIRST + SECOND


@pytest.mark.parametrize(
    ("column", "found"),
    [("id", "ünï"), ("at", NOON.replace(year=1969)), ("long", "")],
)
def test_the_last_value_of_a_column_is_told(column: str, found: object) -> None:
    rows = rows_of(batch(*FIRST), batch(*SECOND))
    assert rows.last(column) == found
    assert read(rows) == FIRST + SECOND


def test_the_last_value_is_the_last_one_that_is_not_null() -> None:
    nothing = (None,) * 4
    assert rows_of(batch(*SECOND, *FIRST), batch(nothing)).last("id") == "a"
    assert rows_of(batch(*[("z", NOON, 1, "")] * 9, *[nothing] * 17)).last("at") == NOON
    assert rows_of(batch(nothing)).last("id") is None
    assert rows_of().last("id") is None


def test_a_part_of_a_batch_ends_where_it_ends() -> None:
    many = batch(*[(f"r{n}", NOON.replace(minute=n), n, None) for n in range(30)])
    part = rows_of(many.slice(11, 7))
    assert (part.count, part.last("id"), part.last("at")) == (7, "r17", NOON.replace(minute=17))
    assert [n for _, _, n, _ in read(part)] == list(range(11, 18))


def test_memory_is_given_back_however_much_of_the_rows_was_read() -> None:
    before = pa.total_allocated_bytes()
    for use in (
        lambda rows: rows.close(),
        read,
        lambda rows: read(rows, "FROM found LIMIT 1"),
        lambda rows: rows.capsule(),
        lambda rows: None,
    ):
        rows = rows_of(*(batch(*[("a" * 99, NOON, 1, None)] * 3000) for _ in range(9)))
        assert pa.total_allocated_bytes() > before + 9 * 3000 * 99
        use(rows)
        del rows
        assert pa.total_allocated_bytes() == before


def test_a_failing_source_is_named_and_nothing_of_it_is_kept() -> None:
    before = pa.total_allocated_bytes()

    def breaking() -> Iterator[pa.RecordBatch]:
        yield batch(*FIRST)
        raise OSError("the server went away")

    with pytest.raises(ArrowStreamError, match="the server went away"):
        ArrowRows(pa.RecordBatchReader.from_batches(SCHEMA, breaking()).__arrow_c_stream__())
    assert pa.total_allocated_bytes() == before


def test_what_is_no_stream_is_refused() -> None:
    with pytest.raises(ValueError, match="PyCapsule"):
        ArrowRows(object())


@pytest.mark.parametrize("fails", ["schema", "second batch", "nothing"])
def test_each_structure_is_released_once(fails: str) -> None:
    """A source that counts, since a structure released twice need not crash."""
    released: list[str] = []

    def let_go(kind: type[ctypes.Structure], name: str) -> Any:
        def release(place: int) -> None:
            released.append(name)
            kind.from_address(place).release = None

        return arrow_stream._Release(release)

    column = arrow_stream._Schema(b"n", b"nothing")
    columns = (ctypes.POINTER(arrow_stream._Schema) * 1)(ctypes.pointer(column))
    let_schema_go = let_go(arrow_stream._Schema, "schema")
    let_array_go = let_go(arrow_stream._Array, "array")
    left = iter([1, 2])

    def get_schema(_: int, place: int) -> int:
        if fails == "schema":
            return 5
        schema = arrow_stream._Schema(b"+s", b"", None, 0, 1, columns)
        schema.release = ctypes.cast(let_schema_go, ctypes.c_void_p).value
        ctypes.memmove(place, ctypes.addressof(schema), ctypes.sizeof(schema))
        return 0

    def get_next(_: int, place: int) -> int:
        number = next(left, 0)
        if fails == "second batch" and number == 2:
            return 5
        array = arrow_stream._Array(number)
        array.release = ctypes.cast(let_array_go, ctypes.c_void_p).value if number else None
        ctypes.memmove(place, ctypes.addressof(array), ctypes.sizeof(array))
        return 0

    functions = (
        arrow_stream._Fill(get_schema),
        arrow_stream._Fill(get_next),
        arrow_stream._Tell(lambda _: None),
        let_go(arrow_stream._Stream, "stream"),
    )
    stream = arrow_stream._Stream(*(ctypes.cast(f, ctypes.c_void_p).value for f in functions))
    capsule = arrow_stream._capsule(ctypes.addressof(stream), b"arrow_array_stream", None)
    if fails == "nothing":
        rows = ArrowRows(capsule)
        assert (rows.count, released) == (3, ["stream"])
        rows.close()
        rows.close()
        del rows
        assert released == ["stream", "array", "array", "schema"]
    else:
        with pytest.raises(ArrowStreamError, match="error 5"):
            ArrowRows(capsule)
        assert sorted(released) == (["stream"] if fails == "schema" else ["array", "schema", "stream"])
