from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.sizing import document, plan, plan_file, tables, uncertainty
from pipeline.sizing.plan_parts import PlanError
from pipeline.sizing.units import SizingError


def text_of(examples: Path, name: str = "twenty_developers.yaml") -> str:
    return (examples / name).read_text(encoding="utf-8")


def changed(examples: Path, old: str, new: str, name: str = "twenty_developers.yaml") -> str:
    text = text_of(examples, name)
    assert text.count(old) == 1, old
    return text.replace(old, new)


def problems(text: str) -> tuple[str, ...]:
    with pytest.raises(PlanError) as caught:
        plan_file.parse(text, "plan.yaml")
    return caught.value.problems


def test_twenty_developers_get_two_gpus_a_replica_four_in_all_and_two_gateway_workers(examples: Path) -> None:
    results = plan.compute(plan_file.load(examples / "twenty_developers.yaml"))["results"]
    assert results["concurrency"]["mean"] == 6.6
    assert results["concurrency"]["sequences"] == 8
    assert results["kv"]["gib_per_sequence"] == 12.0
    assert (results["kv"]["need_gib"], results["kv"]["per_gpu_gb"], results["kv"]["replica_gb"]) == (
        96,
        57,
        114,
    )
    assert results["replica"]["tensor_parallel"] == results["fleet"]["gpus_per_replica"] == 2
    assert results["fleet"]["gpus"] == 4
    assert results["gateway"]["workers"] == 2
    assert results["gateway"]["postgres"]["connections"] == 20
    assert "--max-num-seqs 8" in results["engine"]["flags"]


def test_five_million_requests_need_35_gpus_and_eleven_nodes(examples: Path) -> None:
    results = plan.compute(plan_file.load(examples / "slo_chain.yaml"))["results"]
    fleet = results["fleet"]
    assert (fleet["gpus"], fleet["nodes"], fleet["nodes_with_headroom"], fleet["gpus_installed"]) == (
        35,
        9,
        11,
        44,
    )
    assert results["money"]["node_year"] == "83300.00"
    assert results["money"]["million_tokens"] == "0.567"
    assert results["money"]["offers"][0]["break_even_utilisation"] == pytest.approx(0.6549)


@pytest.mark.parametrize("name", ["twenty_developers.yaml", "slo_chain.yaml"])
def test_plan_is_deterministic_to_the_byte(examples: Path, name: str) -> None:
    first, second = (document.dump(plan.compute(plan_file.load(examples / name))) for _ in range(2))
    assert first == second
    assert document.parse(first).data["plan"]["version"] == plan.VERSION


@pytest.mark.parametrize("name", ["twenty_developers.yaml", "slo_chain.yaml"])
def test_tables_show_every_part_of_a_plan(examples: Path, name: str) -> None:
    shown = tables.plan(plan.compute(plan_file.load(examples / name)))
    for heading in ("## Fleet", "## Money", "## Power", "## Uncertainty", "## What it rests on"):
        assert heading in shown


def test_every_input_carries_its_tag_source_and_date(examples: Path) -> None:
    report = plan.compute(plan_file.load(examples / "twenty_developers.yaml"))
    for key, one in report["inputs"].items():
        assert one["tag"] in ("measured", "declared", "literature"), key
        assert one["source"], key
        assert len(one["date"]) == 10, key
    assert "gateway.pool" in report["evidence"]["filled_from_defaults"]
    assert "people.active" not in report["evidence"]["filled_from_defaults"]


