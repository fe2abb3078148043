"""The exposition against a recorded scrape of vLLM 0.32."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from deploy.local.engine.metrics import EngineMetrics, token_buckets
from tests.deploy.local.engine.conftest import Serve

SAMPLE = Path(__file__).parents[5] / "shared" / "reference" / "samples" / "vllm_metrics_0.32.prom"
#: What the stand-in has no counterpart of.
LEFT_OUT = {
    "vllm:iteration_tokens_total",
    "vllm:kv_block_lifetime_seconds",
    "vllm:kv_block_idle_before_evict_seconds",
    "vllm:kv_block_reuse_gap_seconds",
    "vllm:sleep_mode_operation_duration_seconds",
    "vllm:sleep_mode_operations_in_flight",
}
#: Labels whose values say where and when, not what.
FREE = {"model_name"}


@dataclass
class Family:
    """Type and series of one family as exposed; values of the free labels are left out."""

    kind: str
    series: set[tuple[str, tuple[str, ...]]] = field(default_factory=set)


def families(text: str) -> dict[str, Family]:
    """Read an exposition: every family with the label sets of its samples."""
    found: dict[str, Family] = {}
    for line in text.splitlines():
        if match := re.match(r"# TYPE (\S+) (\S+)", line):
            name = match[1]
            found[name] = Family(match[2])
        elif line and not line.startswith("#"):
            sample, labels = re.match(r"([^{ ]+)(?:\{(.*)\})? \S+$", line).groups()  # type: ignore[union-attr]
            pairs = re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels or "")
            assert sample.startswith(name)
            found[name].series.add(
                (sample, tuple(sorted(k if k in FREE or "_info" in name else f"{k}={v}" for k, v in pairs)))
            )
    return found


@pytest.fixture(scope="module")
def recorded() -> dict[str, Family]:
    if not SAMPLE.is_file():
        pytest.skip(f"{SAMPLE.name}, the recorded scrape of vLLM, is not beside the repository")
    return {n: f for n, f in families(SAMPLE.read_text()).items() if n.startswith("vllm:")}


@pytest.fixture(scope="module")
def ours() -> dict[str, Family]:
    # The recorded engine had 300 usable blocks of 32 tokens and a length of 8192.
    metrics = EngineMetrics(block_size=32, blocks=301, max_model_len=8192)
    metrics.of("tiny")
    return families(metrics.text().decode())


def test_every_family_has_vllms_type_labels_values_and_buckets(
    ours: dict[str, Family], recorded: dict[str, Family]
) -> None:
    assert set(ours) <= set(recorded)
    for name, family in ours.items():
        assert family == recorded[name], name


def test_only_what_the_stand_in_has_no_counterpart_of_is_left_out(
    ours: dict[str, Family], recorded: dict[str, Family]
) -> None:
    missing = {name for name in set(recorded) - set(ours) if not name.endswith("_created")}
    assert missing == LEFT_OUT


def test_the_names_that_figures_are_made_of_are_there_from_the_start(ours: dict[str, Family]) -> None:
    kinds = defaultdict(set)
    for name, family in ours.items():
        kinds[family.kind].add(name.removeprefix("vllm:"))
    assert kinds["counter"] >= {"prefix_cache_queries_total", "prefix_cache_hits_total",
        "prompt_tokens_total", "prompt_tokens_by_source_total", "prompt_tokens_cached_total",
        "generation_tokens_total", "request_success_total", "num_preemptions_total"}  # fmt: skip
    assert kinds["gauge"] >= {"num_requests_running", "num_requests_waiting", "kv_cache_usage_perc",
        "cache_config_info"}  # fmt: skip
    assert kinds["histogram"] >= {"time_to_first_token_seconds", "e2e_request_latency_seconds",
        "inter_token_latency_seconds", "request_time_per_output_token_seconds"}  # fmt: skip
    for family in ours.values():
        assert family.series


@pytest.mark.parametrize(
    ("largest", "last", "count"), [(1, 1.0, 1), (8192, 5000.0, 12), (65536, 50_000.0, 15), (131_072, 1e5, 16)]
)
def test_token_buckets_end_at_the_longest_prompt(largest: int, last: float, count: int) -> None:
    buckets = token_buckets(largest)
    assert (buckets[-1], len(buckets)) == (last, count)
    assert list(buckets) == sorted(buckets)


async def test_a_model_appears_with_its_first_request_and_configured_ones_at_once(serve: Serve) -> None:
    running = await serve()
    for model in ("coder-large", "coder-small", "claude-standin"):
        assert await running.sample("num_requests_running", model) == 0
        assert await running.sample("e2e_request_latency_seconds_count", model) == 0
    name = 'a "new"\nmodel\\'
    await running.ask("chat", model=name)
    assert await running.sample("request_success_total", name, finished_reason="stop") == 1
    assert await running.sample("prompt_tokens_total", "coder-large") == 0


async def test_the_cache_is_described(serve: Serve) -> None:
    running = await serve(block_size=16, capacity_blocks=20_000)
    text = (await running.get("/metrics")).decode()
    (line,) = [x for x in text.splitlines() if x.startswith("vllm:cache_config_info{")]
    for label in ('block_size="16"', 'num_gpu_blocks="20000"', 'kv_cache_size_tokens="320000"'):
        assert label in line


async def test_the_exposition_is_text_format(serve: Serve) -> None:
    running = await serve()
    async with running.http.get(running.url + "/metrics") as answer:
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
