"""Readers of load-test results on small documents of the tools' own shape."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.sizing import knee, sweep
from pipeline.sizing.knee import KneeSlo

SLO = KneeSlo(ttft_ms=500, itl_ms=50)


def _stats(mean: float, **percentiles: float) -> dict[str, Any]:
    grid = {"p50": mean, "p90": mean, "p95": mean, "p99": mean, **percentiles}
    return {
        "successful": {"mean": mean, "max": grid["p99"], "percentiles": grid},
        "errored": {},
        "incomplete": {},
    }


def guidellm(
    rate: float | None,
    ttft_p99: float,
    share: float,
    *,
    kind: str = "poisson",
    keep: bool = True,
    start: float = 0.0,
) -> dict[str, Any]:
    """One benchmark; ``share`` of ten requests keeps the target."""
    good = round(share * 10)
    requests = [
        {
            "time_to_first_token_ms": 100.0 if n < good else 9000.0,
            "inter_token_latency_ms": 20.0,
            "output_tokens": 50,
        }
        for n in range(10)
    ]
    strategy: dict[str, Any] = {"type_": kind}
    if rate is not None:
        strategy["rate"] = rate
    return {
        "type_": "generative_benchmark",
        "config": {"strategy": strategy},
        "start_time": start,
        "end_time": start + 60,
        "metrics": {
            "request_totals": {"successful": 100, "errored": 0, "incomplete": 2, "total": 102},
            "requests_per_second": _stats(rate or 40.0),
            "request_concurrency": _stats(3.0),
            "output_tokens_per_second": _stats(100.0 * (rate or 40.0)),
            "time_to_first_token_ms": _stats(100.0, p99=ttft_p99),
            "inter_token_latency_ms": _stats(20.0),
        },
        "requests": {"successful": requests if keep else [], "errored": [], "incomplete": []},
    }


def report(*benchmarks: dict[str, Any]) -> dict[str, Any]:
    return {
        "metadata": {"version": 2, "guidellm_version": "0.7.3"},
        "config": {},
        "benchmarks": list(benchmarks),
    }


def aiperf(rate: float, ttft_p99: float, **extra: Any) -> dict[str, Any]:
    return {
        "schema_version": "1.0",
        "aiperf_version": "0.14.0",
        "request_throughput": {"unit": "requests/sec", "avg": rate},
        "output_token_throughput": {"unit": "tokens/sec", "avg": 100.0 * rate},
        "request_count": {"unit": "requests", "avg": 200.0},
        "time_to_first_token": {
            "unit": "ms",
            "avg": 90.0,
            "p50": 90.0,
            "p95": 200.0,
            "p99": ttft_p99,
            "max": ttft_p99,
        },
        "inter_token_latency": {"unit": "ms", "avg": 20.0, "p95": 25.0, "p99": 30.0, "max": 35.0},
        "input_config": {"loadgen": {"request_rate": rate}},
        "start_time": "2026-11-20T10:00:00",
        "end_time": "2026-11-20T10:02:00",
        **extra,
    }


def vllm(rate: float | str, ttft_p99: float, **extra: Any) -> dict[str, Any]:
    achieved = 40.0 if isinstance(rate, str) else rate
    return {
        "backend": "vllm",
        "request_rate": rate,
        "max_concurrency": None,
        "duration": 60.0,
        "completed": 200,
        "failed": 0,
        "request_throughput": achieved,
        "output_throughput": 100.0 * achieved,
        "p99_ttft_ms": ttft_p99,
        "p95_tpot_ms": 22.0,
        **extra,
    }


def write(folder: Path, name: str, data: Any) -> Path:
    path = folder / name
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def test_guidellm_sweep_gives_its_knee_from_the_requests_themselves(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "sweep.json",
        report(
            guidellm(None, 120, 1.0, kind="synchronous"),
            guidellm(None, 9000, 0.1, kind="throughput"),
            guidellm(50.0, 120, 1.0),
            guidellm(60.0, 480, 1.0, start=500.0),
            guidellm(70.0, 9000, 0.6),
        ),
    )
    rounds = sweep.read_sweep([path], SLO)
    assert [r.goodput_source for r in rounds] == ["requests"] * 5
    found = knee.find_knee(rounds, SLO)
    assert (found.at.rate, found.goodput_tok_s) == (60.0, 6000.0)
    assert found.broke_at.goodput_tok_s == pytest.approx(0.6 * 7000)
    assert (found.at.started_s, found.at.ended_s) == (500.0, 560.0)


def test_goodput_without_requests_is_a_lower_bound_from_percentiles(tmp_path: Path) -> None:
    path = write(
        tmp_path, "sweep.json", report(guidellm(5.0, 9000, 0, keep=False), guidellm(1.0, 300, 0, keep=False))
    )
    broken, good = sweep.read_sweep([path], SLO)
    assert broken.goodput_source == "percentiles"
    assert broken.goodput_tok_s == pytest.approx(500.0 * 0.95)  # P95 keeps the target, P99 does not
    assert good.goodput_tok_s == pytest.approx(100.0)


def test_two_targets_from_percentiles_are_combined_as_a_bound() -> None:
    ttft = {"p90": 400.0, "p95": 900.0}
    itl = {"p95": 40.0, "p99": 90.0}
    from pipeline.sizing.goodput import share_from_percentiles

    assert share_from_percentiles(ttft, itl, SLO) == pytest.approx(1 - 0.10 - 0.05)


def test_request_without_a_first_token_time_misses_the_target(tmp_path: Path) -> None:
    benchmark = guidellm(1.0, 100, 1.0)
    benchmark["requests"]["successful"][0]["time_to_first_token_ms"] = None
    path = write(tmp_path, "sweep.json", report(benchmark))
    assert sweep.read_sweep([path], SLO)[0].goodput_tok_s == pytest.approx(90.0)


def test_aiperf_exports_of_a_folder_make_a_sweep(tmp_path: Path) -> None:
    for rate, p99, good in ((2.0, 100.0, 200.0), (4.0, 450.0, 196.0), (8.0, 3000.0, 90.0)):
        folder = tmp_path / f"rate{rate:g}"
        folder.mkdir()
        data = aiperf(rate, p99, good_request_count={"unit": "requests", "avg": good})
        write(folder, "profile_export_aiperf.json", data)
        write(folder, "inputs.json", {"data": []})
    rounds = sweep.read_sweep([tmp_path], SLO)
    found = knee.find_knee(rounds, SLO)
    assert (found.at.rate, found.at.goodput_source) == (4.0, "reported")
    assert found.goodput_tok_s == pytest.approx(400 * 0.98)
    assert found.at.ended_s is not None
    assert found.at.started_s is not None
    assert found.at.ended_s - found.at.started_s == 120


def test_aiperf_goodput_per_second_is_used_without_a_count(tmp_path: Path) -> None:
    path = write(tmp_path, "a.json", aiperf(4.0, 100.0, goodput={"unit": "requests/sec", "avg": 3.0}))
    assert sweep.read_sweep([path], SLO)[0].goodput_tok_s == pytest.approx(300.0)


def test_vllm_results_one_a_file_or_one_a_line(tmp_path: Path) -> None:
    rounds = [
        vllm(2.0, 100.0, request_goodput=2.0),
        vllm(4.0, 400.0, request_goodput=3.9),
        vllm("inf", 8000.0, request_goodput=1.0),
    ]
    (tmp_path / "appended.json").write_text("\n".join(json.dumps(r) for r in rounds), encoding="utf-8")
    found = knee.find_knee(sweep.read_sweep([tmp_path / "appended.json"], SLO), SLO)
    assert (found.at.rate, found.broke_at.saturating) == (4.0, True)
    for index, data in enumerate(rounds):
        write(tmp_path, f"r{index}.json", data)
    paths = [tmp_path / f"r{i}.json" for i in range(3)]
    assert knee.find_knee(sweep.read_sweep(paths, SLO), SLO).at == found.at


def test_vllm_detailed_records_are_preferred(tmp_path: Path) -> None:
    data = vllm(
        1.0, 600.0, request_goodput=1.0, ttfts=[0.1, 0.6, 0.2, 0.1], output_lens=[10, 10, 10, 10],
        itls=[[0.02] * 9, [0.02] * 9, [0.09] * 9, [0.02] * 9],
    )  # fmt: skip
    round_ = sweep.read_sweep([write(tmp_path, "d.json", data)], SLO)[0]
    assert round_.goodput_source == "requests"
    assert round_.goodput_tok_s == pytest.approx(50.0)


def test_results_of_two_tools_are_not_one_sweep(tmp_path: Path) -> None:
    paths = [write(tmp_path, "a.json", aiperf(1.0, 100.0)), write(tmp_path, "v.json", vllm(1.0, 100.0))]
    with pytest.raises(ValueError, match="aiperf and vllm are not the same measurement"):
        sweep.read_sweep(paths, SLO)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{}", "neither a GuideLLM report"),
        ("[1]", "neither a GuideLLM report"),
        ("no json", "not JSON"),
        ('{"benchmarks": [{"config": {}}]}', r"benchmarks\[0\]: 'metrics' missing"),
        ('{"benchmarks": [3]}', "unexpected content"),
        ('{"request_throughput": {"avg": 1.0}}', "output_token_throughput"),
        ('{"request_throughput": "x", "output_throughput": 1}', "unexpected content"),
    ],
)
def test_file_of_another_kind_is_named_with_what_is_wrong(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "odd.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=message) as caught:
        sweep.read_sweep([path], SLO)
    assert "odd.json" in str(caught.value)


def test_absent_file_and_empty_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="No such file"):
        sweep.read_sweep([tmp_path / "absent.json"], SLO)
    with pytest.raises(ValueError, match="no result file"):
        sweep.read_sweep([tmp_path], SLO)
