"""Which devices serve which model groups, when, and what is refused."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pipeline.power import places
from tests.pipeline.power.cases import GAUGE, HOUR, Pool, Source, at, figure, one_tier, row, turns, watts
from tests.pipeline.sql.synthetic import MONDAY

LARGE = [*turns("s1", 0, 600), *turns("s2", 0)]
SMALL = turns("s3", 0, 900, model_group="coder-small")
TWO = watts("GPU-a", 300) + watts("GPU-b", 100)
APART = [Pool("big", ["coder-large"], devices=["GPU-a"]), Pool("little", ["coder-small"], devices=["GPU-b"])]
TOGETHER = ["coder-large", "coder-small"]


def of_group(found: dict[str, Any], group: str, state: str = "in_turn") -> dict[str, Any]:
    return next(g for g in row(found, state)["by_model_group"] if g["model_group"] == group)


def test_each_pool_divides_its_own_agents_by_its_own_energy(tmp_path: Path) -> None:
    found = figure(tmp_path, LARGE + SMALL, TWO, one_tier(pools=APART))
    assert of_group(found, "coder-large")["value"] == pytest.approx(900 / 3600 / 300e-6)
    assert of_group(found, "coder-small")["value"] == pytest.approx(600 / 3600 / 100e-6)
    assert row(found)["value"] == pytest.approx(1500 / 3600 / 400e-6)
    parts = [g["contribution"] for g in row(found)["by_model_group"]]
    assert sum(parts) == pytest.approx(row(found)["value"])
    assert {p["pool"]: p["mean_watts"] for p in found["pools"]} == pytest.approx({"big": 300, "little": 100})


def test_a_board_in_no_pool_serves_something_else_and_stays_out(tmp_path: Path) -> None:
    found = figure(tmp_path, LARGE, TWO, one_tier(pools=APART[:1]))
    assert row(found)["megawatt_hours"] == pytest.approx(300e-6)
    assert [(e["device"], e["boundary"]) for e in found["elsewhere"]] == [("GPU-b", "board")]


def test_only_boards_that_serve_something_else_give_null(tmp_path: Path) -> None:
    found = figure(tmp_path, LARGE, watts("GPU-x", 300), one_tier(pools=APART[:1]))
    assert found["value"] is None
    assert "serve something else" in found["reason"]


def test_a_model_group_outside_every_pool_is_external(tmp_path: Path) -> None:
    found = figure(tmp_path, LARGE + SMALL, TWO, one_tier(pools=APART[:1]))
    assert row(found)["value"] == pytest.approx(900 / 3600 / 300e-6)
    assert found["external"]["agent_hours"]["in_turn"] == pytest.approx(600 / 3600)


def test_a_pool_counts_energy_and_agents_only_while_it_is_valid(tmp_path: Path) -> None:
    half = Pool("big", ["coder-large"], devices=["GPU-a"], until=at(1800))
    rest = Pool("big", ["coder-large"], devices=["GPU-b"], since=at(1800))
    late = turns("s1", 0, 2400) + turns("s2", 2400)
    found = figure(tmp_path, late, TWO, one_tier(pools=[half, rest]))
    assert row(found)["megawatt_hours"] == pytest.approx((300 + 100) / 2 * 1e-6)
    assert found["coverage"]["power"]["board"] == pytest.approx(1)
    assert row(found)["value"] == pytest.approx(900 / 3600 / 200e-6)


def test_time_outside_every_validity_is_not_covered(tmp_path: Path) -> None:
    early = Pool("big", ["coder-large"], devices=["GPU-a"], until=at(1800))
    found = figure(tmp_path, LARGE, TWO, one_tier(pools=[early]))
    assert found["coverage"]["power"]["board"] == pytest.approx(0.5)
    assert found["value"] is None
    assert "50.0%" in found["reason"]


def test_a_board_in_two_pools_at_once_is_refused_with_what_to_declare(tmp_path: Path) -> None:
    both = [Pool("a", ["coder-large"], devices=["GPU-*"]), Pool("b", ["coder-small"], devices=["GPU-b"])]
    found = figure(tmp_path, LARGE + SMALL, TWO, one_tier(pools=both))
    assert found["value"] is None
    assert "GPU-b" not in found["values"]
    assert "declare one pool with the model groups of both" in found["reason"]


def test_a_shared_pool_without_a_rule_is_not_split(tmp_path: Path) -> None:
    found = figure(tmp_path, LARGE + SMALL, TWO, one_tier(pools=[Pool("all", TOGETHER)]))
    assert row(found)["value"] == pytest.approx(1500 / 3600 / 400e-6)
    group = of_group(found, "coder-small")
    assert group["value"] is None
    assert "no split is declared" in group["reason"]


def test_declared_shares_split_the_energy_and_are_named(tmp_path: Path) -> None:
    shares = {"coder-large": 0.75, "coder-small": 0.25}
    pool = Pool("all", TOGETHER, split="shares", shares=shares)
    group = of_group(figure(tmp_path, LARGE + SMALL, TWO, one_tier(pools=[pool])), "coder-small")
    assert group["value"] == pytest.approx(600 / 3600 / 100e-6)
    assert group["split"] == "declared share 0.25"


def test_time_in_flight_splits_the_energy_of_each_hour(tmp_path: Path) -> None:
    pool = Pool("all", TOGETHER, split="llm_active")
    found = figure(tmp_path, LARGE + SMALL, TWO, one_tier(pools=[pool]))
    # 900 s against 600 s in flight: both groups have the same ratio
    for name, seconds in (("coder-large", 900), ("coder-small", 600)):
        expected = seconds / 3600 / (400e-6 * seconds / 1500)
        assert of_group(found, name)["value"] == pytest.approx(expected)
        assert of_group(found, name)["split"] == "time in flight"


def test_pools_measured_in_different_boundaries_have_no_total(tmp_path: Path) -> None:
    sources = [
        Source("board", GAUGE, "gauge", "board", identity_labels=["UUID"]),
        Source("node", "ipmi_dcmi_power_consumption_watts", "gauge", "node"),
    ]
    pools = [
        Pool("big", ["coder-large"], devices=["GPU-a"]),
        Pool("little", ["coder-small"], targets=["node-2"]),
    ]
    metrics = watts("GPU-a", 300) + watts(
        "x", 500, metric_name="ipmi_dcmi_power_consumption_watts", target="node-2"
    )
    found = figure(tmp_path, LARGE + SMALL, metrics, one_tier(sources=sources, pools=pools))
    assert found["value"] is None
    assert "mixed boundaries: pool little is measured at node, not at board" in found["reason"]


def test_groups_that_share_a_target_are_one_pool() -> None:
    table = {"a": ["n1"], "b": ["n2"], "c": ["n2", "n3"]}
    made = places.pools(one_tier(model_groups=table))
    assert {p.name: tuple(p.targets) for p in made} == {"a": ("n1",), "b+c": ("n2", "n3")}


def test_ids_below_a_target_are_told_apart_and_board_ids_are_not() -> None:
    outlet = Source("pdu", "w", "gauge", "rack", identity_labels=["outlet"])
    board = Source("b", "w", "gauge", "board", identity_labels=["uuid"])
    assert places.device(outlet, {"outlet": "1"}, "pdu-a") != places.device(outlet, {"outlet": "1"}, "pdu-b")
    uuid = "0b3a1c2d-0000-1111-2222-333344445555"
    assert places.device(board, {"uuid": uuid}, "n1") == places.device(board, {"uuid": f"GPU-{uuid}"}, "n2")


def test_negative_power_is_refused(tmp_path: Path) -> None:
    found = figure(tmp_path, LARGE, watts("GPU-a", 300) + watts("GPU-b", -80))
    assert found["value"] is None
    assert "GPU-b: 100% of its samples are negative" in found["reason"]


def test_power_of_another_day_does_not_overlap(tmp_path: Path) -> None:
    other = watts("GPU-a", 300, start_s=-36 * 3600)
    found = figure(tmp_path, LARGE, other)
    assert found["value"] is None
    assert "do not overlap" in found["reason"]


def test_power_of_another_month_does_not_overlap(tmp_path: Path) -> None:
    other = watts("GPU-a", 300, start_s=-40 * 86_400)
    assert "metrics run from 2026-01-21" in figure(tmp_path, LARGE, other)["reason"]


def test_facility_is_rack_times_pue_with_its_source_in_rows_of_its_own(tmp_path: Path) -> None:
    rack = Source("pdu", "rack_watts", "gauge", "rack")
    settings = one_tier(sources=[rack], pue=1.25, pue_source="meter of 2025")
    found = figure(tmp_path, LARGE, watts("x", 1000, metric_name="rack_watts"), settings)
    assert row(found, boundary="facility")["value"] * 1.25 == pytest.approx(
        row(found, boundary="rack")["value"]
    )
    assert row(found, boundary="facility")["pue_source"] == "meter of 2025"
    assert row(found, boundary="facility")["power"] == "rack measured × PUE"


def test_every_part_of_a_facility_row_stands_on_the_power_of_the_building(tmp_path: Path) -> None:
    rack = Source("pdu", "rack_watts", "gauge", "rack")
    settings = one_tier(sources=[rack], pue=1.25, pue_source="meter of 2025")
    found = figure(tmp_path, LARGE, watts("x", 1000, metric_name="rack_watts"), settings)
    below, above = row(found, boundary="rack"), row(found, boundary="facility")
    assert set(above) == set(below) | {"pue", "pue_source"}
    assert above["megawatt_hours"] == pytest.approx(1.25 * below["megawatt_hours"])
    assert above["conformant_agent_hours"] == below["conformant_agent_hours"]
    for key in ("measurement_interval", "any_conformity_interval"):
        assert [1.25 * x for x in above[key]] == pytest.approx(below[key])
    for part in ("by_day", "by_week", "by_model_group", "by_profile"):
        assert len(above[part]) == len(below[part]) == 1
        for one, other in zip(above[part], below[part], strict=True):
            for key in (
                "value",
                "value_upper",
                "contribution",
                "measurement_interval",
                "contribution_interval",
            ):
                if one.get(key) is not None:
                    assert _times(one[key], 1.25) == pytest.approx(other[key])
            assert one.get("agent_hours") == other.get("agent_hours")
    caps = above["sensitivity"]["tool cap"]
    assert {c: 1.25 * v for c, v in caps.items()} == pytest.approx(below["sensitivity"]["tool cap"])
    assert [r["boundary"] for r in found["capacity"]["rows"]].count("facility") == 3


def test_a_pue_below_one_is_refused(tmp_path: Path) -> None:
    rack = Source("pdu", "rack_watts", "gauge", "rack")
    settings = one_tier(sources=[rack], pue=0.9, pue_source="wish")
    found = figure(tmp_path, LARGE, watts("x", 1000, metric_name="rack_watts"), settings)
    assert found["facility"]["megawatt_hours"] is None
    assert "below 1" in found["facility"]["reason"]
    assert {r["boundary"] for r in found["values"]} == {"rack"}


def test_spans_join_where_they_touch() -> None:
    a, b, c = MONDAY, MONDAY + HOUR, MONDAY + 2 * HOUR
    assert places.union([(b, c), (a, b)]) == [(a, c)]
    later = (c + timedelta(seconds=1), c + HOUR)
    assert places.union([later, (a, b)]) == [(a, b), later]


def test_hours_without_any_call_in_flight_are_split_like_the_whole_window(tmp_path: Path) -> None:
    pool = Pool("all", TOGETHER, split="llm_active")
    metrics = watts("GPU-a", 300, hours=2) + watts("GPU-b", 100, hours=2)
    found = figure(tmp_path, LARGE + SMALL, metrics, one_tier(pools=[pool]), hours=2)
    value = of_group(found, "coder-large")["value"]
    assert value == pytest.approx(900 / 3600 / (800e-6 * 900 / 1500))


def test_a_board_may_move_from_one_pool_to_another(tmp_path: Path) -> None:
    moved = [
        Pool("big", ["coder-large"], devices=["GPU-a"]),
        Pool("little", ["coder-small"], devices=["GPU-b"], since=at(1800)),
        Pool("big", ["coder-large"], devices=["GPU-b"], until=at(1800)),
    ]
    found = figure(tmp_path, LARGE + SMALL, TWO, one_tier(pools=moved))
    assert found["refused"] == {}
    watts_of = {p["pool"]: p["megawatt_hours"] for p in found["pools"]}
    assert watts_of == pytest.approx({"big": 350e-6, "little": 50e-6})


def _times(value: Any, factor: float) -> Any:
    return [factor * x for x in value] if isinstance(value, list) else factor * value
