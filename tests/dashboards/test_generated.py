"""Dashboards are what the builders make; promtool accepts rules and alerts; each alert has a page."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from dashboards.src import build, check

FOLDER = Path(__file__).resolve().parents[2] / "dashboards"
RULES = sorted((FOLDER / "prometheus").glob("[ra]*/*.yaml"))
NEEDS_PROMTOOL = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is absent: apt-get install prometheus"
)


def rules() -> list[dict[str, Any]]:
    return [
        rule
        for path in RULES
        for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]
        for rule in group["rules"]
    ]


def panels(document: dict[str, Any]) -> list[dict[str, Any]]:
    found = []
    for panel in document["panels"]:
        found += panel.get("panels") or []
        found.append(panel)
    return [p for p in found if p["type"] not in ("row", "text")]


DASHBOARDS = [json.loads(p.read_text(encoding="utf-8")) for p in sorted((FOLDER / "grafana").glob("*.json"))]


def test_the_committed_dashboards_are_what_the_builders_make() -> None:
    assert build.drift() == []


def test_dashboards_have_unique_stable_uids() -> None:
    uids = [d["uid"] for d in DASHBOARDS]
    assert len(uids) == len(set(uids)) == 6
    assert all(uids)


@pytest.mark.parametrize("document", DASHBOARDS, ids=lambda d: d["title"])
def test_every_panel_has_a_title_and_a_description(document: dict[str, Any]) -> None:
    for panel in panels(document):
        assert panel.get("title"), panel["id"]
        assert panel.get("description"), panel["title"]


@pytest.mark.parametrize("document", DASHBOARDS, ids=lambda d: d["title"])
def test_no_panel_is_tied_to_a_data_source_of_its_own(document: dict[str, Any]) -> None:
    for panel in panels(document):
        uid = (panel.get("datasource") or {}).get("uid", "${datasource}")
        assert uid.startswith("$"), panel["title"]


@pytest.mark.parametrize("rule", rules(), ids=lambda r: r.get("alert") or r["record"])
def test_every_rule_is_promql(rule: dict[str, Any]) -> None:
    assert promql_parser.parse(rule["expr"]) is not None


@pytest.mark.parametrize("rule", [r for r in rules() if "alert" in r], ids=lambda r: r["alert"])
def test_every_alert_says_what_it_means_and_has_a_page(rule: dict[str, Any]) -> None:
    notes = rule["annotations"]
    assert notes["summary"]
    assert notes["description"]
    assert notes["runbook_url"].endswith(f"{rule['alert']}.md")
    page = (FOLDER / "runbooks" / f"{rule['alert']}.md").read_text(encoding="utf-8")
    for part in ("Meaning", "Impact", "Diagnosis", "Mitigation"):
        assert part in page


@NEEDS_PROMTOOL
def test_promtool_accepts_every_rule_file() -> None:
    done = subprocess.run(["promtool", "check", "rules", *map(str, RULES)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@NEEDS_PROMTOOL
def test_alerts_are_silent_just_before_and_fire_just_after() -> None:
    files = sorted((FOLDER / "prometheus/tests").glob("*.yaml"))
    done = subprocess.run(["promtool", "test", "rules", *map(str, files)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_check_of_what_ships_finds_a_problem() -> None:
    """Drift, lint rules, names that nobody exports, SDK round trip, links and runbooks."""
    assert check.problems() == []
