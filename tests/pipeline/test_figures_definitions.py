"""The worked example of docs/definitions.md, through the real models."""

from __future__ import annotations

import ast
import json
import math
import operator
import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gateway_plugin import tools
from pipeline import figures, run
from pipeline.figures.registry import QUANTITIES, SECTIONS
from pipeline.figures.series import series
from pipeline.report.definitions import DEFINITIONS
from pipeline.sql.parameters import DEEP_LOOP_CALLS, PROFILE_TOKENS
from tests.pipeline.sql.synthetic import MONDAY, Settings, Tier, board_metrics, build, event, metric

TEXT = (Path(__file__).resolve().parents[2] / "docs/definitions.md").read_text(encoding="utf-8")
SETTINGS = Settings(slo_tiers=(Tier(5, 10), Tier(5, 20)))


def clock(text: str) -> datetime:
    hour, minute, second = (int(part) for part in text.split(":"))
    return MONDAY.replace(hour=hour, minute=minute, second=second)


def table() -> list[dict[str, Any]]:
    """The calls of the example, read from the page itself."""
    events = []
    for line in TEXT.splitlines():
        cells = [c.strip() for c in line.strip("|").split("|")]
        if len(cells) == 8 and re.fullmatch(r"[a-d]", cells[0]):
            shared, total = (int(n.replace(",", "")) for n in cells[6].split(" of "))
            age = float(cells[7].removesuffix(" s")) if cells[7] else None
            events.append(
                event(
                    cells[0],
                    clock(cells[1]),
                    duration_ms=(clock(cells[2]) - clock(cells[1])) / timedelta(milliseconds=1),
                    initiator=cells[3],
                    input_tokens=int(cells[4].replace(",", "")),
                    cached_tokens=None if cells[5] == "not reported" else int(cells[5].replace(",", "")),
                    prompt_bytes=total,
                    shared_bytes=shared,
                    prefix_steps=json.dumps([] if age is None else [[age, shared]]),
                )
            )
    return events


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    calls = table()
    assert [c["event_id"] for c in calls] == ["a", "b", "c", "d"]
    other = event(
        "e", clock("08:05:00"), session_key="s2", user_hash="u2", initiator="user", duration_ms=10_000
    )
    metrics = board_metrics(MONDAY - timedelta(minutes=5), MONDAY + timedelta(hours=2), watts=500)
    lake = build(tmp_path_factory.mktemp("example"), [*calls, other], metrics=metrics, settings=SETTINGS)
    return figures.compute(lake, SETTINGS, MONDAY, MONDAY + timedelta(hours=1)).figures


def test_calls_per_human_hour(example: dict[str, dict[str, Any]]) -> None:
    figure = example["calls_per_human_hour"]
    assert figure["value"]["5 min"] == pytest.approx(225.0)
    assert figure["value"]["15 min"] == pytest.approx(26.47, abs=0.005)
    assert figure["calls_per_in_turn_hour"]["values"]["none"] == pytest.approx(225.0)
    assert figure["calls_per_in_turn_hour"]["values"]["60 s"] == pytest.approx(225.0)
    assert figure["calls_per_user_prompt"]["value"] == pytest.approx(1.67, abs=0.005)
    for shown in ("= 225.0 calls per human-hour", "= 26.47", "5 ÷ 3 = 1.67"):
        assert shown in TEXT


def test_concurrency_by_hour_of_the_week(example: dict[str, dict[str, Any]]) -> None:
    figure = example["calls_per_human_hour"]["concurrency_by_hour_of_week"]
    assert figure == {"8": [pytest.approx(50 / 3600)]}
    assert "50 s ÷ 3600 s = 0.0139" in TEXT


def test_prompt_length(example: dict[str, dict[str, Any]]) -> None:
    figure = example["prompt_length"]
    assert (figure["value"]["p50"], figure["value"]["p90"], figure["value"]["mean"]) == pytest.approx(
        (2000, 3600, 2200)
    )
    assert figure["input_to_output"]["value"] == pytest.approx(21.78, abs=0.005)
    assert figure["new_tokens_per_call"]["value"] == pytest.approx(1150)
    assert "P50 = 2,000, P90 = 3,600, mean = 2,200" in TEXT
    assert "= 21.78" in TEXT


