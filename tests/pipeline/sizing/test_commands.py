from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from pipeline.sizing import document
from pipeline.sizing.commands import app

RUNNER = CliRunner()


def run(*arguments: object) -> Any:
    return RUNNER.invoke(app, [str(a) for a in arguments])


@pytest.fixture
def week_file(tmp_path: Path, week_report: Any) -> Path:
    path = tmp_path / "report.json"
    path.write_text(json.dumps(week_report), encoding="utf-8")
    return path


def test_plan_prints_yaml_on_standard_output_and_nothing_else_there(examples: Path) -> None:
    done = run("plan", examples / "twenty_developers.yaml")
    assert done.exit_code == 0
    data = document.parse(done.stdout).data
    assert data["results"]["fleet"]["gpus"] == 4
    assert {c["status"] for c in data["checks"]} <= {"pass", "warn", "unknown"}


@pytest.mark.parametrize("form", ["json", "md"])
def test_plan_prints_other_forms_on_request(examples: Path, form: str) -> None:
    done = run("plan", examples / "slo_chain.yaml", "--format", form)
    assert done.exit_code == 0
    if form == "json":
        assert json.loads(done.stdout)["results"]["fleet"]["nodes_with_headroom"] == 11
    else:
        assert "| nodes with headroom | 11 |" in done.stdout


def test_week_alone_is_enough_and_names_what_was_filled_from_defaults(week_file: Path) -> None:
    done = run("plan", "--from-week", week_file)
    assert done.exit_code == 0
    data = document.parse(done.stdout).data
    assert "people.duty_cycle" in data["evidence"]["measured"]
    assert data["week"]["missing"][0]["input"] == "concurrency_by_hour"
    assert "model.layers" in data["evidence"]["filled_from_defaults"]
    assert "calls.prefix_hit" not in data["evidence"]["filled_from_defaults"]


def test_week_over_a_plan_shows_both_in_the_table(examples: Path, week_file: Path) -> None:
    done = run("plan", examples / "twenty_developers.yaml", "--from-week", week_file, "-f", "md")
    assert done.exit_code == 0
    assert "## Taken from the week" in done.stdout


