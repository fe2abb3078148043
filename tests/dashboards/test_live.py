"""A real Prometheus scrapes the engine and a real proxy; every expression is asked, and those that must have
data have it."""

from __future__ import annotations

from typing import Any

import pytest

from dashboards.src import check, exported, queries
from tests.dashboards.live import WINDOW, Live

pytestmark = pytest.mark.integration


@pytest.fixture
def answers(live: Live) -> dict[str, list[dict[str, Any]]]:
    """Return the answer to each expression."""
    return live.answers


def test_prometheus_accepts_every_expression_and_those_that_must_have_data_have_it(
    answers: dict[str, list[dict[str, Any]]],
) -> None:
    wanted = [e for e in check.live_expressions(window=WINDOW) if e.must_have_data]
    assert len(wanted) > 80
    empty = [f"{e.where}: {e.expression}" for e in wanted if not answers[e.expression]]
    assert empty == []


def test_shares_are_shares(answers: dict[str, list[dict[str, Any]]]) -> None:
    found = 0
    for name, board in queries.dashboards().items():
        for panel in queries.panels(board):
            if panel["fieldConfig"]["defaults"]["unit"] != "percentunit":
                continue
            for target in panel["targets"]:
                if "expr" in target:
                    for series in answers[queries.filled(target["expr"], window=WINDOW)]:
                        value = float(series["value"][1])
                        assert -1e-9 <= value <= 1 + 1e-9, (name, panel["title"], value)
                        found += 1
    assert found > 10


def test_legends_name_labels_that_the_series_have(answers: dict[str, list[dict[str, Any]]]) -> None:
    for query in queries.of_panels():
        if query.kind == "promql" and "{{" in query.legend:
            for series in answers[queries.filled(query.text, window=WINDOW)]:
                for part in query.legend.split("{{")[1:]:
                    assert part.split("}}")[0] in series["metric"], query.where


def test_rules_evaluate_without_an_error_and_no_alert_fires_on_healthy_services(live: Live) -> None:
    rules = [rule for group in live.get("/api/v1/rules")["groups"] for rule in group["rules"]]
    assert len(rules) == len(queries.rules())
    assert [(r["name"], r.get("lastError")) for r in rules if r["health"] not in {"ok", "unknown"}] == []
    firing = [
        a["labels"]["alertname"] for a in live.get("/api/v1/alerts")["alerts"] if a["state"] == "firing"
    ]
    assert firing == []


def test_the_list_of_what_is_exported_is_what_is_scraped(live: Live) -> None:
    known = exported.families()
    for series in live.query('{job=~"gateway|engine"}'):
        labels = dict(series["metric"])
        name = labels.pop("__name__")
        if name not in known or not name.startswith(("agentwatt_", "vllm:", "DCGM_", "litellm_")):
            continue
        own = exported.labels_of(name)
        assert own is None or set(labels) <= own, (name, set(labels) - (own or set()))


def test_the_plugin_exports_nothing_that_is_not_in_its_table(live: Live) -> None:
    names = {s["metric"]["__name__"] for s in live.query('{__name__=~"agentwatt_.+",job="gateway"}')}
    assert names
    assert {n for n in names if not n.endswith("_created")} <= set(exported.families())
