"""The decision that a week implies: more, the same or fewer GPUs, replicas and workers, and how surely."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pipeline.report.change import value_of
from pipeline.report.planning import Installed, Planned
from pipeline.report.sensitivity import levers

#: Hours from which on a window shows more than a few days.
WEEK_HOURS: Final = 6 * 24.0
#: Share of attended calls, or of tokens with known cache use, below which a figure rests on too little.
COVERAGE: Final = 0.8
_PARTS: Final = (("gpus", "GPUs"), ("replicas", "engine replicas"), ("workers", "gateway workers"))
#: Key of each part among the intervals of a plan.
_INTERVAL: Final = {"gpus": "gpus", "workers": "gateway_workers"}


def decide(
    planned: Planned | None, why_not: str | None, content: Mapping[str, Any], installed: Installed | None
) -> dict[str, Any]:
    """Return what the week needs beside what is installed, an answer for each, and what would change it.

    Args:
        planned: the plan over the week's figures; None where there is none.
        why_not: why there is no plan.
        content: the figures, with ``meta.window``.
        installed: what is in place, by declaration.
    """
    if planned is None:
        return {"value": None, "reason": why_not, "rows": [], "caveats": [], "levers": [], "regimes": []}
    needed = planned.needs()
    spread = planned.report["uncertainty"]["outputs"]
    rows = []
    for key, unit in _PARTS:
        want = None if needed is None else getattr(needed, key)
        if want is not None:
            have = None if installed is None else getattr(installed, key)
            rows.append(_row(key, unit, want, have, spread.get(_INTERVAL.get(key, ""))))
    results = planned.report["results"]
    answers = {r["what"]: r["answer"] for r in rows}
    return {
        "value": answers.get("gpus"),
        "reason": None if answers.get("gpus") else _undeclared(installed),
        "rows": rows,
        "installed_source": None if installed is None else installed.source,
        "plan": {
            "name": planned.report["plan"]["name"],
            "is_published_example": planned.is_published,
            "method": planned.stated.method,
            "basis": (results.get("concurrency") or {}).get("basis"),
            "sized_for": (results.get("concurrency") or {}).get("sized_for"),
            "bound": (results.get("replica") or {}).get("bound"),
            "requests_per_replica": (results.get("replica") or {}).get("requests"),
            "gpus_per_replica": (results.get("fleet") or {}).get("gpus_per_replica"),
            "spare_replicas": (results.get("fleet") or {}).get("spare_replicas"),
            "holds_queue": (results.get("queue") or {}).get("holds"),
        },
        "evidence": {
            tag: len(planned.report["evidence"][tag]) for tag in ("measured", "declared", "literature")
        },
        "not_measured": planned.account.get("missing") or [],
        "caveats": caveats(planned, content),
        "levers": levers(planned),
        "regimes": [
            {k: s[k] for k in ("name", "hit", "gpus", "replicas", "bound", "reason")}
            for s in results.get("scenarios") or ()
        ],
        "interval": planned.report["uncertainty"].get("method")
        or planned.report["uncertainty"].get("reason"),
    }


def _row(what: str, unit: str, want: int, have: int | None, bounds: list[float] | None) -> dict[str, Any]:
    low, high = (None, None) if bounds is None else (bounds[0], bounds[1])
    answer = None if have is None else "more" if want > have else "fewer" if want < have else "same"
    inside = have is not None and low is not None and high is not None and low <= have <= high
    return {
        "what": what, "unit": unit, "needed": want, "low": low, "high": high, "installed": have,
        "answer": answer, "difference": None if have is None else want - have,
        "clear": None if answer in (None, "same") or low is None else not inside,
        "reason": None if have is not None else f"sizing.installed.{what} is not declared",
    }  # fmt: skip


def _undeclared(installed: Installed | None) -> str:
    name = "sizing.installed" if installed is None else "sizing.installed.gpus"
    return f"what is installed is not declared ({name})"


def caveats(planned: Planned, content: Mapping[str, Any]) -> list[str]:
    """Why the decision should not be signed yet, the weightiest first; none where nothing is against it."""
    found = []
    hours = planned.week.hours
    if planned.is_published:
        found.append(
            "Model, hardware and targets are those of a published example, not yours (sizing.plan names your "
            "plan file)."
        )
    if hours is None or hours < WEEK_HOURS:
        found.append(f"The window is {_span(hours)}; a week shows what a day does not.")
    human = content.get("calls_per_human_hour") or {}
    hit = content.get("prefix_hit") or {}
    attended = (human.get("coverage") or {}).get("attended_share")
    if attended is not None and attended < COVERAGE:
        found.append(
            f"Only {attended:.0%} of the calls belong to attended work; the rest has no human-hours."
        )
    covered = (hit.get("coverage") or {}).get("share_of_input_tokens")
    if covered is not None and covered < COVERAGE:
        found.append(f"Cache use is known for {covered:.0%} of the prompt tokens only.")
    for name, figure, key in (
        ("calls per human-hour", "calls_per_human_hour", "15 min"),
        ("prompt length", "prompt_length", "p50"),
        ("prefix hit", "prefix_hit", "realised"),
    ):
        if value_of(content, figure, key) is None:
            found.append(f"The week has no {name}; a published value stands in.")
    concurrency = planned.report["results"].get("concurrency")
    if concurrency is not None and not concurrency.get("peak"):
        found.append(
            "Sized on a mean: the window holds no whole hour of calls in flight, and peaks are higher."
        )
    queue = planned.report["results"].get("queue")
    if queue is not None and not queue["holds"]:
        found.append(
            f"At the mean load already, calls may wait longer than promised: {queue['slots']} slots, "
            f"{queue['slots_needed']} are needed."
        )
    return found


def _span(hours: float | None) -> str:
    if hours is None:
        return "of unknown length"
    if hours >= 48:
        return f"{hours / 24:.3g} days long"
    if hours >= 1:
        return f"{hours:.3g} hours long"
    return f"{hours * 60:.2g} minutes long" if hours >= 1 / 60 else f"{hours * 3600:.2g} seconds long"
