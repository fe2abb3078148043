"""When requests run: admission, prefill and decode on one engine.

A request waits until a slot and its blocks are free, computes the uncached part of its prompt, then decodes.
Requests of one model are admitted in order of arrival; every model has a cache of its own.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Literal

from deploy.local.engine.cache import Allocation, PrefixCache
from deploy.local.engine.metrics import EngineMetrics, ModelMetrics
from deploy.local.engine.power import PowerModel
from deploy.local.engine.timing import Speeds
from deploy.local.engine.truth import Served, TruthLog, now_us


@dataclass(eq=False, slots=True)
class Job:
    """One request under way. Instants are monotonic seconds, 0 while unknown.

    ``limited`` tells that the client's own limit ends it (the engine's finish reason is then "length").
    """

    served: Served
    model: str
    prompt_tokens: int
    hashes: list[int]
    output_tokens: int
    metrics: ModelMetrics
    arrived: float
    limited: bool = False
    slow: float = 1.0
    hold_s: float = 0.0
    admitted: float = 0.0
    prefill_s: float = 0.0
    first_token: float = 0.0
    phase: Literal["waiting", "prefill", "decode", "over"] = "waiting"
    allocation: Allocation | None = None


class Scheduler:
    """Admits jobs and paces them. Event loop only."""

    def __init__(
        self,
        metrics: EngineMetrics,
        power: PowerModel,
        truth: TruthLog,
        speeds: Speeds,
        *,
        block_size: int,
        capacity_blocks: int,
        max_running: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """*clock* counts the seconds that the event loop waits by."""
        self._clock = clock
        self._metrics, self._power, self._truth = metrics, power, truth
        self.speeds = speeds
        self._block_size, self._capacity = block_size, capacity_blocks
        self._max_running = max_running
        self._caches: dict[str, PrefixCache] = {}
        self._running: dict[Job, None] = {}
        self._waiting: dict[Job, asyncio.Future[None]] = {}

    def cache(self, model: str) -> PrefixCache:
        """Return the cache of *model*, made at its first use."""
        if model not in self._caches:
            self._caches[model] = PrefixCache(block_size=self._block_size, capacity_blocks=self._capacity)
        return self._caches[model]

    def job(
        self,
        served: Served,
        model: str,
        tokens: array[int],
        output_tokens: int,
        *,
        limited: bool = False,
        slow: float = 1.0,
        hold_s: float = 0.0,
    ) -> Job:
        """Return the job of a prompt, which :meth:`run` runs."""
        served.input_tokens = len(tokens)
        hashes = self.cache(model).chain(tokens)
        metrics = self._metrics.of(model)
        arrived = self._clock()
        return Job(served, model, len(tokens), hashes, output_tokens, metrics, arrived, limited, slow, hold_s)

    async def run(self, job: Job) -> AsyncGenerator[int, None]:
        """Run *job*; yield the number of tokens generated so far after each step, the last one being all.

        Leaving the iteration early aborts the job and frees its blocks.
        """
        finished = False
        try:
            await self._admission(job)
            await asyncio.sleep(job.prefill_s + job.hold_s)
            self._first_token(job)
            done = 1
            yield done
            last = due = job.first_token
            while done < job.output_tokens:
                decoding = sum(other.phase == "decode" for other in self._running)
                token_s = self.speeds.token_s(decoding, job.slow)
                step = self.speeds.step(job.output_tokens - done, token_s)
                due += step * token_s
                await asyncio.sleep(max(0.0, due - self._clock()))
                done += step
                now = self._clock()
                job.served.output_tokens = done
                job.metrics.generation.inc(step)
                for _ in range(step):
                    job.metrics.itl.observe((now - last) / step)
                last = now
                yield done
            finished = True
        finally:
            self._leave(job, finished)

    def publish(self) -> None:
        """Set the gauges to what is so now, for a scrape."""
        running = Counter(job.model for job in self._running)
        waiting = Counter(job.model for job in self._waiting)
        for model, metrics in self._metrics.models.items():
            metrics.running.set(running[model])
            metrics.waiting.set(waiting[model])
            metrics.waiting_for_capacity.set(waiting[model])
            metrics.kv_usage.set(self.cache(model).used_blocks / self._capacity)

    # -- stages

    async def _admission(self, job: Job) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[job] = turn
        self._fill()
        try:
            await turn
        finally:
            self._waiting.pop(job, None)

    def _fill(self) -> None:
        """Admit whoever can run now; a model whose first job does not fit lets no later one pass."""
        blocked: set[str] = set()
        for job, turn in list(self._waiting.items()):
            if len(self._running) >= self._max_running:
                return
            if turn.done() or job.model in blocked:
                continue
            allocation = self.cache(job.model).admit(job.hashes, job.prompt_tokens, job.output_tokens)
            if allocation is None:
                blocked.add(job.model)
                continue
            del self._waiting[job]
            self._admit(job, allocation)
            turn.set_result(None)

    def _admit(self, job: Job, allocation: Allocation) -> None:
        hit = allocation.cached_tokens
        job.allocation = allocation
        job.admitted = self._clock()
        job.prefill_s = self.speeds.prefill_s(job.prompt_tokens - hit)
        job.served.cached_tokens = hit
        job.metrics.queries.inc(job.prompt_tokens)
        job.metrics.hits.inc(hit)
        job.metrics.cached_on_device.inc(hit)
        self._running[job] = None
        self._enter(job, "prefill")

    def _first_token(self, job: Job) -> None:
        job.first_token = self._clock()
        job.served.first_token_us = now_us()
        job.served.output_tokens = 1
        hit, m = job.served.cached_tokens, job.metrics
        m.generation.inc()
        m.prompt_tokens.inc(job.prompt_tokens)
        m.cached.inc(hit)
        m.computed_here.inc(job.prompt_tokens - hit)
        m.cached_here.inc(hit)
        m.ttft.observe(job.first_token - job.arrived)
        self._enter(job, "decode")

    def _enter(self, job: Job, phase: Literal["prefill", "decode", "over"]) -> None:
        job.phase = phase
        phases = Counter(other.phase for other in self._running)
        self._power.change(phases["prefill"], phases["decode"])
        self._truth.running(len(self._running))

    def _leave(self, job: Job, finished: bool) -> None:
        if job.allocation is not None:
            computed = self._computed(job) if job.phase == "prefill" else None
            self.cache(job.model).release(job.allocation, computed_tokens=computed)
        self._running.pop(job, None)
        self._enter(job, "over")
        job.served.aborted = not finished
        if finished:
            self._finished(job)
        self._fill()

    def _computed(self, job: Job) -> int:
        """Prompt tokens that are in the cache by now when *job* is aborted in its prefill."""
        hit = job.served.cached_tokens
        share = min(1.0, (self._clock() - job.admitted) / job.prefill_s) if job.prefill_s else 1.0
        return hit + int(share * (job.prompt_tokens - hit))

    def _finished(self, job: Job) -> None:
        m, now = job.metrics, self._clock()
        decode = now - job.first_token
        m.finished["length" if job.limited else "stop"].inc()
        m.e2e.observe(now - job.arrived)
        m.queue.observe(job.admitted - job.arrived)
        m.prefill.observe(job.first_token - job.admitted)
        m.decode.observe(decode)
        m.inference.observe(now - job.admitted)
        m.request_prompt.observe(job.prompt_tokens)
        m.request_generation.observe(job.output_tokens)
        m.request_computed.observe(job.prompt_tokens - job.served.cached_tokens)
        m.request_max_tokens.observe(job.output_tokens)
        m.request_max_generation.observe(job.output_tokens)
        m.request_n.observe(1)
        m.request_preemptions.observe(0)
        if job.output_tokens > 1:
            m.tpot.observe(decode / (job.output_tokens - 1))
