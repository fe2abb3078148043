"""What is committed is what the builders make, and what everybody expects of a dashboard file."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from dashboards.src import build, check, drilldown, frame, lint, queries
from dashboards.src.panels import promql

BOARDS = queries.dashboards()


def test_committed_dashboards_are_what_the_builders_make() -> None:
    assert build.drift() == []


def test_a_changed_a_missing_and_a_stray_file_are_drift(tmp_path: Path) -> None:
    assert build.main(["--out", str(tmp_path)]) == 0
    assert build.main(["--check", "--out", str(tmp_path)]) == 0
    (tmp_path / "power.json").unlink()
    (tmp_path / "stray.json").write_text("{}", encoding="utf-8")
    changed = json.loads((tmp_path / "engines.json").read_text(encoding="utf-8"))
    changed["title"] = "other"
    (tmp_path / "engines.json").write_text(json.dumps(changed), encoding="utf-8")
    assert build.drift(tmp_path) == ["engines.json", "power.json", "stray.json"]
    assert build.main(["--check", "--out", str(tmp_path)]) == 1


def test_building_twice_gives_the_same_bytes() -> None:
    assert build.render() == build.render()


@pytest.mark.parametrize("name", sorted(frame.BOARDS))
def test_identity_and_settings_of_a_dashboard(name: str) -> None:
    board = BOARDS[f"{name}.json"]
    assert (board["uid"], board["title"]) == frame.BOARDS[name]
    assert "id" not in board
    assert board["timezone"] == "utc"
    assert frame.TAG in board["tags"]
    assert len(board["description"]) > 40
    assert board["links"][0]["type"] == "dashboards"
    assert board["links"][0]["keepTime"]


@pytest.mark.parametrize("name", sorted(BOARDS))
def test_panels_have_own_ids_titles_and_places(name: str) -> None:
    panels = BOARDS[name]["panels"]
    ids = Counter(p["id"] for p in panels)
    assert max(ids.values()) == 1
    titles = Counter(p["title"] for p in panels)
    assert max(titles.values()) == 1
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells


def test_every_panel_leads_to_another_dashboard_and_keeps_time_and_variables() -> None:
    for board in BOARDS.values():
        for panel in queries.panels(board):
            (link,) = panel["links"]
            assert "${__url_time_range}" in link["url"]
            assert "${__all_variables}" in link["url"]


def test_panels_and_runbooks_of_alerts_lead_to_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drilldown.problems() == []
    described = {
        (board["uid"], panel["id"]): panel["description"]
        for board in BOARDS.values()
        for panel in queries.panels(board)
    }
    alerts = [(target, rule) for target, found in drilldown.watched().items() for rule in found]
    assert len(alerts) == len([rule for rule in queries.rules() if rule.alert])
    assert all(f"Alert: {rule.name}." in described[target] for target, rule in alerts)
    lost = [replace(rule, document={}) for rule in queries.rules()]
    monkeypatch.setattr(queries, "rules", lambda: lost)
    assert len(drilldown.problems()) == len(alerts)


def test_an_installation_links_its_panels_to_runbooks_and_its_dashboards_to_the_report(
    tmp_path: Path,
) -> None:
    addresses = [
        "--runbook-base",
        "https://git.example/agentwatt/",
        "--report-url",
        "https://reports.example/",
    ]
    assert build.main(["--out", str(tmp_path), *addresses]) == 0
    boards = queries.dashboards(tmp_path)
    links = [link["url"] for b in boards.values() for p in queries.panels(b) for link in p["links"]]
    pages = [link for link in links if link.startswith("https://git.example/agentwatt/dashboards/runbooks/")]
    assert {page.rsplit("/", 1)[1] for page in pages} == {p.name for p in check.RUNBOOKS.glob("*.md")}
    assert all(b["links"][-1]["url"] == "https://reports.example/" for b in boards.values())
    assert [lint.lint(board) for board in boards.values()] == [[]] * len(boards)


def test_descriptions_say_more_than_their_titles() -> None:
    for board in BOARDS.values():
        for panel in queries.panels(board):
            assert len(panel["description"]) >= 30, panel["title"]
            assert panel["description"].rstrip().endswith("."), panel["title"]


def test_no_data_source_is_fixed() -> None:
    def walk(value: Any) -> None:
        if isinstance(value, dict):
            if "uid" in value and "type" in value:
                assert value["uid"].startswith("${"), value
            for member in value.values():
                walk(member)
        elif isinstance(value, list):
            for member in value:
                walk(member)

    for board in BOARDS.values():
        walk(board["panels"])
        walk(board["templating"])


def test_the_shorthand_of_queries_is_written_out() -> None:
    assert promql('a{@,b="c"}[@]  /\n d{@m}[@]') == (
        'a{job=~"$job",instance=~"$instance",b="c"}[$__rate_interval] / '
        'd{job=~"$job",instance=~"$instance",model_name=~"$model"}[$__rate_interval]'
    )
    for query in queries.of_panels():
        assert "@" not in query.text, query.where


def test_what_is_provisioned_is_what_the_dashboards_ask_for() -> None:
    folder = queries.ROOT / "provisioning"
    sources = yaml.safe_load((folder / "datasources/agentwatt.yaml").read_text(encoding="utf-8"))[
        "datasources"
    ]
    asked = {
        v["query"] for b in BOARDS.values() for v in b["templating"]["list"] if v["type"] == "datasource"
    }
    assert {source["type"] for source in sources} == asked
    (provider,) = yaml.safe_load((folder / "dashboards/agentwatt.yaml").read_text(encoding="utf-8"))[
        "providers"
    ]
    documented = (queries.ROOT.parent / "docs/dashboards.md").read_text(encoding="utf-8")
    assert f"dashboards/grafana:{provider['options']['path']}" in documented
    text = (folder / "datasources/agentwatt.yaml").read_text(encoding="utf-8")
    needed = set(re.findall(r"\$([A-Z][A-Z_]+)", text))
    assert needed <= set(re.findall(r"-e ([A-Z_]+)=", documented))


def test_every_dashboard_chooses_its_sources_and_those_about_models_the_model() -> None:
    for board in BOARDS.values():
        kinds = {panel["datasource"]["type"] for panel in queries.panels(board)}
        variables = {v["name"]: v for v in board["templating"]["list"]}
        chosen = {v["query"] for v in variables.values() if v["type"] == "datasource"}
        assert chosen == kinds
        texts = [t.get("expr", t.get("rawSql", "")) for p in queries.panels(board) for t in p["targets"]]
        for name, use in (("model", "vllm:"), ("model_group", "model_group IN")):
            assert (name in variables) == any(use in text for text in texts), (board["title"], name)
