"""Queries that more than one panel asks, in the shorthand of :mod:`dashboards.src.panels`.

Ratios are sums over sums: each counter is made a rate series by series (which absorbs restarts), then summed,
then divided, and a denominator of zero gives no data instead of a number.
"""

from __future__ import annotations

from typing import Final

#: Older vLLM has other names; ``or`` takes the old series only of an engine that lacks the new one.
ENGINE_HITS: Final = """(rate(vllm:prefix_cache_hits_total{@m}[@])
    or rate(vllm:gpu_prefix_cache_hits_total{@m}[@]))"""
ENGINE_QUERIES: Final = """(rate(vllm:prefix_cache_queries_total{@m}[@])
    or rate(vllm:gpu_prefix_cache_queries_total{@m}[@]))"""
#: 0 to 1. An engine that exports both names counts once.
KV_USAGE: Final = (
    'max by (job, instance, model_name, engine) ({__name__=~"vllm:(kv|gpu)_cache_usage_perc",'
    'job=~"$job",instance=~"$instance",model_name=~"$model"})'
)
#: Watts of each board: its energy counter (mJ) where it moves, else its gauge. A sliced board shows its power
#: on every slice, so the largest counts; a board that draws nothing, or above 100 kW, means "not available".
BOARD_WATTS: Final = """(
    (max by (job, Hostname, UUID) (rate(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{@}[@])) / 1000 > 0)
    or max by (job, Hostname, UUID) (DCGM_FI_DEV_POWER_USAGE{@} > 0 < 100000))"""
REPORTED: Final = 'rate(agentwatt_input_tokens_total{@,cached="reported"}[@])'
REALISED: Final = f"sum(rate(agentwatt_prefix_realised_tokens_total{{@}}[@])) / (sum({REPORTED}) > 0)"
#: Over the calls whose backend reported cached tokens, so that it can stand beside the realised hit.
POTENTIAL: Final = f"""sum(rate(agentwatt_prefix_potential_tokens_total{{@,cached="reported"}}[@]))
    / (sum({REPORTED}) > 0)"""
ENGINE_HIT: Final = f"sum({ENGINE_HITS}) / (sum({ENGINE_QUERIES}) > 0)"
CALLS_PER_TURN: Final = """sum(rate(agentwatt_calls_total{@,initiator=~"user|agent|compaction"}[@]))
    / (sum(rate(agentwatt_calls_total{@,initiator="user"}[@])) > 0)"""
NOT_SUCCEEDED: Final = """(sum(rate(agentwatt_calls_total{@,outcome!="success"}[@])) or vector(0))
    / (sum(rate(agentwatt_calls_total{@}[@])) > 0)"""


def quantile(q: float, histogram: str, *by: str, engine: bool = False) -> str:
    """Return the *q* quantile of *histogram*, by labels; *engine* adds the model's matcher."""
    matchers = "{@m}" if engine else "{@}"
    return (
        f"histogram_quantile({q}, sum by ({', '.join(('le', *by))}) (rate({histogram}_bucket{matchers}[@])))"
    )


def mean(histogram: str, *by: str, engine: bool = False) -> str:
    """Return the mean of *histogram*: the rate of its sum ÷ that of its count."""
    matchers = "{@m}" if engine else "{@}"
    grouped = f" by ({', '.join(by)})" if by else ""
    return (
        f"sum{grouped} (rate({histogram}_sum{matchers}[@])) "
        f"/ (sum{grouped} (rate({histogram}_count{matchers}[@])) > 0)"
    )


def within(histogram: str, bound: str) -> str:
    """Return the share of an engine histogram's observations up to *bound*, one of its buckets."""
    bucket = bound if "." in bound else f"{bound}(.0)?"
    return (
        f'sum(rate({histogram}_bucket{{@m,le=~"{bucket}"}}[@])) / (sum(rate({histogram}_count{{@m}}[@])) > 0)'
    )


def hit_by(label: str) -> str:
    """Return the realised prefix hit by a label of the plugin's token counters."""
    return (
        f"sum by ({label}) (rate(agentwatt_prefix_realised_tokens_total{{@}}[@])) "
        f"/ (sum by ({label}) ({REPORTED}) > 0)"
    )


def potential_by(label: str) -> str:
    """Return the potential prefix hit by a label, over the same calls as :func:`hit_by`."""
    return (
        f'sum by ({label}) (rate(agentwatt_prefix_potential_tokens_total{{@,cached="reported"}}[@])) '
        f"/ (sum by ({label}) ({REPORTED}) > 0)"
    )
