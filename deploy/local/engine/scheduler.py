"""When requests run and how fast: admission, prefill and decode on one engine.

A request waits until a slot and its blocks are free, computes the uncached part of its prompt at the prefill
rate, then decodes. Decoding slows down as more requests decode together. Every wait is divided by the
speed-up; instants are real.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from deploy.local.engine.cache import Allocation, PrefixCache
from deploy.local.engine.metrics import EngineMetrics
from deploy.local.engine.power import PowerModel
from deploy.local.engine.truth import Served, TruthLog, now_us


@dataclass(frozen=True, slots=True)
class Speeds:
    """Timing of the engine before any speed-up. Rates in tokens per second, times in seconds.

    ``co_batching`` is the share by which one more decoding request slows every other one down.
    """

    prefill_tok_s: float = 12_000.0
    decode_tok_s: float = 60.0
    overhead_s: float = 0.05
    co_batching: float = 0.02
    speed_up: float = 1.0
    chunk_s: float = 0.02


@dataclass(slots=True)
class Job:
    """One request under way."""

    served: Served
    model: str
    prompt_tokens: int
    hashes: list[int]
    output_tokens: int
    slow: float
    arrived: float = field(default_factory=time.monotonic)
    admitted: float = 0.0
    first_token: float = 0.0
    phase: str = "waiting"
    allocation: Allocation | None = None


class PromptTooLong(ValueError):
    """The prompt and its answer cannot fit into the engine at all."""


class Scheduler:
    """Admits jobs in order of arrival and paces them. Event loop only."""

    def __init__(
        self,
        cache: PrefixCache,
        metrics: EngineMetrics,
        power: PowerModel,
        truth: TruthLog,
        speeds: Speeds,
        *,
        max_running: int,
        max_model_len: int,
    ) -> None:
        self.cache, self._metrics, self._power, self._truth = cache, metrics, power, truth
        self.speeds = speeds
        self._max_running = max_running
        self.max_model_len = max_model_len
        self._running: list[Job] = []
        self._waiting: deque[tuple[Job, asyncio.Future[None]]] = deque()
        self._changed = time.monotonic()

    def job(self, served: Served, model: str, tokens: array[int], output_tokens: int, slow: float) -> Job:
        """Return the job of a prompt.

        Raises:
            PromptTooLong: longer than the model or than the whole cache.
        """
        total = len(tokens) + output_tokens
        if len(tokens) >= self.max_model_len:
            raise PromptTooLong(
                f"This model's maximum context length is {self.max_model_len} tokens. However, your "
                f"request has {len(tokens)} input tokens. Please reduce the length of the input messages."
            )
        if -(-total // self.cache.block_size) > self.cache.capacity:
            raise PromptTooLong(f"the request needs {total} tokens of KV cache, more than the engine has")
        served.input_tokens = len(tokens)
        self._metrics.introduce(model)
        return Job(served, model, len(tokens), self.cache.chain(model, tokens), output_tokens, slow)

    async def run(self, job: Job) -> AsyncGenerator[int, None]:
        """Run *job*; yield the number of tokens generated so far after each step, the last one being all.

        Leaving the iteration early aborts the job and frees its blocks.
        """
        finished = False
        try:
            await self._admit(job)
            hit = job.allocation.cached_tokens if job.allocation else 0
            job.served.cached_tokens = hit
            labels = (job.model, "0")
            self._metrics.queries.labels(*labels).inc(job.prompt_tokens)
            self._metrics.hits.labels(*labels).inc(hit)
            prefill = self.speeds.overhead_s + (job.prompt_tokens - hit) / self.speeds.prefill_tok_s
            await asyncio.sleep(prefill / self.speeds.speed_up)
            job.first_token = time.monotonic()
            job.served.first_token_us = now_us()
            self._first_token(job, hit)
            self._set_phase(job, "decode")
            done = 1
            job.served.output_tokens = 1
            self._metrics.generation.labels(*labels).inc()
            yield done
            while done < job.output_tokens:
                per_token = self._seconds_per_token(job)
                step = min(job.output_tokens - done, max(1, round(self.speeds.chunk_s / per_token)))
                await asyncio.sleep(step * per_token)
                done += step
                job.served.output_tokens = done
                self._metrics.generation.labels(*labels).inc(step)
                for _ in range(min(step, 8)):
                    self._metrics.itl.labels(*labels).observe(per_token)
                yield done
            finished = True
        finally:
            self._leave(job, finished)

    def _seconds_per_token(self, job: Job) -> float:
        together = sum(1 for other in self._running if other.phase == "decode")
        slowdown = 1 + self.speeds.co_batching * max(0, together - 1)
        return slowdown * job.slow / self.speeds.decode_tok_s / self.speeds.speed_up

    async def _admit(self, job: Job) -> None:
        if not self._waiting and self._try(job):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (job, turn)
        self._waiting.append(entry)
        self._show(job.model)
        try:
            await turn
        except asyncio.CancelledError:
            if entry in self._waiting:
                self._waiting.remove(entry)
            self._show(job.model)
            raise

    def _try(self, job: Job) -> bool:
        if len(self._running) >= self._max_running:
            return False
        allocation = self.cache.admit(job.hashes, job.prompt_tokens, job.output_tokens)
        if allocation is None:
            return False
        job.allocation = allocation
        job.admitted = time.monotonic()
        self._account()
        self._running.append(job)
        self._set_phase(job, "prefill")
        return True

    def _leave(self, job: Job, finished: bool) -> None:
        self._account()
        if job.allocation is not None:
            self.cache.release(job.allocation)
        if job in self._running:
            self._running.remove(job)
        job.served.ended_us = now_us()
        job.served.aborted = not finished
        if finished:
            self._finished(job)
        self._show(job.model)
        while self._waiting and self._try(self._waiting[0][0]):
            _, turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)

    def _account(self) -> None:
        now = time.monotonic()
        self._truth.running_seconds += len(self._running) * (now - self._changed)
        self._changed = now

    def _set_phase(self, job: Job, phase: str) -> None:
        job.phase = phase
        self._show(job.model)

    def _show(self, model: str) -> None:
        phases = [j.phase for j in self._running]
        self._power.change(phases.count("prefill"), phases.count("decode"))
        labels = (model, "0")
        self._metrics.running.labels(*labels).set(sum(j.model == model for j in self._running))
        waiting = sum(j.model == model for j, _ in self._waiting)
        self._metrics.waiting.labels(*labels).set(waiting)
        self._metrics.waiting_by_reason.labels(*labels, "capacity").set(waiting)
        self._metrics.kv_usage.labels(*labels).set(self.cache.used_blocks / self.cache.capacity)

    def _first_token(self, job: Job, hit: int) -> None:
        labels, m = (job.model, "0"), self._metrics
        m.prompt_tokens.labels(*labels).inc(job.prompt_tokens)
        m.cached.labels(*labels).inc(hit)
        m.by_source.labels(*labels, "local_compute").inc(job.prompt_tokens - hit)
        m.by_source.labels(*labels, "local_cache_hit").inc(hit)
        m.ttft.labels(*labels).observe(job.first_token - job.arrived)

    def _finished(self, job: Job) -> None:
        labels, m, now = (job.model, "0"), self._metrics, time.monotonic()
        decode = now - job.first_token
        m.success.labels(*labels, "stop").inc()
        m.e2e.labels(*labels).observe(now - job.arrived)
        m.queue.labels(*labels).observe(job.admitted - job.arrived)
        m.prefill.labels(*labels).observe(job.first_token - job.admitted)
        m.decode.labels(*labels).observe(decode)
        m.inference.labels(*labels).observe(now - job.admitted)
        m.request_prompt.labels(*labels).observe(job.prompt_tokens)
        m.request_generation.labels(*labels).observe(job.output_tokens)
        m.computed.labels(*labels).observe(job.prompt_tokens - job.served.cached_tokens)
        if job.output_tokens > 1:
            m.tpot.labels(*labels).observe(decode / (job.output_tokens - 1))
