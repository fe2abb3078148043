"""What the plugin costs the real proxy: CPU of the proxy process per 68K-token request, with and without it.

    python benchmarks/proxy_throughput.py [--starts N] [--blocks N] [--requests N] [--tokens N]

Two LiteLLM proxies live side by side, on the same Redis and the same stand-in engine; one has the callback
of config.yaml, the other is the same configuration without it (neither has a database). A pair is one
sequence of streamed chat requests, one after another: agent sessions of about 200 messages that grow by one
tool call each request. Every request goes byte for byte to both proxies, five at a stretch in the order
ABBA, so the two meet the same drift of the machine within a quarter of a second. (Blocks of 20 in turn, as an
earlier form of this program sent them, are seconds apart: their differences spread by 3 ms and more.) At the
end of a pair both get the same rest, so that what they do later (logging, stream, gauges) is in the figure; a
pair gives one difference.

Both proxies are started anew several times. Where a process lies in memory and how its dictionaries are laid
makes it a few per cent faster or slower for as long as it lives, which is as much as the plugin costs: pairs
of one start agree with each other and not with those of the next. A start therefore is one observation, the
mean of its pairs, and what is between starts is in the interval. Both proxies of a start hash texts alike,
each start in another way. A start in which a proxy breaks off is repeated and counted (`lost_starts`).

CPU is user plus system time of the proxy process, all threads: the kernel's clock of that process in
nanoseconds, checked against the 10 ms ticks of /proc/<pid>/stat. The interval of the mean difference is
Student's t over starts. The target is decided on the mean; whether the whole interval is below it (`sure`) is
told beside it, for a mean below a target that lies within the interval may be luck.

CPython's full garbage collections are told apart, in both proxies alike. One costs a third of a second, comes
once in some hundred requests and falls into the blocks of one proxy or the other by chance: a handful of
pairs then differ by ten times what all others do, in both directions, and the interval says nothing any more.
Their CPU is taken out of the blocks and stands beside them, as a number of collections and CPU per request of
each proxy; `added_with_full_collections_ms` is the difference with them. Collections of the younger
generations, several in every request, stay in. Each proxy counts its own (``benchmarks/full_collections``),
which costs a few microseconds a collection.

A table, then one JSON object on the last line of standard output; exit code 1 when the target is missed, 3
when something could not be started.
"""

from __future__ import annotations

import argparse
import gc
import http.client
import json
import math
import os
import random
import shutil
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

if TYPE_CHECKING:
    from deploy.local.proxy import ProxyService

ROOT: Final = Path(__file__).resolve().parents[1]
#: Milliseconds of CPU that the plugin may add to a request: 3 % of the 45 ms or so that a proxy needs for it.
TARGET_MS: Final = 1.35
MESSAGES: Final = 200
#: Requests of one session in a block; a new session is the dear case, nothing of it is known yet.
STEPS: Final = 10
OUTPUT_TOKENS: Final = 16
#: What a tool call and the chat format cost in the stand-in engine beside the text of the tool's result.
_ROUND_TOKENS: Final = 65
WITH, WITHOUT = "with plugin", "without"
_WARM_UP_PAIRS: Final = 2
#: Starts that may be repeated because a proxy broke off.
_LOST_MAX: Final = 3
#: Requests that one proxy gets at a stretch: few, so that both meet the same drift of the machine; more than
#: one, for a worker whose capacity matters is busy, so its caches are warm and its batches full.
_STRETCH: Final = 5
_REST_S: Final = 0.6  # longer than the plugin's longest wait before a batch is written
#: CPython's own thresholds, as in production: a proxy of the local equipment may run without the collector.
_COLLECTOR: Final = "700,10,10"
_TICKS: Final = os.sysconf("SC_CLK_TCK")
#: Words of one token each in common tokenizers, so that a prompt's length is known without one.
_WORDS: Final = tuple(
    word
    for line in (
        "def value return import class for in if else while try raise self path data file line name list",
        "user time code test type error result count index string number key",
    )
    for word in line.split()
)


@dataclass(slots=True)
class Block:
    """What one block cost: CPU seconds of the process by two clocks, wall seconds of each request, and the
    full garbage collections within it with their CPU seconds (which are part of the process's)."""

    cpu_s: float
    ticks_s: float
    walls_s: list[float]
    collections: int = 0
    collecting_s: float = 0.0

    def per_request_ms(self, requests: int, *, with_collecting: bool = False) -> float:
        """CPU milliseconds per request, without full collections unless asked for."""
        return (self.cpu_s - (0.0 if with_collecting else self.collecting_s)) / requests * 1e3


