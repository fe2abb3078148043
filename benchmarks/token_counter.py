"""Benchmark of LiteLLM's token counter against the incremental counter: time, waits, admissions, memory.

Run ``python -m benchmarks.token_counter`` in an environment with LiteLLM. Prints which tokenizer each model
name really gets (and fails when that is not what is known of this version), a table of milliseconds per
count, the waits of twelve concurrent sessions, and as last line one JSON object with figures and targets.
Exit code 0 when all targets are met, 1 when one is missed.

Columns: *stock* is LiteLLM's own count; *first* a count with an empty cache, as a ratio to stock; *later* the
same prompt again from freshly parsed objects, as the second and third count of a request and every retry see
it; *grown* the next call of an agent, two messages longer, whose new messages have to be tokenised by anyone.
The least CPU time of several runs, which other work on the machine disturbs least; waits and admissions are
by the clock.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import gc
import os
import random
import re
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import orjson

CLAUDE: Final = "claude-sonnet-4-5"
GPT: Final = "gpt-4o"
TOKENS_PER_MESSAGE: Final = 500
SESSIONS: Final = 12

#: Model name -> tokenizer that LiteLLM's counter really uses, by minor version (its bundled model list).
_SAME: Final = {
    GPT: "o200k_base",
    "gpt-4": "cl100k_base",
    CLAUDE: "huggingface",
    "anthropic/claude-sonnet-4-5": "cl100k_base",
    "claude-3-5-sonnet-20241022": "cl100k_base",
    "claude-standin": "cl100k_base",
    "hosted_vllm/coder-large": "cl100k_base",
}
KNOWN_TOKENIZERS: Final = {
    (1, 102): _SAME | {"claude-sonnet-4-20250514": "huggingface", "claude-opus-4-1": "huggingface"},
    (1, 108): _SAME | {"claude-sonnet-4-20250514": "cl100k_base", "claude-opus-4-1": "cl100k_base"},
}


@dataclass(frozen=True, slots=True)
class Row:
    """CPU milliseconds per count of one prompt; ratios are stock ÷ incremental, ``first_ratio`` inverse."""

    tokenizer: str
    prompt_tokens: int
    messages: int
    tools: int
    counted_tokens: int
    stock_ms: float
    first_ratio: float
    later_ms: float
    later_ratio: float
    grown_ms: float
    grown_ratio: float


@dataclass(frozen=True, slots=True)
class Crowd:
    """Twelve sessions counting at once on one worker; admissions per second when each needs one count."""

    tokenizer: str
    counter: str
    mean_wait_ms: float
    longest_wait_ms: float
    admissions_per_s: float


@dataclass(frozen=True, slots=True)
class Target:
    """One figure and what it has to be."""

    name: str
    value: float
    at_least: float | None = None
    at_most: float | None = None

    @property
    def met(self) -> bool:
        """Whether the figure is within its bounds."""
        return (self.at_least is None or self.value >= self.at_least) and (
            self.at_most is None or self.value <= self.at_most
        )


# -- prompts


#: What agents read and write: source code and its documentation, of the Python that runs this.
_LIBRARY: Final = (
    "argparse ast asyncio/base_events asyncio/tasks calendar configparser csv datetime difflib doctest "
    "email/message ftplib gettext http/client http/server imaplib inspect json/decoder locale mailbox "
    "logging/__init__ optparse pickle platform plistlib pydoc shutil smtplib socket ssl statistics "
    "subprocess tarfile tempfile threading tokenize traceback typing unittest/case unittest/mock "
    "urllib/request uuid weakref xml/dom/minidom zipfile"
)


@functools.cache
def library() -> str:
    """Return about two megabytes of source code."""
    root = Path(os.__file__).parent
    paths = [root / f"{name}.py" for name in _LIBRARY.split()]
    return "\n".join(path.read_text(encoding="utf-8") for path in paths if path.is_file())


@functools.cache
def sentences() -> list[str]:
    """Return the documentation of that code, as text for tool descriptions."""
    texts = re.findall(r'"""(.+?)"""', library(), re.DOTALL)
    return [" ".join(text.split()) for text in texts if len(text) > 40]


class Author:
    """Writes a reproducible coding session out of real source code; four characters count as a token."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def code(self, tokens: int) -> str:
        """Return a piece of source code."""
        start = self._random.randrange(len(library()) - 4 * tokens)
        return library()[start : start + 4 * tokens]

    def prose(self, tokens: int) -> str:
        """Return a piece of documentation."""
        text = self._random.choice(sentences())
        while len(text) < 4 * tokens:
            text += " " + self._random.choice(sentences())
        return text[: 4 * tokens]

    def name(self) -> str:
        """Return an identifier out of the code."""
        words = re.findall(r"[a-z_]{3,16}", self.code(40)) or ["value"]
        return "_".join(self._random.sample(words, min(2, len(words))))

    def conversation(self, messages: int, tokens_each: int) -> list[dict[str, Any]]:
        """Return a coding session: a system message, then user, tool calls and tool results."""
        result: list[dict[str, Any]] = [{"role": "system", "content": self.prose(tokens_each)}]
        for number in range(1, messages):
            if number % 8 == 1:
                result.append(
                    {"role": "user", "content": [{"type": "text", "text": self.prose(tokens_each)}]}
                )
            elif number % 2 == 0:
                function = {"name": self.name(), "arguments": self.code(tokens_each)}
                call = {"id": f"call_{number}", "type": "function", "function": function}
                result.append({"role": "assistant", "content": None, "tool_calls": [call]})
            else:
                text = self.code(tokens_each)
                result.append({"role": "tool", "tool_call_id": f"call_{number - 1}", "content": text})
        return result

    def catalogue(self, tools: int) -> list[dict[str, Any]] | None:
        """Return *tools* tool definitions of about 275 tokens each; None for none."""
        return [self._tool(number) for number in range(tools)] or None

    def _tool(self, number: int) -> dict[str, Any]:
        properties = {
            f"{self.name()}_{n}": {"type": "string", "description": self.prose(16)} for n in range(7)
        }
        parameters = {"type": "object", "properties": properties, "required": list(properties)[:2]}
        function = {
            "name": f"{self.name()}_{number}",
            "description": self.prose(80),
            "parameters": parameters,
        }
        return {"type": "function", "function": function}


