from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.sizing import measured, plan, plan_compare, plan_file
from pipeline.sizing.units import SizingError


def example(examples: Path) -> plan_file.Plan:
    return plan_file.load(examples / "twenty_developers.yaml")


def test_week_gives_its_figures_tagged_as_measured_with_its_window(examples: Path, week_report: Any) -> None:
    laid, account = measured.overlay(example(examples), measured.read(week_report))
    one = laid.inputs["calls.prompt_tokens_p50"]
    assert (one.value, one.tag, one.date) == (71_000.0, "measured", "2026-11-23")
    assert "2026-11-16T00:00:00 to 2026-11-23T00:00:00" in one.source
    assert laid.inputs["people.duty_cycle"].value == 0.09
    assert laid.inputs["people.amplification"].tag == "measured"
    assert laid.inputs["calls.output_tokens"].value == pytest.approx(74_000 / 160)
    assert laid.inputs["calls.prefix_hit"].source.startswith("prefix_hit, realised over 98%")
    assert laid.inputs["energy.measured_agents_per_megawatt"].value == 1200.0
    assert [m["input"] for m in account["missing"]] == ["concurrency_by_hour"]


def test_declared_people_win_over_the_ones_derived_from_human_hours(examples: Path, week_report: Any) -> None:
    week = measured.read(week_report)
    laid, _ = measured.overlay(example(examples), week)
    assert laid.inputs["people.active"].value == 20
    alone, _ = measured.overlay(measured.as_defaults(example(examples)), week)
    assert alone.inputs["people.active"].value == 120 / 8
    assert alone.inputs["people.active"].tag == "declared"


def test_what_the_week_lacks_is_named_with_what_filled_it(examples: Path, week_report: Any) -> None:
    week_report["prefix_hit"] = {"value": None, "reason": "no backend reported cached tokens"}
    del week_report["calls_per_human_hour"]["values"][1]["amplification"]
    week_report["agents_per_megawatt"] = {"value": None, "reason": "no power was measured"}
    laid, account = measured.overlay(example(examples), measured.read(week_report))
    missing = {m["input"]: m for m in account["missing"]}
    assert missing["calls.prefix_hit"]["why"] == "no backend reported cached tokens"
    assert missing["calls.prefix_hit"]["filled_with"] == 0.96
    assert missing["calls.prefix_hit"]["from"].startswith("plan: sizing for agents")
    # Half of a measured pair is not put beside a published half.
    assert laid.inputs["people.duty_cycle"].tag == laid.inputs["people.amplification"].tag == "literature"
    assert missing["energy.measured_agents_per_megawatt"]["from"].startswith("nothing")


def test_synthetic_power_is_no_measurement(week_report: Any) -> None:
    week_report["agents_per_megawatt"]["synthetic"] = True
    week_report["agents_per_megawatt"]["values"][0]["synthetic"] = True
    week = measured.read(week_report)
    assert week.value("energy.measured_agents_per_megawatt") is None
    assert "open/node" not in week.agents


def test_measured_value_out_of_its_range_is_refused_with_the_number(week_report: Any) -> None:
    week_report["prefix_hit"]["realised"]["value"] = 1.7
    week = measured.read(week_report)
    assert week.value("calls.prefix_hit") is None
    assert any("1.7 lies outside" in str(r.reason) for r in week.readings)


def test_concurrency_by_hour_of_the_week_is_taken_when_the_report_has_it(
    examples: Path, week_report: Any
) -> None:
    week_report["calls_per_human_hour"]["concurrency_by_hour_of_week"] = {"34": [4.0, 10.0], "35": 3.0}
    laid, account = measured.overlay(example(examples), measured.read(week_report))
    assert laid.samples == {34: (4.0, 10.0), 35: (3.0,)}
    assert "concurrency_by_hour" in account["taken"]
    assert plan.compute(laid)["results"]["concurrency"]["peak"]["hour_of_week"] == 34


@pytest.mark.parametrize("content", ["{", "[]", '{"meta": {}}'])
def test_file_that_is_no_report_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "report.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(SizingError, match=r"report\.json"):
        measured.load(path)


def test_absent_report_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SizingError, match="No such file"):
        measured.load(tmp_path / "report.json")


