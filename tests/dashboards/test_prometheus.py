"""Rules and alerts by promtool: syntax, and silent just before and firing just after, for every alert."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from dashboards.src import queries, rules

TESTS = queries.ROOT / "prometheus" / "tests"
needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None,
    reason="promtool is not installed: apt-get install --no-install-recommends prometheus",
)


def promtool(*arguments: str) -> str:
    done = subprocess.run(
        ["promtool", *arguments], capture_output=True, text=True, check=False, timeout=120, cwd=queries.ROOT
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@needs_promtool
def test_rules_and_alerts_are_valid() -> None:
    files = [str(p) for folder in (queries.RULES, queries.ALERTS) for p in sorted(folder.glob("*.yaml"))]
    assert promtool("check", "rules", "--lint=all", "--lint-fatal", *files).count("SUCCESS") == len(files)


@needs_promtool
@pytest.mark.parametrize("name", [p.name for p in sorted(TESTS.glob("*.yaml"))])
def test_unit_tests_of_rules_and_alerts_pass(name: str) -> None:
    assert "SUCCESS" in promtool("test", "rules", str(TESTS / name))


def test_every_alert_is_tested_silent_one_minute_before_it_fires() -> None:
    cases = yaml.safe_load((TESTS / "alerts.yaml").read_text(encoding="utf-8"))["tests"]
    tested = {}
    for case in cases:
        before, after = case["alert_rule_test"]
        assert before["alertname"] == after["alertname"]
        assert before["exp_alerts"] == []
        assert len(after["exp_alerts"]) == 1
        minutes = [int(step["eval_time"].removesuffix("m")) for step in (before, after)]
        assert minutes[1] - minutes[0] == 1
        tested[after["alertname"]] = case
    assert set(tested) == {rule.name for rule in queries.rules() if rule.alert}


def test_no_rule_is_recorded_twice_and_every_group_has_its_own_name() -> None:
    found = queries.rules()
    names = [rule.name for rule in found]
    assert len(names) == len(set(names))
    groups = {(rule.file, rule.alert, rule.group) for rule in found}
    assert len(groups) == len({group for *_, group in groups})


def test_recording_rules_are_named_level_metric_operation() -> None:
    for rule in queries.rules():
        if not rule.alert:
            assert len(rule.name.split(":")) == 3, rule.name


def test_the_groups_are_evaluated_in_the_order_that_they_need() -> None:
    for path in TESTS.glob("*.yaml"):
        order = yaml.safe_load(path.read_text(encoding="utf-8"))["group_eval_order"]
        assert order == list(dict.fromkeys(rule.group for rule in queries.rules()))


def test_rules_for_an_installation_have_its_runbook_addresses_and_nothing_else_new(tmp_path: Path) -> None:
    bases = ["--runbook-base", "https://git.example/agentwatt/", "--grafana-base", "https://grafana.example/"]
    assert rules.main(["--out", str(tmp_path), *bases]) == 0
    written = [yaml.safe_load(p.read_text(encoding="utf-8")) for p in sorted(tmp_path.glob("*.yaml"))]
    found = [rule for document in written for group in document["groups"] for rule in group["rules"]]
    urls = [rule["annotations"]["runbook_url"] for rule in found if "alert" in rule]
    assert urls
    assert all(url.startswith("https://git.example/agentwatt/dashboards/runbooks/") for url in urls)
    boards = [rule["annotations"]["dashboard_url"] for rule in found if "alert" in rule]
    assert all(url.startswith("https://grafana.example/d/agentwatt-") for url in boards)
    assert sorted(rule["expr"] for rule in found) == sorted(rule.expr for rule in queries.rules())


def test_the_objects_for_the_operator_wrap_the_same_groups(tmp_path: Path) -> None:
    arguments = ["--out", str(tmp_path), "--kubernetes", "--label", "release=monitoring"]
    assert rules.main(arguments) == 0
    documents = rules.documents()
    for path in tmp_path.glob("*.yaml"):
        written = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert written["kind"] == "PrometheusRule"
        assert written["metadata"]["labels"]["release"] == "monitoring"
        assert written["spec"] == documents[path.name]


@needs_promtool
def test_the_alerts_hold_for_engines_under_their_former_names_as_well(tmp_path: Path) -> None:
    text = (TESTS / "alerts.yaml").read_text(encoding="utf-8")
    assert "vllm:kv_cache_usage_perc" in text
    document = yaml.safe_load(text.replace("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"))
    document["rule_files"] = [str((TESTS / path).resolve()) for path in document["rule_files"]]
    path = tmp_path / "former.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    assert "SUCCESS" in promtool("test", "rules", str(path))