@pytest.mark.parametrize(
    ("old", "new", "line_of", "message"),
    [
        ("low: 16, high: 24", "low: 22, high: 24", "active:", "people.active: low 22, value 20, high 24"),
        ("low: 16, high: 24", "low: 16", "active:", "people.active: an interval needs both"),
        (
            "{value: 20, unit: people",
            "{value: 20, unit: seats",
            "active:",
            "people.active.unit: people is needed",
        ),
        (
            "{value: 20, unit: people",
            "{value: twenty, unit: people",
            "active:",
            "people.active.value: a number",
        ),
        ("{value: 20, unit: people", "{unit: people", "active:", "people.active: value is missing"),
        (
            "{value: 48, unit: layers",
            "{value: 48.5, unit: layers",
            "layers:",
            "model.layers.value: a whole number",
        ),
        ("  kv_heads:", "  kv_head:", "kv_head:", "model.kv_head: unknown input"),
        ("{value: max, unit", "{value: mean, unit", "context:", "fleet.context: p50, p95 or max"),
        ("method: agents", "method: magic", "method:", "plan.method: agents or throughput"),
        ("currency: EUR", "currency: euro", "currency:", "plan.currency: a three-letter"),
        ("  name: twenty", "  title: twenty", "plan:", "plan.name: missing"),
        ("slo:\n", "slow:\n", "slow:", "slow: unknown section"),
        ("{value: h100-sxm-80gb", "{value: 7", "gpu:", "hardware.gpu.value: text is needed"),
        ("{value: 0.90, unit: share", "{value: 90, unit: share", "gpu_memory", "at most 1 is allowed"),
        (
            "{value: 5000, unit: ms, tag: declared",
            "{value: 5000, unit: ms, tag: guessed",
            "ttft_ms:",
            "slo.ttft_ms.tag",
        ),
        ("source: team, date: 2026-09-12", "source: team, date: yesterday", "active:", "people.active.date"),
        (
            "source: team, date",
            "source: team, weather: fine, date",
            "active:",
            "people.active.weather: unknown field",
        ),
    ],
)
def test_complaint_points_at_line_and_key(
    examples: Path, old: str, new: str, line_of: str, message: str
) -> None:
    text = changed(examples, old, new)
    found = problems(text)
    line = next(n for n, words in enumerate(text.splitlines(), 1) if words.strip().startswith(line_of))
    assert any(p.startswith(f"plan.yaml:{line}: ") and message in p for p in found), found


def test_all_complaints_come_at_once(examples: Path) -> None:
    text = changed(examples, "unit: people", "unit: seats").replace("unit: 1/s,", "unit: 1/h,")
    assert len(problems(text)) == 2


def test_published_amplification_on_a_measured_duty_cycle_is_refused_at_its_line(examples: Path) -> None:
    text = changed(
        examples,
        "{value: 0.11, unit: share, tag: literature",
        "{value: 0.11, unit: share, tag: measured",
    )
    (found,) = problems(text)
    assert "people.amplification: a measured duty cycle needs the measured amplification" in found


def test_missing_required_input_says_what_it_is_and_what_would_replace_it(examples: Path) -> None:
    text = "\n".join(
        x for x in text_of(examples).splitlines() if "context_max" not in x and "layers" not in x
    )
    found = problems(text)
    assert any("calls.context_max: missing: longest context" in p for p in found)
    assert any("model.layers: missing" in p and "or give model_config" in p for p in found)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "plan.yaml:1:"),
        ("a: 1\na: 2\n", "plan.yaml:2: a: given twice"),
        ("- 1\n", "a plan is a mapping"),
        ("", "a plan is a mapping"),
        ("model: {}\n", "plan: missing"),
    ],
)
def test_text_that_is_no_plan_is_refused(text: str, message: str) -> None:
    assert any(message in p for p in problems(text))


def test_numbers_are_read_as_people_write_them() -> None:
    data = document.parse("a: 5.0e6\nb: 1e9\nc: 12:30\nd: 2026-09-12\ne: 1_000\nf: .5\ng: yes\nh: ~\n").data
    assert data == {
        "a": 5e6,
        "b": 1e9,
        "c": "12:30",
        "d": "2026-09-12",
        "e": 1000,
        "f": 0.5,
        "g": True,
        "h": None,
    }


def test_model_configuration_beside_the_plan_replaces_the_table(
    examples: Path, tmp_path: Path, models: Any
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(models.QWEN3_30B_A3B), encoding="utf-8")
    kept = [x for x in text_of(examples).splitlines() if not any(f"  {k}:" in x for k in _TABLE)]
    path = tmp_path / "plan.yaml"
    path.write_text("model_config: config.json\n" + "\n".join(kept), encoding="utf-8")
    results = plan.compute(plan_file.load(path))["results"]
    assert results["kv"]["gib_per_sequence"] == pytest.approx(98_304 / 2 * 131_072 / 2**30, rel=1e-5)
    assert results["kv"]["weights_per_gpu_gb"] * results["replica"]["tensor_parallel"] == pytest.approx(
        61.1, rel=0.01
    )


