"""The registry's quantities of prefix reuse, of session outcomes and of the gateway."""

from __future__ import annotations

from typing import Final

from pipeline.extract.traces.needs import Need
from pipeline.figures.specification import WORK_NEEDS, ratio, spread

_CACHED: Final = ("SUM(cached_calls)", "SUM(engine_calls)")
_CHAIN: Final = ("SUM(chain_calls)", "SUM(engine_calls)")
_TIMED: Final = ("SUM(timed_calls)", "SUM(success_calls)")
_ATTENDED: Final = ("SUM(attended_calls)", "SUM(calls)")
_REUSED: Final = (Need.INPUT, Need.CACHED)
_CHAINED: Final = (Need.INPUT, Need.BLOCKS)
_NOT_REPORTED: Final = "no backend reported cached tokens"
_NO_CHAIN: Final = "no prefix chain is known"

REUSE: Final = (
    ratio(
        "realised_hit",
        "share of prompt tokens",
        "Σ cached ÷ Σ input of engine calls whose backend reported cached tokens",
        "SUM(cached_tokens)",
        "SUM(cached_input_tokens)",
        coverage=_CACHED,
        needs=_REUSED,
        reason=_NOT_REPORTED,
    ),
    ratio(
        "potential_hit",
        "share of prompt tokens",
        "Σ prefix tokens sent before within the retention ÷ Σ input of engine calls with a known chain",
        "SUM(potential_tokens)",
        "SUM(chain_input_tokens)",
        relation="potential",
        part="retention",
        coverage=_CHAIN,
        needs=_CHAINED,
        reason=_NO_CHAIN,
    ),
    ratio(
        "reuse_gap",
        "share of prompt tokens",
        "Σ (potential of any age − cached) ÷ Σ input of engine calls that know both: what affinity or longer "
        "retention could win",
        "SUM(reuse_left_tokens)",
        "SUM(reuse_input_tokens)",
        coverage=("SUM(reuse_calls)", "SUM(engine_calls)"),
        needs=(*_REUSED, Need.BLOCKS),
        reason="no call that reports cached tokens has a known chain",
    ),
    ratio(
        "cache_write_share",
        "share of prompt tokens",
        "Σ tokens newly written to a provider's cache ÷ Σ input of calls that report cached and written "
        "tokens",
        "SUM(cache_write_tokens)",
        "SUM(written_input_tokens)",
        coverage=("SUM(written_calls)", "SUM(engine_calls)"),
        needs=_REUSED,
        reason="no backend reported written tokens",
    ),
    ratio(
        "realised_hit_by_regime",
        "share of prompt tokens",
        "as realised hit, by category, position in the turn, break reason and idle time",
        "SUM(cached_tokens)",
        "SUM(cached_input_tokens)",
        relation="regime",
        part="regime",
        coverage=_CACHED,
        needs=(*_REUSED, *WORK_NEEDS),
        reason=_NOT_REPORTED,
    ),
    ratio(
        "potential_hit_by_regime",
        "share of prompt tokens",
        "as potential hit of any age, by category, position in the turn, break reason and idle time",
        "SUM(potential_inf_tokens)",
        "SUM(chain_input_tokens)",
        relation="regime",
        part="regime",
        coverage=_CHAIN,
        needs=(*_CHAINED, *WORK_NEEDS),
        reason=_NO_CHAIN,
    ),
    ratio(
        "engine_hit",
        "share of prompt tokens",
        "Σ growth of hit tokens ÷ Σ growth of queried tokens of the engine's own counters",
        "SUM(hit_tokens)",
        "SUM(query_tokens)",
        relation="engine",
        dimensions=("all",),
        coverage=("NULL", "NULL"),
        needs=(Need.ENGINE,),
        reason="no engine counters, or no query",
    ),
    ratio(
        "engine_disagreement",
        "difference of shares",
        "engine hit − realised hit of calls on measured engines, over hours that know both",
        "SUM(hit_tokens) / NULLIF(SUM(query_tokens), 0) - SUM(cached_tokens) / NULLIF(SUM(input_tokens), 0)",
        "1",
        relation="engine_beside",
        dimensions=("all",),
        coverage=_CACHED,
        needs=(Need.ENGINE, *_REUSED),
        reason="no hour with engine counters and with calls on engines of ours that report cached tokens",
    ),
)
OUTCOMES: Final = (
    spread(
        "task_latency",
        "s",
        "quantiles over attended visits of Σ latency of their main-thread turns",
        "visit",
        "task_s",
        ("p50", "p90"),
        coverage=_ATTENDED,
        needs=(*WORK_NEEDS, Need.DURATIONS),
        reason="no attended visit with a turn",
    ),
    spread(
        "turn_latency",
        "s",
        "quantiles over main-thread turns of attended visits, first start to last end",
        "turn",
        "latency_s",
        ("p50", "p90", "p95"),
        coverage=_ATTENDED,
        needs=(*WORK_NEEDS, Need.DURATIONS),
        reason="no turn",
    ),
    spread(
        "interactivity",
        "tokens per second",
        "speed of a call, (output − 1) ÷ (duration − time to first token) for 16 tokens or more: median, and "
        "the speed that 90 % of calls reach",
        "call",
        "CASE WHEN is_engine = 1 AND outcome = 'success' THEN tokens_per_s END",
        ("p50", "slow90"),
        coverage=_TIMED,
        needs=(Need.DURATIONS, Need.FIRST_TOKEN, Need.OUTPUT),
        reason="no call with a known time to first token and 16 tokens or more",
    ),
    spread(
        "first_token_time",
        "s",
        "quantiles of the time to first token of successful engine calls, by prompt size",
        "call",
        "CASE WHEN is_engine = 1 AND outcome = 'success' AND ttft_ms >= 0 THEN ttft_ms / 1000 END",
        ("p50", "p95"),
        part="prompt_bucket",
        coverage=_TIMED,
        needs=(Need.FIRST_TOKEN, Need.INPUT),
        reason="no streamed call with a known prompt length",
    ),
    ratio(
        "decode_share",
        "share of engine time",
        "Σ (duration − time to first token) ÷ Σ (duration − gateway overhead) of successful engine calls",
        "SUM(decode_hours)",
        "SUM(decode_hours + prefill_hours)",
        coverage=_TIMED,
        needs=(Need.DURATIONS, Need.FIRST_TOKEN),
        reason="no call with a known time to first token",
    ),
)
GATEWAY: Final = (
    spread(
        "gateway_overhead",
        "ms",
        "mean and quantiles of each phase: queue, pre_call, overhead (receive to provider call), plugin, "
        "count",
        "phase",
        "ms",
        ("mean", "p50", "p95", "p99"),
        part="phase",
        coverage=("SUM(overhead_calls)", "SUM(calls)"),
        needs=(),
        reason="no call has measured phases",
    ),
    spread(
        "counting_cost",
        "ms",
        "mean and P95 of the time in LiteLLM's token counter, by prompt size and catalogue size",
        "call",
        "CASE WHEN count_ms >= 0 THEN count_ms END",
        ("mean", "p95"),
        part="prompt_bucket || ' tokens, catalogue ' || catalogue_bucket",
        coverage=("SUM(count_calls)", "SUM(calls)"),
        needs=(),
        reason="token counting was not measured",
    ),
    ratio(
        "losses",
        "share of calls",
        "calls known from one source alone, still open, aborted, failed or rejected ÷ all calls",
        "SUM(lost)",
        "SUM(calls)",
        relation="loss",
        part="loss",
        coverage=("SUM(calls)", "SUM(calls)"),
        needs=(),
        reason="no call",
    ),
    ratio(
        "coverage_by_version",
        "share of calls",
        "calls that carry a session, a turn, a user, cached tokens, … ÷ calls, by route and LiteLLM version",
        "SUM(carrying)",
        "SUM(calls)",
        relation="coverage",
        part="what",
        dimensions=("all", "client"),
        coverage=("SUM(calls)", "SUM(calls)"),
        needs=(),
        reason="no call",
    ),
)