@dataclass(slots=True)
class Samples:
    """Measured blocks of both proxies, one entry per pair; each start has the same number of pairs."""

    requests: int
    starts: int = 1
    blocks: dict[str, list[Block]] = field(default_factory=lambda: {WITH: [], WITHOUT: []})

    def per_request_ms(self, side: str, *, with_collecting: bool = False) -> list[float]:
        """CPU milliseconds per request of each block, without full collections unless asked for."""
        return [
            block.per_request_ms(self.requests, with_collecting=with_collecting)
            for block in self.blocks[side]
        ]

    def per_start_ms(self, side: str, *, with_collecting: bool = False) -> list[float]:
        """CPU milliseconds per request of each start."""
        values = self.per_request_ms(side, with_collecting=with_collecting)
        pairs = len(values) // self.starts
        return [statistics.fmean(values[n : n + pairs]) for n in range(0, len(values), pairs)]


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with the two ends of its confidence interval."""

    mean: float
    low: float
    high: float


def t_quantile(p: float, df: int) -> float:
    """Return the quantile of Student's t distribution for 0.5 <= *p* < 1 and *df* degrees of freedom.

    The distribution function is the regularised incomplete beta function's closed finite sum for whole *df*
    (Abramowitz and Stegun, 26.7.3 and 26.7.4), inverted by bisection.

    Raises:
        ValueError: *p* or *df* is out of range.
    """
    if not 0.5 <= p < 1 or df < 1:
        raise ValueError(f"no t quantile for p={p}, df={df}")
    low, high = 0.0, 1.0
    while _t_distribution(high, df) < p:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if _t_distribution(middle, df) < p else (low, middle)
    return (low + high) / 2


def _t_distribution(t: float, df: int) -> float:
    theta = math.atan(t / math.sqrt(df))
    cosine, sine = math.cos(theta), math.sin(theta)
    if df % 2:
        term, total = cosine, cosine if df > 1 else 0.0
        for k in range(3, df - 1, 2):
            term *= cosine * cosine * (k - 1) / k
            total += term
        inside = 2 / math.pi * (theta + sine * total)
    else:
        term = total = 1.0
        for k in range(2, df - 1, 2):
            term *= cosine * cosine * (k - 1) / k
            total += term
        inside = sine * total
    return (1 + inside) / 2


def paired_interval(ours: Sequence[float], theirs: Sequence[float], level: float = 0.95) -> Interval:
    """Return mean and confidence interval of ``ours[i] - theirs[i]``.

    Raises:
        ValueError: the lengths differ or there are fewer than two.
    """
    if len(ours) != len(theirs) or len(ours) < 2:
        raise ValueError(f"an interval needs two starts or more, not {len(ours)} and {len(theirs)} values")
    differences = [a - b for a, b in zip(ours, theirs, strict=True)]
    mean = statistics.fmean(differences)
    half = t_quantile((1 + level) / 2, len(differences) - 1) * statistics.stdev(differences)
    half /= math.sqrt(len(differences))
    return Interval(mean, mean - half, mean + half)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value at *share* (0 to 1) of the sorted values, interpolated."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def order_of(requests: int, pair: int) -> list[tuple[str, range]]:
    """Return which proxy gets which requests of a pair, some at a stretch: ABBA …, in odd pairs BAAB …

    So each proxy is the first to bring a new session, whose prompt the engine must still read, in every other
    pair.
    """
    out: list[tuple[str, range]] = []
    for n, first in enumerate(range(0, requests, _STRETCH)):
        stretch = range(first, min(first + _STRETCH, requests))
        sides = (WITH, WITHOUT) if (n + pair) % 2 == 0 else (WITHOUT, WITH)
        out += [(side, stretch) for side in sides]
    return out


def sequence(pair: int, requests: int, tokens: int) -> list[tuple[bytes, dict[str, str]]]:
    """Return bodies and headers of one block: sessions that each grow by one tool call a request.

    The same *pair* always gives the same bytes; no two pairs share a session.
    """
    chooser = random.Random(pair)
    out: list[tuple[bytes, dict[str, str]]] = []
    for session in range(math.ceil(requests / STEPS)):
        steps = min(STEPS, requests - session * STEPS)
        rounds = (MESSAGES - 2) // 2
        words = tokens // (rounds + STEPS // 2) - _ROUND_TOKENS
        messages: list[dict[str, Any]] = [
            {"role": "system", "content": "You are a coding agent. " * 20},
            {"role": "user", "content": f"task {pair}.{session}: {_text(chooser, words)}"},
        ]
        for n in range(rounds):
            messages += _tool_round(chooser, n, words)
        headers = {
            "User-Agent": "opencode/1.3.4 ai-sdk/provider-utils/4.0.1",
            "x-session-id": f"ses_throughput_{pair:05d}_{session:03d}",
        }
        for step in range(steps):
            body = {
                "model": "coder-large",
                "messages": messages,
                "stream": True,
                "max_tokens": OUTPUT_TOKENS,
            }
            out.append((json.dumps(body).encode(), headers))
            messages += _tool_round(chooser, rounds + step, words)
    return out


def pair_of(session_id: str) -> int:
    """Return the number of the pair that a session of :func:`sequence` belongs to."""
    return int(session_id.split("_")[2])


def _tool_round(chooser: random.Random, n: int, words: int) -> list[dict[str, Any]]:
    function = {"name": "read", "arguments": json.dumps({"path": f"src/part_{n}.py"})}
    call = {"id": f"call_{n}", "type": "function", "function": function}
    return [
        {"role": "assistant", "content": f"step {n}", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"call_{n}", "content": _text(chooser, words)},
    ]


def _text(chooser: random.Random, words: int) -> str:
    return " ".join(chooser.choices(_WORDS, k=words))


def process_clock(pid: int) -> int:
    """Return the id of the kernel's CPU clock of a process, for ``time.clock_gettime`` (Linux)."""
    return (~pid << 3) | 2


