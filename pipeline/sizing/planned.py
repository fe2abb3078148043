"""Checks of what was measured and planned: window, tags, hit by situation, regimes, queues and margins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipeline.sizing.evidence import Evidence, Outcome, Status, get, number


def startup(e: Evidence) -> Outcome:
    """Burst during a start-up."""
    scaling = get(e.plan, "results", "gateway", "scaling")
    if scaling is None:
        return "unknown", "no agents' plan given"
    added, startup = scaling["rps_added_during_startup"], scaling["startup_s"]
    if not added:
        return (
            "warn",
            f"a replica takes {startup:g} s to start; no burst slope was measured, so none is covered",
        )
    warm = scaling["warm_replicas_for_burst"]
    return (
        "pass",
        f"{added:g} calls/s arrive while a replica starts ({startup:g} s); {warm} more are kept warm",
    )


def postgres(e: Evidence) -> Outcome:
    """Connection pools against the database."""
    state = get(e.plan, "results", "gateway", "postgres")
    if state is None:
        return "unknown", "no agents' plan given"
    return ("warn" if state["pgbouncer"] else "pass"), str(state["advice"])


def spend_queue(e: Evidence) -> Outcome:
    """Spend queue against its limit."""
    state = get(e.plan, "results", "gateway", "spend_queue")
    if state is None:
        return "unknown", "no agents' plan given"
    said = f"{state['share']:.1%} of 64 MB wait at a flush"
    if state["outage_s"]:
        said += f"; rows are lost after {state['outage_s']:.0f} s without a database"
    return ("pass" if state["share"] < 0.5 else "fail"), said


def model_switch(e: Evidence) -> Outcome:
    """Sessions that change model, in the data."""
    if e.report is None:
        return "unknown", "no report given"
    rows = get(e.report, "prefix_hit", "by", "category")
    if not isinstance(rows, list):
        return "unknown", "the report has no prefix hit by category"
    total = sum(r.get("calls") or 0 for r in rows)
    switched: Mapping[str, Any] = next((r for r in rows if r.get("category") == "model_switch"), {})
    count = switched.get("calls") or 0
    if not count:
        return "pass", f"no model switch inside a session in {total} calls"
    share = count / total if total else 0.0
    hit = switched.get("realised")
    said = f"{count} of {total} calls follow a model switch inside a session ({share:.1%})"
    said += f", hit {hit:.0%}" if isinstance(hit, int | float) else ""
    return ("fail" if share > 0.02 else "warn"), said


def segmented(e: Evidence) -> Outcome:
    """Prefix hit within turns and at their boundary."""
    rows = get(e.report, "prefix_hit", "by", "category")
    if not isinstance(rows, list):
        return "unknown", "the report has no prefix hit by category"
    shown = {r.get("category"): r.get("realised") for r in rows}
    within, boundary = shown.get("within"), shown.get("boundary")
    if not isinstance(within, int | float) or not isinstance(boundary, int | float):
        return (
            "warn",
            "the hit is not known both within turns and at their boundary: the aggregate hides the gap",
        )
    status: Status = "pass" if boundary > within - 0.2 else "warn"
    return status, f"{within:.0%} within turns, {boundary:.0%} at the boundary"


def week(e: Evidence) -> Outcome:
    """Three figures over a week."""
    if e.report is None:
        return "unknown", "no report given"
    hours = number(get(e.report, "meta", "window", "hours"))
    figures = ("calls_per_human_hour", "prompt_length", "prefix_hit")
    empty = [name for name in figures if not get(e.report, name, "value")]
    if empty:
        return "fail", f"without a value: {', '.join(empty)}"
    if hours is None or hours < 168:
        return "warn", f"window of {hours or 0:g} h: a week shows what a day does not"
    return "pass", f"three figures over {hours:g} h"


def basis(e: Evidence) -> Outcome:
    """Quantile or mean."""
    concurrency = get(e.plan, "results", "concurrency")
    if concurrency is None:
        return "unknown", "no agents' plan given"
    if concurrency.get("peak"):
        return "pass", str(concurrency["basis"])
    return "warn", f"sized on a mean ({concurrency['basis']}): an hourly quantile was not measured"


def tags(e: Evidence) -> Outcome:
    """Measured against assumed inputs."""
    evidence = get(e.plan, "evidence")
    if evidence is None:
        return "unknown", "no plan given"
    counts = {tag: len(evidence.get(tag) or ()) for tag in ("measured", "declared", "literature")}
    said = ", ".join(f"{n} {tag}" for tag, n in counts.items())
    return ("pass" if counts["measured"] else "warn"), said


def regimes(e: Evidence) -> Outcome:
    """The fleet in the regimes of the plan."""
    rows = get(e.plan, "results", "scenarios")
    if not isinstance(rows, list):
        return "unknown", "no agents' plan given"
    planned = number(get(e.plan, "results", "fleet", "gpus")) or 0
    over = [
        f"{r['name']}: {'no fleet' if r['gpus'] is None else str(r['gpus']) + ' GPUs'}"
        for r in rows
        if r["gpus"] is None or r["gpus"] > planned
    ]
    if over:
        return "warn", f"{planned:g} GPUs do not hold in: {'; '.join(over)}"
    return "pass", "the planned fleet holds in every regime"


def headroom(e: Evidence) -> Outcome:
    """Reserved capacity."""
    share = number(get(e.plan, "inputs", "fleet.headroom", "value"))
    spare = number(get(e.plan, "inputs", "fleet.spare_replicas", "value"))
    if share is None:
        return "unknown", "no plan given"
    if share >= 0.15 or (spare or 0) >= 1:
        return "pass", f"{share:.0%} of nodes and {spare or 0:g} replicas are spare"
    return "warn", "nothing is reserved for failures, rollbacks and evals (15 to 25 % is usual)"
