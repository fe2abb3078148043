from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.sizing import energy, hardware, tco
from pipeline.sizing.tco import money


def test_money_stays_decimal_and_reads_floats_as_written() -> None:
    assert money(0.1) + money(0.2) == Decimal("0.3")
    assert isinstance(tco.per_gpu_hour(money(83300), 4, 0.63), Decimal)


@pytest.mark.parametrize("bad", ["a lot", float("nan"), float("inf"), ""])
def test_what_is_no_amount_is_refused(bad: object) -> None:
    with pytest.raises(ValueError, match="amount of money"):
        money(bad)  # type: ignore[arg-type]


@given(st.decimals("0.5", "20", places=2))
def test_break_even_is_where_owning_and_renting_cost_the_same(price: Decimal) -> None:
    cost = money(83300)
    even = tco.break_even_utilisation(cost, 4, price)
    assert float(tco.per_gpu_hour(cost, 4, even)) == pytest.approx(float(price))


def test_payback_is_none_where_renting_never_costs_more() -> None:
    assert (
        tco.payback_years(
            money(1_697_000), money(1), 0.1, nodes=11, gpus_per_node=4, opex_node_year=money(28000)
        )
        is None
    )


def test_comparison_says_never_above_full_utilisation() -> None:
    offer = tco.CloudOffer("cheap", money("1.39"), "2026-06-01")
    row = tco.compare(
        offer,
        capex_node=money(165900),
        opex_node_year=money(28000),
        amortisation_years=3,
        nodes=11,
        gpus_per_node=4,
        utilisation=0.7,
        gpu_goodput_tok_s=1850,
    )
    assert row.break_even > 1
    assert not row.worth_owning
    assert "never" in str(row.reason)


def test_utilisation_that_does_not_grow_never_saturates() -> None:
    assert tco.years_to_saturation(0.35, 0.0) is None
    assert tco.years_to_saturation(1.0, 0.5) == 0
    with pytest.raises(ValueError, match="utilisation"):
        tco.years_to_saturation(0.0, 0.5)


def test_nothing_is_divided_by_zero() -> None:
    for call in (
        lambda: tco.per_gpu_hour(money(1), 4, 0),
        lambda: tco.node_year(money(1), 0, money(1)),
        lambda: tco.per_million_tokens(money(1), 0),
        lambda: tco.break_even_utilisation(money(1), 4, money(0)),
    ):
        with pytest.raises(ValueError, match="above 0"):
            call()


def test_power_grows_from_idle_to_busy_and_pue_makes_the_facility() -> None:
    model = energy.PowerModel(700, 100, 1200, 4, 1.5)
    assert model.node_kw(0.0) == pytest.approx(1.6)
    assert model.node_kw(1.0) == pytest.approx(4.0)
    power = energy.fleet_power(model, 2, 6, 0.5, money("0.1"))
    assert power.board_kw == pytest.approx(6 * 0.4 + 2 * 0.1)
    assert power.node_kw == pytest.approx(power.board_kw + 2.4)
    assert power.facility_kw == pytest.approx(power.node_kw * 1.5)
    assert power.energy_year == money(round(power.facility_kw, 6)) * money("0.1") * 8760


def test_agents_per_megawatt_is_their_number_over_the_power() -> None:
    assert energy.agents_per_megawatt(20, 4.0) == 5000
    with pytest.raises(ValueError, match="power"):
        energy.agents_per_megawatt(20, 0.0)


def test_dearer_energy_moves_the_break_even_up() -> None:
    rows = energy.energy_sensitivity(
        money(77825), 5.4, 1.0, (money("0.034"), money("0.2")), gpus_per_node=4, cloud_gpu_hour=money("3.63")
    )
    assert rows[0][1] == money("5.4") * money("0.034") * 8760
    assert rows[0][2] < rows[1][2]


@pytest.mark.parametrize("arguments", [(700, 800, 0, 4, 1.0), (0, 0, 0, 4, 1.0), (700, 100, 0, 4, 0.9)])
def test_impossible_power_model_is_refused(arguments: tuple[float, float, float, int, float]) -> None:
    with pytest.raises(ValueError, match="energy"):
        energy.PowerModel(*arguments)


def test_card_is_found_by_name_and_an_unknown_one_lists_the_known() -> None:
    assert hardware.find("H100-SXM-80GB").hbm_gb_s == 3350
    with pytest.raises(ValueError, match="h200-sxm-141gb"):
        hardware.find("abacus")