def test_prefix_hit(example: dict[str, dict[str, Any]]) -> None:
    figure = example["prefix_hit"]
    assert figure["value"]["realised"] == pytest.approx(0.425)
    assert figure["coverage"]["share_of_calls"] == pytest.approx(4 / 5)
    assert figure["coverage"]["share_of_input_tokens"] == pytest.approx(8 / 11)
    assert figure["value"]["potential_inf"] == figure["value"]["potential_3600"] == pytest.approx(6 / 11)
    assert figure["value"]["potential_300"] == pytest.approx(4 / 11)
    for shown in ("= 42.5 %", "= 54.5 %", "36.4 %"):
        assert shown in TEXT


def test_agents_per_megawatt(example: dict[str, dict[str, Any]]) -> None:
    figure = example["agents_per_megawatt"]
    found = {(r["state"], r["tier"]): r["value"] for r in figure["values"]}
    assert found["in_turn", "10 tok/s, 5 s"] == pytest.approx(22.2, abs=0.05)
    assert found["open", "10 tok/s, 5 s"] == pytest.approx(188.9, abs=0.05)
    assert found["in_turn", "20 tok/s, 5 s"] == 0
    assert figure["values"][0]["megawatt_hours"] == pytest.approx(0.001)
    assert "= 22.2 agents per megawatt" in TEXT


def test_every_figure_has_a_section_with_formula_unit_inputs_coverage_errors_and_example() -> None:
    for definition in DEFINITIONS.values():
        section = TEXT.split(f"\n## {definition.title}\n")[1].split("\n## ")[0]
        for word in ("Formula", "Unit", "Inputs", "Coverage", "Error sources", "Example"):
            assert f"**{word}.**" in section


# -- the figures by day, week and who

#: Columns of the page's two tables, and the fields of an event that they are.
COLUMNS = {
    "turn": "turn_id",
    "session": "session_key",
    "agent": "agent_id",
    "initiator": "initiator",
    "outcome": "outcome",
    "input": "input_tokens",
    "cached": "cached_tokens",
    "written": "cache_write_tokens",
    "output": "output_tokens",
    "first token ms": "ttft_ms",
    "prompt bytes": "prompt_bytes",
    "shared bytes": "shared_bytes",
    "break": "break_reason",
    "tool bytes": "tools_bytes",
    "overhead ms": "overhead_ms",
    "count ms": "count_ms",
    "reads": "tool_reads",
    "edits": "tool_edits",
    "commands": "tool_runs",
    "other": "tool_others",
}
OPERATORS: dict[type, Any] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def cell(text: str) -> Any:
    number = text.replace(",", "")
    return None if text in ("−", "") else (int(number) if number.isdecimal() else text)


def second_table() -> list[dict[str, Any]]:
    """The calls of the second example, read from the page itself."""
    part = TEXT.split("### The second worked example")[1].split("\n### ")[0]
    rows: dict[str, dict[str, Any]] = {}
    header: list[str] = []
    for line in part.splitlines():
        cells = [c.strip() for c in line.strip("|").split("|")]
        if cells[0] == "call":
            header = cells
        elif re.fullmatch("[f-k]", cells[0]):
            rows.setdefault(cells[0], {}).update(zip(header, map(cell, cells), strict=True))
    events = []
    for name, row in rows.items():
        fields = {field: row[column] for column, field in COLUMNS.items()}
        fields |= {
            k: float(fields[k]) for k in ("ttft_ms", "overhead_ms", "count_ms") if fields[k] is not None
        }
        steps = [] if row["age s"] is None else [[row["age s"], row["shared bytes"]]]
        events.append(
            event(
                name,
                MONDAY + timedelta(seconds=row["second"]),
                **fields
                | {
                    "turn_id": str(row["turn"]),
                    "agent_kind": "main" if row["agent"] == "main" else "subagent",
                    "user_hash": f"person of {row['session']}",
                    "duration_ms": row["lasts s"] * 1000.0,
                    "key_alias": "k1",
                    "litellm_version": "1.108.7",
                    "prefix_steps": None if row["prompt bytes"] is None else json.dumps(steps),
                },
            )
        )
    return events


def arithmetic(text: str) -> float:
    """Work out a sum in the page's own notation."""

    def value(node: ast.expr) -> float:
        if isinstance(node, ast.BinOp):
            return float(OPERATORS[type(node.op)](value(node.left), value(node.right)))
        assert isinstance(node, ast.Constant)
        return float(node.value)

    plain = text.replace(",", "").translate(str.maketrans({"÷": "/", "×": "*", "−": "-"}))
    return value(ast.parse(plain, mode="eval").body)


