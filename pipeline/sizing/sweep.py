"""Readers of load-test results: GuideLLM (0.6 and 0.7), AIPerf and ``vllm bench serve``, all as JSON.

Each tool names the same things differently and none of them agrees on goodput. It is computed here in one
way, best source first: from the requests themselves, from the goodput that the tool reports, or as a lower
bound from percentiles. Results of different tools are not the same measurement; a sweep is read from one.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pipeline.sizing.goodput import share_from_percentiles, share_within
from pipeline.sizing.knee import KneeSlo, Round
from pipeline.sizing.units import SizingError

Tool = Literal["guidellm", "aiperf", "vllm"]


class SweepError(SizingError):
    """A result file is not what a reader expects; the message names the file and the field."""


def detect(data: Any) -> Tool:
    """Which tool wrote a document.

    Raises:
        SweepError: none of the three.
    """
    if isinstance(data, Mapping):
        if isinstance(data.get("benchmarks"), list):
            return "guidellm"
        if isinstance(data.get("request_throughput"), Mapping) or "aiperf_version" in data:
            return "aiperf"
        if "request_throughput" in data and "output_throughput" in data:
            return "vllm"
    raise SweepError("neither a GuideLLM report, an AIPerf export nor a vllm bench serve result")


def read_sweep(paths: Sequence[Path], slo: KneeSlo) -> list[Round]:
    """Rounds of a sweep from one or several files, or directories of them.

    GuideLLM keeps a whole sweep in a file; the other two write one file per round. ``vllm bench serve
    --append-result`` writes several documents into one file, one a line.

    Raises:
        SweepError: a file is unreadable, of an unknown kind, or the files mix tools.
    """
    rounds: list[Round] = []
    tools: set[Tool] = set()
    for path in _files(paths):
        for data in _documents(path):
            try:
                tool = detect(data)
                tools.add(tool)
                rounds += {"guidellm": guidellm, "aiperf": _aiperf, "vllm": _vllm}[tool](data, slo)
            except SweepError as error:
                raise SweepError(f"{path.name}: {error}") from error
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise SweepError(
                    f"{path.name}: unexpected content ({type(error).__name__}: {error})"
                ) from error
    if len(tools) > 1:
        raise SweepError(
            f"results of {' and '.join(sorted(tools))} are not the same measurement: give one tool's"
        )
    return rounds


def _files(paths: Sequence[Path]) -> Iterable[Path]:
    for path in paths:
        if path.is_dir():
            nested = sorted(p for p in path.rglob("*.json") if _is_result(p))
            if not nested:
                raise SweepError(f"{path}: no result file in it")
            yield from nested
        else:
            yield path


def _is_result(path: Path) -> bool:
    return not path.name.endswith((".pytorch.json", "inputs.json")) and "server_metrics" not in path.name


def _documents(path: Path) -> list[Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise SweepError(f"{path}: {error.strerror}") from error
    try:
        return [json.loads(text)]
    except json.JSONDecodeError:
        pass
    try:
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    except json.JSONDecodeError as error:
        raise SweepError(f"{path}: not JSON: {error}") from error


def _percentile(stats: Mapping[str, Any], name: str) -> float | None:
    for key in (name, name.replace("p0", "p"), f"p0{name[1:]}"):
        if isinstance(stats.get(key), int | float):
            return float(stats[key])
    return None


# -- GuideLLM


def guidellm(data: Mapping[str, Any], slo: KneeSlo) -> list[Round]:
    """Rounds of a GuideLLM report (schema of 0.6 and 0.7: ``benchmarks[].metrics.*.successful``)."""
    rounds = []
    for index, benchmark in enumerate(data["benchmarks"]):
        try:
            rounds.append(_guidellm_round(benchmark, slo))
        except KeyError as error:
            raise SweepError(f"benchmarks[{index}]: {error} missing") from error
    return rounds


def _guidellm_round(benchmark: Mapping[str, Any], slo: KneeSlo) -> Round:
    metrics = benchmark["metrics"]
    strategy = (benchmark.get("config") or benchmark.get("args") or {}).get("strategy") or {}
    kind = strategy.get("type_") or strategy.get("type")

    def stats(name: str) -> Mapping[str, Any]:
        found = metrics.get(name) or {}
        return found.get("successful") or {}

    def grid(name: str) -> dict[str, Any]:
        found = stats(name)
        return {**(found.get("percentiles") or {}), "max": found.get("max")}

    totals = metrics.get("request_totals") or {}
    done, failed = totals.get("successful") or 0, totals.get("errored") or 0
    achieved = float(stats("requests_per_second").get("mean") or 0.0)
    throughput = float(stats("output_tokens_per_second").get("mean") or 0.0)
    ttft, itl = grid("time_to_first_token_ms"), grid("inter_token_latency_ms")
    kept = (benchmark.get("requests") or {}).get("successful") or []
    if kept:
        share = share_within(
            [r.get("time_to_first_token_ms") for r in kept],
            [r.get("inter_token_latency_ms") for r in kept],
            [float(r.get("output_tokens") or 0) for r in kept],
            slo,
        )
        source = "requests"
    else:
        share, source = share_from_percentiles(ttft, itl, slo), "percentiles"
    offered = strategy.get("rate")
    return Round(
        rate=float(offered) if offered else achieved,
        ttft_ms=_percentile(ttft, slo.ttft_percentile),
        itl_ms=_percentile(itl, slo.itl_percentile),
        throughput_tok_s=throughput,
        goodput_tok_s=throughput * share,
        error_share=failed / (done + failed) if done + failed else 0.0,
        concurrency=stats("request_concurrency").get("mean") or strategy.get("streams"),
        goodput_source=source,
        started_s=benchmark.get("start_time"),
        ended_s=benchmark.get("end_time"),
        saturating=kind == "throughput",
        offered=bool(offered),
    )


# -- AIPerf


def _aiperf(data: Mapping[str, Any], slo: KneeSlo) -> list[Round]:
    def avg(name: str) -> float | None:
        entry = data.get(name)
        value = entry.get("avg") if isinstance(entry, Mapping) else None
        return float(value) if isinstance(value, int | float) else None

    rate, throughput = avg("request_throughput"), avg("output_token_throughput")
    if rate is None or throughput is None:
        raise SweepError("request_throughput.avg or output_token_throughput.avg missing")
    ttft = data.get("time_to_first_token") or {}
    itl = data.get("inter_token_latency") or {}
    good, done = avg("good_request_count"), avg("request_count")
    errors = avg("error_request_count") or 0.0
    reported = avg("goodput")
    if good is not None and done:
        share, source = good / done, "reported"
    elif reported is not None and rate > 0:
        share, source = reported / rate, "reported"
    else:
        share, source = share_from_percentiles(ttft, itl, slo), "percentiles"
    loadgen = (data.get("input_config") or {}).get("loadgen") or {}
    total = (done or 0.0) + errors
    return [
        Round(
            rate=float(loadgen.get("request_rate") or rate),
            ttft_ms=_percentile(ttft, slo.ttft_percentile),
            itl_ms=_percentile(itl, slo.itl_percentile),
            throughput_tok_s=throughput,
            goodput_tok_s=throughput * min(1.0, share),
            error_share=errors / total if total else 0.0,
            concurrency=loadgen.get("concurrency"),
            goodput_source=source,
            offered=bool(loadgen.get("request_rate")),
            started_s=_instant(data.get("start_time")),
            ended_s=_instant(data.get("end_time")),
        )
    ]


def _instant(text: Any) -> float | None:
    from datetime import UTC, datetime

    if not isinstance(text, str):
        return None
    parsed = datetime.fromisoformat(text.replace("Z", "+00:00"))
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()


# -- vllm bench serve


def _vllm(data: Mapping[str, Any], slo: KneeSlo) -> list[Round]:
    throughput = float(data["output_throughput"])
    achieved = float(data["request_throughput"])
    done, failed = int(data.get("completed") or 0), int(data.get("failed") or 0)
    offered = data.get("request_rate")
    finite = isinstance(offered, int | float) and offered != float("inf")
    # Some versions wrote this key with a colon at its end.
    goodput = data.get("request_goodput", data.get("request_goodput:"))
    if data.get("ttfts") and data.get("output_lens"):
        share, source = _vllm_requests(data, slo), "requests"
    elif goodput is not None and achieved > 0:
        share, source = float(goodput) / achieved, "reported"
    else:
        grids = [
            {k.split("_")[0]: v for k, v in data.items() if k.startswith("p") and k.endswith(f"_{m}_ms")}
            for m in ("ttft", "itl")
        ]
        share, source = share_from_percentiles(grids[0], grids[1], slo), "percentiles"
    return [
        Round(
            rate=float(offered) if finite and offered else achieved,
            ttft_ms=_vllm_stat(data, slo.ttft_percentile, "ttft"),
            itl_ms=_vllm_stat(data, slo.itl_percentile, "tpot", "itl"),
            throughput_tok_s=throughput,
            goodput_tok_s=throughput * min(1.0, share),
            error_share=failed / (done + failed) if done + failed else 0.0,
            concurrency=data.get("max_concurrency"),
            goodput_source=source,
            offered=bool(finite and offered),
            saturating=not finite and data.get("max_concurrency") is None,
        )
    ]


def _vllm_stat(data: Mapping[str, Any], percentile: str, *metrics: str) -> float | None:
    name = "median" if percentile == "p50" else percentile
    for metric in metrics:
        value = data.get(f"{name}_{metric}_ms")
        if isinstance(value, int | float):
            return float(value)
    return None


def _vllm_requests(data: Mapping[str, Any], slo: KneeSlo) -> float:
    """Share within the SLO from ``--save-detailed`` records; a failed request has no output and no weight."""
    gaps: list[float | None] = []
    for itl in data.get("itls") or [[]] * len(data["ttfts"]):
        values = itl if isinstance(itl, list) else []
        gaps.append(sum(values) / len(values) * 1e3 if values else None)
    ttfts = [float(t) * 1e3 for t in data["ttfts"]]
    return share_within(ttfts, gaps, [float(n) for n in data["output_lens"]], slo)


def read_power(path: Path) -> list[tuple[float, float]]:
    """Power samples from a CSV of epoch seconds and watts, with or without a header.

    Raises:
        SweepError: unreadable, or a row is not two numbers.
    """
    rows: list[tuple[float, float]] = []
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            for number, row in enumerate(csv.reader(stream), 1):
                try:
                    rows.append((float(row[0]), float(row[1])))
                except (ValueError, IndexError) as error:
                    if number > 1:
                        raise SweepError(
                            f"{path}:{number}: two numbers, epoch s and W, are needed"
                        ) from error
    except OSError as error:
        raise SweepError(f"{path}: {error.strerror or error}") from error
    return rows
