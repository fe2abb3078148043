"""Check agents per megawatt and its intervals against simulated weeks whose truth is known by construction.

Usage: ``python benchmarks/agents_per_mw_truth.py [--seeds 2000] [--full 6]``. Prints a table, and as its last
line one JSON object with figures and targets. Exit code 1 when a target is missed, 2 for wrong arguments.

Most seeds go through the estimator's functions with daily pairs computed from the simulator; the first
``--full`` of them also go the whole way (raw Parquet, facts, marts, figure), which must agree to 1e-9. The
week-to-week interval is judged against the value of the process *as the installed sensors read it*: what a
sensor has wrong it has wrong every week, which is the measurement interval's part. Both together, against the
process as it is, are printed beside it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import power_week
from benchmarks.power_week import Process, Week
from pipeline.power.interval import measurement_interval, ratio_interval

CVS = (0.0, 0.05, 0.10, 0.15, 0.20, 0.25)
TARGETS = {
    "week_coverage": (0.93, 0.97),
    "measurement_coverage": (0.93, 1.0),
    "median_bias": (-0.01, 0.01),
    "full_path_difference": (0.0, 1e-9),
}
COLUMNS = (
    ("seeds", "seeds"),
    ("week", "week_coverage"),
    ("week, lower", "lower_bound_week_coverage"),
    ("measurement", "measurement_coverage"),
    ("both", "both_coverage"),
    ("median bias", "median_bias"),
    ("week width", "median_week_width"),
    ("meas. width", "median_measurement_width"),
)


@dataclass(frozen=True)
class Trial:
    """What one seed showed."""

    cv: float
    week: bool
    lower_week: bool
    measurement: bool
    both: bool
    bias: float
    week_width: float
    measurement_width: float


def process_of(seed: int) -> Process:
    """Return the process of a seed: every load effect, sensors wrong together or each by itself."""
    return Process(load_cv=CVS[seed % len(CVS)], common_sensor_error=bool(seed // len(CVS) % 2))


def trial(seed: int) -> Trial:
    """Draw one week and ask whether its intervals hold the truth."""
    process = process_of(seed)
    week = Week(seed, process)
    direct = week.direct()
    value, days = direct.estimate()
    interval, lower = ratio_interval(days), ratio_interval(direct.lower_days())
    assert direct.bounds is not None
    measured = measurement_interval(direct.bounds)
    assert not isinstance(interval, str)
    assert not isinstance(lower, str)
    assert not isinstance(measured, str)
    truth = process.value(week.gains)
    accuracy = process.accuracy_percent / 100
    return Trial(
        cv=process.load_cv,
        week=interval[0] <= truth <= interval[1],
        lower_week=lower[0] <= truth * (1 - process.unknown_share) <= lower[1],
        measurement=measured[0] <= week.realised() <= measured[1],
        both=interval[0] / (1 + accuracy) <= process.value() <= interval[1] / (1 - accuracy),
        bias=value / truth - 1,
        week_width=(interval[1] - interval[0]) / value,
        measurement_width=(measured[1] - measured[0]) / value,
    )


def full_path_difference(seed: int) -> tuple[float, dict[str, Any]]:
    """Return the largest relative difference between the whole pipeline and the direct path, and its row."""
    week = Week(seed, process_of(seed))
    direct = week.direct()
    value, days = direct.estimate()
    with tempfile.TemporaryDirectory() as folder:
        found = power_week.figure(week, Path(folder))
    row = next(r for r in found["values"] if r["state"] == "in_turn")
    bounds = direct.bounds
    assert bounds is not None
    pairs = [
        (row["agent_hours"], sum(d[2] for d in direct.days)),
        (row["conformant_agent_hours"][0], bounds.hours_lower),
        (row["conformant_agent_hours"][1], bounds.hours_upper),
        (row["megawatt_hours"], bounds.joules / 3.6e9),
        (row["value"], direct.value),
        (row["estimate"]["value"], value),
        *zip(row["measurement_interval"], measurement_interval(bounds), strict=True),
        *zip(row["week_interval"]["value"], ratio_interval(direct.lower_days()), strict=True),
        *zip(row["estimate"]["week_interval"]["value"], ratio_interval(days), strict=True),
    ]
    return max(abs(float(a) / float(b) - 1) for a, b in pairs), found


def summary(trials: Sequence[Trial]) -> dict[str, float]:
    """Return shares and medians of some trials."""
    return {
        "seeds": len(trials),
        "week_coverage": fmean(t.week for t in trials),
        "lower_bound_week_coverage": fmean(t.lower_week for t in trials),
        "measurement_coverage": fmean(t.measurement for t in trials),
        "both_coverage": fmean(t.both for t in trials),
        "median_bias": median(t.bias for t in trials),
        "median_week_width": median(t.week_width for t in trials),
        "median_measurement_width": median(t.measurement_width for t in trials),
    }


def _line(name: str, figures: Mapping[str, float]) -> str:
    return f"{name:>10} " + " ".join(f"{figures[key]:>12.4g}" for _, key in COLUMNS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the trials; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=2000, help="weeks through the estimator (default 2000)")
    parser.add_argument("--full", type=int, default=6, help="weeks through the whole pipeline (default 6)")
    options = parser.parse_args(arguments)
    if options.seeds < len(CVS) or options.full < 0:
        parser.error(f"--seeds must be at least {len(CVS)}, --full at least 0")
    began = time.monotonic()
    trials = [trial(seed) for seed in range(options.seeds)]
    print(f"{'day effect':>10} " + " ".join(f"{title:>12}" for title, _ in COLUMNS))
    for cv in CVS:
        print(_line(f"CV {cv:.2f}", summary([t for t in trials if t.cv == cv])))
    figures: dict[str, Any] = summary(trials)
    print(_line("all", figures))
    differences = []
    for seed in range(options.full):
        difference, found = full_path_difference(seed)
        differences.append(difference)
        covered, residual = found["coverage"]["power"]["board"], found["littles_law"]["residual"]
        print(
            f"whole pipeline, seed {seed}: largest difference {difference:.1e}, coverage {covered:.4f}, "
            f"Little's residual {residual:.1e}"
        )
    figures["full_path_weeks"] = len(differences)
    figures["full_path_difference"] = max(differences, default=None)
    figures["seconds"] = round(time.monotonic() - began, 1)
    missed = [
        name
        for name, (low, high) in TARGETS.items()
        if figures[name] is not None and not low <= figures[name] <= high
    ]
    result = {"figures": figures, "targets": {k: list(v) for k, v in TARGETS.items()}, "missed": missed}
    print(json.dumps(result))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
