"""Replay: command line that plays a scenario against a proxy and writes the ground truth.

Run as ``python -m deploy.local.replay``: the ground truth goes to ``--out`` (``-`` for stdout), everything
else to stderr. The client never retries. Exit codes: 0 all calls ended as expected, 1 some did not, 2 usage,
3 base URL unreachable, 130 interrupted.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from deploy.local.recordings import RecordingsError
from deploy.local.scenario import SIZES, Scenario, compose
from deploy.local.scenario.player import (
    DEFAULT_TIMEOUT_S,
    Failure,
    KeysError,
    ReplayResult,
    UnreachableError,
    check_keys,
    replay,
)
from deploy.local.truth import dump

if TYPE_CHECKING:
    from rich.progress import Progress

__all__ = ["Failure", "KeysError", "ReplayResult", "UnreachableError", "main", "replay"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m deploy.local.replay", description=__doc__)
    parser.add_argument("--base-url", help="root of the proxy, without /v1")
    parser.add_argument("--keys", type=Path, help="JSON file {user: API key}")
    parser.add_argument("--size", choices=sorted(SIZES), default="full")
    parser.add_argument("--speed-up", type=_positive, default=10.0, help="divides recorded gaps (default 10)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--timeout", type=_positive, default=DEFAULT_TIMEOUT_S, help="seconds per call")
    parser.add_argument("--out", default="-", help="file for the ground truth, - for stdout")
    parser.add_argument(
        "--list-users", action="store_true", help="print the users that need a key as JSON, and end"
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        scenario = compose(options.size, options.seed)
        if options.list_users:
            print(orjson.dumps({"users": scenario.users, "service_users": scenario.service_users}).decode())
            return 0
        if options.base_url is None or options.keys is None:
            parser.error("--base-url and --keys are required")
        keys = _read_keys(options.keys, scenario)
        if options.out != "-":
            Path(options.out).parent.mkdir(parents=True, exist_ok=True)
    except (RecordingsError, KeysError, OSError) as error:
        print(f"replay: {error}", file=sys.stderr)
        return 2
    try:
        result = _run(scenario, options.base_url, keys, options.speed_up, options.timeout)
    except UnreachableError as error:
        print(f"replay: {error}", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        return 130
    _write(options.out, dump(result.calls))
    return _report(result)


def _run(
    scenario: Scenario, base_url: str, keys: Mapping[str, str], speed_up: float, timeout_s: float
) -> ReplayResult:
    progress = _progress() if sys.stderr.isatty() else None
    if progress is None:
        return asyncio.run(replay(scenario, base_url, keys, speed_up=speed_up, timeout_s=timeout_s))
    with progress:
        task = progress.add_task("replay", total=sum(1 for _ in scenario.calls()))
        return asyncio.run(
            replay(
                scenario,
                base_url,
                keys,
                speed_up=speed_up,
                timeout_s=timeout_s,
                on_call=lambda _: progress.advance(task),
            )
        )


def _progress() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
    )


def _read_keys(path: Path, scenario: Scenario) -> dict[str, str]:
    try:
        keys = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError as error:
        raise KeysError(f"{path}: not JSON: {error}") from error
    if not isinstance(keys, dict) or not all(isinstance(value, str) for value in keys.values()):
        raise KeysError(f"{path}: must be an object {{user: key}}")
    check_keys(scenario, keys)
    return keys


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a positive number, not {text}")
    return value


def _write(out: str, data: bytes) -> None:
    if out == "-":
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    else:
        Path(out).write_bytes(data)


def _report(result: ReplayResult) -> int:
    expected = len(result.calls) - len(result.failures)
    print(
        f"replay: {len(result.calls)} calls in {result.seconds:.1f} s, {expected} ended as expected",
        file=sys.stderr,
    )
    for failure in result.failures:
        print(f"  {failure}", file=sys.stderr)
    return 1 if result.failures else 0


if __name__ == "__main__":
    sys.exit(main())
