"""What stands beside the ratio: companions, provisioned power, sensitivity, parts, bounds and saturation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from pipeline import figures, report
from pipeline.power import provisioned
from tests.pipeline.power.cases import HOUR, Pool, at, figure, one_tier, row, turns, watts
from tests.pipeline.sql.synthetic import MONDAY, build, event, metric

AGENTS = [*turns("s1", 0, 600), *turns("s2", 100)]
HOURS = 900 / 3600


@dataclass(frozen=True)
class Declared:
    name: str = "rack 4"
    watts: float = 5000
    count: int = 2
    source: str = "contract"


def test_declared_watts_never_enter_the_measured_rows(tmp_path: Path) -> None:
    found = figure(tmp_path, AGENTS, watts("GPU-a", 500), one_tier(provisioned=[Declared()]))
    declared = found["provisioned"]["declared"]
    assert declared["agents_per_provisioned_megawatt"] == pytest.approx(HOURS / 0.01)
    assert declared["entries"][0]["source"] == "contract"
    assert {r["power"] for r in found["values"]} == {"measured"}
    assert all("provisioned" not in key for r in found["values"] for key in r)


def test_declared_watts_do_not_stand_in_for_a_missing_meter(tmp_path: Path) -> None:
    found = figure(tmp_path, AGENTS, [], one_tier(provisioned=[Declared()]))
    assert found["value"] is None
    assert found["provisioned"]["declared"]["agents_per_provisioned_megawatt"] is None


def test_public_constants_place_our_boards_beside_published_results(tmp_path: Path) -> None:
    boards = watts("GPU-a", 500, modelName="NVIDIA H100 80GB HBM3")
    boards += watts("GPU-b", 500, modelName="NVIDIA H100 80GB HBM3")
    public = figure(tmp_path, AGENTS, boards)["provisioned"]["public_constants"]
    assert public["agents_per_provisioned_megawatt"] == pytest.approx(HOURS / (2 * 1.73e-3))
    assert public["gpus"] == 2
    assert "not measured" in public["meaning"]
    assert "77ca49a" in public["source"]


def test_an_unknown_accelerator_has_no_public_figure(tmp_path: Path) -> None:
    public = figure(tmp_path, AGENTS, watts("GPU-a", 500))["provisioned"]["public_constants"]
    assert public["agents_per_provisioned_megawatt"] is None
    assert "power.gpu_model" in public["reason"]


@pytest.mark.parametrize(
    ("model", "kilowatts"),
    [
        ("NVIDIA GB300", 2.10),
        ("NVIDIA B300", 2.17),
        ("AMD Instinct MI355X", 2.65),
        ("T4", None),
        (None, None),
    ],
)
def test_the_longest_name_that_fits_decides_the_constant(model: str | None, kilowatts: float | None) -> None:
    assert provisioned.constant(model) == kilowatts


def test_agents_per_board_and_per_kilowatt_and_the_idle_share(tmp_path: Path) -> None:
    # two hours: 100 W in the first, 300 W in the second
    power = watts("GPU-a", 100, hours=0.95)
    power += watts("GPU-a", 300, start_s=3600 + 60, hours=1)
    (beside,) = figure(tmp_path, AGENTS, power, one_tier(max_gap_s=400), hours=2)["companions"]
    mean = HOURS / 2
    assert beside["agents_per_gpu"] == pytest.approx(mean)
    energy = 100 * 3540 + 200 * 120 + 300 * 3540  # a ramp of two minutes between the two
    assert beside["agents_per_kilowatt"] == pytest.approx(mean / (energy / 7200 / 1e3), rel=0.01)
    # the ramp begins in the first hour, whose mean is a little above 100 W
    assert beside["idle_share"] == pytest.approx(100 * 7200 / energy, rel=0.05)


def test_unknown_cached_tokens_leave_new_tokens_unknown(tmp_path: Path) -> None:
    events = turns("s1", 0, 600, cached_tokens=None) + turns("s2", 100, cached_tokens=None)
    (beside,) = figure(tmp_path, events, watts("GPU-a", 500))["companions"]
    assert beside["wh_per_million_new_tokens"] is None
    assert "cached tokens are unknown" in beside["reasons"]["wh_per_million_new_tokens"]
    assert beside["wh_per_turn"] == pytest.approx(500 / 3)


def test_tool_gaps_count_up_to_the_cap_and_longer_idle_gaps_not_at_all(tmp_path: Path) -> None:
    call = {"duration_ms": 100_000, "output_tokens": 7000, "ttft_ms": 1000}
    events = []
    for s in ("s1", "s2"):
        events += [
            event(f"{s}a", at(0), session_key=s, turn_id=f"{s}1", initiator="user", **call),
            event(f"{s}b", at(500), session_key=s, turn_id=f"{s}1", **call),  # a tool of 400 s
            event(f"{s}c", at(1100), session_key=s, turn_id=f"{s}2", initiator="user", **call),  # idle 500 s
        ]
    found = figure(tmp_path, events, watts("GPU-a", 1000))
    per_second = 2 / 3600 / 1e-3
    in_turn = row(found)["sensitivity"]["tool cap"]
    assert in_turn == pytest.approx(
        {"60 s": 360 * per_second, "300 s": 600 * per_second, "1800 s": 700 * per_second,
         "none": 700 * per_second}
    )  # fmt: skip
    assert "idle cap" not in row(found)["sensitivity"]
    opened = row(found, "open")["sensitivity"]["idle cap"]
    assert opened == pytest.approx(
        {"300 s": 700 * per_second, "900 s": 1200 * per_second, "1800 s": 1200 * per_second}
    )


def test_profiles_weeks_and_days_add_up_to_the_value(tmp_path: Path) -> None:
    events = [*AGENTS, *turns("s3", 0, model_group="coder-small")]
    for n in range(20):
        events.append(event(f"d{n}", at(1000 + 20 * n), session_key="deep", turn_id="d", duration_ms=15_000,
                            initiator="agent" if n else "user", output_tokens=2000))  # fmt: skip
    found = figure(tmp_path, events, watts("GPU-a", 1000))
    one = row(found)
    parts = {p["profile"]: p["contribution"] for p in one["by_profile"]}
    assert set(parts) == {"chat-only", "deep-loop"}
    assert sum(parts.values()) == pytest.approx(one["value"])
    assert sum(g["contribution"] for g in one["by_model_group"]) == pytest.approx(one["value"])
    (week,) = one["by_week"]
    assert (week["week"], week["days"]) == ("2026-W10", 1)
    assert week["value"] == pytest.approx(one["value"])
    assert week["week_interval"]["value"] is None


def test_the_pooled_rule_is_a_row_of_its_own(tmp_path: Path) -> None:
    found = figure(tmp_path, AGENTS, watts("GPU-a", 1000))
    pooled = next(r for r in found["pooled"] if r["state"] == "in_turn")
    assert (pooled["rule"], pooled["value"]) == ("pooled", row(found)["pooled_rule"])
    assert {r["rule"] for r in found["values"]} == {"turn"}


def test_a_silent_sensor_widens_the_measurement_interval_over_the_whole_window(tmp_path: Path) -> None:
    loud = watts("GPU-a", 500)
    quiet = [m for m in watts("GPU-b", 100) if not at(1000) < at(0).fromisoformat(m["ts"]) < at(1500)]
    found = figure(tmp_path, AGENTS, loud + quiet)
    assert [round(e["seconds"]) for e in found["coverage"]["excluded"]["board"]] == [540]
    assert found["coverage"]["by_hour"]["board"][0]["coverage"] == pytest.approx(1 - 540 / 3600)
    one = row(found)
    low, high = one["measurement_interval"]
    whole = HOURS / 600e-6  # the sensor read 100 W whenever it read
    assert low == pytest.approx(min(whole, one["value"]) / 1.05)
    assert high == pytest.approx(max(whole, one["value"]) / 0.95)


def test_turns_of_unknown_conformity_are_taken_to_be_like_the_known_ones_of_the_day(tmp_path: Path) -> None:
    events = turns("s1", 0, 600) + turns("s2", 0, ttft_ms=9000) + turns("s3", 0, ttft_ms=None)
    one = row(figure(tmp_path, events, watts("GPU-a", 1000)))
    assert (one["value"], one["value_upper"]) == pytest.approx((600 / 3.6, 900 / 3.6))
    assert one["estimate"]["value"] == pytest.approx(2 / 3 * 1200 / 3.6)


def test_a_day_without_any_known_turn_has_no_estimate(tmp_path: Path) -> None:
    events = turns("s1", 0, 600, ttft_ms=None) + turns("s2", 0, ttft_ms=None)
    one = row(figure(tmp_path, events, watts("GPU-a", 1000)))
    assert one["estimate"]["value"] is None
    assert "2026-03-02" in one["estimate"]["reason"]
    assert one["value"] == 0


def test_a_step_back_that_is_no_restart_is_not_energy(tmp_path: Path) -> None:
    name = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
    readings = [9e9 + 60 * n * 1e5 for n in range(-1, 62)]
    readings[30] -= 1e7  # a stale value of another exporter: below the one before, but no restart
    found = figure(
        tmp_path, AGENTS, [metric(at(60 * (n - 1)), name, v, UUID="a") for n, v in enumerate(readings)]
    )
    board = found["boundaries"][0]
    assert board["implausible_steps"] == 1
    assert board["mean_watts"] == pytest.approx(100, rel=0.05)


def test_a_queue_that_is_felt_in_the_first_token_means_the_limit_was_near(tmp_path: Path) -> None:
    events = []
    for hour in range(12):
        busy = hour == 11
        for n in range(40 if busy else 3):
            events.append(event(f"h{hour}-{n}", at(3600 * hour + 60 * n), session_key=f"s{n}",
                                turn_id=f"t{hour}-{n}", initiator="user", duration_ms=9_000,
                                ttft_ms=4_000 if busy else 500))  # fmt: skip
    lake = build(tmp_path, events, metrics=watts("GPU-a", 100, hours=12))
    computed = figures.compute(lake, one_tier(), MONDAY, MONDAY + 12 * HOUR).figures
    saturation = computed["agents_per_megawatt"]["saturation"]
    assert saturation["first_token_growth"] == pytest.approx(8)
    assert saturation["lower_bound"] is False


def test_the_report_prints_what_stands_beside_the_ratio(tmp_path: Path) -> None:
    settings = one_tier(
        provisioned=[Declared()], pools=[Pool("all", ["coder-large"], devices=["GPU-a"])], gpu_model="H200"
    )
    lake = build(
        tmp_path / "lake", AGENTS, metrics=watts("GPU-a", 500) + watts("GPU-x", 90), settings=settings
    )
    report.write(lake, settings, tmp_path / "out", since=MONDAY, until=MONDAY + HOUR)
    html = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    for phrase in (
        "How far it rests on conventions",
        'board: tool cap 60 s</th><td class="n">500</td>',
        "sole group of its pool",
        "none; needs at least 8 measured hours",
        "Wh per million new tokens",
        "25.0 agents per declared megawatt",
        "Measured, but in no pool: GPU-x (board)",
        "planned and not measured",
    ):
        assert phrase in html


def test_external_work_changes_neither_companions_nor_sensitivity(tmp_path: Path) -> None:
    call = {"duration_ms": 100_000, "output_tokens": 7000, "ttft_ms": 1000}
    outside = [
        event("xa", at(0), session_key="x", turn_id="x1", initiator="user", provider="anthropic", **call),
        event("xb", at(900), session_key="x", turn_id="x1", provider="anthropic", **call),
    ]
    plain = figure(tmp_path / "a", AGENTS, watts("GPU-a", 500))
    beside = figure(tmp_path / "b", AGENTS + outside, watts("GPU-a", 500))
    assert beside["external"]["agent_hours"]["in_turn"] == pytest.approx(1000 / 3600)
    assert beside["companions"] == plain["companions"]
    assert row(beside)["sensitivity"] == row(plain)["sensitivity"]


def test_input_whose_cached_part_is_unknown_is_taken_to_be_like_the_rest(tmp_path: Path) -> None:
    calls = {"input_tokens": 1000, "cached_tokens": 600}
    events = [e for n in range(9) for e in turns(f"s{n}", 10 * n, **calls)]
    events += turns("s9", 0, input_tokens=1000, cached_tokens=None)
    (beside,) = figure(tmp_path, events, watts("GPU-a", 500))["companions"]
    assert beside["coverage"]["cached_tokens_reported"] == pytest.approx(0.9)
    assert beside["wh_per_million_new_tokens"] == pytest.approx(500 / (10 * 400) * 1e6)