_TABLE = ("layers", "kv_heads", "head_dim", "weights_gb", "active_params_b")


@pytest.mark.parametrize("content", [None, "{", "{}"])
def test_unusable_model_configuration_is_named(examples: Path, tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content, encoding="utf-8")
    path = tmp_path / "plan.yaml"
    path.write_text("model_config: config.json\n" + text_of(examples), encoding="utf-8")
    with pytest.raises(PlanError, match="model_config"):
        plan_file.load(path)


def test_measured_concurrency_by_hour_replaces_the_mean(examples: Path) -> None:
    text = text_of(examples) + (
        "\nconcurrency_by_hour:\n  source: week 46\n  hours: {33: [4, 6, 9], 34: [10, 14, 20], 35: 3}\n"
    )
    results = plan.compute(plan_file.parse(text))["results"]
    assert results["concurrency"]["sized_for"] == pytest.approx(19.4)
    assert results["concurrency"]["sequences"] == 20
    assert results["concurrency"]["peak"]["hour_of_week"] == 34
    assert results["fleet"]["gpus"] == 8
    assert not any("sized on a mean" in note for note in results["notes"])


def test_profiles_are_summed_each_with_its_own_duty(examples: Path) -> None:
    text = text_of(examples) + (
        "\nprofiles:\n"
        "  coders: {people: 10, duty_cycle: 0.2, amplification: 1.5, tag: measured}\n"
        "  readers: {people: 30, duty_cycle: 0.05, amplification: 1.0, tag: measured}\n"
    )
    results = plan.compute(plan_file.parse(text))["results"]
    assert results["concurrency"]["mean"] == pytest.approx(4.5)


@pytest.mark.parametrize(
    ("addition", "message"),
    [
        ("profiles:\n  coders: {people: 10, duty_cycle: 0.2, tag: measured}\n", "profiles.coders"),
        ("profiles:\n  coders: {people: 10, amplification: 2, tag: measured}\n", "'duty_cycle' is missing"),
        ("profiles:\n  coders: {people: 1, duty_cycle: 0.1, tag: rumour}\n", "profiles.coders.tag"),
        ("profiles: [1]\n", "profiles: a mapping"),
        ("concurrency_by_hour: {hours: {1: [1]}}\n", "concurrency_by_hour: source and hours"),
        ("concurrency_by_hour: {source: x, hours: {200: [1]}}\n", "concurrency_by_hour.hours.200"),
        ("offers:\n  - {name: x, gpu_hour: 1}\n", "offers[0]: name, gpu_hour and date"),
        ("offers:\n  - {name: x, gpu_hour: dear, date: 2026-01-01}\n", "offers[0].gpu_hour"),
        ("offers:\n  - {name: x, gpu_hour: 1, date: May}\n", "offers[0].date"),
        ("uncertainty: 3\n", "uncertainty: a mapping"),
    ],
)
def test_other_parts_of_a_plan_are_checked_too(examples: Path, addition: str, message: str) -> None:
    assert any(message in p for p in problems(text_of(examples) + "\n" + addition))


def test_target_that_no_fleet_keeps_says_why_for_every_size(examples: Path) -> None:
    text = changed(examples, "{value: 50, unit: ms", "{value: 1, unit: ms")
    with pytest.raises(
        SizingError, match=r"no replica holds: tensor parallel 1: slo\.tpot_ms.*tensor parallel 4"
    ):
        plan.compute(plan_file.parse(text))


def test_time_budget_binds_when_the_target_is_tight(examples: Path) -> None:
    tight = changed(examples, "{value: 50, unit: ms", "{value: 14, unit: ms")
    results = plan.compute(plan_file.parse(tight))["results"]
    assert results["replica"]["bound"] == "tpot"
    assert results["replica"]["requests"] < results["replica"]["vram_sequences"]
    assert any("tpot target binds" in note for note in results["notes"])


def test_utilisation_outside_the_published_table_needs_a_measured_service_time(examples: Path) -> None:
    text = changed(examples, "ttft_p99_ms: {value: 300", "ttft_p99_ms: {value: 1500", "slo_chain.yaml")
    with pytest.raises(SizingError, match="outside the published table"):
        plan.compute(plan_file.parse(text))
    measured = text.replace(
        "slo:\n",
        "slo:\n  service_s: {value: 0.17, unit: s, tag: measured, source: sweep, date: 2026-06-01}\n",
    )
    used = plan.compute(plan_file.parse(measured))["results"]["utilisation"]
    assert used["published_table"] is None
    assert used["used"] == pytest.approx(1.5 / 1.67, rel=1e-4)