def test_wrong_plan_exits_2_with_line_and_key_on_standard_error(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(
        "plan: {name: x, method: agents, currency: EUR, date: 2026-01-01}\nmodle: {}\n", encoding="utf-8"
    )
    done = run("plan", path)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert "plan.yaml:2: modle: unknown section" in done.stderr


def test_absent_files_exit_2(tmp_path: Path, examples: Path) -> None:
    assert run("plan", tmp_path / "absent.yaml").exit_code == 2
    assert run("plan", examples / "slo_chain.yaml", "--config", tmp_path / "absent.yaml").exit_code == 2
    assert run("plan", examples / "slo_chain.yaml", "--dashboards", tmp_path).exit_code == 2
    assert run("plan", "run").exit_code == 2


def test_strict_exits_5_when_a_check_fails_and_names_it(examples: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("litellm_settings: {}\n", encoding="utf-8")
    arguments = ("plan", examples / "twenty_developers.yaml", "--config", config)
    assert run(*arguments).exit_code == 0
    done = run(*arguments, "--strict")
    assert done.exit_code == 5
    assert "check failed: request_timeout" in done.stderr


def test_dashboards_folder_feeds_the_rename_check(examples: Path, tmp_path: Path) -> None:
    (tmp_path / "board.json").write_text('{"expr": "vllm:gpu_cache_usage_perc"}', encoding="utf-8")
    done = run("plan", examples / "twenty_developers.yaml", "--dashboards", tmp_path, "--strict")
    assert done.exit_code == 5
    assert "metric_renames" in done.stderr


def test_two_computed_plans_are_compared(examples: Path, tmp_path: Path, week_file: Path) -> None:
    before, after = tmp_path / "before.yaml", tmp_path / "after.yaml"
    before.write_text(run("plan", examples / "twenty_developers.yaml").stdout, encoding="utf-8")
    after.write_text(
        run("plan", examples / "twenty_developers.yaml", "--from-week", week_file).stdout, encoding="utf-8"
    )
    done = run("plan", "diff", before, after)
    assert done.exit_code == 0
    assert "| people.duty_cycle | 0.11 | 0.09 |" in done.stdout
    assert run("plan", "diff", before, week_file).exit_code == 2


def test_broken_assumption_exits_5_and_is_named(examples: Path, tmp_path: Path, week_file: Path) -> None:
    predicted = tmp_path / "plan.yaml"
    predicted.write_text(run("plan", examples / "twenty_developers.yaml").stdout, encoding="utf-8")
    done = run("plan", "check", predicted, week_file)
    assert done.exit_code == 5
    assert "people.amplification" in done.stderr
    assert "| people.amplification | 3 |" in done.stdout


def sweep(path: Path, scale: float = 1.0, *, broken: bool = True) -> Path:
    lines = []
    rounds = [(2, 95, 2.0), (8, 140, 8.0), (17, 460, 16.8)] + ([(20, 760, 12.0)] if broken else [])
    for rate, ttft, good in rounds:
        lines.append(
            json.dumps(
                {
                    "request_rate": rate,
                    "request_throughput": rate * scale,
                    "output_throughput": 200.0 * rate * scale,
                    "request_goodput": good * scale,
                    "completed": 100,
                    "p99_ttft_ms": ttft,
                }
            )
        )
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_knee_of_a_sweep_is_printed_with_its_cost(tmp_path: Path) -> None:
    done = run("knee", sweep(tmp_path / "a.json"), "--ttft-ms", 500, "--replica-hour", "11")
    assert done.exit_code == 0
    data = document.parse(done.stdout).data
    assert data["at"]["rate"] == 17
    assert data["cost_per_million_tokens"] == "0.909"
    assert "| 20 |" in run("knee", tmp_path / "a.json", "--ttft-ms", 500, "-f", "md").stdout


def test_unbroken_sweep_and_missing_target_exit_2(tmp_path: Path) -> None:
    path = sweep(tmp_path / "a.json", broken=False)
    done = run("knee", path, "--ttft-ms", 500)
    assert done.exit_code == 2
    assert "never broke" in done.stderr
    assert run("knee", path).exit_code == 2


def test_regression_beyond_the_threshold_exits_5(tmp_path: Path) -> None:
    good, bad = sweep(tmp_path / "good.json"), sweep(tmp_path / "bad.json", scale=0.9)
    assert run("knee", "compare", good, good, "--ttft-ms", 500).exit_code == 0
    done = run("knee", "compare", good, bad, "--ttft-ms", 500)
    assert done.exit_code == 5
    assert "-10.0%" in done.stderr
    assert run("knee", "compare", good, bad, "--ttft-ms", 500, "--threshold", 0.2).exit_code == 0


def test_power_is_paired_with_the_window_of_the_knee(tmp_path: Path) -> None:
    metrics = {"request_totals": {"successful": 10, "errored": 0}}
    for name, value in (
        ("requests_per_second", 1.0), ("output_tokens_per_second", 100.0), ("inter_token_latency_ms", 20.0),
    ):  # fmt: skip
        metrics[name] = {"successful": {"mean": value, "percentiles": {"p99": value}}}  # type: ignore[assignment]

    def benchmark(rate: float, ttft: float, start: float) -> dict[str, Any]:
        first = {"successful": {"mean": ttft, "max": ttft, "percentiles": {"p50": ttft, "p99": ttft}}}
        return {
            "config": {"strategy": {"type_": "poisson", "rate": rate}},
            "metrics": {**metrics, "time_to_first_token_ms": first},
            "start_time": start,
            "end_time": start + 60.0,
        }

    path = tmp_path / "guidellm.json"
    path.write_text(
        json.dumps({"benchmarks": [benchmark(1.0, 100, 1000.0), benchmark(2.0, 900, 2000.0)]}),
        encoding="utf-8",
    )
    power = tmp_path / "power.csv"
    power.write_text("ts,w\n" + "\n".join(f"{1000 + t},500" for t in range(61)), encoding="utf-8")
    done = run("knee", path, "--ttft-ms", 500, "--power", power, "--boundary", "node")
    assert done.exit_code == 0, done.stderr
    energy = document.parse(done.stdout).data["energy"]
    assert (energy["joules_per_token"], energy["boundary"]) == (5.0, "node")
    power.write_text("ts,w\nx,y\nz,1\n", encoding="utf-8")
    assert run("knee", path, "--ttft-ms", 500, "--power", power).exit_code == 2


def test_commands_can_be_mounted_beside_others(examples: Path) -> None:
    parent = typer.Typer()
    parent.add_typer(app)

    @parent.command()
    def other() -> None:
        """Another command."""

    done = CliRunner().invoke(parent, ["plan", str(examples / "slo_chain.yaml"), "-f", "md"])
    assert done.exit_code == 0
    assert "five million requests" in done.stdout
    assert "run" in CliRunner().invoke(parent, ["plan", "--help"]).stdout


def test_fragments_are_written_beside_and_never_for_the_other_method(examples: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    done = run("plan", examples / "twenty_developers.yaml", "--fragments", folder)
    assert done.exit_code == 0
    written = document.parse((folder / "config.yaml").read_text(encoding="utf-8")).data
    assert written["litellm_settings"]["request_timeout"] == 600
    assert document.parse((folder / "values.yaml").read_text(encoding="utf-8")).data["replicaCount"] == 2
    assert run("plan", examples / "slo_chain.yaml", "--fragments", folder).exit_code == 2
