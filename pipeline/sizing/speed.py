"""The time budget: decode from memory bandwidth, prefill from arithmetic, and what batching does to both.

A replica with ``n`` requests in flight reads its weights once per step and every sequence's cache once, so
time per token grows with ``n``; prefill work shares the same steps. The largest ``n`` that keeps both targets
is the time ceiling, to be compared with the memory ceiling: the tighter one sizes the fleet.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

from pipeline.sizing.units import SizingError, positive, share

#: Time per token of a short request beside 0, 1 or 2 long-context ones in its batch (arXiv 2608.15127).
COBATCHING: Final[tuple[float, ...]] = (1.0, 1.383, 1.797)

Bound = Literal["vram", "tpot", "ttft"]


def tpot_floor_ms(weights_gb_per_gpu: float, hbm_gb_s: float) -> float:
    """Least time per output token: one pass over the weights of a GPU at full memory bandwidth."""
    return weights_gb_per_gpu / positive("hbm_gb_s", hbm_gb_s) * 1e3


def prefill_tok_s(gpus: int, tflops: float, efficiency: float, parameters: float) -> float:
    """Prompt tokens per second: 2 operations per active parameter and token, at ``efficiency`` of peak."""
    share("efficiency", efficiency)
    return gpus * tflops * 1e12 * efficiency / (2 * positive("parameters", parameters))


def request_s(prompt_tokens: float, prefill_rate_tok_s: float, output_tokens: float, tpot_s: float) -> float:
    """Duration of a request: prefill of the prompt, then one step per output token."""
    return prompt_tokens / positive("prefill_tok_s", prefill_rate_tok_s) + output_tokens * tpot_s


@dataclass(frozen=True, slots=True)
class Cobatching:
    """Factor on time per token, and whether it is only a lower bound (more long requests than measured)."""

    factor: float
    lower_bound: bool


def cobatching(long_requests: int) -> Cobatching:
    """Slow-down of a short request beside ``long_requests`` long ones; measured for one and two only."""
    if long_requests < 0:
        raise SizingError("long_requests must not be negative")
    last = len(COBATCHING) - 1
    return Cobatching(COBATCHING[min(long_requests, last)], long_requests > last)


@dataclass(frozen=True, slots=True)
class Machine:
    """One replica: memory bandwidth and weights per GPU, and its prefill rate.

    ``bandwidth_efficiency`` is the share of the data-sheet bandwidth that decode reaches (0.55 to 0.85).
    """

    active_weights_gb_per_gpu: float
    hbm_gb_s: float
    prefill_tok_s: float
    bandwidth_efficiency: float = 0.7


@dataclass(frozen=True, slots=True)
class Work:
    """One call: prompt, the share of it that the prefix cache serves, output, and its cache bytes per GPU."""

    prompt_tokens: float
    prompt_tokens_p95: float
    hit: float
    output_tokens: float
    kv_gb_per_gpu: float

    def __post_init__(self) -> None:
        share("hit", self.hit)
        positive("prompt_tokens", self.prompt_tokens)
        positive("output_tokens", self.output_tokens)

    @property
    def new_tokens(self) -> float:
        """Prompt tokens that have to be prefilled."""
        return self.prompt_tokens * (1 - self.hit)

    @property
    def new_tokens_p95(self) -> float:
        """The same at the 95th percentile of the prompt."""
        return self.prompt_tokens_p95 * (1 - self.hit)


@dataclass(frozen=True, slots=True)
class Slo:
    """Latency targets: time to first token and time per output token, ms."""

    ttft_ms: float
    tpot_ms: float


@dataclass(frozen=True, slots=True)
class Timing:
    """A replica with ``requests`` in flight. Infinite where prefill alone saturates it."""

    requests: int
    tpot_ms: float
    ttft_ms: float
    call_s: float
    prefill_share: float
    decode_share: float

    def meets(self, slo: Slo) -> bool:
        """Both targets kept."""
        return self.tpot_ms <= slo.tpot_ms and self.ttft_ms <= slo.ttft_ms


def timing(machine: Machine, work: Work, requests: int) -> Timing:
    """Latencies of a replica that keeps ``requests`` calls in flight (closed loop).

    Decode alone takes (weights + requests x cache) / bandwidth per token. Prefill takes the share ``u`` of
    the time, so steps stretch to 1 / (1 - u); u = calls per second x prefill time, and calls per second
    follow from the duration of a call (Little's law), which gives u in closed form. Time to first token is
    the P95 prefill plus the P95 wait for the prefill of others (exponential tail).
    """
    if requests < 1:
        raise SizingError("at least one request in flight is needed")
    bandwidth = machine.hbm_gb_s * share("bandwidth_efficiency", machine.bandwidth_efficiency)
    step_s = (machine.active_weights_gb_per_gpu + requests * work.kv_gb_per_gpu) / bandwidth
    prefill_s = work.new_tokens / machine.prefill_tok_s
    decode_s = work.output_tokens * step_s
    # n calls circulate; prefill is served one at a time, decode is shared. Steady state of the machine:
    # calls/s = x, u = x * prefill_s, call = prefill_s + decode_s / (1 - u) = n / x  =>  quadratic in u.
    share_prefill = _prefill_share(requests, prefill_s, decode_s)
    if share_prefill >= 0.999:
        return Timing(requests, math.inf, math.inf, math.inf, 1.0, 0.0)
    tpot_s = step_s / (1 - share_prefill)
    call_s = prefill_s + work.output_tokens * tpot_s
    wait_s = 0.0
    if share_prefill > 0.05 and requests > 1:
        wait_s = prefill_s / (1 - share_prefill) * math.log(share_prefill / 0.05)
    ttft_s = work.new_tokens_p95 / machine.prefill_tok_s + wait_s + tpot_s
    decode_time = decode_s / requests
    return Timing(
        requests,
        tpot_s * 1e3,
        ttft_s * 1e3,
        call_s,
        share_prefill,
        decode_time / (decode_time + prefill_s) if decode_time + prefill_s else 0.0,
    )


def _prefill_share(requests: int, prefill_s: float, decode_s: float) -> float:
    """Share of time spent on prefill: root in 0..1 of u (p (1-u) + d) = n p (1-u) (p prefill, d decode s)."""
    if prefill_s == 0:
        return 0.0
    p, d, n = prefill_s, decode_s, requests
    # p u^2 - (p + d + n p) u + n p = 0
    b = p + d + n * p
    return (b - math.sqrt(b * b - 4 * p * n * p)) / (2 * p)


def time_ceiling(machine: Machine, work: Work, slo: Slo, limit: int) -> int:
    """Largest number of requests in flight, up to ``limit``, that keeps both targets; 0 if none does.

    Both latencies grow with the number in flight, so bisection finds it.
    """
    if limit < 1 or not timing(machine, work, 1).meets(slo):
        return 0
    low, high = 1, limit
    while low < high:
        middle = (low + high + 1) // 2
        if timing(machine, work, middle).meets(slo):
            low = middle
        else:
            high = middle - 1
    return low


@dataclass(frozen=True, slots=True)
class Ceiling:
    """Requests a replica may hold, the two ceilings it comes from, and which one binds."""

    requests: int
    vram: int
    time: int
    bound: Bound
    at: Timing


def replica_ceiling(machine: Machine, work: Work, slo: Slo, vram_sequences: int) -> Ceiling:
    """The tighter of the memory and the time budget, and the target that broke first above it.

    Raises:
        SizingError: a single request already misses a target; the message says which and by how much.
    """
    time = time_ceiling(machine, work, slo, max(vram_sequences, 1) * 4)
    if time == 0:
        alone = timing(machine, work, 1)
        which = "tpot" if alone.tpot_ms > slo.tpot_ms else "ttft"
        got = alone.tpot_ms if which == "tpot" else alone.ttft_ms
        target = slo.tpot_ms if which == "tpot" else slo.ttft_ms
        raise SizingError(
            f"slo.{which}_ms: one request alone takes {got:.0f} ms, the target is {target:.0f} ms"
        )
    if vram_sequences <= time:
        bound: Bound = "vram"
    else:
        bound = "tpot" if timing(machine, work, time + 1).tpot_ms > slo.tpot_ms else "ttft"
    requests = min(vram_sequences, time)
    return Ceiling(requests, vram_sequences, time, bound, timing(machine, work, max(1, requests)))