def test_money_and_power_without_their_inputs_are_null_with_a_reason(examples: Path) -> None:
    results = plan.compute(plan_file.load(examples / "twenty_developers.yaml"))["results"]
    assert results["money"]["value"] is None
    assert "money.capex_node" in results["money"]["reason"]
    assert "energy.board_idle_w" in results["energy"]["reason"]


def test_predicted_agents_per_megawatt_name_state_and_boundary(examples: Path) -> None:
    addition = (
        "\nenergy:\n"
        "  board_idle_w: {value: 100, unit: W, tag: declared, source: x, date: 2026-01-01}\n"
        "  node_overhead_w: {value: 1200, unit: W, tag: declared, source: x, date: 2026-01-01}\n"
        "  measured_agents_per_megawatt:\n"
        "    {value: 900, unit: agents/MW, tag: measured, source: w, date: 2026-01-01}\n"
    )
    power = plan.compute(plan_file.parse(text_of(examples) + addition))["results"]["energy"]
    predicted = power["predicted_agents_per_megawatt"]
    assert predicted["open"]["board"] == pytest.approx(20 / (power["kw"]["board"] / 1e3), rel=1e-4)
    assert predicted["llm_active"]["node"] == pytest.approx(2.2 / (power["kw"]["node"] / 1e3), rel=1e-4)
    assert predicted["open"]["facility"] < predicted["open"]["node"] < predicted["open"]["board"]
    assert power["measured_agents_per_megawatt"] == 900


def test_intervals_contain_the_central_value_and_the_tornado_is_ordered(examples: Path) -> None:
    report = plan.compute(plan_file.load(examples / "slo_chain.yaml"))
    low, high = report["uncertainty"]["outputs"]["gpus"]
    assert low <= 35 <= high
    assert low < high
    rows = report["uncertainty"]["tornado"]["required_tok_s"]
    widths = [abs(r["at_high"] - r["at_low"]) for r in rows]
    assert widths == sorted(widths, reverse=True)
    assert rows[0]["input"] == "demand.peak_factor"


def test_plan_without_bounds_says_that_it_has_no_interval(examples: Path) -> None:
    import re

    text = re.sub(r", low: [\d.]+, high: [\d.]+", "", text_of(examples))
    spread = plan.compute(plan_file.parse(text))["uncertainty"]
    assert "no input carries" in spread["reason"]


@settings(max_examples=30)
@given(st.integers(0, 2**31), st.floats(0.1, 5.0))
def test_draws_are_repeatable_and_wider_inputs_give_wider_outputs(seed: int, width: float) -> None:
    def model(drawn: Any) -> dict[str, float]:
        return {"y": 3 * drawn["x"]}

    narrow = {"x": uncertainty.Range(10 - width, 10, 10 + width)}
    wide = {"x": uncertainty.Range(10 - 2 * width, 10, 10 + 2 * width)}
    one, same, other = (
        uncertainty.monte_carlo(model, r, draws=200, seed=seed)["y"] for r in (narrow, narrow, wide)
    )
    assert one == same
    assert 30 - 3 * width <= one.low <= one.high <= 30 + 3 * width
    assert other.high - other.low == pytest.approx(2 * (one.high - one.low), rel=1e-6)


def test_draws_without_a_fleet_are_counted() -> None:
    def model(drawn: Any) -> dict[str, float]:
        if drawn["x"] > 10:
            raise SizingError("too much")
        return {"y": drawn["x"]}

    found = uncertainty.monte_carlo(model, {"x": uncertainty.Range(5, 10, 15)}, draws=400, seed=1)["y"]
    assert found.infeasible == pytest.approx(200, abs=40)
    swing = uncertainty.tornado(model, {"x": uncertainty.Range(5, 10, 15)}, "y")[0]
    assert (swing.at_low, swing.at_high, swing.width) == (5, None, float("inf"))
    with pytest.raises(ValueError, match="not in order"):
        uncertainty.Range(2, 1, 3)


