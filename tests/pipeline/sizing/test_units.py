from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.sizing import fleet, units


@pytest.mark.parametrize(
    ("nodes", "headroom", "expected"), [(100, 0.10, 110), (20, 0.15, 23), (9, 0.15, 11), (7, 0.0, 7)]
)
def test_ceiling_of_a_decimal_product_is_the_one_on_paper(nodes: int, headroom: float, expected: int) -> None:
    assert fleet.with_headroom(nodes, headroom) == expected


@given(st.integers(1, 10**6), st.integers(1, 10**4))
def test_ceiling_covers_and_floor_fits(amount: int, unit: int) -> None:
    assert units.ceil_div(amount, unit) * unit >= amount > (units.ceil_div(amount, unit) - 1) * unit
    assert units.floor_div(amount, unit) * unit <= amount < (units.floor_div(amount, unit) + 1) * unit


def test_gib_and_gb_differ_by_seven_percent() -> None:
    assert units.gib_to_gb(96) == pytest.approx(103.079, rel=1e-5)
    assert units.gb_to_gib(units.gib_to_gb(12.5)) == pytest.approx(12.5)


def test_round_up_goes_to_the_next_multiple() -> None:
    assert units.round_up(6.6, 4) == 8
    assert units.round_up(8, 4) == 8


def test_whole_fractions_print_as_integers() -> None:
    assert units.plain(Fraction(114)) == 114
    assert isinstance(units.plain(Fraction(114)), int)
    assert units.plain(Fraction(1, 4)) == 0.25


@pytest.mark.parametrize(
    "call",
    [
        lambda: units.exact(math.inf),
        lambda: units.ceil_div(1, 0),
        lambda: units.floor_div(1, -1),
        lambda: units.round_up(1, 0),
        lambda: units.positive("x", math.nan),
        lambda: units.share("x", 1.01),
        lambda: fleet.with_headroom(1, -0.1),
        lambda: fleet.required_tok_s(1, 0),
        lambda: fleet.peak_tok_s(1, 1, 1, 25),
        lambda: fleet.reserve(1, 1.0),
        lambda: fleet.chain_gpus(1, 1, peak_factor=1, active_hours=1, rho_max=2, gpu_tok_s=1),
    ],
)
def test_impossible_number_is_refused(call: object) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        call()  # type: ignore[operator]


def test_reserved_share_is_of_the_result_and_not_of_the_need() -> None:
    assert fleet.reserve(8, 0.2) == 10


def test_sequence_never_spans_two_replicas() -> None:
    """17 sequences of 12 GiB are 219 GB: by volume two replicas of 114 GB, by whole sequences three."""
    found = fleet.agent_fleet(
        17, 12.0, weights_gb=30, gpu_gb=80, gpu_memory_utilization=0.9, tensor_parallel=2, spare_replicas=0
    )
    assert (found.sequences_per_replica, found.replicas, found.gpus_total) == (8, 3, 6)


def test_sequence_larger_than_a_replica_is_refused() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        fleet.agent_fleet(
            1, 60.0, weights_gb=30, gpu_gb=80, gpu_memory_utilization=0.9, tensor_parallel=1, spare_replicas=0
        )
