"""The paired benchmark of the real proxy: its statistics, its requests and its verdict, without a proxy."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
NAME = "proxy_throughput"


@pytest.fixture(scope="module")
def program() -> Any:
    spec = importlib.util.spec_from_file_location(NAME, ROOT / "benchmarks" / f"{NAME}.py")
    assert spec is not None
    assert spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = module  # dataclasses look their module up by name
    path = list(sys.path)
    try:
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.path[:] = path
        sys.modules.pop(NAME, None)


@pytest.mark.parametrize(
    ("p", "df", "table"),
    [
        (0.975, 1, 12.706),
        (0.975, 2, 4.303),
        (0.975, 3, 3.182),
        (0.975, 4, 2.776),
        (0.95, 5, 2.015),
        (0.975, 10, 2.228),
        (0.975, 23, 2.069),
        (0.995, 30, 2.750),
        (0.975, 120, 1.980),
        (0.5, 7, 0.0),
    ],
)
def test_the_t_quantile_is_the_one_of_the_printed_tables(
    program: Any, p: float, df: int, table: float
) -> None:
    assert program.t_quantile(p, df) == pytest.approx(table, abs=6e-4)


@pytest.mark.parametrize(("p", "df"), [(0.4, 3), (1.0, 3), (0.975, 0)])
def test_a_t_quantile_that_does_not_exist_is_refused(program: Any, p: float, df: int) -> None:
    with pytest.raises(ValueError, match="no t quantile"):
        program.t_quantile(p, df)


def test_the_paired_interval_is_the_textbook_one(program: Any) -> None:
    # Differences 1, 2, 3, 4: mean 2.5, s = 1.290994, half width 3.182446 * s / 2.
    found = program.paired_interval([11.0, 22.0, 33.0, 44.0], [10.0, 20.0, 30.0, 40.0])
    assert found.mean == pytest.approx(2.5)
    assert found.high - found.mean == pytest.approx(2.054260, abs=1e-5)
    assert found.mean - found.low == pytest.approx(2.054260, abs=1e-5)


def test_drift_that_both_blocks_of_a_pair_share_does_not_widen_the_interval(program: Any) -> None:
    drift = [0.0, 30.0, -10.0, 200.0]
    found = program.paired_interval([d + 1.0 for d in drift], drift)
    assert (found.low, found.mean, found.high) == pytest.approx((1.0, 1.0, 1.0))


@pytest.mark.parametrize(("ours", "theirs"), [([1.0], [2.0]), ([1.0, 2.0], [1.0]), ([], [])])
def test_an_interval_without_two_starts_is_refused(
    program: Any, ours: list[float], theirs: list[float]
) -> None:
    with pytest.raises(ValueError, match="two starts"):
        program.paired_interval(ours, theirs)


def test_percentiles_are_interpolated_between_the_sorted_values(program: Any) -> None:
    assert program.percentile([4.0, 1.0, 3.0, 2.0], 0.5) == 2.5
    assert program.percentile([5.0], 0.95) == 5.0
    assert program.percentile(list(range(101)), 0.95) == pytest.approx(95)


def test_requests_go_out_in_the_order_abba_and_each_to_both(program: Any) -> None:
    a, b = program.WITH, program.WITHOUT
    order = program.order_of(20, pair=2)
    assert [side for side, _ in order] == [a, b, b, a, a, b, b, a]
    assert [side for side, _ in program.order_of(20, pair=3)] == [b, a, a, b, b, a, a, b]
    for wanted in (a, b):
        assert [n for side, stretch in order if side == wanted for n in stretch] == list(range(20))


def test_both_proxies_get_the_same_bytes_and_no_two_pairs_share_a_session(program: Any) -> None:
    first = program.sequence(3, 12, 20_000)
    assert first == program.sequence(3, 12, 20_000)
    other = program.sequence(4, 12, 20_000)
    sessions = [{headers["x-session-id"] for _, headers in requests} for requests in (first, other)]
    assert len(sessions[0]) == 2
    assert [{program.pair_of(session) for session in found} for found in sessions] == [{3}, {4}]
    assert not sessions[0] & sessions[1]
    assert not {body for body, _ in first} & {body for body, _ in other}


def test_each_request_of_a_session_extends_the_one_before(program: Any) -> None:
    prompts = [json.loads(body)["messages"] for body, _ in program.sequence(0, 3, 68_000)]
    assert [len(p) for p in prompts] == [200, 202, 204]
    assert prompts[2][:202] == prompts[1]
    assert prompts[1][:200] == prompts[0]
    assert prompts[0][-1]["tool_call_id"] == prompts[0][-2]["tool_calls"][0]["id"]


def test_the_process_clock_and_the_ticks_of_proc_stat_agree(program: Any) -> None:
    stat = Path("/proc/self/stat")
    end = time.process_time() + 0.05
    while time.process_time() < end:
        pass
    clock = time.clock_gettime(program.process_clock(os.getpid()))
    assert program.ticks_s(stat.read_text()) == pytest.approx(clock, abs=0.05)
    assert clock == pytest.approx(time.process_time(), abs=0.05)


def test_a_process_name_with_blanks_and_brackets_does_not_shift_the_ticks(program: Any) -> None:
    fields = " ".join(str(n) for n in range(4, 45))
    hertz = os.sysconf("SC_CLK_TCK")
    assert program.ticks_s(f"12 (a) b) c) S {fields}") == pytest.approx((14 + 15) / hertz)


def test_the_variants_of_the_configuration_differ_in_the_callback_alone(program: Any, tmp_path: Path) -> None:
    found = {}
    for plugin in (True, False):
        target = tmp_path / f"{plugin}.yaml"
        program.write_config(ROOT / "config.yaml", target, plugin=plugin)
        found[plugin] = yaml.safe_load(target.read_text())
    assert "database_url" not in found[True]["general_settings"]
    assert found[True]["litellm_settings"].pop("callbacks") == ["gateway_plugin.callback.telemetry"]
    assert found[True] == found[False]


def _samples(program: Any, added_ms: list[float], starts: int | None = None) -> Any:
    samples = program.Samples(10, starts or len(added_ms))
    for n, added in enumerate(added_ms):
        base = 0.4 + n * 0.01
        for side, cpu in ((program.WITHOUT, base), (program.WITH, base + added * 10 / 1e3)):
            samples.blocks[side].append(program.Block(cpu, round(cpu, 2), [cpu / 10] * 10))
    return samples


def test_a_cost_whose_whole_interval_is_below_the_target_meets_it(program: Any) -> None:
    result = program.verdict(_samples(program, [0.9, 1.0, 1.1, 1.0]))
    assert result["met"] is True
    assert result["sure"] is True
    assert result["added_ms"] == pytest.approx(1.0)
    assert result["added_ms_low"] < 1.0 < result["added_ms_high"] <= result["target_ms"]
    assert result["cpu_ms"][program.WITHOUT] == pytest.approx(41.5)


def test_a_mean_above_the_target_misses_it(program: Any) -> None:
    result = program.verdict(_samples(program, [1.9, 2.0, 2.1, 2.0]))
    assert result["met"] is False
    assert result["sure"] is True
    assert "missed" in program.table(result)


@pytest.mark.parametrize(("added", "met"), [([0.0, 2.0, 0.5, 1.5], True), ([0.5, 2.5, 1.0, 2.0], False)])
def test_a_target_within_the_interval_is_told_to_be_unsure(
    program: Any, added: list[float], *, met: bool
) -> None:
    result = program.verdict(_samples(program, added))
    assert result["added_ms_low"] < result["target_ms"] < result["added_ms_high"]
    assert result["met"] is met
    assert result["sure"] is False
    assert "within the interval" in program.table(result)


def test_pairs_of_one_start_agree_and_make_the_interval_no_narrower(program: Any) -> None:
    # Two starts of three pairs each: mean 1.5, s = 0.70711, half width 12.7062 * s / sqrt(2).
    result = program.verdict(_samples(program, [1.0, 1.0, 1.0, 2.0, 2.0, 2.0], starts=2))
    assert (result["starts"], result["pairs"]) == (2, 6)
    assert result["added_ms_of_starts"] == pytest.approx([1.0, 2.0])
    assert result["added_ms_high"] - result["added_ms"] == pytest.approx(6.353, abs=1e-3)
    assert "2 starts, 6 pairs" in program.table(result)


def test_a_full_collection_is_told_apart_and_does_not_widen_the_interval(program: Any) -> None:
    samples = _samples(program, [0.9, 1.0, 1.1, 1.0])
    without = program.verdict(samples)
    for side, pair in ((program.WITH, 1), (program.WITHOUT, 3)):
        block = samples.blocks[side][pair]
        block.cpu_s += 0.4
        block.collections, block.collecting_s = 1, 0.4
    result = program.verdict(samples)
    for figure in ("added_ms", "added_ms_low", "added_ms_high", "met"):
        assert result[figure] == pytest.approx(without[figure])
    assert result["full_collections_with"] == result["full_collections_without"] == 1
    assert result["full_collections_ms_with"] == pytest.approx(10.0)
    assert result["added_with_full_collections_ms_high"] > 10 * result["target_ms"]
    assert "1 without (10.00 ms a request), 1 with plugin (10.00 ms a request)" in program.table(result)


def test_a_process_adds_up_its_own_full_collections_and_no_younger_ones(program: Any, tmp_path: Path) -> None:
    counted = tmp_path / "counted"
    script = (
        "import gc, os; gc.disable(); gc.collect(0); gc.collect(1); gc.collect(); gc.collect(); "
        "print(*os.environ)"
    )
    environment = os.environ | {
        "PYTHONPATH": str(ROOT / "benchmarks" / "full_collections"),
        "FULL_COLLECTIONS_FILE": str(counted),
    }
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    count, spent = program.full_collections(counted)
    # The interpreter's own start and end may add one each.
    assert 2 <= count <= 4
    assert 0 < spent < 60
    assert "FULL_COLLECTIONS_FILE" not in done.stdout.split()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--blocks", "7"],
        ["--blocks", "2"],
        ["--requests", "0"],
        ["--requests", "7"],
        ["--tokens", "100"],
        ["--rest", "-1"],
    ],
)
def test_unusable_options_end_with_exit_code_2(
    program: Any, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        program.main(arguments)
    assert ended.value.code == 2
    assert arguments[0] in capsys.readouterr().err


def test_the_program_exits_1_when_missed_and_ends_with_one_json_line(
    program: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = iter([[1.0, 1.1, 0.9, 1.0], [3.0, 3.1, 2.9, 3.0]])
    monkeypatch.setattr(
        program, "measure", lambda options, work: (_samples(program, next(answers)), {"checked": True})
    )
    assert program.main([]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["met"] is True
    assert program.main([]) == 1
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert last["met"] is False
    assert last["checked"] is True
    assert "litellm" not in vars(program)
