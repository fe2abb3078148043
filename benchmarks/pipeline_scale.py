"""What it costs to build a lake, by size and by history.

    python benchmarks/pipeline_scale.py [--calls N …] [--skip-history] [--open] [--folder DIR]

Writes weeks of made-up agent work (``benchmarks/agent_weeks.py``) as raw records with every column of the event,
then builds facts and marts with ``pipeline.run.build`` in a fresh process each: seconds from the start of the
interpreter to its end, and the peak of its memory. Then it adds one day to lakes of 7, 30 and 100 days; the
days before the new one are the same in each. A table, then one JSON object on the last line of standard output;
exit code 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import agent_weeks

SIZES: Final = (1_000_000, 10_000_000, 20_000_000)
#: The size that the targets of time and memory are stated for, and their values.
TARGET_CALLS: Final = 10_000_000
TARGET_SECONDS: Final = 180.0
TARGET_GIB: Final = 4.0
#: The largest size may take this many times as long as the stated one.
TARGET_GROWTH: Final = 2.2
HISTORIES: Final = (7, 30, 100)
#: The longest history may take this many times as long as the shortest.
TARGET_HISTORY: Final = 1.1
_MEASURED: Final = """
import json, sys
sys.path.insert(0, {root!r})
from pathlib import Path
from pipeline.run import build
from pipeline.settings import Settings
lake = Path({lake!r})
result = build(lake, Settings(lake=lake))
print(json.dumps({{"calls": result.calls, "days": len(result.days), "parts": len(result.parts)}}))
"""


@dataclass(frozen=True, slots=True)
class Built:
    """One build in a process of its own."""

    calls: int
    days: int
    parts: int
    seconds: float
    peak_gib: float
    cpu_seconds: float


def build(lake: Path) -> Built:
    """Build *lake* in a fresh process and measure that process.

    Raises:
        RuntimeError: the build failed.
    """
    root = str(Path(__file__).resolve().parents[1])
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-c", _MEASURED.format(root=root, lake=str(lake))], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None  # a pipe was asked for
    printed = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    seconds = time.monotonic() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"the build of {lake} ended with code {process.returncode}")
    told = json.loads(printed.splitlines()[-1])
    unit = 1 if sys.platform == "darwin" else 1024
    return Built(
        **told,
        seconds=round(seconds, 2),
        peak_gib=round(used.ru_maxrss * unit / 2**30, 2),
        cpu_seconds=round(_cpu(used), 2),
    )


def _cpu(used: resource.struct_rusage) -> float:
    return used.ru_utime + used.ru_stime


def by_size(folder: Path, sizes: list[int], *, open_records: bool, say: Any) -> list[dict[str, Any]]:
    """Build a week of each size from nothing."""
    rows = []
    for size in sizes:
        lake = folder / f"week-{size}"
        shutil.rmtree(lake, ignore_errors=True)
        agent_weeks.write(lake, agent_weeks.for_week(size, open_records=open_records))
        row = {"asked": size, **asdict(build(lake))}
        rows.append(row)
        say(
            f"{row['calls']:>12,} calls  {row['seconds']:>7.1f} s  {row['peak_gib']:>5.2f} GiB  "
            f"{row['cpu_seconds']:>7.1f} s CPU"
        )
        shutil.rmtree(lake)
    return rows


def by_history(folder: Path, histories: list[int], calls_per_day: int, *, say: Any) -> list[dict[str, Any]]:
    """Add the same day to histories of several lengths that end on the day before it."""
    longest = max(histories)
    source = folder / "history"
    shutil.rmtree(source, ignore_errors=True)
    agent_weeks.write(source, agent_weeks.Traffic(calls_per_day, longest + 1))
    last = agent_weeks.FIRST_DAY + timedelta(days=longest)
    rows = []
    for days in sorted(histories):
        lake = folder / f"history-{days}"
        shutil.rmtree(lake, ignore_errors=True)
        for back in range(days, 0, -1):
            _link(source, lake, last - timedelta(days=back))
        before = build(lake)
        _link(source, lake, last)
        row = {"history_days": days, "calls_before": before.calls, **asdict(build(lake))}
        rows.append(row)
        say(
            f"{days:>4} days, {before.calls:>12,} calls before: {row['seconds']:>6.2f} s, "
            f"{row['days']} days of facts and {row['parts']} of marts written"
        )
        shutil.rmtree(lake)
    shutil.rmtree(source)
    return rows


def _link(source: Path, lake: Path, day: Any) -> None:
    for table in ("raw/events", "raw/spend_logs"):
        folder = source / table / f"date={day.isoformat()}"
        if folder.is_dir():
            shutil.copytree(folder, lake / table / folder.name, copy_function=os.link)


def verdict(sizes: list[dict[str, Any]], histories: list[dict[str, Any]]) -> dict[str, Any]:
    """Compare what was measured with the targets; a target without its measurement is null."""
    by_asked = {row["asked"]: row for row in sizes}
    stated, largest = by_asked.get(TARGET_CALLS), by_asked.get(2 * TARGET_CALLS)
    growth = largest["seconds"] / stated["seconds"] if stated and largest else None
    by_days = {row["history_days"]: row["seconds"] for row in histories}
    history = by_days[max(by_days)] / by_days[min(by_days)] if len(by_days) > 1 else None
    checks = {
        "seconds": (stated["seconds"] if stated else None, TARGET_SECONDS),
        "peak_gib": (stated["peak_gib"] if stated else None, TARGET_GIB),
        "growth": (growth, TARGET_GROWTH),
        "history": (history, TARGET_HISTORY),
    }
    found = {
        name: {"value": None if value is None else round(value, 3), "target": target,
               "met": None if value is None else value <= target}
        for name, (value, target) in checks.items()
    }  # fmt: skip
    return {"targets": found, "met": all(f["met"] is not False for f in found.values())}


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Return the options; unusable ones end the program with exit code 2."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, nargs="+", default=list(SIZES), help="sizes of the weeks")
    parser.add_argument("--open", action="store_true", help="an open record beside every final one")
    parser.add_argument("--skip-sizes", action="store_true", help="only add days")
    parser.add_argument("--skip-history", action="store_true", help="only build weeks")
    parser.add_argument("--history", type=int, nargs="+", default=list(HISTORIES), help="days of history")
    parser.add_argument("--calls-per-day", type=int, default=100_000, help="on a weekday of the histories")
    parser.add_argument("--folder", type=Path, help="where to work; default: a temporary folder")
    options = parser.parse_args(argv)
    if min(options.calls) < 1 or min(options.history) < 1 or options.calls_per_day < 1:
        parser.error("sizes and days must be 1 or more")
    return options


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark; return 0 when every target that was measured is met, else 1."""
    options = parse(argv)

    def say(text: str) -> None:
        print(text, flush=True)

    with tempfile.TemporaryDirectory(prefix="agentwatt-", dir=options.folder) as name:
        folder = Path(name)
        sizes = (
            [] if options.skip_sizes else by_size(folder, options.calls, open_records=options.open, say=say)
        )
        histories = (
            []
            if options.skip_history
            else by_history(folder, options.history, options.calls_per_day, say=say)
        )
    result = {
        "cores": os.cpu_count(), "open_records": options.open, "sizes": sizes, "histories": histories,
        **verdict(sizes, histories),
    }  # fmt: skip
    for label, check in result["targets"].items():
        if check["value"] is not None:
            say(
                f"{label}: {check['value']} (target ≤ {check['target']}) {'met' if check['met'] else 'MISSED'}"
            )
    say(json.dumps(result))
    return 0 if result["met"] else 1


if __name__ == "__main__":
    sys.exit(main())
