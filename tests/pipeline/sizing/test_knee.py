from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from pipeline.sizing import knee
from pipeline.sizing.knee import KneeSlo, Round

SLO = KneeSlo(ttft_ms=500)
ARTICLE = [
    Round(2, 95, 19, 480, 480),
    Round(8, 140, 20, 1900, 1900),
    Round(14, 240, 22, 3100, 3060),
    Round(17, 460, 24, 3400, 3330),
    Round(20, 760, 31, 3700, 2520),
    Round(26, 1500, 48, 3950, 900),
    Round(30, 2400, 71, 4000, 380),
]


def test_knee_is_the_last_round_before_the_target_breaks_in_any_order_of_rounds() -> None:
    shuffled = list(ARTICLE)
    random.Random(3).shuffle(shuffled)
    found = knee.find_knee(shuffled, SLO)
    assert (found.at.rate, found.goodput_tok_s, found.broke_at.rate) == (17, 3330, 20)
    assert found.broke == ("TTFT P99 760 ms", "goodput 68% of throughput")
    assert found.slo == "TTFT P99 < 500 ms, goodput >= 95% of throughput"


def test_stricter_target_moves_the_knee_to_a_lower_load() -> None:
    assert knee.find_knee(ARTICLE, KneeSlo(ttft_ms=200)).at.rate == 8
    assert knee.find_knee(ARTICLE, KneeSlo(ttft_ms=5000, itl_ms=30, goodput_share_min=0)).at.rate == 17


def test_sweep_that_never_broke_is_refused() -> None:
    with pytest.raises(knee.NoKnee, match="never broke: 17 req/s"):
        knee.find_knee(ARTICLE[:4], SLO)


def test_sweep_whose_lowest_load_breaks_is_refused() -> None:
    with pytest.raises(knee.NoKnee, match="the lowest load, 20 req/s"):
        knee.find_knee(ARTICLE[4:], SLO)


def test_round_that_passes_after_one_that_broke_does_not_count() -> None:
    lucky = Round(23, 400, 25, 3800, 3790)
    assert knee.find_knee([*ARTICLE, lucky], SLO).at.rate == 17


def test_saturating_round_is_the_highest_load_whatever_rate_it_reached() -> None:
    flood = Round(15, 9000, 90, 4100, 100, saturating=True, offered=False)
    found = knee.find_knee([*ARTICLE[:4], flood], SLO)
    assert (found.at.rate, found.broke_at) == (17, flood)


def test_closed_loop_is_ordered_by_concurrency_because_its_rate_falls_past_the_knee() -> None:
    rounds = [
        Round(4, 100, 10, 400, 400, concurrency=1, offered=False),
        Round(9, 300, 10, 900, 890, concurrency=8, offered=False),
        Round(8, 2000, 10, 800, 100, concurrency=64, offered=False),
    ]
    found = knee.find_knee(rounds, SLO)
    assert (found.at.concurrency, found.broke_at.concurrency) == (8, 64)


def test_errors_break_a_round() -> None:
    broken = replace(ARTICLE[2], error_share=0.02)
    assert knee.find_knee([*ARTICLE[:2], broken], SLO).broke == ("errors 2.00%",)


@pytest.mark.parametrize(
    ("rounds", "slo", "message"),
    [
        (ARTICLE, KneeSlo(), "declare a TTFT or an ITL target"),
        (ARTICLE[:1], SLO, "at least two"),
        ([replace(r, ttft_ms=None) for r in ARTICLE], SLO, "reports no TTFT p99"),
        ([replace(r, itl_ms=None) for r in ARTICLE], KneeSlo(itl_ms=30), "reports no ITL p95"),
    ],
)
def test_sweep_without_target_or_figure_is_refused(rounds: list[Round], slo: KneeSlo, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        knee.find_knee(rounds, slo)


def test_drop_beyond_the_threshold_is_a_regression() -> None:
    base = knee.find_knee(ARTICLE, SLO)
    slower = [
        replace(r, goodput_tok_s=r.goodput_tok_s * 0.9, throughput_tok_s=r.throughput_tok_s * 0.9)
        for r in ARTICLE
    ]
    result = knee.compare_knees(base, knee.find_knee(slower, SLO))
    assert result.regressed
    assert result.goodput_change == pytest.approx(-0.1)
    assert not knee.compare_knees(base, base).regressed
    assert not knee.compare_knees(base, knee.find_knee(slower, SLO), threshold=0.2).regressed


def test_knees_under_different_targets_are_not_compared() -> None:
    with pytest.raises(ValueError, match="different SLOs"):
        knee.compare_knees(knee.find_knee(ARTICLE, SLO), knee.find_knee(ARTICLE, KneeSlo(ttft_ms=200)))


def test_energy_per_token_is_power_of_the_same_window_over_goodput() -> None:
    round_ = replace(ARTICLE[3], started_s=1000.0, ended_s=1120.0)
    samples = [(990.0 + t, 3330.0 if 10 <= t <= 130 else 9999.0) for t in range(200)]
    found = knee.pair_power(round_, samples, boundary="board")
    assert found.joules_per_token == pytest.approx(1.0)
    assert found.mean_w == pytest.approx(3330)
    assert (found.coverage, found.boundary) == (1.0, "board")


@pytest.mark.parametrize(
    ("change", "samples", "message"),
    [
        ({"started_s": None}, [], "no start and end"),
        ({}, [(1000.0, 1.0), (1060.0, 1.0), (1120.0, 1.0)], "cover 0%"),
        ({}, [(t, 1.0) for t in range(2000, 2200)], "cover 0%"),
        ({"goodput_tok_s": 0.0}, [(1000.0 + t, 1.0) for t in range(121)], "no token of the round"),
    ],
)
def test_power_of_another_window_is_refused(
    change: dict[str, Any], samples: list[tuple[float, float]], message: str
) -> None:
    round_ = replace(ARTICLE[3], **{"started_s": 1000.0, "ended_s": 1120.0, **change})
    with pytest.raises(ValueError, match=message):
        knee.pair_power(round_, samples, boundary="board")