def sections() -> dict[str, str]:
    """Text below each heading of a quantity, line breaks taken out."""
    found = re.findall(r"^#### `(\w+)`\n(.*?)(?=^#{2,4} |\Z)", TEXT, re.MULTILINE | re.DOTALL)
    return {name: re.sub(r"\n(?!- )", " ", body) for name, body in found}


def examples(name: str) -> list[tuple[str, str, str]]:
    return re.findall(r"^- Example `(.+?)`: (.*)= ([\d.,]+) *$", sections().get(name, ""), re.MULTILINE)


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], float | None]:
    counters = (("vllm:prefix_cache_hits_total", 30_000), ("vllm:prefix_cache_queries_total", 100_000))
    metrics = [
        metric(MONDAY + timedelta(seconds=second - 60), name, growth * second / 360)
        for name, growth in counters
        for second in (0, 360)
    ]
    lake = build(tmp_path_factory.mktemp("second"), second_table(), metrics=metrics)
    rows = series(
        lake, Settings(), period="window", by=("all",), since=MONDAY, until=MONDAY + timedelta(hours=1)
    ).rows()
    return {(r["figure"], r["part"]): r["value"] for r in rows if r["dimension"] == "all"}


@pytest.mark.parametrize("name", QUANTITIES)
def test_every_quantity_is_defined_as_it_is_computed_and_its_example_recomputes(
    name: str, second: dict[tuple[str, str], float | None]
) -> None:
    section, quantity = sections()[name], QUANTITIES[name]
    assert f"**Formula.** {quantity.formula}." in section
    assert f"**Unit.** {quantity.unit}." in section
    for word in ("Inputs", "Coverage", "Error sources"):
        assert re.search(rf"\*\*{word}\.\*\* \S", section)
    assert examples(name)
    for part, sum_, shown in examples(name):
        told = float(shown.replace(",", ""))
        assert second[name, part] == pytest.approx(told, rel=5e-4), part
        if sum_.strip():
            assert arithmetic(sum_) == pytest.approx(told, rel=5e-4), part


def kinds_of_visits() -> list[tuple[tuple[int, ...], str]]:
    """Tool calls of a visit and its profile, from the page's table."""
    part = TEXT.split("### Profiles")[1].split("\n### ")[0]
    found = re.findall(r"^\| (\d+) \| (\d+) \| (\d+) \| (\d+) \| ([\w -]+) \|$", part, re.MULTILINE)
    return [(tuple(int(n) for n in counts), profile) for *counts, profile in found]


def test_visits_have_the_profiles_that_the_page_says_of_their_tool_calls(tmp_path: Path) -> None:
    rows = kinds_of_visits()
    assert len(rows) == 6
    events = []
    for number, (counts, _) in enumerate(rows):
        made = dict(zip(("tool_reads", "tool_edits", "tool_runs", "tool_others"), counts, strict=True))
        for call, fields in enumerate((made, dict.fromkeys(made, 0), {})):
            events.append(
                event(
                    f"{number}-{call}", MONDAY + timedelta(seconds=10 * call), session_key=f"s{number}",
                    turn_id="t", initiator="agent" if call else "user", input_tokens=400_000, **fields,
                )
            )  # fmt: skip
    run.build(build(tmp_path, events), Settings())
    con = run.connect(tmp_path)
    found = con.execute(
        f"SELECT profile, profile_evidence FROM '{tmp_path}/marts/visit/*/*.parquet' ORDER BY session_key"
    ).fetchall()
    con.close()
    by_tokens = ("deep-loop", "tokens")  # 1,200,000 a turn
    assert found == [by_tokens if told == "by tokens" else (told, "tools") for _, told in rows]


def test_the_page_lists_the_verbs_that_tell_a_tool() -> None:
    part = re.sub(r"\s+", " ", TEXT.split("### Profiles")[1].split("\n### ")[0])
    for kind in ("read", "edit", "run"):
        verbs = ", ".join(sorted(v for v, k in tools.VERBS.items() if k == kind))
        assert f"`{kind}` {verbs};" in part
    assert f"less than {DEEP_LOOP_CALLS:.0f} calls a turn" in part
    for bound in (b for b in PROFILE_TOKENS.values() if b < math.inf):
        assert f"below {bound:,.0f}" in part


def test_the_page_names_no_quantity_that_is_not_published() -> None:
    assert list(sections()) == list(QUANTITIES)
    assert all(f"\n### {section.title}\n" in TEXT for section in SECTIONS)
