"""The decision of a week: needed against installed, how sure it is, and what would change it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.report import decision, extras, planning, sensitivity
from pipeline.report.cards import change_words
from pipeline.report.change import compare
from pipeline.report.front import front, lever_words
from pipeline.sizing import document, measured, plan, plan_file
from pipeline.sizing.inputs import BY_KEY
from pipeline.sizing.units import SizingError

PLAN = Path(__file__).parents[3] / "docs/examples/twenty_developers.yaml"


@dataclass(frozen=True)
class Installed:
    gpus: int | None = None
    replicas: int | None = None
    workers: int | None = None
    source: str = "inventory"


@dataclass(frozen=True)
class Sizing:
    plan: Path | None = PLAN
    last_plan: Path | None = None
    installed: Installed | None = None
    proxy_config: Path | None = None
    chart_values: Path | None = None
    dashboards: Path | None = None
    engine_command: str | None = None


def figures(**changed: Any) -> dict[str, Any]:
    """Figures of a week as the report knows them; *changed* replaces the load or the hit."""
    busiest = changed.get("busiest", 9.0)
    hit = changed.get("hit", 0.95)
    hours = {str(h): [busiest if h == 34 else 2.0] for h in range(168)}
    days = [
        {"day": f"2026-03-{9 + d:02d}", "idle_cap_s": 900, "calls": calls, "human_hours": 20.0}
        for d, calls in enumerate((800, 820, 790, 810, 800, 400, 410))
    ]
    rows = [
        {
            "idle_cap_s": 900, "value": 35.0, "human_hours": 140.0, "duty_cycle": 0.11, "amplification": 1.5,
            "mean_active_people": 0.8,
        }
    ]  # fmt: skip
    return {
        "calls_per_human_hour": {
            "value": {"15 min": 35.0}, "values": rows, "by_day": days, "concurrency_by_hour_of_week": hours,
            "peak_concurrent_calls": 14, "coverage": {"attended_share": changed.get("attended", 1.0)},
            "turns_per_session": {"value": 3.0, "sessions": 200},
        },
        "prompt_length": {
            "value": {"p50": 40_000, "p95": 120_000, "mean": 50_000}, "input_to_output": {"value": 100},
        },
        "prefix_hit": {
            "value": {"realised": hit}, "realised": {"value": hit},
            "coverage": {"share_of_input_tokens": 1.0},
        },
        "agents_per_megawatt": {"value": None, "reason": "no power was measured in the window"},
        "counts": {"calls": 4830},
        "meta": {"window": {"start": "2026-03-09T00:00:00", "end": "2026-03-16T00:00:00", "hours": 168.0}},
    }  # fmt: skip


def planned(content: dict[str, Any] | None = None) -> planning.Planned:
    return planning.of_week(content or figures(), plan_file.load(PLAN))


def decided(installed: Installed | None = None, **changed: Any) -> dict[str, Any]:
    content = figures(**changed)
    return decision.decide(planned(content), None, content, installed)


def test_needs_are_those_of_the_computed_plan() -> None:
    week = planned()
    needs = week.needs()
    results = week.report["results"]
    assert needs is not None
    assert needs.gpus == results["fleet"]["gpus"]
    assert needs.replicas == results["fleet"]["replicas"] + results["fleet"]["spare_replicas"]
    assert needs.workers == results["gateway"]["workers"]


def test_more_same_and_fewer_follow_from_what_is_installed() -> None:
    needed = {r["what"]: r["needed"] for r in decided()["rows"]}
    few = decided(Installed(needed["gpus"] - 1, needed["replicas"], needed["workers"] + 2))
    assert [r["answer"] for r in few["rows"]] == ["more", "same", "fewer"]
    assert [r["difference"] for r in few["rows"]] == [1, 0, -2]
    assert few["value"] == "more"
    assert few["installed_source"] == "inventory"


def test_without_an_inventory_the_answer_is_null_and_says_which_setting_is_missing() -> None:
    nothing = decided()
    assert nothing["value"] is None
    assert "sizing.installed" in nothing["reason"]
    some = decided(Installed(workers=3))
    assert [r["answer"] is None for r in some["rows"]] == [True, True, False]
    assert some["rows"][0]["reason"] == "sizing.installed.gpus is not declared"


def test_an_answer_within_the_interval_is_not_called_clear() -> None:
    row = decision._row("gpus", "GPUs", 10, 9, [8.0, 12.0])
    assert (row["answer"], row["clear"]) == ("more", False)
    assert decision._row("gpus", "GPUs", 10, 7, [8.0, 12.0])["clear"] is True
    assert decision._row("gpus", "GPUs", 10, 7, None)["clear"] is None


def test_measured_inputs_carry_the_interval_of_their_days() -> None:
    inputs = planned().stated.inputs
    rate = inputs["calls.per_human_hour"]
    assert rate.tag == "measured"
    assert rate.low is not None
    assert rate.high is not None
    assert rate.low < rate.value < rate.high
    assert planned().report["uncertainty"]["outputs"]["gateway_workers"]


def test_a_sound_week_has_no_caveat_and_each_weakness_has_one() -> None:
    calm = [c for c in decided()["caveats"] if "wait longer" not in c]
    assert calm == []
    assert any("20%" in c or "20 %" in c for c in decided(attended=0.2)["caveats"])
    short = figures()
    short["meta"]["window"]["hours"] = 0.5
    short["calls_per_human_hour"]["concurrency_by_hour_of_week"] = {}
    said = decision.decide(planned(short), None, short, None)["caveats"]
    assert any("30 minutes long" in c for c in said)
    assert any("Sized on a mean" in c for c in said)
    example = decision.decide(planning.of_week(figures(), None), None, figures(), None)
    assert "published example" in example["caveats"][0]
    assert example["plan"]["is_published_example"]


def test_the_value_at_which_the_answer_turns_is_where_it_turns() -> None:
    week = planned()
    base = week.needs()
    assert base is not None
    found = 0
    for row in sensitivity.levers(week):
        for turn in (row["turns"]["above"], row["turns"]["below"]):
            if turn is None or row["input"] == "concurrency":
                continue
            found += 1
            key = row["input"].replace(".", "__")
            beyond = week.needs(**{key: turn["value"]})
            assert (None if beyond is None else beyond.gpus) == turn["gpus"] != base.gpus
            # A hair nearer to the present value the answer is still the present one.
            near = turn["value"] + (row["value"] - turn["value"]) * 0.02
            if BY_KEY[row["input"]].kind != "count":
                there = week.needs(**{key: near})
                assert there is not None
                assert there.gpus == base.gpus
    assert found >= 3


def test_load_that_was_measured_is_moved_as_a_whole_up_to_the_busiest_instant() -> None:
    rows = {r["input"]: r for r in sensitivity.levers(planned())}
    assert not any(key.startswith("people.") for key in rows)
    load = rows["concurrency"]
    assert load["value"] == pytest.approx(9.0)
    assert load["high"] == 14
    assert load["high_is"] == "the busiest instant of the window"


def test_inputs_stay_inside_what_a_plan_may_say() -> None:
    content = figures()
    content["calls_per_human_hour"]["concurrency_by_hour_of_week"] = {}
    content["calls_per_human_hour"]["values"][0]["amplification"] = 1.05
    rows = {r["input"]: r for r in sensitivity.levers(planned(content))}
    assert rows["people.amplification"]["low"] == 1.0
    assert rows["calls.prefix_hit"]["high"] <= 1.0


def test_the_strongest_input_stands_first() -> None:
    spreads = [
        abs(r["gpus"][1] - r["gpus"][0]) for r in sensitivity.levers(planned()) if None not in r["gpus"]
    ]
    assert spreads == sorted(spreads, reverse=True)


def test_a_lever_in_words_names_value_and_turn() -> None:
    row = {
        "title": "People at work at once", "unit": "people", "is_share": False, "value": 20.0,
        "turns": {"above": {"value": 23.4, "gpus": 10}, "below": {"value": 17.0, "gpus": None}},
    }  # fmt: skip
    assert lever_words(row) == (
        "People at work at once: 20.0 people now; 10 GPUs above 23.4, no fleet holds below 17.0."
    )


def test_the_earlier_week_predicts_this_one_unless_a_computed_plan_is_declared(tmp_path: Path) -> None:
    now, before = planned(figures(hit=0.90)), planned(figures(hit=0.99))
    stated = plan_file.load(PLAN)
    checked = planning.verified(now, before, Sizing(), stated)
    assert checked["source"].startswith("plan of the week before")
    assert "calls.prefix_hit" in checked["broke"]
    path = tmp_path / "last.yaml"
    path.write_text(document.dump(now.report), encoding="utf-8")
    again = planning.verified(now, before, Sizing(last_plan=path), stated)
    assert again["source"] == "computed plan last.yaml"
    assert "calls.prefix_hit" not in again["broke"]
    assert planning.verified(now, None, None, stated)["source"] == "plan file as written"


def test_a_declared_file_that_cannot_be_used_is_an_error(tmp_path: Path) -> None:
    content = figures()
    for sizing in (
        Sizing(plan=tmp_path / "missing.yaml"),
        Sizing(last_plan=tmp_path / "missing.yaml"),
        Sizing(proxy_config=tmp_path / "missing.yaml"),
        Sizing(dashboards=tmp_path),
    ):
        with pytest.raises(SizingError):
            extras.plan_of(content, None, sizing)


def test_a_window_of_one_session_decides_nothing() -> None:
    content = figures()
    content["calls_per_human_hour"]["turns_per_session"]["sessions"] = 1
    made, week = extras.plan_of(content, None, Sizing())
    assert week is None
    assert made["decision"]["value"] is None
    assert made["decision"]["reason"] == "one session says nothing about a fleet"
    assert made["plan_check"]["rows"] == []
    assert {c["status"] for c in made["checklist"]} >= {"unknown"}


def test_a_throughput_plan_gives_gpus_and_leaves_the_rest_null() -> None:
    stated = plan_file.load(PLAN.with_name("slo_chain.yaml"))
    needs = planning.needs(stated, plan.stated_values(stated))
    assert needs.gpus == plan.compute(stated)["results"]["fleet"]["gpus_installed"]
    assert (needs.replicas, needs.workers) == (None, None)


def test_lost_tokens_cost_the_prefill_of_the_plans_own_gpu() -> None:
    week = planned()
    row = {"lost_tokens": 3.6e6}
    lost = {
        "value": 3.6e6, "by_age": [row], "by": {"category": [row]}, "broken": {"value": 0.0, "meaning": ""},
    }  # fmt: skip
    priced = extras.cost(lost, week)
    values = plan.stated_values(week.stated)
    rate = 989e12 * values["hardware.flops_efficiency"] / (2 * values["model.active_params_b"] * 1e9)
    assert priced["cost"]["gpu_tok_s"] == pytest.approx(rate)
    assert priced["cost"]["gpu_hours"] == pytest.approx(3.6e6 / rate / 3600)
    assert priced["by"]["category"][0]["gpu_hours"] == priced["cost"]["gpu_hours"]
    assert extras.cost(lost, None)["cost"] == {
        "gpu_hours": None, "gpu_tok_s": None, "reason": "there is no plan", "source": "",
    }  # fmt: skip


def front_of(installed: Installed | None) -> Any:
    content = figures()
    week = planned(content)
    return front(
        content
        | {
            "decision": decision.decide(week, None, content, installed),
            "change": compare(content, None, "the lake holds no call in the window before"),
        }
    )


def test_the_verdict_is_one_sentence_that_whoever_signs_can_repeat() -> None:
    needed = planned().needs()
    assert needed is not None
    assert front_of(None).verdict == f"The window needs {needed.gpus} GPUs."
    more = front_of(Installed(needed.gpus - 2)).verdict
    assert more.startswith(f"2 more GPUs: {needed.gpus} needed, {needed.gpus - 2} installed")
    assert front_of(Installed(needed.gpus)).verdict.startswith("The same: ")


def test_no_comparison_says_why_in_words() -> None:
    shown = front_of(None)
    assert {c.change for c in shown.cards} == {"no comparison: the lake holds no call in the window before"}
    row = {"change": -0.123, "before": 40.0, "is_share": False, "within_spread": False, "reason": None}
    assert change_words(row) == "−12 % from 40.0, unusual"
    assert change_words(row | {"change": 0.001, "within_spread": True}, brief=True) == "unchanged, usual"
    assert change_words(row | {"change": 0.02, "is_share": True, "before": 0.8}) == (
        "+2.0 points from 80.0 %, unusual"
    )


def test_published_values_stand_in_only_as_defaults() -> None:
    assert all(i.is_default for i in measured.published().inputs.values())
    assert replace(planned(), is_published=True).is_published