def ticks_s(stat: str) -> float:
    """Return user plus system seconds from the text of ``/proc/<pid>/stat``."""
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def full_collections(path: Path) -> tuple[int, float]:
    """Return how many full collections the process that writes *path* has run, and their CPU seconds."""
    count, spent = struct.unpack("dd", path.read_bytes())
    return int(count), spent


class Meter:
    """CPU of one proxy process from the start of a block on, and its requests within it."""

    def __init__(self, proxy: ProxyService, counted: Path) -> None:
        """Start to count; *counted* is the file of the proxy's full collections."""
        self._proxy, self._counted = proxy, counted
        self._clock, self._stat = process_clock(proxy.pid), Path(f"/proc/{proxy.pid}/stat")
        self._connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=60)
        self._walls: list[float] = []
        self._collections = full_collections(counted)
        self._ticks, self._cpu = ticks_s(self._stat.read_text()), time.clock_gettime(self._clock)

    def send(self, body: bytes, headers: dict[str, str]) -> None:
        """Send one request and read its stream to the end.

        Raises:
            RuntimeError: the answer was not a complete stream.
        """
        headers = {**headers, **self._proxy.headers, "Content-Type": "application/json"}
        began = time.perf_counter()
        self._connection.request("POST", "/v1/chat/completions", body, headers)
        response = self._connection.getresponse()
        answer = response.read()
        self._walls.append(time.perf_counter() - began)
        if response.status != 200 or b"[DONE]" not in answer[-64:]:
            raise RuntimeError(f"the proxy answered {response.status}: {answer[:300]!r}")

    def close(self) -> Block:
        """Return what was spent since the start."""
        self._connection.close()
        cpu = time.clock_gettime(self._clock) - self._cpu
        ticks = ticks_s(self._stat.read_text()) - self._ticks
        (count, spent), (count_before, spent_before) = full_collections(self._counted), self._collections
        return Block(cpu, ticks, self._walls, count - count_before, spent - spent_before)


