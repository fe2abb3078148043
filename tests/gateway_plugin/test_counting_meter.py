"""The meter on the LiteLLM that is installed: what it sees, whose it is, and that it takes its hands off."""

from __future__ import annotations

import asyncio
import os
import sys
import time
import types
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from gateway_plugin import counting, counting_stock
from gateway_plugin.counting import Meter
from gateway_plugin.counting_stock import Stock, UnknownShape

CLAUDE = "claude-sonnet-4-5"
MESSAGES = [{"role": "user", "content": "hello world"}]
TOOLS = [{"name": "read", "description": "read a file", "input_schema": {"type": "object", "properties": {}}}]


@pytest.fixture(scope="module")
def litellm() -> Any:
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("litellm", reason="LiteLLM is not installed")


@pytest.fixture(scope="module")
def stock(litellm: Any) -> Stock:
    return counting_stock.load()


@pytest.fixture(autouse=True)
def no_request_before() -> None:
    counting._current.set(None)


@pytest.fixture
def core(stock: Stock) -> Any:
    return sys.modules[counting_stock.COUNTER_MODULE]


@pytest.fixture(params=[False, True], ids=["stock", "incremental"])
def meter(request: pytest.FixtureRequest, stock: Stock) -> Iterator[Meter]:
    installed = counting.install(exact=True, incremental=request.param, check_share=0.0)
    yield installed
    assert installed.counts["meter_error"] == 0
    installed.uninstall()


async def test_counts_in_threads_and_on_the_loop_are_measured_per_request(
    litellm: Any, stock: Stock, core: Any, meter: Meter
) -> None:
    litellm.token_counter(model=CLAUDE, messages=MESSAGES, tools=TOOLS)
    meter.background.drain()  # the catalogue is known from here on

    async def request(counts: int) -> dict[str, Any]:
        spent = meter.begin()
        for _ in range(counts):
            count = core.offload_token_count(litellm.token_counter)
            await count(model=CLAUDE, messages=MESSAGES, tools=TOOLS)
        litellm.token_counter(model=CLAUDE, messages=MESSAGES)
        return spent.facts()

    first, second = await asyncio.gather(asyncio.create_task(request(1)), asyncio.create_task(request(3)))
    assert (first["count_calls"], second["count_calls"]) == (2, 4)
    whole = stock.token_counter(CLAUDE, messages=MESSAGES, tools=TOOLS)
    assert second["count_tokens"] == 3 * whole + stock.token_counter(CLAUDE, messages=MESSAGES)
    assert second["count_tokenizer"] == "huggingface"
    assert second["count_by_phase"]["limits"]["calls"] == 4
    assert 0 < second["count_on_loop_ms"] < second["count_ms"]
    assert second["count_wait_ms"] > 0
    # The catalogue alone: without the 3 tokens for the reply.
    assert second["count_catalogue_tokens"] == stock.token_counter(CLAUDE, messages=[], tools=TOOLS) - 3
    assert 0 < second["count_catalogue_ms"] <= second["count_ms"]
    assert (second["count_errors"], second["count_reason"]) == (0, None)


async def test_a_count_that_raises_is_an_error_of_that_request_and_still_raises(
    litellm: Any, stock: Stock, meter: Meter
) -> None:
    spent = meter.begin()
    broken = [{"role": "user", "content": [{"type": "input_audio"}]}]
    with pytest.raises(ValueError, match="input_audio"):
        litellm.token_counter(model=CLAUDE, messages=broken)
    facts = spent.facts()
    assert (facts["count_calls"], facts["count_errors"], facts["count_tokens"]) == (1, 1, 0)


def test_a_catalogue_that_cannot_be_counted_has_no_tokens_in_the_facts(litellm: Any, meter: Meter) -> None:
    schema = {"type": "object", "properties": {"x": {"type": "array"}}}
    tools = [{"name": "read", "input_schema": schema}]
    spent = meter.begin()
    for _ in range(2):
        with pytest.raises(KeyError, match="items"):
            litellm.token_counter(model=CLAUDE, messages=MESSAGES, tools=tools)
        meter.background.drain()
    facts = spent.facts()
    assert (facts["count_errors"], facts["count_catalogue_tokens"], facts["count_catalogue_ms"]) == (
        2,
        None,
        None,
    )


async def test_the_count_that_stops_at_a_threshold_is_measured_as_a_router_check(
    litellm: Any, stock: Stock, core: Any, meter: Meter
) -> None:
    if stock.reach is None:  # an older release, which has no such counter to measure
        assert not hasattr(core, "messages_reach_token_count")
        return
    from litellm.utils import is_prompt_caching_valid_prompt

    spent = meter.begin()
    spent.mark("router")
    check = core.offload_token_count(is_prompt_caching_valid_prompt)
    assert await check(model=CLAUDE, messages=MESSAGES, min_token_count=5)
    facts = spent.facts()
    assert facts["count_calls"] == 1
    assert facts["count_by_phase"]["router_checks"]["calls"] == 1
    assert facts["count_tokens"] == 0  # it answers yes or no