# -- measuring


def timed(function: Callable[..., int], model: str, raw: bytes) -> tuple[float, int]:
    """Count freshly parsed messages and tools; return milliseconds of CPU (all threads) and tokens."""
    messages, tools = orjson.loads(raw)
    begin = time.process_time()
    tokens = function(model, messages=messages, tools=tools)
    return (time.process_time() - begin) * 1e3, tokens


def measure(stock: Any, label: str, model: str, messages: int, tokens: int, tools: int, repeat: int) -> Row:
    """Measure one prompt; raises AssertionError when a count differs from LiteLLM's."""
    from gateway_plugin.counting_incremental import IncrementalCounter

    author = Author(messages * 1000 + tools)
    catalogue = author.catalogue(tools)
    conversation = author.conversation(messages + 2 * repeat, tokens // messages)
    raw = orjson.dumps([conversation[:messages], catalogue])
    timed(stock.token_counter, model, raw)
    whole, first, later, grown = [], [], [], []
    for step in range(repeat):
        gc.collect()
        stock_ms, expected = timed(stock.token_counter, model, raw)
        counter = IncrementalCounter(stock, check_share=0.0)
        first_ms, found = timed(counter.token_counter, model, raw)
        assert found == expected
        whole.append(stock_ms)
        first.append(first_ms)
        for _ in range(3):
            later_ms, found = timed(counter.token_counter, model, raw)
            assert found == expected
            later.append(later_ms)
        longer = orjson.dumps([conversation[: messages + 2 * (step + 1)], catalogue])
        timed(counter.token_counter, model, orjson.dumps([conversation[: messages + 2 * step], catalogue]))
        grown_ms, found = timed(counter.token_counter, model, longer)
        assert found == timed(stock.token_counter, model, longer)[1]
        grown.append(grown_ms)
    stock_ms, first_ms, later_ms, grown_ms = (min(times) for times in (whole, first, later, grown))
    return Row(
        tokenizer=label,
        prompt_tokens=tokens,
        messages=messages,
        tools=tools,
        counted_tokens=expected,
        stock_ms=round(stock_ms, 3),
        first_ratio=round(first_ms / stock_ms, 3),
        later_ms=round(later_ms, 3),
        later_ratio=round(stock_ms / later_ms, 1),
        grown_ms=round(grown_ms, 3),
        grown_ratio=round(stock_ms / grown_ms, 1),
    )


def crowd(label: str, model: str, *, incremental: bool, rounds: int) -> Crowd:
    """Let twelve sessions count 100K + 200 tools through LiteLLM's limiter; later calls when incremental."""
    import litellm
    from litellm.litellm_core_utils.token_counter import offload_token_count

    from gateway_plugin import counting

    prompts = []
    for session in range(SESSIONS):
        author = Author(session)
        prompts.append((author.conversation(200, TOKENS_PER_MESSAGE), author.catalogue(200)))
    meter = counting.install(exact=True, incremental=incremental, check_share=0.0)
    assert meter.reason is None, meter.reason
    if incremental:
        for messages, tools in prompts:
            litellm.token_counter(model, messages=messages, tools=tools)

    async def session(messages: Any, tools: Any) -> list[float]:
        waits = []
        for _ in range(rounds):
            spent = meter.begin()
            await offload_token_count(litellm.token_counter)(model=model, messages=messages, tools=tools)
            waits.append(float(spent.facts()["count_wait_ms"]))
        return waits

    async def all_sessions() -> list[list[float]]:
        return await asyncio.gather(*(asyncio.create_task(session(*prompt)) for prompt in prompts))

    begin = time.perf_counter()
    waits = [wait for one in asyncio.run(all_sessions()) for wait in one]
    seconds = time.perf_counter() - begin
    meter.uninstall()
    return Crowd(
        tokenizer=label,
        counter="incremental" if incremental else "stock",
        mean_wait_ms=round(statistics.mean(waits), 2),
        longest_wait_ms=round(max(waits), 2),
        admissions_per_s=round(SESSIONS * rounds / seconds, 1),
    )


def tokenizers(stock: Any, version: tuple[int, int]) -> dict[str, str]:
    """Return model name -> tokenizer in use; raises AssertionError when it is not what is known."""
    found = {}
    for name in KNOWN_TOKENIZERS[(1, 108)]:
        kind, tokenizer = stock.tokenizer(name)
        found[name] = "huggingface" if kind == "huggingface" else str(getattr(tokenizer, "name", "unknown"))
    known = KNOWN_TOKENIZERS.get(version)
    if known is not None:
        assert found == known, f"this LiteLLM selects {found}, known is {known}"
    assert (found[GPT], found[CLAUDE]) == ("o200k_base", "huggingface")
    return found


def memory(stock: Any) -> dict[str, int]:
    """Count 5,000 different messages with a bound of 64 KiB and return the most that was held."""
    from gateway_plugin.counting_incremental import IncrementalCounter

    counter = IncrementalCounter(stock, max_bytes=64 << 10, check_share=0.0)
    most = 0
    for number in range(0, 5000, 100):
        counter.token_counter(
            GPT, messages=[{"role": "user", "content": f"m {n}"} for n in range(number, number + 100)]
        )
        most = max(most, counter.store.bytes)
    return {"max_bytes": counter.store.max_bytes, "most_bytes": most, "rotations": counter.store.rotations}


def targets(rows: list[Row], held: dict[str, int]) -> list[Target]:
    """Return the figures that decide the exit code."""
    large = {
        row.tokenizer: row
        for row in rows
        if (row.prompt_tokens, row.messages, row.tools) == (100_000, 200, 200)
    }
    many = [row for row in rows if row.messages == 1000]
    return [
        Target("tiktoken_later_ratio", large["tiktoken"].later_ratio, at_least=80),
        Target("huggingface_later_ratio", large["huggingface"].later_ratio, at_least=300),
        Target("thousand_messages_later_ratio", min(row.later_ratio for row in many), at_least=50),
        Target("first_call_ratio", max(row.first_ratio for row in large.values()), at_most=1.05),
        Target("most_bytes", held["most_bytes"], at_most=held["max_bytes"]),
    ]


def print_rows(rows: list[Row]) -> None:
    """Print the table of counts."""
    print(
        f"{'tokenizer':<12}{'prompt':>8}{'msgs':>6}{'tools':>6}{'tokens':>9}{'stock ms':>10}"
        f"{'first ×':>9}{'later ms':>10}{'ratio':>8}{'grown ms':>10}{'ratio':>8}"
    )
    for r in rows:
        print(
            f"{r.tokenizer:<12}{r.prompt_tokens:>8}{r.messages:>6}{r.tools:>6}{r.counted_tokens:>9}"
            f"{r.stock_ms:>10.2f}{r.first_ratio:>9.3f}{r.later_ms:>10.3f}{r.later_ratio:>7.0f}×"
            f"{r.grown_ms:>10.3f}{r.grown_ratio:>7.0f}×"
        )


def print_crowds(crowds: list[Crowd]) -> None:
    """Print the table of waits."""
    print(f"\n{SESSIONS} concurrent sessions, 100K + 200 tools, LiteLLM's limiter of concurrent counts:")
    print(f"{'tokenizer':<12}{'counter':<13}{'mean wait ms':>13}{'longest ms':>12}{'admissions/s':>14}")
    for c in crowds:
        print(
            f"{c.tokenizer:<12}{c.counter:<13}{c.mean_wait_ms:>13.2f}{c.longest_wait_ms:>12.2f}"
            f"{c.admissions_per_s:>14.1f}"
        )


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; return the exit code."""
    parser = argparse.ArgumentParser(description="LiteLLM's token counter against the incremental one.")
    parser.add_argument("--repeat", type=int, default=9, help="measurements per prompt (the least is taken)")
    parser.add_argument("--quick", action="store_true", help="only the prompts that carry a target")
    options = parser.parse_args(arguments)
    if options.repeat < 1:
        parser.error("--repeat must be at least 1")
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from gateway_plugin import counting_stock

        stock = counting_stock.load()
    version = counting_stock.parse_version(stock.version)
    print(f"LiteLLM {stock.version}")
    selected = tokenizers(stock, version)
    for name, tokenizer in selected.items():
        print(f"  {name:<32}{tokenizer}")
    print()
    shapes = [(100, 50_000, 0), (200, 100_000, 200), (1000, 100_000, 200)]
    if not options.quick:
        sizes = (10_000, 50_000, 100_000)
        shapes = [(size // TOKENS_PER_MESSAGE, size, tools) for size in sizes for tools in (0, 50, 200)]
        shapes.append((1000, 100_000, 200))
    rows = []
    for label, model in (("tiktoken", GPT), ("huggingface", CLAUDE)):
        for messages, tokens, tools in shapes:
            # The row whose first call has a target of a few per cent needs more runs than the others.
            repeat = options.repeat * (3 if (messages, tools) == (200, 200) else 1)
            rows.append(measure(stock, label, model, messages, tokens, tools, repeat))
            print(f"{label} {tokens} tokens, {tools} tools done", file=sys.stderr)
    print_rows(rows)
    crowds = [
        crowd(label, model, incremental=incremental, rounds=20 if incremental else 2)
        for label, model in (("tiktoken", GPT), ("huggingface", CLAUDE))
        for incremental in (False, True)
    ]
    print_crowds(crowds)
    held = memory(stock)
    print(f"\nmemory under a bound of {held['max_bytes']} bytes: at most {held['most_bytes']}")
    goals = targets(rows, held)
    for goal in goals:
        bound = f"≥ {goal.at_least:g}" if goal.at_least is not None else f"≤ {goal.at_most:g}"
        print(f"{'met   ' if goal.met else 'MISSED'} {goal.name} {goal.value:g} (target {bound})")
    result = {
        "litellm": stock.version,
        "tokenizers": selected,
        "rows": [asdict(row) for row in rows],
        "crowds": [asdict(one) for one in crowds],
        "memory": held,
        "targets": [asdict(goal) | {"met": goal.met} for goal in goals],
        "met": all(goal.met for goal in goals),
    }
    print(orjson.dumps(result).decode())
    return 0 if result["met"] else 1


if __name__ == "__main__":
    sys.exit(main())
