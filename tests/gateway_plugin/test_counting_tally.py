"""Bookkeeping of one request: phases, sums, and unknown kept apart from zero."""

from __future__ import annotations

import threading
import types
from typing import Any

import pytest

from gateway_plugin import counting
from gateway_plugin.counting_tally import (
    FACT_KEYS,
    PHASES,
    Accumulator,
    Count,
    gateway_phases,
    phase_of_caller,
)


def _called_from(module: str, name: str = "caller") -> Any:
    """Run phase_of_caller under a frame of *module*, behind frames of the counter itself."""
    inner = types.ModuleType("litellm.utils")
    vars(inner)["ask"] = phase_of_caller
    exec("def token_counter(): return ask()", vars(inner))
    outer = types.ModuleType(module)
    vars(outer)["token_counter"] = vars(inner)["token_counter"]
    exec(f"def {name}(): return token_counter()", vars(outer))
    return vars(outer)[name]()


@pytest.mark.parametrize(
    ("module", "phase"),
    [
        ("litellm.proxy.spend_tracking.input_tokens", "auth"),
        ("litellm.proxy.spend_tracking.budget_reservation", "auth"),
        ("litellm.proxy.hooks.parallel_request_limiter_v3", "limits"),
        ("litellm.router", "router_checks"),
        ("litellm.router_utils.pre_call_checks.io_token_rate_limit_check", "router_checks"),
        ("litellm.router_strategy.lowest_tpm_rpm_v2", "routing_strategy"),
        ("litellm.litellm_core_utils.streaming_chunk_builder_utils", "post_call"),
        ("litellm.proxy.proxy_server", "other"),
        ("litellm.llms.anthropic.chat.transformation", "request"),
        ("litellm.routers_of_someone", None),
        ("elsewhere", None),
    ],
)
def test_the_phase_of_a_count_is_that_of_the_module_that_asked(module: str, phase: str | None) -> None:
    assert _called_from(module) == phase
    assert phase is None or phase in PHASES


def test_the_max_tokens_fix_up_counts_while_the_request_is_built() -> None:
    assert _called_from("litellm.litellm_core_utils.token_counter", "get_modified_max_tokens") == "request"


def test_facts_are_sums_over_phases() -> None:
    spent = Accumulator()
    spent.add(Count("auth", 10.0, 100, "tiktoken", on_loop=True))
    spent.add(Count("router_checks", 5.0, 100, "tiktoken", on_loop=False, catalogue_tokens=40))
    spent.add(Count("router_checks", 1.0, None, "tiktoken", on_loop=False, error=True))
    spent.add_wait("router_checks", 2.5)
    facts = spent.facts()
    assert facts["count_ms"] == 16.0
    assert facts["count_calls"] == 3
    assert facts["count_wait_ms"] == 2.5
    assert facts["count_tokens"] == 200
    assert facts["count_on_loop_ms"] == 10.0
    assert facts["count_errors"] == 1
    assert facts["count_tokenizer"] == "tiktoken"
    assert facts["count_catalogue_tokens"] == 40
    assert facts["count_catalogue_ms"] == 2.0
    assert list(facts["count_by_phase"]) == ["auth", "router_checks"]
    for key in ("calls", "ms", "wait_ms", "tokens", "errors", "on_loop_ms"):
        total = facts["count_calls" if key == "calls" else f"count_{key}"]
        assert sum(phase[key] for phase in facts["count_by_phase"].values()) == total
    assert set(facts) == set(FACT_KEYS)


def test_two_tokenizers_in_one_request_are_mixed() -> None:
    spent = Accumulator()
    for name in ("tiktoken", "huggingface"):
        spent.add(Count("auth", 1.0, 1, name, on_loop=False))
    assert spent.facts()["count_tokenizer"] == "mixed"


def test_nothing_counted_is_zero_but_not_measured_is_null_with_a_reason() -> None:
    measured = Accumulator().facts()
    assert (measured["count_ms"], measured["count_calls"], measured["count_reason"]) == (0.0, 0, None)
    assert measured["count_catalogue_tokens"] is None
    unmeasured = Accumulator(reason="off").facts()
    assert {key for key, value in unmeasured.items() if value is not None} == {"count_reason"}
    assert set(unmeasured) == set(FACT_KEYS)


def test_counts_of_many_threads_are_not_lost() -> None:
    spent = Accumulator()

    def run() -> None:
        for _ in range(500):
            spent.add(Count("auth", 1.0, 2, "tiktoken", on_loop=False))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (spent.calls, spent.facts()["count_tokens"]) == (2000, 4000)


def test_marks_keep_their_first_instant_and_open_the_next_phase() -> None:
    spent = Accumulator()
    spent.mark("router")
    first = spent.marks["router"]
    spent.mark("router")
    spent.mark("unheard of")
    assert (spent.marks, spent.phase) == ({"router": first}, "router_checks")


def test_the_always_on_layer_needs_instants_only_and_leaves_unknown_ones_null() -> None:
    marks = {"pre_call": 10.0, "router": 10.002, "attempt": 10.012, "handoff": 10.0125}
    assert gateway_phases(marks, 3.5) == {"auth": 3.5, "limits": 2.0, "routing": 10.0, "request": 0.5}
    del marks["attempt"]
    assert gateway_phases(marks, None) == {"auth": None, "limits": 2.0, "routing": None, "request": None}


def test_a_meter_that_is_off_touches_nothing_and_says_so() -> None:
    meter = counting.install()
    spent = meter.begin()
    assert spent.facts()["count_reason"] == "off"
    assert "pre_call" in spent.marks
    assert meter.snapshot()["reason"] == "off"


def test_a_second_request_in_the_same_task_gets_its_own_accumulator() -> None:
    meter = counting.install()
    assert meter.begin() is not meter.begin()