def _with_reservation(monkeypatch: pytest.MonkeyPatch, function: Any) -> Any:
    module = types.ModuleType(counting_stock.RESERVATION_MODULE)
    vars(module)[counting_stock.RESERVATION_FUNCTION] = function
    monkeypatch.setitem(sys.modules, counting_stock.RESERVATION_MODULE, module)
    return module


async def test_counts_before_the_first_hook_belong_to_authentication(
    litellm: Any, stock: Stock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def reserve() -> dict[str, int]:
        count = litellm.token_counter
        return {"m": await asyncio.to_thread(count, model="gpt-4o", messages=MESSAGES)}

    module = _with_reservation(monkeypatch, reserve)
    meter = counting.install(exact=True)
    try:

        async def request() -> dict[str, Any]:
            await module.count_request_input_tokens()
            spent = meter.begin()
            litellm.token_counter(model="gpt-4o", messages=MESSAGES)
            return spent.facts()

        for facts in await asyncio.gather(*(asyncio.create_task(request()) for _ in range(3))):
            calls = {name: phase["calls"] for name, phase in facts["count_by_phase"].items()}
            assert calls == {"auth": 1, "limits": 1}
        assert "native counter" not in meter.unseen
    finally:
        meter.uninstall()
    assert module.count_request_input_tokens is reserve


async def test_a_native_count_of_the_reservation_is_timed(
    stock: Stock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def reserve() -> dict[str, int]:
        await asyncio.to_thread(sum, range(100_000))
        return {"m": 1234}

    module = _with_reservation(monkeypatch, reserve)
    meter = counting.install(exact=True)
    try:
        await module.count_request_input_tokens()
        facts = meter.begin().facts()
        assert (facts["count_calls"], facts["count_tokens"], facts["count_tokenizer"]) == (1, 1234, "native")
        assert facts["count_ms"] > 0
    finally:
        meter.uninstall()


async def test_without_the_reservation_function_its_counts_are_reported_as_unseen(
    stock: Stock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, counting_stock.RESERVATION_MODULE, raising=False)
    meter = counting.install(exact=True)
    try:
        assert "native counter" in meter.unseen
        assert "native counter" in meter.snapshot()["unseen"]
    finally:
        meter.uninstall()


async def test_waits_at_the_limiter_are_measured(litellm: Any, core: Any, meter: Meter) -> None:
    limiter = core._COUNT_OFFLOAD_LIMITER.get(None) or core._count_offload_limiter_for_this_loop()._inner
    others = [object() for _ in range(int(limiter.total_tokens))]
    for other in others:
        limiter.acquire_on_behalf_of_nowait(other)

    async def request() -> dict[str, Any]:
        spent = meter.begin()
        await core.offload_token_count(litellm.token_counter)(model=CLAUDE, messages=MESSAGES)
        return spent.facts()

    waiting = asyncio.create_task(request())
    while limiter.statistics().tasks_waiting == 0:  # noqa: ASYNC110 - the limiter has no event to wait for
        await asyncio.sleep(0)
    begin = time.perf_counter()
    for _ in range(200):
        await asyncio.sleep(0)
    held_ms = (time.perf_counter() - begin) * 1e3
    for other in others:
        limiter.release_on_behalf_of(other)
    facts = await waiting
    assert facts["count_wait_ms"] >= round(held_ms, 3) > 0
    assert facts["count_by_phase"]["limits"]["wait_ms"] == facts["count_wait_ms"]
    assert meter.snapshot()["phases"]["limits"]["wait_ms"] == facts["count_wait_ms"]
    assert limiter.statistics().borrowed_tokens == 0


async def test_a_count_handed_to_a_thread_belongs_to_the_module_that_handed_it_over(
    litellm: Any, core: Any, meter: Meter
) -> None:
    module = types.ModuleType("litellm.router_strategy.some_strategy")
    vars(module).update(offload=core.offload_token_count, count=litellm.token_counter)
    exec("async def pick(messages): return await offload(count)(model='m', messages=messages)", vars(module))
    spent = meter.begin()
    await module.pick(MESSAGES)
    litellm.token_counter(model="m", messages=MESSAGES)
    calls = {name: phase["calls"] for name, phase in spent.facts()["count_by_phase"].items()}
    assert calls == {"limits": 1, "routing_strategy": 1}


async def test_small_requests_go_on_while_a_million_tokens_are_counted_off_the_loop(
    litellm: Any, core: Any, meter: Meter
) -> None:
    text = "stream of words " * 120_000
    big = asyncio.create_task(core.offload_token_count(litellm.token_counter)(model="gpt-4o", text=text))
    turns = 0
    while not big.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 20
    assert meter.snapshot()["phases"]["auth"]["on_loop_ms"] == 0


def test_direct_callers_of_the_counter_are_reported_as_unseen(stock: Stock, meter: Meter) -> None:
    assert "litellm.compression.compress" in meter.unseen
    bedrock = "litellm.llms.bedrock.passthrough.transformation" in meter.unseen
    assert bedrock == (counting_stock.parse_version(stock.version) >= (1, 108))


def test_uninstall_gives_litellm_its_functions_back(stock: Stock, core: Any) -> None:
    lazy = sys.modules[counting_stock.LAZY_MODULE]
    before = (lazy._token_counter_new_func, core._count_offload_limiter_for_this_loop)
    meter = counting.install(exact=True, incremental=True)
    assert lazy._token_counter_new_func is not before[0]
    meter.uninstall()
    assert (lazy._token_counter_new_func, core._count_offload_limiter_for_this_loop) == before


def test_a_second_installation_leaves_the_first_in_place(stock: Stock, litellm: Any) -> None:
    first = counting.install(exact=True)
    second = counting.install(exact=True, incremental=True)
    assert second.reason == "unknown_shape"
    litellm.token_counter(model=CLAUDE, messages=MESSAGES)
    assert sum(phase["calls"] for phase in first.snapshot()["phases"].values()) == 1
    second.uninstall()
    first.uninstall()
    third = counting.install(exact=True)
    assert third.reason is None
    third.uninstall()


def test_a_function_that_someone_else_put_in_place_is_left_there(
    stock: Stock, monkeypatch: pytest.MonkeyPatch
) -> None:
    lazy = sys.modules[counting_stock.LAZY_MODULE]
    monkeypatch.setattr(lazy, "_token_counter_new_func", stock.token_counter)
    meter = counting.install(exact=True)

    def other(*args: Any) -> int:
        return 1

    lazy._token_counter_new_func = other
    meter.uninstall()
    assert lazy._token_counter_new_func is other


def test_after_uninstall_a_kept_reference_still_counts(stock: Stock, litellm: Any) -> None:
    meter = counting.install(exact=True, incremental=True)
    kept = sys.modules[counting_stock.LAZY_MODULE]._token_counter_new_func
    meter.uninstall()
    assert kept(CLAUDE, messages=MESSAGES) == stock.token_counter(CLAUDE, messages=MESSAGES)
    assert meter.snapshot()["phases"] == {}


# -- unknown versions and shapes


@pytest.mark.parametrize("text", ["1.101.9", "1.109.0", "2.0.1", "0.1", "main", ""])
def test_an_untested_version_is_refused(text: str) -> None:
    with pytest.raises(UnknownShape):
        counting_stock.check_version(text)


def test_the_supported_versions_are_accepted() -> None:
    assert counting_stock.check_version("1.102.4") == (1, 102)
    assert counting_stock.check_version("1.108.7.post1") == (1, 108)


def test_a_changed_signature_is_refused() -> None:
    with pytest.raises(UnknownShape, match="takes"):
        counting_stock.check_arguments(lambda model, text: 0, counting_stock.COUNTER_ARGUMENTS)


def test_other_constants_or_a_count_that_is_no_sum_are_refused(stock: Stock) -> None:
    fields = {name: getattr(stock, name) for name in Stock.__slots__}
    counting_stock.check_additive(stock)

    def plus_one(*args: Any) -> int:
        return int(stock.count_extra(*args)) + 1

    def rounded(params: Any, messages: Any, *args: Any) -> int:
        return int(stock.count_messages(params, messages, *args)) + (len(messages) > 1)

    def broken(*args: Any) -> int:
        raise KeyError("x")

    for name, function in (
        ("count_extra", plus_one),
        ("count_messages", rounded),
        ("count_messages", broken),
    ):
        with pytest.raises(UnknownShape):
            counting_stock.check_additive(Stock(**(fields | {name: function})))


@pytest.mark.parametrize("name", ["_count_extra", "_MessageCountParams", "token_counter"])
def test_an_unknown_shape_switches_the_meter_off_with_one_warning(
    stock: Stock, core: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    lazy = sys.modules[counting_stock.LAZY_MODULE]
    before = lazy._token_counter_new_func
    monkeypatch.delattr(core, name)
    meter = counting.install(exact=True, incremental=True)
    assert [r.levelname for r in caplog.records if r.name == "agentwatt"] == ["WARNING"]
    assert lazy._token_counter_new_func is before
    facts = meter.begin().facts()
    assert (facts["count_ms"], facts["count_calls"]) == (None, None)
    assert facts["count_reason"] == "unknown_shape"


def test_an_option_out_of_range_is_an_error_before_anything_is_replaced(stock: Stock) -> None:
    lazy = sys.modules[counting_stock.LAZY_MODULE]
    before = lazy._token_counter_new_func
    with pytest.raises(ValueError, match="share"):
        counting.install(incremental=True, check_share=1.5)
    with pytest.raises(ValueError, match="max_bytes"):
        counting.install(incremental=True, max_bytes=10)
    assert lazy._token_counter_new_func is before
