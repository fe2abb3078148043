"""Every form of the report: complete, self-contained, readable, with its notes beside what they concern."""

from __future__ import annotations

import csv
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline import figures, report, run
from pipeline.report import text
from pipeline.report.definitions import DEFINITIONS, GLOSSARY
from pipeline.sizing import measured, plan_compare
from tests.pipeline.sql.synthetic import MONDAY, Settings, build, event, scenario

MADE = ["change", "decision", "plan_check", "checklist", "reuse", "quantities", "failures", "catalogue"]
NOTES = ["Power is synthetic.", report.Note("Time is compressed ×10.")]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lake = tmp_path_factory.mktemp("lake")
    scenario(lake)
    run.build(lake, Settings())
    target = tmp_path_factory.mktemp("report")
    paths = report.write(lake, Settings(), target / "out", NOTES)
    assert [p.name for p in paths] == ["report.json", "report.html", "report.md", "figures.csv", "plan.yaml"]
    assert sorted(p.name for p in (target / "out").iterdir()) == sorted(p.name for p in paths)
    return target / "out"


@pytest.fixture(scope="module")
def document(out: Path) -> dict[str, Any]:
    def refuse(value: str) -> None:
        raise AssertionError(f"{value} is no JSON")

    return json.loads((out / "report.json").read_text(encoding="utf-8"), parse_constant=refuse)


class Page(HTMLParser):
    """Collects ids, links, outside references and whether tags close."""

    VOID = ("meta", "br", "path", "rect", "line")

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.outside: list[str] = []
        self.open: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if values.get("id"):
            self.ids.append(str(values["id"]))
        for key in ("href", "src", "xlink:href", "action", "srcset"):
            if values.get(key):
                (self.links if str(values[key]).startswith("#") else self.outside).append(str(values[key]))
        if tag in ("script", "link", "iframe", "img", "object"):
            self.outside.append(tag)
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open, tag
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.fixture(scope="module")
def page(out: Path) -> Page:
    parsed = Page()
    parsed.feed((out / "report.html").read_text(encoding="utf-8"))
    return parsed


def test_the_json_holds_the_four_figures_and_meta_with_unit_coverage_and_convention(
    document: dict[str, Any],
) -> None:
    assert list(document) == [*DEFINITIONS, *MADE, "meta"]
    for name in DEFINITIONS:
        figure = document[name]
        assert figure["value"] is not None
        assert figure["unit"]
        assert figure["coverage"]
        assert figure["convention"]
        assert figure["evidence"]
    assert document["agents_per_megawatt"]["boundary"] == "board"


def test_meta_says_window_versions_sources_counts_and_notes(document: dict[str, Any]) -> None:
    meta = document["meta"]
    assert meta["window"]["start"] == MONDAY.isoformat()
    assert meta["counts"]["calls"] == 50
    assert meta["sources"]["raw_event"] == {"files": 2, "days": 2}
    assert meta["versions"]["duckdb"]
    assert meta["conventions"]["retentions"] == ["inf", "3600", "300"]
    texts = {n["text"]: n["figures"] for n in meta["notes"]}
    assert texts["Power is synthetic."] == ["agents_per_megawatt"]
    assert texts["Time is compressed ×10."] == list(DEFINITIONS)
    assert {a["name"] for a in meta["audits"]} >= {"duplicate_call_id", "turn_partition"}


def test_the_page_needs_no_network_and_every_link_leads_somewhere(page: Page) -> None:
    assert page.open == []
    assert page.outside == []
    assert {link.removeprefix("#") for link in page.links} <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))


def test_each_figure_and_each_table_links_to_its_definition_on_the_same_page(page: Page) -> None:
    for name in DEFINITIONS:
        assert name in page.ids
        assert f"#definition-{name}" in page.links
    linked = {link.removeprefix("#definition-") for link in page.links if link.startswith("#definition-")}
    assert linked <= {*DEFINITIONS, *GLOSSARY}
    assert {f"definition-{name}" for name in (*DEFINITIONS, *GLOSSARY)} <= set(page.ids)
    # What has no row in this lake has no table, and so no link.
    assert set(GLOSSARY) - linked <= {"audits", "counting", "profiles", "failures", "catalogue", "gateway"}


