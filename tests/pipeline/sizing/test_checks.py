from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipeline.sizing import checks, plan, plan_file
from pipeline.sizing.evidence import Evidence


@pytest.fixture(scope="module")
def computed(examples: Path) -> dict[str, Any]:
    return plan.compute(plan_file.load(examples / "twenty_developers.yaml"))


GOOD: dict[str, Any] = {
    "model_list": [{"model_name": "coder"}, {"model_name": "coder"}],
    "router_settings": {"optional_pre_call_checks": ["session_affinity"], "num_retries": 2},
    "general_settings": {"max_in_flight_requests_per_worker": 12, "proxy_batch_write_at": 60},
    "litellm_settings": {"request_timeout": 600, "cache_params": {"type": "redis"}},
}
CHART: dict[str, Any] = {
    "autoscaling": {"enabled": True, "targetCPUUtilizationPercentage": 60},
    "resources": {"requests": {"cpu": 1, "memory": "4Gi"}, "limits": {"cpu": "1", "memory": "4Gi"}},
}
ENGINE = "vllm serve m --max-num-seqs 8 --max-num-queued-reqs=64"


def outcome(evidence: Evidence, name: str) -> tuple[str, str]:
    return next((c.status, c.evidence) for c in checks.run(evidence) if c.id == name)


def test_without_evidence_every_check_says_unknown_and_none_passes() -> None:
    found = checks.run(Evidence())
    assert {c.status for c in found} == {"unknown"}
    assert all(c.evidence and c.question for c in found)
    assert checks.worst(found) == "unknown"


def test_good_platform_passes_what_it_can(computed: dict[str, Any], week_report: Any) -> None:
    week_report["prefix_hit"]["by"]["category"].pop()
    found = checks.run(
        Evidence(GOOD, CHART, week_report, computed, [("board.json", "vllm:kv_cache_usage_perc")], ENGINE)
    )
    assert not [c for c in found if c.status in ("fail", "unknown")]
    assert {c.id for c in found if c.status == "warn"} == {
        "measured_inputs", "sized_on_quantile", "regimes", "startup_margin",
    }  # fmt: skip
    assert checks.worst(found) == "warn"


@pytest.mark.parametrize(
    ("name", "change", "status", "word"),
    [
        ("session_affinity", {"router_settings": {}}, "fail", "20 to 60"),
        (
            "session_affinity",
            {"router_settings": {}, "model_list": [{"model_name": "coder"}]},
            "warn",
            "one deployment",
        ),
        (
            "session_affinity",
            {"router_settings": {"model_group_affinity_config": {"a": 1}}},
            "pass",
            "model_group",
        ),
        ("request_timeout", {"litellm_settings": {}}, "fail", "6000"),
        ("request_timeout", {"litellm_settings": {"request_timeout": 601}}, "fail", "601"),
        ("admission_gateway", {"general_settings": {}}, "fail", "no bound"),
        (
            "admission_gateway",
            {"general_settings": {"max_in_flight_requests_per_worker": 400}},
            "warn",
            "needs 10",
        ),
        (
            "admission_gateway",
            {"general_settings": {"max_in_flight_requests_per_worker": 2}},
            "warn",
            "rejects",
        ),
        ("batch_interval", {"general_settings": {}}, "warn", "not set"),
        ("batch_interval", {"general_settings": {"proxy_batch_write_at": 30}}, "warn", "30 s"),
        ("shared_limits", {"litellm_settings": {}}, "fail", "2 times"),
        ("shared_limits", {"litellm_settings": {}, "router_settings": {"redis_host": "r"}}, "pass", "Redis"),
        ("retries", {"router_settings": {"num_retries": 5}}, "warn", "5 retries"),
    ],
)
def test_proxy_setting_is_judged(
    computed: dict[str, Any], name: str, change: Any, status: str, word: str
) -> None:
    got, evidence = outcome(Evidence(config={**GOOD, **change}, plan=computed), name)
    assert got == status
    assert word in evidence