def run_pair(
    proxies: dict[str, ProxyService],
    counted: dict[str, Path],
    pair: int,
    requests: list[tuple[bytes, dict[str, str]]],
    rest_s: float,
) -> dict[str, Block]:
    """Send each request of pair number *pair* to both proxies, rest, and return what each spent.

    Raises:
        RuntimeError: an answer was not a complete stream.
        StackError: a proxy broke off.
    """
    from deploy.local.process import StackError

    meters = {side: Meter(proxies[side], counted[side]) for side in proxies}
    for side, stretch in order_of(len(requests), pair):
        for number in stretch:
            try:
                meters[side].send(*requests[number])
            except (OSError, http.client.HTTPException) as error:
                # Without this the death of a proxy would look like a cheap block or a stack trace.
                raise StackError(f"the proxy {side} broke off: {error}; log: {proxies[side].log}") from None
    time.sleep(rest_s)
    return {side: meter.close() for side, meter in meters.items()}


def write_config(source: Path, target: Path, *, plugin: bool) -> None:
    """Write a variant of config.yaml without a database, and without callbacks unless *plugin*."""
    import yaml

    config = yaml.safe_load(source.read_text(encoding="utf-8"))
    config["general_settings"].pop("database_url", None)
    config["general_settings"].pop("proxy_batch_write_at", None)
    if not plugin:
        config["litellm_settings"].pop("callbacks")
    target.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")


def measure(options: argparse.Namespace, work: Path) -> tuple[Samples, dict[str, Any]]:
    """Run all starts; return the samples and checks of what was really measured.

    Raises:
        RuntimeError: an answer was not a complete stream, or not every request was recorded.
        StackError: something did not start, or proxies broke off again and again.
    """
    from deploy.local.engine_process import EngineProcess
    from deploy.local.process import StackError
    from deploy.local.services import RedisService

    samples = Samples(options.requests, options.starts)
    pairs = _WARM_UP_PAIRS + options.blocks // 2
    counted: list[int] = []
    lost = 0
    with ExitStack() as stack:
        redis = stack.enter_context(RedisService(work))
        engine = stack.enter_context(EngineProcess(work, speed_up=1000.0))
        for start in range(options.starts):
            while True:
                numbers = range((start + lost) * pairs, (start + lost + 1) * pairs)
                folder = work / f"start-{start + lost}"
                folder.mkdir()
                print(f"start {start + 1} of {options.starts}: two proxies", file=sys.stderr, flush=True)
                try:
                    found = _measure_start(options, folder, numbers, engine.proxy_environment, redis.url)
                    break
                except StackError as error:
                    # CPython before 3.12 may crash when it collects LiteLLM's streams (docs/operations.md).
                    lost += 1
                    if lost > _LOST_MAX:
                        raise
                    print(f"{error}; the start is repeated", file=sys.stderr, flush=True)
            counted += numbers
            for side, blocks in found.items():
                samples.blocks[side] += blocks
        checks = _checks(engine.url, redis.url, counted, options.requests, lost)
    return samples, checks | {"lost_starts": lost}


def _measure_start(
    options: argparse.Namespace,
    work: Path,
    numbers: range,
    engine_environment: dict[str, str],
    redis_url: str,
) -> dict[str, list[Block]]:
    """Start both proxies, run the pairs of these *numbers*, stop both, and return the measured blocks."""
    from deploy.local.proxy import ProxyService

    proxies: dict[str, ProxyService] = {}
    counted: dict[str, Path] = {}
    blocks: dict[str, list[Block]] = {WITH: [], WITHOUT: []}
    with ExitStack() as stack:
        # Neither is always the one that was started first.
        for side in (WITHOUT, WITH) if numbers.start // len(numbers) % 2 == 0 else (WITH, WITHOUT):
            name = side.replace(" ", "-")
            config = work / f"{name}.yaml"
            write_config(ROOT / "config.yaml", config, plugin=side == WITH)
            counted[side] = work / f"{name}.collections"
            environment = engine_environment | {
                "PYTHONPATH": str(ROOT / "benchmarks" / "full_collections"),
                "FULL_COLLECTIONS_FILE": str(counted[side]),
                "PYTHON_GC_THRESHOLD": _COLLECTOR,
                "PYTHONHASHSEED": str(numbers.start),
            }
            proxies[side] = stack.enter_context(
                ProxyService(config, work, redis_url=redis_url, env=environment, cwd=ROOT, name=name)
            )
        for place, number in enumerate(numbers, 1 - _WARM_UP_PAIRS):
            requests = sequence(number, options.requests, options.tokens)
            gc.collect()
            found = run_pair(proxies, counted, number, requests, options.rest)
            if place < 1:
                continue
            for side, block in found.items():
                blocks[side].append(block)
            ours, theirs = (found[side].per_request_ms(options.requests) for side in (WITH, WITHOUT))
            print(
                f"pair {place:>3} of {options.blocks // 2}   "
                f"{WITH} {ours:7.2f}   {WITHOUT} {theirs:7.2f}   added {ours - theirs:6.2f}   ms CPU",
                flush=True,
            )
    return blocks


