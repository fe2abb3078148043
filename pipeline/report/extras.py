"""What the report adds to the four figures: lost reuse and its cost, the gateway, catalogues, the plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pipeline import figures
from pipeline.figures import catalogue, failures, reuse, series
from pipeline.report import change, decision, planning
from pipeline.sizing import evaluation, plan, speed
from pipeline.sizing.plan_file import Plan
from pipeline.sizing.units import SizingError
from pipeline.sql import parameters

if TYPE_CHECKING:
    import duckdb

#: Quantities of the registry that the report shows beside the four figures, and what they are split by.
SHOWN: Final = {
    "gateway_overhead": ("all",),
    "counting_cost": ("all",),
    "losses": ("all",),
    "reuse_gap": ("all",),
    "task_latency": ("all", "profile"),
    "turn_latency": ("all", "profile"),
    "interactivity": ("all", "profile"),
    "first_token_time": ("all",),
    "decode_share": ("all",),
    "calls_in_flight": ("all",),
    "context_at_end": ("all", "profile"),
    "subagent_share": ("all", "profile"),
    "failing_turn_share": ("all", "profile"),
    "failing_turn_amplification": ("all",),
    "tokens_per_turn": ("all", "profile"),
    "profile_share": ("all",),
    "catalogue_tokens_per_call": ("all",),
}
_NOTHING: Final = "the lake holds no call in the window"
EMPTY: Final[dict[str, Any]] = {
    "reuse": {"value": None, "unit": "tokens", "reason": _NOTHING, "by": {}},
    "quantities": [],
    "failures": {
        "calls": 0,
        "unsuccessful": 0,
        "share": None,
        "rows": [],
        "retried_calls": 0,
        "extra_attempts": 0,
    },
    "catalogue": {"keep": catalogue.KEEP_TOOLS, "by": "key_alias", "rows": []},
}


def measure(lake: Path) -> figures.More:
    """Return what computes the parts beside the figures, of a bound window of the *lake*."""

    def parts(con: duckdb.DuckDBPyConnection, window: parameters.Window) -> dict[str, Any]:
        shown = _quantities(con, window)
        advice = catalogue.advice(
            con, lake, window.start, window.end, by="key_alias", keep=catalogue.KEEP_TOOLS
        )
        return {
            "reuse": reuse.compute(con, window),
            "quantities": shown,
            "failures": failures.compute(con, window),
            "catalogue": {
                "keep": catalogue.KEEP_TOOLS,
                "by": "key_alias",
                "rows": [asdict(a) for a in advice],
            },
        }

    return parts


def _quantities(con: duckdb.DuckDBPyConnection, window: parameters.Window) -> list[dict[str, Any]]:
    """Rows of the registry's quantities over the whole window."""
    rows: list[dict[str, Any]] = []
    columns = ("figure", "part", "dimension", "member", "value", "unit", "calls", "coverage", "reason")
    for by in dict.fromkeys(SHOWN.values()):
        wanted = [figures.QUANTITIES[name] for name, dimensions in SHOWN.items() if dimensions == by]
        found = series.compute(con, window, wanted, "window", by).project(", ".join(columns))
        rows += [dict(zip(columns, row, strict=True)) for row in found.fetchall()]
    return rows


def before(
    lake: Path, settings: parameters.Conventions, window: parameters.Window | None
) -> tuple[dict[str, Any] | None, str | None]:
    """Return the figures of the window of the same length before this one, or why there are none."""
    if window is None:
        return None, "the lake holds no call in the window"
    start, end = change.window_before(window.start, window.end, settings.business_time_zone)
    earlier = figures.compute(lake, settings, start, end)
    if earlier.window is None:
        return None, "the lake holds no call in the window before"
    hours = earlier.window.seconds / 3600
    meta = {"window": {"start": start.isoformat(), "end": end.isoformat(), "hours": hours}}
    return earlier.to_dict() | {"counts": earlier.counts, "meta": meta}, None


def plan_of(
    content: Mapping[str, Any], earlier: Mapping[str, Any] | None, sizing: planning.Sizing | None
) -> tuple[dict[str, Any], planning.Planned | None]:
    """Return decision, check of the plan and checklist, and the plan itself where there is one.

    Raises:
        SizingError: a file that *sizing* names cannot be used.
    """
    stated = planning.load_plan(sizing)
    planned, why = _plan(content, stated)
    checked: dict[str, Any] = {"rows": [], "reason": why}
    if planned is not None:
        last, _ = (None, None) if earlier is None else _plan(earlier, stated)
        checked = planning.verified(planned, last, sizing, stated)
    installed = sizing.installed if sizing else None
    return {
        "decision": decision.decide(planned, why, content, installed),
        "plan_check": checked,
        "checklist": planning.checklist(planned, content, sizing),
    }, planned


def _too_little(content: Mapping[str, Any]) -> str | None:
    """Why the window is no basis for a plan at all."""
    if not content["counts"].get("calls"):
        return "the window holds no call"
    sessions = (content["calls_per_human_hour"].get("turns_per_session") or {}).get("sessions")
    if content["counts"]["calls"] < 2 or sessions == 1:
        return "one session says nothing about a fleet"
    return None


def _plan(content: Mapping[str, Any], stated: Plan | None) -> tuple[planning.Planned | None, str | None]:
    """The plan of a set of figures, or why there is none."""
    why = _too_little(content)
    if why:
        return None, why
    try:
        return planning.of_week(content, stated), None
    except SizingError as error:
        return None, str(error)


def cost(lost: dict[str, Any], planned: planning.Planned | None) -> dict[str, Any]:
    """Return lost reuse with its GPU-hours: tokens ÷ the prefill rate of one GPU of the plan."""
    rate, reason = _prefill_rate(planned)
    source = "" if planned is None else _source(planned)

    def hours(tokens: float | None) -> float | None:
        return None if rate is None or tokens is None else tokens / rate / 3600

    priced = {
        **lost,
        "cost": {"gpu_hours": hours(lost["value"]), "gpu_tok_s": rate, "reason": reason, "source": source},
        "by": {
            name: [r | {"gpu_hours": hours(r["lost_tokens"])} for r in rows]
            for name, rows in lost["by"].items()
        },
    }
    if "by_age" in lost:
        priced["by_age"] = [r | {"gpu_hours": hours(r["lost_tokens"])} for r in lost["by_age"]]
        priced["broken"] = lost["broken"] | {"gpu_hours": hours(lost["broken"]["value"])}
    return priced


def _prefill_rate(planned: planning.Planned | None) -> tuple[float | None, str | None]:
    """Prompt tokens per second that one GPU computes, by the plan's own formula."""
    if planned is None:
        return None, "there is no plan"
    if planned.stated.method != "agents":
        return None, "a plan of the method throughput names no arithmetic of a GPU"
    values = plan.stated_values(planned.stated)
    chosen = evaluation.agents(planned.stated, values).chosen
    machine: speed.Machine = chosen.baseline.machine
    return machine.prefill_tok_s / chosen.baseline.gpus_per_replica, None


def _source(planned: planning.Planned) -> str:
    inputs = planned.stated.inputs
    card = inputs["hardware.gpu"].value if "hardware.gpu" in inputs else "the plan's card"
    share = inputs["hardware.flops_efficiency"]
    whose = "published example" if planned.is_published else "plan file"
    return f"{card} at {share.value:.0%} of its arithmetic, model of the {whose}"