def test_the_page_adapts_to_dark_mode_narrow_screens_and_paper(out: Path) -> None:
    html = (out / "report.html").read_text(encoding="utf-8")
    for rule in ("prefers-color-scheme: dark", "width=device-width", "@media print", "overflow-x: auto"):
        assert rule in html
    assert "http" not in re.sub(r'xmlns(:xlink)?="[^"]*"', "", html)


def test_charts_are_drawn_with_labels_and_follow_the_pages_colours(out: Path) -> None:
    html = (out / "report.html").read_text(encoding="utf-8")
    figures_ = re.findall(r"<figure .*?</figure>", html, re.DOTALL)
    labels = [re.search(r'aria-label="([^"]*)"', f) for f in figures_]
    assert len(figures_) >= 6
    for drawn, label in zip(figures_, labels, strict=True):
        assert label
        assert "<figcaption><strong>" in drawn
        assert "<text" in drawn
    assert "currentColor" in html
    assert "#010203" not in html


def test_notes_stand_beside_the_figures_they_concern_and_those_on_all_figures_at_the_top(out: Path) -> None:
    html = (out / "report.html").read_text(encoding="utf-8")
    sections = {
        found[1]: found[0] for found in re.finditer(r'<section id="(\w+)">.*?</section>', html, re.DOTALL)
    }
    assert [n for n, words in sections.items() if "Power is synthetic." in words] == ["agents_per_megawatt"]
    assert html.count("Time is compressed ×10.") == 1
    assert html.index("Time is compressed ×10.") < html.index("<section")
    markdown = (out / "report.md").read_text(encoding="utf-8")
    assert markdown.count("Time is compressed ×10.") == 1
    assert markdown.count("Power is synthetic.") == 1


