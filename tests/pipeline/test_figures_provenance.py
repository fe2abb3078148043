"""Figures over imported calls: null with the trace's own reason where it lacks something, and only there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline import figures, importing, run
from pipeline.extract.traces import registry
from pipeline.extract.traces.needs import FIGURES, MEANING, Need
from pipeline.report import write
from pipeline.settings import Settings
from tests.pipeline.extract.traces.conftest import copilot_call, copilot_session, weka_call, weka_session
from tests.pipeline.sql.synthetic import MONDAY, event
from tests.pipeline.sql.synthetic import write as write_raw

WEKA = [
    weka_session(
        f"trace_{n}",
        [
            weka_call(0.0, 130 + n, [1, 2]),
            weka_call(10.0, 200, [1, 2, 3], input_types=["tool_result"]),
            weka_call(100.0, 210, [1, 2, 9]),
        ],
    )
    for n in range(3)
]
MOONCAKE = [
    {"timestamp": 1000 * n, "input_length": 1000, "output_length": 5, "hash_ids": [0, n]} for n in range(5)
]
COPILOT = [
    copilot_session("s-12345678", [[copilot_call(1, "user", 1000, 0), copilot_call(5, "agent", 1500, 900)]])
]
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n"
FULL = (
    "started,duration_s,ttft_s,input_tokens,cached_tokens,output_tokens,session,user,initiator,model\n"
    "2026-03-02T08:00:00,10,1,1000,0,101,a,ann,user,m\n2026-03-02T08:00:30,10,1,2000,900,101,a,ann,agent,m\n"
)


def bring(folder: Path, content: object, name: str = "t.jsonl", **options: Any) -> Settings:
    settings = Settings(lake=folder / "lake")
    path = folder / name
    path.write_text(
        content if isinstance(content, str) else "".join(json.dumps(r) + "\n" for r in content),  # type: ignore[attr-defined]
        encoding="utf-8",
    )
    importing.import_files(settings, [path], **options)
    return settings


def computed(settings: Settings) -> dict[str, dict[str, Any]]:
    run.build(settings.lake, settings)
    return figures.compute(settings.lake, settings).to_dict()


@pytest.mark.parametrize(
    ("content", "kind"),
    [(WEKA, "weka"), (MOONCAKE, "mooncake"), (COPILOT, "copilot-2026"), (AZURE, "azure-2023")],
)
def test_every_figure_that_the_matrix_denies_is_null_with_that_reason_and_the_others_have_values(
    tmp_path: Path, content: object, kind: str
) -> None:
    found = computed(bring(tmp_path, content))
    carried = {row["figure"]: row["carried"] for row in registry.explain(registry.named(kind))}
    source = registry.named(kind)
    never = set(Need) - source.gives - source.sometimes
    for needs in FIGURES:
        figure = found[needs.figure]
        for path in needs.paths:
            place: Any = figure
            for key in path or ("value",):
                place = place.get(key) if isinstance(place, dict) else None
            value = place["value"] if isinstance(place, dict) and "value" in place else place
            where = ".".join(path) or "value"
            if carried[needs.title] == "no":
                assert not value, (needs.title, path)
                for need in needs.needs:
                    if need in never:
                        assert (
                            f"no {need} ({source.lacks.get(need, MEANING[need])})"
                            in figure["unavailable"][where]
                        )
            elif carried[needs.title] == "yes":
                assert where not in figure.get("unavailable", {}), (needs.title, path)
    if carried["calls per human-hour"] == "no":
        assert found["calls_per_human_hour"]["reason"].startswith(source.title)
    assert found["prompt_length"]["value"] is not None


def test_sessions_without_users_give_calls_per_session_hour(tmp_path: Path) -> None:
    human = computed(bring(tmp_path, WEKA))["calls_per_human_hour"]
    # Each of three sessions: 0 to 12 s with the gap, then 88 s of gap and 2 s of flight: 102 s.
    assert human["calls_per_session_hour"]["value"]["5 min"] == pytest.approx(9 / (3 * 102 / 3600))
    assert (human["value"], human["values"], human["by_day"]) == (None, [], [])
    assert human["calls_per_user_prompt"]["value"] == 1.5
    assert human["peak_concurrent_calls"] is None
    assert "no absolute time" in human["unavailable"]["peak_concurrent_calls"]


def test_a_table_with_every_column_loses_only_what_no_trace_has(tmp_path: Path) -> None:
    found = computed(bring(tmp_path, FULL, "t.csv"))
    lost = {where for figure in found.values() for where in figure.get("unavailable", {})}
    assert lost == {"potential", "engine", "value", "values"}
    assert found["agents_per_megawatt"]["reason"].endswith("no power (a trace of calls measures none)")
    assert found["calls_per_human_hour"]["value"]["5 min"] == pytest.approx(2 / (40 / 3600))
    assert found["prefix_hit"]["realised"]["value"] == 0.3


def test_a_column_that_was_not_mapped_is_named_in_the_reason(tmp_path: Path) -> None:
    hit = computed(bring(tmp_path, "started,input_tokens\n2026-03-02T08:00:00,5\n", "t.csv"))["prefix_hit"]
    assert (hit["value"], hit["reason"]) == (None, hit["unavailable"]["realised"])
    assert "no column was mapped to cached_tokens" in hit["reason"]


def test_a_window_with_calls_of_a_gateway_keeps_its_figures_and_notes_the_share(tmp_path: Path) -> None:
    settings = bring(tmp_path, FULL, "t.csv")
    write_raw(settings.lake, "raw_event", [event("own", MONDAY), event("own2", MONDAY)])
    found = computed(settings)
    assert "unavailable" not in found["prefix_hit"]
    assert found["prefix_hit"]["imported"] == {"table": 2}
    assert any(
        note.startswith("50.0% of the calls were imported") for note in found["prompt_length"]["import_notes"]
    )


def test_figures_of_a_gateway_alone_are_untouched(tmp_path: Path) -> None:
    settings = Settings(lake=tmp_path)
    write_raw(settings.lake, "raw_event", [event("own", MONDAY)])
    found = computed(settings)
    assert not any({"imported", "unavailable", "import_notes"} & figure.keys() for figure in found.values())


@pytest.mark.parametrize(
    ("content", "has_sessions"),
    [(WEKA, True), (MOONCAKE, False), (COPILOT, True), (AZURE, False)],
    ids=["weka", "mooncake", "copilot", "azure"],
)
def test_the_report_of_every_kind_can_be_written(tmp_path: Path, content: object, has_sessions: bool) -> None:
    settings = bring(tmp_path, content)
    run.build(settings.lake, settings)
    files = {p.name: p for p in write(settings.lake, settings, tmp_path / "report")}
    text = files["report.md"].read_text(encoding="utf-8")
    assert "no users (" in text
    assert "> **Note:** Imported calls." in text
    assert ("| per session-hour, gaps up to 5 min |" in text) is has_sessions
    json.loads(files["report.json"].read_text(encoding="utf-8"), parse_constant=pytest.fail)