def _checks(
    engine_url: str, redis_url: str, pairs: Sequence[int], requests: int, lost: int
) -> dict[str, Any]:
    """Return what engine and stream say about *pairs*, so that nobody takes a silent plugin for a cheap one.

    The engine also served what was sent in *lost* starts, and cannot tell it apart.

    Raises:
        RuntimeError: the plugin did not record every request, or the engine did not see every one.
    """
    import urllib.request

    import redis

    from gateway_plugin.event import STREAM_KEY

    with urllib.request.urlopen(f"{engine_url}/ground-truth", timeout=30) as answer:
        truth = [json.loads(line) for line in answer.read().splitlines() if line.strip()]
    wanted = frozenset(pairs)
    requests_each = len(wanted) * requests
    deadline = time.monotonic() + 10
    finals = 0
    with redis.Redis.from_url(redis_url) as client:
        while finals < requests_each and time.monotonic() < deadline:
            records = [json.loads(entry[b"e"]) for _, entry in client.xrange(STREAM_KEY)]
            finals = sum(
                r.get("outcome") == "success" and pair_of(r["session_id"]) in wanted for r in records
            )
            time.sleep(0.2)
    served = len(truth) >= 2 * requests_each if lost else len(truth) == 2 * requests_each
    if finals != requests_each or not served:
        raise RuntimeError(
            f"{requests_each} requests were sent to each proxy, but the plugin recorded {finals} "
            f"and the engine served {len(truth)} of both"
        )
    return {
        "input_tokens_mean": round(statistics.fmean(r["input_tokens"] for r in truth)),
        "output_tokens_mean": round(statistics.fmean(r["output_tokens"] for r in truth), 1),
        "recorded_by_plugin": finals,
    }


def verdict(samples: Samples, target_ms: float = TARGET_MS) -> dict[str, Any]:
    """Return every figure with the target; ``met`` is of the mean, ``sure`` of the interval's upper end."""
    with_plugin, without = samples.per_start_ms(WITH), samples.per_start_ms(WITHOUT)
    added = paired_interval(with_plugin, without)
    ours, theirs = samples.per_request_ms(WITH), samples.per_request_ms(WITHOUT)
    base = statistics.fmean(theirs)
    everything = paired_interval(
        samples.per_start_ms(WITH, with_collecting=True), samples.per_start_ms(WITHOUT, with_collecting=True)
    )
    result: dict[str, Any] = {
        "starts": samples.starts,
        "pairs": len(ours),
        "requests_per_block": samples.requests,
        "cpu_ms": {WITH: round(statistics.fmean(ours), 3), WITHOUT: round(base, 3)},
        "added_ms": round(added.mean, 3),
        "added_ms_low": round(added.low, 3),
        "added_ms_high": round(added.high, 3),
        "added_share": round(added.mean / base, 4),
        "added_median_ms": round(statistics.median(a - b for a, b in zip(ours, theirs, strict=True)), 3),
        "added_ms_of_starts": [round(a - b, 3) for a, b in zip(with_plugin, without, strict=True)],
        "level": 0.95,
        "added_with_full_collections_ms": round(everything.mean, 3),
        "added_with_full_collections_ms_low": round(everything.low, 3),
        "added_with_full_collections_ms_high": round(everything.high, 3),
    }
    for side, name in ((WITH, "with"), (WITHOUT, "without")):
        blocks = samples.blocks[side]
        walls = [wall * 1e3 for block in blocks for wall in block.walls_s]
        result[f"wall_ms_{name}"] = {p: round(percentile(walls, int(p[1:]) / 100), 2) for p in ("p50", "p95")}
        per_tick = sum(block.ticks_s for block in blocks) / len(blocks) / samples.requests * 1e3
        result[f"proc_stat_ms_{name}"] = round(per_tick, 3)
        result[f"full_collections_{name}"] = sum(block.collections for block in blocks)
        collecting = sum(block.collecting_s for block in blocks) / len(blocks) / samples.requests * 1e3
        result[f"full_collections_ms_{name}"] = round(collecting, 3)
    result |= {
        "target_ms": target_ms,
        "decided_on": "added_ms",
        "met": added.mean <= target_ms,
        "sure": added.high <= target_ms or added.low > target_ms,
    }
    return result