def test_the_csv_agrees_with_the_json(out: Path, document: dict[str, Any]) -> None:
    with (out / "figures.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    by = {(r["figure"], r["name"]): r for r in rows}
    assert float(by["prompt_length", "P95"]["value"]) == document["prompt_length"]["value"]["p95"]
    assert float(by["prefix_hit", "realised"]["value"]) == document["prefix_hit"]["value"]["realised"]
    assert {r["figure"] for r in rows} >= set(DEFINITIONS)
    assert len(by) == len(rows)
    lost = {k: v["value"] for k, v in by.items() if k[0] == "reuse" and k[1].startswith("lost_by_age")}
    assert sum(float(v) for (_, name), v in lost.items() if name.endswith("Lost tokens")) == pytest.approx(
        document["reuse"]["value"]
    )


def test_every_form_has_the_same_decision_and_figures(
    out: Path, document: dict[str, Any], page: Page
) -> None:
    shown = " ".join(page.text)
    markdown = (out / "report.md").read_text(encoding="utf-8")
    verdict = f"the window needs {document['decision']['rows'][0]['needed']} GPUs."
    p50 = text.number(document["prompt_length"]["value"]["p50"])
    hit = text.share(document["prefix_hit"]["value"]["realised"])
    for form in (shown, markdown):
        assert verdict in form
        assert p50 in form
        assert hit in form


def test_the_computed_plan_can_be_held_against_the_next_week(out: Path) -> None:
    computed = yaml.safe_load((out / "plan.yaml").read_text(encoding="utf-8"))
    week = measured.load(out / "report.json")
    assert plan_compare.check(computed, week)["holds"]


def test_the_figure_at_a_glance_is_the_headline_and_says_when_it_is_synthetic(
    document: dict[str, Any],
) -> None:
    content = {k: v for k, v in document.items() if k != "meta"}
    first = next(line for line in text.headlines(content) if line.figure == "agents_per_megawatt")
    assert first.value == document["agents_per_megawatt"]["value"]
    assert first.name == "in-turn, 20 tok/s, 10 s, board"
    content = json.loads(json.dumps(content))
    for row in content["agents_per_megawatt"]["values"]:
        row["synthetic"] = True
    names = [line.name for line in text.headlines(content) if line.figure == "agents_per_megawatt"]
    assert all(name.endswith(", synthetic") for name in names)


def test_the_summary_shows_four_figures_with_coverage_and_notes(document: dict[str, Any]) -> None:
    shown = report.summary({k: v for k, v in document.items() if k != "meta"}, NOTES)
    for definition in DEFINITIONS.values():
        assert definition.title in shown
    assert "100.0 %" in shown
    assert "Note: Power is synthetic." in shown


def test_names_from_the_data_cannot_break_the_page(tmp_path: Path) -> None:
    evil = '<script>alert("x")</script>|\n&'
    lake = build(tmp_path / "lake", [event("a", MONDAY, model_group=evil, client=evil, initiator="user")])
    report.write(lake, Settings(), tmp_path / "out", [report.Note(evil)])
    html = (tmp_path / "out/report.html").read_text(encoding="utf-8")
    assert "<script" not in html
    assert "<script" not in (tmp_path / "out/report.md").read_text(encoding="utf-8")
    assert "&lt;script&gt;" in html


def test_a_lake_without_calls_gives_a_report_of_nulls_with_reasons(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    report.write(tmp_path / "lake", Settings(), tmp_path / "out")
    document = json.loads((tmp_path / "out/report.json").read_text(encoding="utf-8"))
    assert {document[n]["value"] for n in DEFINITIONS} == {None}
    assert {document[n]["reason"] for n in DEFINITIONS} == {"the lake holds no call in the window"}
    assert document["meta"]["window"] is None


def test_figures_without_power_or_cached_tokens_are_null_with_reasons_in_every_form(tmp_path: Path) -> None:
    bare = {"cached_tokens": None, "prompt_bytes": None, "shared_bytes": None, "prefix_steps": None}
    lake = build(tmp_path / "lake", [event("a", MONDAY, initiator="user", **bare)])
    report.write(lake, Settings(), tmp_path / "out")
    for name in ("report.html", "report.md", "figures.csv", "report.json"):
        content = (tmp_path / "out" / name).read_text(encoding="utf-8")
        assert "no power was measured in the window" in content
        assert "no backend reported cached tokens" in content


def test_synthetic_power_and_suspect_cells_call_for_notes_of_their_own(document: dict[str, Any]) -> None:
    content = json.loads(json.dumps({k: v for k, v in document.items() if k != "meta"}))
    content["agents_per_megawatt"]["boundaries"][0]["synthetic"] = True
    content["prefix_hit"]["suspect_cells"] = [{"provider": "bedrock", "stream": True, "calls": 12}]
    content["calls_per_human_hour"]["coverage"]["keys_shared_at_once"] = 2
    notes = {n.text.split(":")[0]: n.figures for n in text.all_notes(content, [])}
    assert notes["Power is synthetic"] == ("agents_per_megawatt",)
    assert any("bedrock streamed" in n.text for n in text.all_notes(content, []))
    assert any(n.text.startswith("2 key(s)") for n in text.all_notes(content, []))


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "n/a"),
        (0, "0"),
        (0.01234, "0.0123"),
        (1.5, "1.50"),
        (12.34, "12.3"),
        (173.6, "174"),
        (12345.6, "12,346"),
        (2, "2"),
    ],
)
def test_numbers_are_short_and_unknown_is_not_zero(value: float | None, shown: str) -> None:
    assert text.number(value) == shown


@pytest.mark.parametrize(
    ("hours", "shown"),
    [(168, "7.00 days"), (24.5, "24.5 hours"), (0.25, "15.0 minutes"), (0.01, "36 seconds")],
)
def test_lengths_of_time_are_written_in_the_unit_that_suits_them(hours: float, shown: str) -> None:
    assert text.duration(hours) == shown


def test_figures_serialise_by_name(tmp_path: Path) -> None:
    computed = figures.compute(build(tmp_path, [event("a", MONDAY)]), Settings())
    assert list(computed.to_dict()) == list(figures.NAMES)
