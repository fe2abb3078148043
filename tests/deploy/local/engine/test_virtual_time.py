"""When requests run, in virtual time: pace, order, waiting, and what a client that leaves gives back.

A prompt token takes 1 ms and a later token 10 ms unless a test says otherwise, so every instant is exact.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.deploy.local.engine.bench import BLOCK, SPEEDS, Bench, Client, prompt, virtually

# -- pace


@virtually
async def test_the_first_token_takes_the_prompt_and_each_later_one_its_time() -> None:
    bench = Bench()
    client = await bench.send(prompt(1, 30), 4).done()
    assert client.ms() == [(30, 1), (40, 2), (50, 3), (60, 4)]
    assert bench.sample("request_prefill_time_seconds_sum") == pytest.approx(0.030)
    assert bench.sample("request_decode_time_seconds_sum") == pytest.approx(0.030)
    assert bench.sample("request_inference_time_seconds_sum") == pytest.approx(0.060)
    assert bench.sample("e2e_request_latency_seconds_sum") == pytest.approx(0.060)
    assert bench.sample("request_queue_time_seconds_sum") == 0
    assert bench.sample("time_to_first_token_seconds_sum") == pytest.approx(0.030)
    assert bench.sample("inter_token_latency_seconds_count") == 3
    assert bench.sample("inter_token_latency_seconds_sum") == pytest.approx(0.030)
    assert bench.sample("request_time_per_output_token_seconds_sum") == pytest.approx(0.010)


@virtually
async def test_cached_tokens_take_no_time_and_the_overhead_always_does() -> None:
    bench = Bench(replace(SPEEDS, overhead_s=0.005))
    assert (await bench.send(prompt(1, 30)).done()).ms() == [(35, 1)]
    again = await bench.send(prompt(1, 30)).done()
    assert again.job.served.cached_tokens == 28
    assert again.ms() == [(35 + 5 + 2, 1)]


@virtually
async def test_a_request_without_later_tokens_has_no_time_per_token() -> None:
    bench = Bench()
    await bench.send(prompt(1, 30), 1).done()
    assert bench.sample("request_time_per_output_token_seconds_count") == 0
    assert bench.sample("inter_token_latency_seconds_count") == 0
    assert bench.sample("e2e_request_latency_seconds_count") == 1
    await bench.send(prompt(1, 30), 2).done()
    assert bench.sample("request_time_per_output_token_seconds_count") == 1
    assert bench.sample("request_time_per_output_token_seconds_sum") == pytest.approx(0.010)


@pytest.mark.parametrize("speed_up", [2.0, 50.0])
@virtually
async def test_the_speed_up_divides_every_wait_of_a_loaded_engine(speed_up: float) -> None:
    async def play(bench: Bench) -> list[float]:
        begin = bench.clock()
        clients = [bench.send(prompt(n, 20 * n), 10 * n) for n in (1, 2, 3)]
        return [(await client.done()).last_s - begin for client in clients]

    speeds = replace(SPEEDS, overhead_s=0.02)
    slow = await play(Bench(speeds, max_running=2))
    fast = await play(Bench(replace(speeds, speed_up=speed_up, chunk_s=0.0), max_running=2))
    assert [at * speed_up for at in fast] == pytest.approx(slow)


@virtually
async def test_requests_that_decode_together_slow_each_other_down_and_prefills_do_not() -> None:
    bench = Bench(replace(SPEEDS, co_batching=0.5))
    long, late = bench.send(prompt(1, 4), 11), bench.send(prompt(2, 50), 3)
    await asyncio.gather(long.done(), late.done())
    assert late.ms() == [(50, 1), (65, 2), (80, 3)]
    alone_before = [(4, 1), (14, 2), (24, 3), (34, 4), (44, 5), (54, 6)]
    together = [(69, 7), (84, 8)]
    alone_after = [(94, 9), (104, 10), (114, 11)]
    assert long.ms() == alone_before + together + alone_after


@virtually
async def test_a_slow_request_is_slow_alone() -> None:
    bench = Bench()
    slow, other = bench.send(prompt(1, 10), 3, slow=5.0), bench.send(prompt(2, 10), 3)
    await asyncio.gather(slow.done(), other.done())
    assert slow.ms() == [(10, 1), (60, 2), (110, 3)]
    assert other.ms() == [(10, 1), (20, 2), (30, 3)]


@virtually
async def test_a_held_back_first_token_is_late_by_real_seconds() -> None:
    bench = Bench(replace(SPEEDS, speed_up=10))
    client = await bench.send(prompt(1, 10), hold_s=3.0).done()
    assert client.ms() == [(3001, 1)]


@virtually
async def test_tokens_are_reported_in_chunks_and_counted_one_by_one() -> None:
    bench = Bench(replace(SPEEDS, chunk_s=0.03))
    client = await bench.send(prompt(1, 10), 8).done()
    assert client.ms() == [(10, 1), (40, 4), (70, 7), (80, 8)]
    assert bench.sample("inter_token_latency_seconds_count") == 7
    assert bench.sample("inter_token_latency_seconds_sum") == pytest.approx(0.070)
    assert bench.sample("inter_token_latency_seconds_bucket", le="0.025") == 7
    assert bench.sample("generation_tokens_total") == 8


# -- slots and order


@virtually
async def test_requests_get_the_slot_in_order_of_arrival() -> None:
    bench = Bench(max_running=1)
    clients = [bench.send(prompt(n, 10), 3, model=f"m{n % 2}") for n in range(4)]
    await asyncio.gather(*(client.done() for client in clients))
    assert [client.ms()[0][0] for client in clients] == [10, 40, 70, 100]
    assert bench.sample("request_queue_time_seconds_sum", "m1") == pytest.approx(0.030 + 0.090)


@virtually
async def test_as_many_requests_run_as_there_are_slots() -> None:
    bench = Bench(max_running=2)
    clients = [bench.send(prompt(n, 10), 10) for n in range(5)]
    await asyncio.sleep(0.050)
    assert bench.sample("num_requests_running") == 2
    assert bench.sample("num_requests_waiting") == 3
    assert bench.sample("num_requests_waiting_by_reason", reason="capacity") == 3
    assert bench.sample("num_requests_waiting_by_reason", reason="deferred") == 0
    await asyncio.gather(*(client.done() for client in clients))
    assert [client.first_s for client in clients] == pytest.approx([0.01, 0.01, 0.11, 0.11, 0.21])
    assert bench.truth.summary(0.0)["mean_running"] == pytest.approx((2 * 0.2 + 0.1) / 0.3)


@virtually
async def test_a_request_that_does_not_fit_waits_for_blocks_and_none_of_its_model_overtakes() -> None:
    bench = Bench(capacity=10)
    first = bench.send(prompt(1, 20), 8)  # 7 of the 10 blocks until 20 + 70 ms
    large, small = bench.send(prompt(2, 16)), bench.send(prompt(3, 4), 4)
    elsewhere = bench.send(prompt(4, 36), 4, model="other")
    await asyncio.sleep(0.080)
    assert bench.used_blocks() == 7
    assert bench.sample("kv_cache_usage_perc") == pytest.approx(0.7)
    assert bench.sample("num_requests_waiting") == 2
    await asyncio.gather(*(client.done() for client in (first, large, small, elsewhere)))
    assert first.ms()[-1] == (90, 8)
    assert large.ms() == [(90 + 16, 1)]
    assert small.ms()[0] == (90 + 4, 1)
    assert elsewhere.ms()[0] == (36, 1)


@virtually
async def test_requests_that_share_their_prompt_share_its_blocks() -> None:
    bench = Bench(capacity=10)
    clients = [bench.send([*prompt(1, 32), n]) for n in range(3)]  # 8 shared, 1 each: 11 do not fit
    await asyncio.sleep(0.0005)
    assert bench.used_blocks() == 10
    assert bench.sample("num_requests_waiting") == 1
    await asyncio.gather(*(client.done() for client in clients))
    assert [client.job.served.cached_tokens for client in clients] == [0, 32, 32]


# -- the three clocks of the counters


@virtually
async def test_lookups_count_at_admission_prompts_at_the_first_token_requests_at_the_end() -> None:
    bench = Bench(max_running=1)
    await bench.send(prompt(1, 10)).done()  # ends at 10 ms
    client, waiting = bench.send(prompt(1, 20), 3), bench.send(prompt(2, 7))
    await asyncio.sleep(0.001)
    names = ("prefix_cache_queries_total", "prefix_cache_hits_total", "prompt_tokens_total",
             "prompt_tokens_cached_total", "generation_tokens_total",
             "request_prompt_tokens_count")  # fmt: skip
    assert [bench.sample(name) for name in names] == [30, 8, 10, 0, 1, 1]
    assert bench.sample("prompt_tokens_cached_by_source_total", source="device") == 8
    await asyncio.sleep(0.013)
    assert [bench.sample(name) for name in names] == [30, 8, 30, 8, 2, 1]
    assert bench.sample("prompt_tokens_by_source_total", source="local_cache_hit") == 8
    assert bench.sample("prompt_tokens_by_source_total", source="local_compute") == 22
    await client.done()
    assert bench.sample("request_prompt_tokens_count") == 2
    assert bench.sample("request_prefill_kv_computed_tokens_sum") == 22
    await waiting.done()
    # Arrivals at 0, 10 and 10 ms; first tokens at 10, 22 and 49; ends at 10, 42 and 49.
    assert bench.sample("time_to_first_token_seconds_sum") == pytest.approx(0.010 + 0.012 + 0.039)
    assert bench.sample("e2e_request_latency_seconds_sum") == pytest.approx(0.010 + 0.032 + 0.039)
    assert bench.sample("request_queue_time_seconds_sum") == pytest.approx(0.032)
    assert bench.sample("request_prefill_time_seconds_sum") == pytest.approx(0.010 + 0.012 + 0.007)
    assert bench.sample("request_decode_time_seconds_sum") == pytest.approx(0.020)
    assert bench.sample("request_inference_time_seconds_sum") == pytest.approx(0.010 + 0.032 + 0.007)
    assert bench.sample("request_params_n_sum") == 3
    assert bench.sample("request_params_max_tokens_sum") == 1 + 3 + 1
    assert bench.sample("request_max_num_generation_tokens_sum") == 1 + 3 + 1
    assert bench.sample("request_num_preemptions_sum") == 0


@virtually
async def test_usage_of_the_cache_counts_running_requests_not_what_can_still_be_hit() -> None:
    bench = Bench(capacity=20)
    client = bench.send(prompt(1, 38), 2)
    await asyncio.sleep(0.010)
    assert bench.sample("kv_cache_usage_perc") == 10 / 20
    await client.done()
    assert bench.sample("kv_cache_usage_perc") == 0
    assert bench.scheduler.cache("m").cached_blocks == 38 // BLOCK


# -- clients that leave


def phase(client: Client) -> str:
    return client.job.phase


def assert_nothing_is_held(bench: Bench) -> None:
    assert bench.used_blocks() == 0
    for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"):
        assert bench.sample(name) == 0
    assert bench.power.board_watts == 95.0


def assert_no_end_was_counted(bench: Bench, requests: int) -> None:
    """An aborted request appears in no histogram of ended requests, and not as an abort either."""
    ended = [bench.sample("request_success_total", finished_reason=r) for r in ("stop", "length")]
    assert sum(ended) == requests
    for reason in ("abort", "error", "repetition"):
        assert bench.sample("request_success_total", finished_reason=reason) == 0
    for name in ("e2e_request_latency_seconds", "request_queue_time_seconds", "request_prefill_time_seconds",
                 "request_decode_time_seconds", "request_inference_time_seconds", "request_prompt_tokens",
                 "request_generation_tokens", "request_prefill_kv_computed_tokens",
                 "request_params_max_tokens", "request_max_num_generation_tokens", "request_params_n",
                 "request_num_preemptions"):  # fmt: skip
        assert bench.sample(f"{name}_count") == requests


@virtually
async def test_leaving_while_waiting_frees_the_place_in_the_queue() -> None:
    bench = Bench(max_running=1)
    first, leaver, third = (bench.send(prompt(n, 10), 3) for n in range(3))
    await asyncio.sleep(0.020)
    await leaver.leave()
    assert bench.sample("num_requests_waiting") == 1
    await asyncio.gather(first.done(), third.done())
    assert third.ms()[0] == (40, 1)
    served = leaver.job.served
    assert (served.aborted, served.output_tokens, served.first_token_us) == (True, 0, None)
    assert bench.sample("prefix_cache_queries_total") == 20
    assert_no_end_was_counted(bench, 2)
    assert_nothing_is_held(bench)


@virtually
async def test_leaving_in_prefill_frees_slot_and_blocks_for_the_next_at_once() -> None:
    bench = Bench(max_running=1)
    leaver, following = bench.send(prompt(1, 100), 50), bench.send(prompt(1, 100), 1)
    await asyncio.sleep(0.050)
    await leaver.leave()
    await following.done()
    # Half of the prompt was computed: 12 blocks are known, the 13th was not finished.
    assert following.job.served.cached_tokens == 48
    assert following.ms() == [(50 + 52, 1)]
    assert bench.sample("prefix_cache_queries_total") == 200
    assert bench.sample("prompt_tokens_total") == 100
    assert bench.sample("generation_tokens_total") == 1
    assert_no_end_was_counted(bench, 1)
    assert_nothing_is_held(bench)


@virtually
async def test_an_aborted_prefill_adds_what_it_computed_to_what_was_cached() -> None:
    bench = Bench()
    front, whole = prompt(1, 40), [*prompt(1, 40), *prompt(2, 40)]
    await bench.send(front).done()
    leaver = bench.send(whole)
    await asyncio.sleep(0.022)  # 40 tokens were cached, 22 of the other 40 are computed
    await leaver.leave()
    following = await bench.send(whole).done()
    assert leaver.job.served.cached_tokens == 40
    assert following.job.served.cached_tokens == 60


@virtually
async def test_leaving_in_decode_frees_slot_and_blocks_and_keeps_the_prompt() -> None:
    bench = Bench(max_running=1)
    leaver, following = bench.send(prompt(1, 20), 50), bench.send(prompt(1, 20), 1)
    await asyncio.sleep(0.055)
    await leaver.leave()
    await following.done()
    assert leaver.ms() == [(20, 1), (30, 2), (40, 3), (50, 4)]
    assert leaver.job.served.output_tokens == 4
    assert following.ms() == [(55 + 4, 1)]
    assert bench.sample("generation_tokens_total") == 4 + 1
    assert bench.sample("prompt_tokens_total") == 40
    assert_no_end_was_counted(bench, 1)
    assert_nothing_is_held(bench)


@virtually
async def test_leaving_frees_blocks_that_another_waits_for() -> None:
    bench = Bench(capacity=10)
    leaver, following = bench.send(prompt(1, 20), 20), bench.send(prompt(2, 20))
    await asyncio.sleep(0.025)
    assert phase(following) == "waiting"
    await leaver.leave()
    assert phase(following) == "prefill"
    await following.done()
    assert following.ms() == [(25 + 20, 1)]
    assert_nothing_is_held(bench)


@virtually
async def test_leaving_in_the_moment_of_admission_passes_the_slot_on() -> None:
    bench = Bench(max_running=1)
    first, leaver, third = (bench.send(prompt(n, 10)) for n in range(3))
    await asyncio.sleep(0.005)
    assert leaver.task
    # The slot is handed over when the first leaves; its heir is gone before it learns of that.
    assert first.task
    first.task.cancel()
    await asyncio.sleep(0)
    assert phase(leaver) == "prefill"
    leaver.task.cancel()
    await third.done()
    assert third.ms() == [(5 + 10, 1)]
    assert leaver.job.served.aborted
    assert_no_end_was_counted(bench, 1)
    assert_nothing_is_held(bench)


@virtually
async def test_a_client_that_leaves_before_it_was_heard_leaves_nothing() -> None:
    bench = Bench()
    await bench.send(prompt(1, 10)).leave()
    assert_nothing_is_held(bench)
    assert_no_end_was_counted(bench, 0)


# -- any load

REQUESTS = st.lists(
    st.tuples(
        st.integers(0, 60),  # ms after the one before
        st.integers(0, 2),  # which prompt it begins with
        st.integers(1, 40),  # tokens of the prompt
        st.integers(1, 12),  # tokens of the answer
        st.sampled_from("ab"),  # model
        st.none() | st.integers(0, 150),  # ms until its client leaves
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=60)
@given(requests=REQUESTS, max_running=st.integers(1, 4), capacity=st.integers(13, 30))
@virtually
async def test_under_any_load_energy_counters_and_truth_agree_with_what_clients_saw(
    requests: list[tuple[int, int, int, int, str, int | None]], max_running: int, capacity: int
) -> None:
    bench = Bench(replace(SPEEDS, co_batching=0.1), capacity=capacity, max_running=max_running)
    clients: list[Client] = []
    leaving = []

    async def leave_later(client: Client, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await client.leave()

    for after_ms, name, length, output, model, leaves_ms in requests:
        await asyncio.sleep(after_ms / 1e3)
        clients.append(bench.send(prompt(name, length), output, model=model))
        if leaves_ms is not None:
            leaving.append(asyncio.create_task(leave_later(clients[-1], leaves_ms / 1e3)))
    await asyncio.gather(*leaving)
    for client, (*_, leaves_ms) in zip(clients, requests, strict=True):
        served = client.job.served
        if leaves_ms is None:
            await client.done()
        assert client.task
        assert served.aborted == client.task.cancelled()
        assert served.aborted or client.steps[-1][1] == served.output_tokens == client.job.output_tokens

    ran = [c for c in clients if c.job.allocation is not None]
    for model in "ab":
        if model not in {c.job.model for c in clients}:
            continue
        own = [c for c in ran if c.job.model == model]
        begun = [c.job for c in own if c.steps]
        ended = [c.job for c in own if not c.job.served.aborted]
        assert [c.job.admitted for c in own] == sorted(c.job.admitted for c in own), "order of arrival"
        assert bench.sample("prefix_cache_queries_total", model) == sum(c.job.prompt_tokens for c in own)
        assert bench.sample("prefix_cache_hits_total", model) == sum(c.job.served.cached_tokens for c in own)
        assert bench.sample("prompt_tokens_total", model) == sum(j.prompt_tokens for j in begun)
        assert bench.sample("prompt_tokens_cached_total", model) == sum(j.served.cached_tokens for j in begun)
        assert bench.sample("generation_tokens_total", model) == sum(j.served.output_tokens for j in begun)
        assert bench.sample("request_success_total", model, finished_reason="stop") == len(ended)
        assert bench.sample("request_generation_tokens_sum", model) == sum(j.output_tokens for j in ended)
        assert bench.used_blocks(model) == 0
        assert bench.scheduler.cache(model).cached_blocks <= capacity

    # Who was in which phase when, as clients saw it, gives the energy and the mean.
    instants = sorted({t for c in ran for t in (c.job.admitted, c.job.first_token or c.ended_s, c.ended_s)})
    joules = running_s = 0.0
    for begin, end in zip([0.0, *instants], [*instants, bench.clock()], strict=True):
        prefill = sum(c.job.admitted <= begin < (c.job.first_token or c.ended_s) for c in ran)
        decode = sum(0 < c.job.first_token <= begin < c.ended_s for c in ran)
        assert prefill + decode <= max_running
        use = 0.55 * (prefill > 0) + (0.30 + 0.35 * decode / max_running if decode else 0.0)
        joules += (95.0 + 605.0 * min(1.0, use)) * (end - begin)
        running_s += (prefill + decode) * (end - begin)
    assert bench.power.board_joules() == pytest.approx(joules, rel=1e-9)
    summary = bench.truth.summary(joules)
    assert (summary["mean_running"] or 0.0) * summary["seconds"] == pytest.approx(running_s, abs=1e-9)