def table(result: dict[str, Any]) -> str:
    """Return the figures for a reader."""
    rows = [f"{'per request':<14}{'CPU ms':>10}{'wall p50 ms':>14}{'wall p95 ms':>14}"]
    for side, name in ((WITHOUT, "without"), (WITH, "with")):
        wall = result[f"wall_ms_{name}"]
        rows.append(f"{side:<14}{result['cpu_ms'][side]:>10.2f}{wall['p50']:>14.2f}{wall['p95']:>14.2f}")
    rows.append(
        f"added: {result['added_ms']:.2f} ms CPU ({result['added_share']:.1%}), 95 % interval "
        f"{result['added_ms_low']:.2f} to {result['added_ms_high']:.2f}, "
        f"{result['starts']} starts, {result['pairs']} pairs of blocks of "
        f"{result['requests_per_block']} requests"
    )
    apart = ", ".join(
        f"{result[f'full_collections_{name}']} {side} "
        f"({result[f'full_collections_ms_{name}']:.2f} ms a request)"
        for side, name in ((WITHOUT, "without"), (WITH, "with"))
    )
    rows.append(f"full garbage collections, not in these figures: {apart}")
    rows.append(
        f"added with them: {result['added_with_full_collections_ms']:.2f} ms, 95 % interval "
        f"{result['added_with_full_collections_ms_low']:.2f} to "
        f"{result['added_with_full_collections_ms_high']:.2f}"
    )
    word = "met" if result["met"] else "missed"
    doubt = "" if result["sure"] else "; it lies within the interval: more starts tell with more certainty"
    rows.append(f"target: at most {result['target_ms']} ms: {word}{doubt}")
    return "\n".join(rows)


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Return the options; unusable ones end the program with exit code 2."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--starts", type=int, default=10, help="times that both proxies are started")
    parser.add_argument("--blocks", type=int, default=24, help="measured blocks of a start, two a pair")
    parser.add_argument(
        "--requests", type=int, default=20, help="requests of a block, a multiple of 10 (ABBA)"
    )
    parser.add_argument("--tokens", type=int, default=68_000, help="tokens of a prompt, about")
    parser.add_argument("--rest", type=float, default=_REST_S, help="seconds of rest that end a pair")
    parser.add_argument("--target-ms", type=float, default=TARGET_MS, help="largest CPU to add")
    parser.add_argument("--work", type=Path, help="existing folder to keep the logs in")
    options = parser.parse_args(argv)
    if options.starts < 2:
        parser.error(f"--starts must be 2 or more for an interval, not {options.starts}")
    if options.blocks < 4 or options.blocks % 2:
        parser.error(f"--blocks must be an even number from 4 on, not {options.blocks}")
    if options.requests < 1 or options.requests % (2 * _STRETCH):
        parser.error(f"--requests must be a positive multiple of {2 * _STRETCH}, not {options.requests}")
    if options.tokens < 8_000:
        parser.error(f"--tokens must be 8000 or more for {MESSAGES} messages, not {options.tokens}")
    if not 0 <= options.rest < math.inf:
        parser.error(f"--rest must be 0 or more seconds, not {options.rest}")
    return options


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark; return 0 when the target is met, 1 when not, 3 when something did not start."""
    options = parse(argv)
    from deploy.local.process import StackError

    began = time.monotonic()
    # A folder of its own for each run: what an earlier engine left in its log would be read as this one's.
    work = Path(tempfile.mkdtemp(prefix="agentwatt-throughput-", dir=options.work))
    try:
        samples, checks = measure(options, work)
    except StackError as error:
        print(f"proxy_throughput: {error}", file=sys.stderr)
        return 3
    finally:
        if options.work is None:
            shutil.rmtree(work, ignore_errors=True)
    result = verdict(samples, options.target_ms) | checks
    result["seconds"] = round(time.monotonic() - began, 1)
    print(table(result))
    print(json.dumps(result))
    return 0 if result["met"] else 1


if __name__ == "__main__":
    sys.exit(main())
