"""``make demo``: the whole path once, from one config line to a first sizing report.

Everything that is started ends with this program, also on Ctrl-C. Exit codes: 0 done, 1 something failed
(the message says what and where), 3 a service could not be started, 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections import Counter
from pathlib import Path

from deploy.local import agents_truth
from deploy.local.process import StackError
from deploy.local.recorded_run import REPOSITORY, Options, RecordedRun
from deploy.local.truth import TruthError
from pipeline.report.terminal import summary

MIN_FREE_BYTES = 500_000_000


def main(arguments: list[str] | None = None) -> int:
    """Run the demo and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m deploy.local.demo", description=__doc__)
    parser.add_argument("--size", default="full", help="scenario: full or small (default full)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the scenario (default 1)")
    parser.add_argument("--speed-up", type=float, default=10.0, help="divides recorded pauses (default 10)")
    parser.add_argument("--out", type=Path, default=REPOSITORY / "out", help="folder of the report")
    options = parser.parse_args(arguments)
    try:
        return _run(options)
    except StackError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 3
    except TruthError as error:
        print(f"demo: the figure cannot be held against the engine's own truth: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("demo: interrupted; everything that was started has been stopped", file=sys.stderr)
        return 130


def _run(options: argparse.Namespace) -> int:
    out: Path = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(out).free
    if free < MIN_FREE_BYTES:
        raise StackError(
            f"{out} has {free // 1_000_000} MB free; the demo needs {MIN_FREE_BYTES // 1_000_000} MB"
        )
    work = out / "demo"
    shutil.rmtree(work, ignore_errors=True)
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - began:5.1f} s] {text}", file=sys.stderr, flush=True)

    notes = [
        "Power is synthetic: the stand-in engine computes it from its load.",
        f"Time is compressed: recorded pauses and the engine's waits are divided by {options.speed_up:g}, "
        "so figures per hour are not those of the recorded people.",
    ]
    run = RecordedRun(
        Options(work=work, size=options.size, seed=options.seed, speed_up=options.speed_up, report=say)
    )
    with run:
        truth = run.replay()
        say("running the pipeline: collect, run, report")
        run.pipeline()
        run.report(out, notes)
        rows = run.stack.proxy.spend_rows()
        upstream = run.engine_truth()
        compared = run.agents_truth(out, truth)
        say("stopping what was started")
    print(summary(json.loads((out / "report.json").read_text(encoding="utf-8")), notes), flush=True)
    print("\nAgents per megawatt, beside what the engine itself knows of its sessions and its energy:")
    print("\n".join(agents_truth.lines(compared)), flush=True)
    outcomes = Counter(call.expected_outcome for call in truth)
    seconds = ", ".join(f"{name} {value:.0f} s" for name, value in run.timings_s.items())
    print(
        f"\n{len(truth)} calls replayed ({', '.join(f'{n} {o}' for o, n in outcomes.items())}), "
        f"{len(upstream)} attempts reached the engine, {rows} SpendLogs rows.\n"
        f"Wall time {time.monotonic() - began:.0f} s ({seconds}); peak memory {run.peak_rss_mb:.0f} MB.\n\n"
        f"report   {out / 'report.html'}\n"
        f"figures  {out / 'report.json'}\n"
        f"truth    {out / 'ground_truth.json'}\n"
        f"lake     {run.lake}\n"
        f"logs     {work}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
