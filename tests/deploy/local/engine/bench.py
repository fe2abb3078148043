"""A scheduler on an event loop whose time passes only when everybody waits: no test sleeps for real."""

from __future__ import annotations

import asyncio
import functools
import selectors
from array import array
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from deploy.local.engine.metrics import EngineMetrics
from deploy.local.engine.power import PowerModel
from deploy.local.engine.scheduler import Job, Scheduler
from deploy.local.engine.timing import Speeds
from deploy.local.engine.truth import TruthLog

#: One prompt token takes 1 ms and one later token 10 ms; nothing else takes time. Each token is reported.
SPEEDS = Speeds(prefill_tok_s=1000.0, decode_tok_s=100.0, overhead_s=0.0, co_batching=0.0, chunk_s=0.01)
BLOCK = 4


class _JumpingSelector(selectors.DefaultSelector):
    """Waits by moving the clock; a wait without an end is a deadlock of the test."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "everybody waits for something that never happens"
            self.now += max(0.0, timeout)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop with a clock of its own, which starts at 0."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Return the seconds that have been waited for."""
        return self._jumping.now


def virtually(scene: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Make a test of the coroutine function *scene*, which is played in virtual time."""

    @functools.wraps(scene)
    def test(*args: Any, **kwargs: Any) -> None:
        async def play() -> None:
            await scene(*args, **kwargs)

        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(play())

    return test


@dataclass
class Client:
    """One request as its client sees it: when how many tokens had come."""

    job: Job
    task: asyncio.Task[None] | None = None
    steps: list[tuple[float, int]] = field(default_factory=list)
    ended_s: float = 0.0

    @property
    def first_s(self) -> float:
        """When the first token came."""
        return self.steps[0][0]

    @property
    def last_s(self) -> float:
        """When the last token so far came."""
        return self.steps[-1][0]

    async def done(self) -> Client:
        """Wait for the whole answer."""
        assert self.task
        await self.task
        return self

    def ms(self) -> list[tuple[float, int]]:
        """Whole milliseconds and tokens of every step."""
        return [(round(at * 1e3, 6), tokens) for at, tokens in self.steps]

    async def leave(self) -> None:
        """Disconnect, and return when the engine has noticed."""
        assert self.task
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


class Bench:
    """A scheduler in the running (virtual) loop with everything that it feeds."""

    def __init__(self, speeds: Speeds = SPEEDS, *, capacity: int = 1000, max_running: int = 100) -> None:
        clock = asyncio.get_running_loop().time
        self.clock = clock
        self.metrics = EngineMetrics(block_size=BLOCK, blocks=capacity, max_model_len=capacity * BLOCK)
        self.power = PowerModel(boards=1, slots=max_running, clock=clock)
        self.truth = TruthLog(clock)
        self.scheduler = Scheduler(
            self.metrics,
            self.power,
            self.truth,
            speeds,
            block_size=BLOCK,
            capacity_blocks=capacity,
            max_running=max_running,
            clock=clock,
        )

    def send(
        self, prompt: list[int], output: int = 1, *, model: str = "m", slow: float = 1.0, hold_s: float = 0.0
    ) -> Client:
        """Send a request; it begins to run when the test waits next."""
        served = self.truth.open("chat", "")
        job = self.scheduler.job(served, model, array("I", prompt), output, slow=slow, hold_s=hold_s)
        client = Client(job)

        async def consume() -> None:
            try:
                async with aclosing(self.scheduler.run(job)) as steps:
                    async for tokens in steps:
                        client.steps.append((self.clock(), tokens))
            finally:
                client.ended_s = self.clock()

        client.task = asyncio.get_running_loop().create_task(consume())
        return client

    def sample(self, name: str, model: str = "m", **labels: str) -> float:
        """Return the value of one of vLLM's series, gauges as a scrape would show them now."""
        self.scheduler.publish()
        labels = {"model_name": model, "engine": "0", **labels}
        value = self.metrics.registry.get_sample_value(f"vllm:{name}", labels)
        assert value is not None, name
        return value

    def used_blocks(self, model: str = "m") -> int:
        """Return the blocks that running requests hold."""
        return self.scheduler.cache(model).used_blocks


def prompt(name: int, length: int) -> list[int]:
    """Return *length* tokens that share no block with the prompt of another *name*."""
    return [name * 100_000 + i for i in range(length)]