def test_check_names_the_assumption_that_moved_most(examples: Path, week_report: Any) -> None:
    predicted = plan.compute(example(examples))
    week_report["calls_per_human_hour"]["values"][1]["duty_cycle"] = 0.25
    result = plan_compare.check(predicted, measured.read(week_report))
    verdicts = {r["name"]: r["verdict"] for r in result["rows"]}
    assert not result["holds"]
    assert verdicts["people.duty_cycle"] == "broke"
    assert verdicts["people.amplification"] == "broke"  # 1.4 against 2 to 3.5
    assert verdicts["calls.prompt_tokens_p50"] == "holds"
    assert result["first_suspect"] == "rho, the duty cycle (people.duty_cycle)"
    assert result["concurrency"]["value"] == pytest.approx(0.25 / 0.11 * 1.4 / 3, rel=1e-3)


def test_check_holds_where_the_week_lies_within_the_bounds(examples: Path, week_report: Any) -> None:
    laid, _ = measured.overlay(example(examples), measured.read(week_report))
    week_report["calls_per_human_hour"]["peak_concurrent_calls"] = 3
    result = plan_compare.check(plan.compute(laid), measured.read(week_report))
    assert result["holds"], result["rows"]
    assert result["first_suspect"] is None


def test_busier_moment_than_the_fleet_was_sized_for_breaks_the_plan(examples: Path, week_report: Any) -> None:
    laid, _ = measured.overlay(example(examples), measured.read(week_report))
    result = plan_compare.check(plan.compute(laid), measured.read(week_report))
    assert result["broke"] == ["peak_concurrency"]  # 9 in flight, 4 sized for


def test_prefix_hit_is_judged_by_what_misses(examples: Path, week_report: Any) -> None:
    text = (
        (examples / "twenty_developers.yaml")
        .read_text(encoding="utf-8")
        .replace(", low: 0.90, high: 0.98", "")
    )
    predicted = plan.compute(plan_file.parse(text))
    week_report["prefix_hit"]["realised"]["value"] = 0.93  # 3 % less hit, but 75 % more prefill
    rows = {r["name"]: r for r in plan_compare.check(predicted, measured.read(week_report))["rows"]}
    assert rows["calls.prefix_hit"]["verdict"] == "broke"


def test_what_was_not_measured_is_unknown_and_not_held(examples: Path, week_report: Any) -> None:
    week_report["prompt_length"] = {"value": None, "reason": "no call has a known length"}
    rows = {
        r["name"]: r
        for r in plan_compare.check(plan.compute(example(examples)), measured.read(week_report))["rows"]
    }
    assert rows["calls.prompt_tokens_p50"]["verdict"] == "unknown"
    assert rows["calls.prompt_tokens_p50"]["reason"] == "no call has a known length"


def test_predicted_agents_per_megawatt_are_compared_at_the_same_state_and_boundary(
    examples: Path, week_report: Any
) -> None:
    addition = (
        "\nenergy:\n"
        "  board_idle_w: {value: 100, unit: W, tag: declared, source: x, date: 2026-01-01}\n"
        "  node_overhead_w: {value: 1200, unit: W, tag: declared, source: x, date: 2026-01-01}\n"
    )
    text = (examples / "twenty_developers.yaml").read_text(encoding="utf-8") + addition
    result = plan_compare.check(plan.compute(plan_file.parse(text)), measured.read(week_report))
    names = [r["name"] for r in result["rows"] if r["name"].startswith("agents_per_megawatt")]
    assert names == ["agents_per_megawatt.llm_active.node", "agents_per_megawatt.open.node"]


def test_diff_lists_inputs_tags_and_results_that_changed(examples: Path, week_report: Any) -> None:
    before = plan.compute(example(examples))
    laid, _ = measured.overlay(example(examples), measured.read(week_report))
    result = plan_compare.diff(before, plan.compute(laid))
    changes = {r["key"]: r for r in result["inputs"]}
    assert changes["people.duty_cycle"]["change"] == pytest.approx(0.09 / 0.11 - 1, abs=1e-4)
    assert "model.layers" not in changes
    assert {"input": "people.duty_cycle", "before": "literature", "after": "measured"} in result["tags"]
    assert any(r["key"] == "concurrency.sequences" for r in result["results"])
    assert plan_compare.diff(before, before)["inputs"] == []


def test_only_computed_plans_are_compared(week_report: Any) -> None:
    with pytest.raises(SizingError, match="not a computed plan"):
        plan_compare.diff({"a": 1}, {"b": 2})
    with pytest.raises(SizingError, match="not a computed plan"):
        plan_compare.check(json.loads("[]"), measured.read(week_report))


def test_a_window_below_a_day_gives_the_people_that_it_saw_at_once(week_report: Any) -> None:
    report = json.loads(json.dumps(week_report))
    report["meta"]["window"]["hours"] = 0.5
    for row in report["calls_per_human_hour"]["values"]:
        row["mean_active_people"] = 2.5
    assert measured.read(report).value("people.active") == 2.5
