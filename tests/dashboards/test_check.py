"""What ships passes every check, and every check finds what it is for."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from dashboards.src import check, exported, gate, lint, queries
from deploy.local.engine.power import PowerModel
from gateway_plugin.sinks import metric_table
from pipeline.export_tables import TABLES
from pipeline.sizing import deployed
from pipeline.sizing.evidence import Evidence

SHARED = Path(__file__).parents[2].parent / "shared"


def test_everything_that_ships_passes() -> None:
    assert check.problems() == []


def board(name: str = "gateway.json") -> dict[str, Any]:
    return copy.deepcopy(queries.dashboards()[name])


def first(of: dict[str, Any]) -> dict[str, Any]:
    return next(queries.panels(of))


def _no_source(b: dict[str, Any]) -> None:
    b["templating"]["list"] = [v for v in b["templating"]["list"] if v["type"] != "datasource"]


def _drop(name: str, b: dict[str, Any]) -> None:
    b["templating"]["list"] = [v for v in b["templating"]["list"] if v["name"] != name]


def _variable(b: dict[str, Any], name: str, **changes: Any) -> None:
    next(v for v in b["templating"]["list"] if v["name"] == name).update(changes)


def _expr(b: dict[str, Any], text: str) -> None:
    first(b)["targets"][0]["expr"] = text


MATCHERS = 'job=~"$job",instance=~"$instance"'


@pytest.mark.parametrize(
    ("rule", "spoil"),
    [
        ("template-datasource-rule", _no_source),
        ("template-datasource-rule", lambda b: _variable(b, "prometheus_datasource", label="Source")),
        ("template-job-rule", lambda b: _drop("job", b)),
        ("template-job-rule", lambda b: _variable(b, "job", multi=False)),
        ("template-instance-rule", lambda b: _drop("instance", b)),
        ("template-instance-rule", lambda b: _variable(b, "instance", allValue=".*")),
        ("template-label-promql-rule", lambda b: _variable(b, "job", query="label_values(up{, job)")),
        ("template-label-promql-rule", lambda b: _variable(b, "job", query="query_result(up)")),
        ("panel-datasource-rule", lambda b: first(b)["datasource"].update(uid="P1809F7CD0C75ACF3")),
        ("panel-datasource-rule", lambda b: first(b)["targets"][0]["datasource"].update(uid="other")),
        ("panel-title-description-rule", lambda b: first(b).update(description="")),
        ("panel-title-description-rule", lambda b: first(b).update(title="")),
        ("panel-units-rule", lambda b: first(b)["fieldConfig"]["defaults"].update(unit="secs")),
        ("panel-units-rule", lambda b: first(b)["fieldConfig"]["defaults"].pop("unit")),
        ("target-promql-rule", lambda b: _expr(b, f"sum(rate(a{{{MATCHERS}}}[$__rate_interval])")),
        ("target-rate-interval-rule", lambda b: _expr(b, f"sum(rate(a{{{MATCHERS}}}[5m]))")),
        ("target-rate-interval-rule", lambda b: _expr(b, f"sum(increase(a{{{MATCHERS}}}[$__range]))")),
        ("target-job-rule", lambda b: _expr(b, 'sum(a{instance=~"$instance"})')),
        ("target-job-rule", lambda b: _expr(b, 'sum(a{job="$job",instance=~"$instance"})')),
        ("target-instance-rule", lambda b: _expr(b, f'sum(a{{{MATCHERS}}}) / sum(b{{job=~"$job"}})')),
    ],
)
def test_each_rule_of_the_linter_finds_its_breach(rule: str, spoil: Any) -> None:
    spoiled = board()
    spoil(spoiled)
    found = set()
    for name, rule_check in lint.RULES.items():
        try:
            if list(rule_check(spoiled)):
                found.add(name)
        except ValueError:
            assert rule == "target-promql-rule"  # what cannot be parsed has no selectors to look at
    assert rule in found


def test_the_eleven_rules_are_there_and_every_exception_has_a_reason_and_a_use() -> None:
    assert len(lint.RULES) == 11
    exceptions = yaml.safe_load((queries.GRAFANA / ".lint").read_text(encoding="utf-8"))["exclusions"]
    for rule, exception in exceptions.items():
        assert exception["reason"]
        for entry in exception["entries"]:
            (found,) = [b for b in queries.dashboards().values() if b["title"] == entry["dashboard"]]
            panels = [panel for panel, _ in lint.RULES[rule](found)]
            assert panels, f"{rule}: the exception for {entry} is not needed"
            assert "panel" not in entry or entry["panel"] in panels


@pytest.mark.parametrize(
    "spoil",
    [
        lambda b: first(b).update(optionz={}),
        lambda b: first(b)["fieldConfig"]["defaults"].update(unitt="s"),
        lambda b: b.update(refreshh="1m"),
        lambda b: first(b)["targets"][0].update(exprr="up"),
        lambda b: b["templating"]["list"][1].update(multy=True),
    ],
)
def test_the_round_trip_finds_misspelt_keys(spoil: Any) -> None:
    spoiled = board()
    assert check.round_trip(spoiled) == []
    spoil(spoiled)
    assert len(check.round_trip(spoiled)) == 1


def test_links_that_lead_nowhere_or_back_are_found() -> None:
    boards = {name: copy.deepcopy(b) for name, b in queries.dashboards().items()}
    assert check.links(boards) == []
    first(boards["gateway.json"])["links"][0]["url"] = "/d/no-such-board"
    assert any("leads nowhere" in line for line in check.links(boards))
    first(boards["gateway.json"])["links"][0]["url"] = f"/d/{boards['gateway.json']['uid']}?x"
    assert any("leads to itself" in line for line in check.links(boards))
    boards["power.json"]["uid"] = boards["gateway.json"]["uid"]
    assert any("share a UID" in line for line in check.links(boards))


def test_alerts_without_their_page_and_pages_without_their_alert_are_found(tmp_path: Path) -> None:
    pages = {p.name: p.read_text(encoding="utf-8") for p in check.RUNBOOKS.glob("*.md")}
    for name, text in pages.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert check.runbooks(tmp_path) == []
    (tmp_path / "AgentwattSpooling.md").unlink()
    (tmp_path / "Stray.md").write_text("# Stray", encoding="utf-8")
    cut = pages["AgentwattEngineQueue.md"].replace("## Impact", "## Effect")
    (tmp_path / "AgentwattEngineQueue.md").write_text(cut, encoding="utf-8")
    found = "\n".join(check.runbooks(tmp_path))
    assert "AgentwattSpooling: no page" in found
    assert "Stray.md belongs to no alert" in found
    assert "AgentwattEngineQueue.md: its sections" in found


# -- the gate of names


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("sum(rate(agentwatt_call_total[5m]))", "nobody|anybody"),
        ('sum(rate(agentwatt_calls_total{initiater="user"}[5m]))', "no label initiater"),
        ('sum(rate(agentwatt_calls_total{initiator="usr"}[5m]))', "never usr"),
        ('sum(rate(agentwatt_calls_total{initiator=~"user|agnt"}[5m]))', "never agnt"),
        ("sum by (session) (rate(agentwatt_calls_total[5m]))", "groups by session"),
        ("vllm:gpu_cache_usage", "anybody exports"),
        ('{__name__=~"vllm:(kv|cpu)_cache_usage_perc"}', "anybody exports"),
        ('sum(rate(vllm:time_to_first_token_seconds_bucket{le="3.0"}[5m]))', "le is never 3.0"),
        ('sum(agentwatt_event_loop_late_seconds_bucket{le="0.3"})', "le is never 0.3"),
        ('sum(litellm_deployment_cooled_down_total{model="a"})', "labels are unknown"),
        ('sum(litellm_in_flight_requests{model="a"})', "no label model"),
        ("rate(job:agentwatt_prefix:ratio[5m])", "anybody exports"),
        ('job:agentwatt_model_switch:ratio_rate30m{initiator="user"}', "no label initiator"),
        ("sum(", "cannot be parsed"),
    ],
)
def test_a_name_that_nobody_exports_is_found(expression: str, problem: str) -> None:
    found = gate.problems(expression)
    assert any(any(p in line for p in problem.split("|")) for line in found), found


@pytest.mark.parametrize(
    ("expression", "legend", "good"),
    [
        ("sum by (route) (rate(agentwatt_calls_total[5m]))", "{{route}}", True),
        ("sum by (route) (rate(agentwatt_calls_total[5m]))", "{{outcome}}", False),
        ("sum(rate(agentwatt_calls_total[5m]))", "{{route}}", False),
        ("agentwatt_open_calls", "{{instance}}", True),
        ("agentwatt_open_calls", "{{route}}", False),
        ("histogram_quantile(0.5, sum by (le) (rate(agentwatt_new_tokens_bucket[5m])))", "{{le}}", False),
    ],
)
def test_a_legend_may_name_only_what_the_result_has(expression: str, legend: str, good: bool) -> None:
    assert (gate.problems(expression, legend) == []) is good


def test_former_names_of_the_engine_are_only_ever_alternatives_to_present_ones() -> None:
    for query in (*[q.text for q in queries.of_panels()], *[r.expr for r in queries.rules()]):
        for old in exported.OLD_ENGINE_NAMES:
            if old in query:
                assert old.replace("gpu_", "") in query


def test_the_power_names_are_those_of_the_exposition() -> None:
    text = PowerModel(boards=1, slots=1).exposition()
    for name in ("DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"):
        line = next(line for line in text.splitlines() if line.startswith(name))
        labels = exported.labels_of(name)
        assert labels is not None
        assert all(f'{label}="' in line for label in labels - exported.SCRAPE_LABELS)


def test_engine_names_are_those_of_a_recorded_scrape() -> None:
    path = SHARED / "reference" / "vllm_metrics_0.32.txt"
    if not path.is_file():
        pytest.skip("the recorded scrape is not here")
    text = path.read_text(encoding="utf-8")
    for expression in check.live_expressions():
        for name in exported.families():
            newer = name in exported.OLD_ENGINE_NAMES or not name.startswith("vllm:")
            if not newer and name in expression.expression:
                base = name.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count")
                assert base in text, (expression.where, name)


def test_every_metric_of_the_plugin_is_shown_somewhere() -> None:
    assert check.unused() == []
    assert len(metric_table.METRICS) > 20


def test_an_unknown_variable_is_no_query() -> None:
    with pytest.raises(ValueError, match="unknown variable"):
        queries.filled('up{cluster="$cluster"}')
    with pytest.raises(ValueError, match="unknown macro"):
        queries.filled_sql("SELECT $__interval", "a", "b", ())


def test_the_documentation_lists_every_dashboard_alert_and_table() -> None:
    text = (queries.ROOT.parent / "docs" / "dashboards.md").read_text(encoding="utf-8")
    alerts = {rule.name: rule.document["labels"]["severity"] for rule in queries.rules() if rule.alert}
    listed = dict(re.findall(r"^\| (Agentwatt\w+) \|.*\| (\w+) \|$", text, re.MULTILINE))
    assert listed == alerts
    for table in TABLES:
        assert f"`{table.name}`" in text
    for board in queries.dashboards().values():
        assert f"| {board['title'].removeprefix('agentwatt / ')} |" in text


def test_the_plans_own_check_of_dashboards_finds_no_renamed_metric_in_ours() -> None:
    files = [p for p in queries.ROOT.rglob("*") if p.suffix in {".json", ".yaml"}]
    texts = tuple((p.name, p.read_text(encoding="utf-8")) for p in files)
    assert deployed.renames(Evidence(dashboards=texts))[0] == "pass"
