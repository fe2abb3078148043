"""Reset-aware deltas and renamed metrics."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import ConfigError
from pipeline.extract.series import COUNTER_DELTA_MACRO, counter_delta, counter_deltas, deltas_sql, resolve
from pipeline.lake import connect


def test_after_a_restart_the_new_value_is_the_increase() -> None:
    assert counter_deltas([(0, 900), (15, 1000), (30, 20), (45, 50)], 60) == [None, 100, 20, 30]
    # An energy counter in mJ whose driver was reloaded.
    assert counter_deltas([(0, 9_000_000_000), (1, 12)], 60) == [None, 12]


def test_a_gap_or_a_missing_sample_is_unknown_and_not_zero() -> None:
    assert counter_deltas([(0, 1), (100, 5), (110, 7)], 60) == [None, None, 2]
    assert counter_deltas([(0, 1), (10, None), (20, 7)], 60) == [None, None, None]
    assert counter_deltas([(0, 1), (10, math.nan), (20, 7)], 60) == [None, None, None]
    assert counter_deltas([], 60) == []
    assert counter_deltas([(0, 1)], 60) == [None]


VALUES = st.none() | st.floats(-10, 1e12) | st.just(math.nan)


@given(st.lists(st.tuples(st.integers(1, 100), VALUES), max_size=12))
def test_a_delta_is_never_negative_and_equals_the_macro(steps: list[tuple[int, float | None]]) -> None:
    times = itertools.accumulate(gap for gap, _ in steps)
    points = [(float(t), v) for t, (_, v) in zip(times, steps, strict=True)]
    deltas = counter_deltas(points, 60)
    assert len(deltas) == len(points)
    assert all(d is None or d >= 0 for d in deltas)
    with connect() as con:
        con.execute(COUNTER_DELTA_MACRO)
        for ((t0, v0), (t1, v1)), delta in zip(itertools.pairwise(points), deltas[1:], strict=True):
            (found,) = con.execute(
                "SELECT counter_delta(?::DOUBLE, ?::DOUBLE, ?, 60)", [v0, v1, t1 - t0]
            ).fetchone() or (None,)
            assert found == delta == counter_delta(v0, v1, t1 - t0, 60)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=20))
def test_without_restarts_the_deltas_add_up_to_the_difference(increments: list[float]) -> None:
    values = list(itertools.accumulate(increments))
    deltas = counter_deltas(list(enumerate(values)), 60)
    assert sum(d for d in deltas if d is not None) == pytest.approx(
        values[-1] - values[0], rel=1e-9, abs=1e-6
    )


def test_series_are_kept_apart_and_restarts_are_marked() -> None:
    with connect() as con:
        con.execute(COUNTER_DELTA_MACRO)
        con.execute("""CREATE TABLE m AS SELECT * FROM (VALUES
          (TIMESTAMP '2026-03-29 00:00:00', 'a', 'hits', '{}', 10.0),
          (TIMESTAMP '2026-03-29 00:00:10', 'a', 'hits', '{}', 30.0),
          (TIMESTAMP '2026-03-29 00:00:10', 'a', 'hits', '{}', 30.0),
          (TIMESTAMP '2026-03-29 00:00:20', 'a', 'hits', '{}', 4.0),
          (TIMESTAMP '2026-03-29 00:00:10', 'b', 'hits', '{}', 1000.0)) t(ts, target, name, labels, value)""")
        rows = con.execute(
            f"SELECT target, delta, restarted FROM ({deltas_sql('m', 60)}) ORDER BY target, ts"
        )
        assert rows.fetchall() == [
            ("a", None, False),
            ("a", 20.0, False),
            ("a", 4.0, True),
            ("b", None, False),
        ]


@pytest.mark.parametrize(
    ("present", "expected"),
    [
        ({"vllm:gpu_prefix_cache_hits_total"}, "vllm:gpu_prefix_cache_hits_total"),
        (
            {"vllm:gpu_prefix_cache_hits_total", "vllm:prefix_cache_hits_total"},
            "vllm:prefix_cache_hits_total",
        ),
        ({"vllm:prefix_cache_hits_total"}, "vllm:prefix_cache_hits_total"),
    ],
)
def test_the_newest_name_that_is_there_counts_alone(present: set[str], expected: str) -> None:
    assert resolve("prefix_cache_hits", present) == expected


def test_a_histogram_is_found_by_its_count() -> None:
    assert resolve("inter_token_seconds", {"vllm:time_per_output_token_seconds_count"}) == (
        "vllm:time_per_output_token_seconds"
    )


def test_what_is_not_there_is_an_error_that_names_what_was_looked_for() -> None:
    with pytest.raises(ConfigError, match="vllm:prefix_cache_hits_total, vllm:gpu_prefix_cache_hits_total"):
        resolve("prefix_cache_hits", {"vllm:num_requests_running"})