def test_fixed_input_draws_nothing_and_moves_nothing() -> None:
    found = uncertainty.monte_carlo(lambda d: {"y": d["x"]}, {"x": uncertainty.Range(4, 4, 4)}, draws=10)["y"]
    assert (found.low, found.high) == (4, 4)
    assert uncertainty.tornado(lambda d: {"y": d["x"]}, {"x": uncertainty.Range(4, 4, 4)}, "y") == ()


def test_published_profiles_split_the_people_without_adding_load(examples: Path) -> None:
    text = text_of(examples) + "\nprofiles: published\n"
    split = plan_file.parse(text)
    assert [p.name for p in split.profiles] == ["readers", "coders", "terminal", "deep-loop", "chat-only"]
    assert plan.compute(split)["results"]["concurrency"]["mean"] == pytest.approx(6.6)


def test_published_profiles_never_divide_a_measured_duty_cycle(examples: Path) -> None:
    text = text_of(examples).replace("0.11, unit: share, tag: literature", "0.11, unit: share, tag: measured")
    text = text.replace("{value: 3, unit: factor, tag: literature", "{value: 3, unit: factor, tag: measured")
    assert any(
        "profiles: published profiles must not" in p for p in problems(text + "\nprofiles: published\n")
    )


def test_incremental_counter_needs_its_own_measured_cost(examples: Path) -> None:
    text = "\n".join(line for line in text_of(examples).splitlines() if "count_" not in line)
    text += "\n  counter: {value: incremental, unit: name, tag: declared, source: plugin, date: 2026-11-01}\n"
    assert any("gateway.count_cpu_s: state what" in p for p in problems(text))


def test_queue_check_says_how_many_slots_the_waiting_budget_needs(examples: Path) -> None:
    queue = plan.compute(plan_file.load(examples / "twenty_developers.yaml"))["results"]["queue"]
    assert queue["slots"] == 8
    assert queue["utilisation"] == pytest.approx(6.6 / 8)
    assert queue["holds"] is (queue["slots_needed"] <= 8)
    assert queue["slots_needed"] >= 7


def test_reserved_share_and_limits_without_redis_reach_the_result(examples: Path) -> None:
    text = text_of(examples).replace(
        "fleet:\n",
        "fleet:\n"
        "  reserved_share: {value: 0.5, unit: share, tag: declared, source: evals, date: 2026-01-01}\n",
    )
    text += "\n  redis: {value: false, unit: yes/no, tag: declared, source: platform, date: 2026-01-01}\n"
    results = plan.compute(plan_file.parse(text))["results"]
    assert results["fleet"]["nodes"] == 2
    assert results["gateway"]["limit_multiplier"] == 2


@pytest.mark.parametrize(
    ("addition", "message"),
    [
        ("uncertainty: {draws: many}\n", "uncertainty.draws"),
        ("uncertainty: {draws: 1}\n", "uncertainty.draws"),
        ("uncertainty: {seed: x}\n", "uncertainty.seed"),
        ("uncertainty: {confidence: 90}\n", "uncertainty.confidence"),
        ("uncertainty: {luck: 1}\n", "uncertainty.luck: unknown"),
    ],
)
def test_settings_of_the_intervals_are_checked(examples: Path, addition: str, message: str) -> None:
    assert any(message in p for p in problems(text_of(examples) + "\n" + addition))


def test_only_numbers_carry_an_interval(examples: Path) -> None:
    text = changed(examples, "{value: max, unit: name", "{value: max, low: max, high: p50, unit: name")
    assert any("fleet.context: only a number has low and high" in p for p in problems(text))


def test_drawn_counts_stay_whole(examples: Path) -> None:
    text = changed(
        examples, "date: 2026-09-12}\n  context:", "date: 2026-09-12, low: 0, high: 3}\n  context:"
    )
    low, high = plan.compute(plan_file.parse(text))["uncertainty"]["outputs"]["gpus"]
    assert (low % 2, high % 2) == (0, 0)
    assert low < high


def test_cost_and_power_carry_intervals_when_their_inputs_are_there(examples: Path) -> None:
    outputs = plan.compute(plan_file.load(examples / "slo_chain.yaml"))["uncertainty"]["outputs"]
    assert outputs["cost_million_tokens"][0] < 0.567 < outputs["cost_million_tokens"][1]
    assert outputs["node_kw"][0] < outputs["node_kw"][1]
