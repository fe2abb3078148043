"""The timing model's formulas."""

from __future__ import annotations

import math

import pytest

from deploy.local.engine.timing import Speeds

SPEEDS = Speeds(prefill_tok_s=1000, decode_tok_s=50, overhead_s=0.1, co_batching=0.5)


def test_prefill_takes_the_overhead_and_the_uncached_tokens() -> None:
    assert SPEEDS.prefill_s(0) == pytest.approx(0.1)
    assert SPEEDS.prefill_s(2500) == pytest.approx(2.6)


@pytest.mark.parametrize(("decoding", "seconds"), [(0, 0.02), (1, 0.02), (2, 0.03), (5, 0.06)])
def test_decoding_together_slows_everybody_down(decoding: int, seconds: float) -> None:
    assert SPEEDS.token_s(decoding) == pytest.approx(seconds)


def test_the_speed_up_divides_every_wait() -> None:
    fast = Speeds(prefill_tok_s=1000, decode_tok_s=50, overhead_s=0.1, co_batching=0.5, speed_up=10)
    assert fast.prefill_s(2500) == pytest.approx(0.26)
    assert fast.token_s(5, slow=3) == pytest.approx(0.018)


@pytest.mark.parametrize(("left", "token_s", "step"), [(100, 0.005, 4), (3, 0.005, 3), (100, 9.0, 1)])
def test_a_step_is_what_fits_into_a_chunk(left: int, token_s: float, step: int) -> None:
    assert SPEEDS.step(left, token_s) == step


@pytest.mark.parametrize(
    "wrong",
    [{"speed_up": 0}, {"prefill_tok_s": -1}, {"decode_tok_s": math.nan}, {"speed_up": math.inf},
     {"overhead_s": -0.1}, {"co_batching": math.nan}],
)  # fmt: skip
def test_impossible_speeds_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be"):
        Speeds(**wrong)