@pytest.mark.parametrize(
    ("name", "change", "status"),
    [
        ("hpa_metric", {"autoscaling": {"targetMemoryUtilizationPercentage": 80}}, "fail"),
        ("hpa_metric", {"autoscaling": {"enabled": True, "targetCPUUtilizationPercentage": 80}}, "warn"),
        ("hpa_metric", {"autoscaling": {}, "keda": {"enabled": True}}, "pass"),
        ("resources", {"resources": {"requests": {"cpu": 1}, "limits": {"cpu": 2}}}, "warn"),
        ("resources", {"resources": {}}, "warn"),
    ],
)
def test_chart_values_are_judged(name: str, change: Any, status: str) -> None:
    assert outcome(Evidence(chart={**CHART, **change}), name)[0] == status


@pytest.mark.parametrize(
    ("engine", "status"),
    [("vllm serve m", "fail"), ("vllm serve m --max-num-seqs=256", "fail"), (ENGINE, "pass")],
)
def test_engine_concurrency_comes_from_the_budget(computed: dict[str, Any], engine: str, status: str) -> None:
    assert outcome(Evidence(engine=engine, plan=computed), "max_num_seqs")[0] == status


def test_engine_without_a_bound_on_its_queue_is_warned_about() -> None:
    assert outcome(Evidence(engine="vllm serve m"), "admission_engine")[0] == "warn"


def test_renamed_metrics_are_found_in_every_file_with_their_replacement() -> None:
    files = [("old.json", "rate(vllm:gpu_cache_usage_perc[1m])"), ("hpa.yaml", "vllm_num_requests_swapped")]
    status, evidence = outcome(Evidence(dashboards=files), "metric_renames")
    assert status == "fail"
    assert "old.json: vllm:gpu_cache_usage_perc -> vllm:kv_cache_usage_perc" in evidence
    assert "hpa.yaml" in evidence


@pytest.mark.parametrize(("calls", "status"), [(0, "pass"), (10, "warn"), (90, "fail")])
def test_model_switches_inside_sessions_are_seen_in_the_data(
    week_report: Any, calls: int, status: str
) -> None:
    week_report["prefix_hit"]["by"]["category"][2]["calls"] = calls
    got, evidence = outcome(Evidence(report=week_report), "model_switch")
    assert got == status
    assert ("hit 8%" in evidence) is (calls > 0)


def test_gap_between_turn_and_boundary_is_shown(week_report: Any) -> None:
    assert outcome(Evidence(report=week_report), "prefix_by_situation")[0] == "pass"
    week_report["prefix_hit"]["by"]["category"][1]["realised"] = 0.55
    assert outcome(Evidence(report=week_report), "prefix_by_situation") == (
        "warn", "97% within turns, 55% at the boundary",
    )  # fmt: skip
    week_report["prefix_hit"]["by"]["category"][1]["realised"] = None
    assert outcome(Evidence(report=week_report), "prefix_by_situation")[0] == "warn"


def test_shorter_window_and_empty_figure_are_told_apart(week_report: Any) -> None:
    assert outcome(Evidence(report=week_report), "measured_week")[0] == "pass"
    week_report["meta"]["window"]["hours"] = 24.0
    assert outcome(Evidence(report=week_report), "measured_week")[0] == "warn"
    week_report["prompt_length"]["value"] = None
    assert outcome(Evidence(report=week_report), "measured_week") == (
        "fail",
        "without a value: prompt_length",
    )


def test_regimes_that_the_fleet_does_not_survive_are_listed(computed: dict[str, Any]) -> None:
    status, evidence = outcome(Evidence(plan=computed), "regimes")
    assert status == "warn"
    assert "affinity_off_x60: no fleet" in evidence
    assert "failing_sessions: 6 GPUs" in evidence


def test_full_spend_queue_and_small_database_are_flagged(examples: Path) -> None:
    text = (examples / "twenty_developers.yaml").read_text(encoding="utf-8").replace(
        "gateway:\n",
        "gateway:\n"
        "  row_bytes: {value: 500000, unit: B, tag: measured, source: rows, date: 2026-11-01}\n"
        "  max_connections: {value: 30, unit: connections, tag: declared, source: db, date: 2026-11-01}\n",
    )  # fmt: skip
    small = plan.compute(plan_file.parse(text))
    assert outcome(Evidence(plan=small), "spend_queue")[0] == "fail"
    assert outcome(Evidence(plan=small), "postgres_pool")[0] == "warn"
