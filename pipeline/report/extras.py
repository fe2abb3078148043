"""What the report adds to the four figures: lost reuse and its cost, the gateway, catalogues, the plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pipeline import figures
from pipeline.figures import catalogue, overhead, reuse
from pipeline.report import change, decision, planning
from pipeline.sizing import evaluation, plan, speed
from pipeline.sizing.plan_file import Plan
from pipeline.sizing.units import SizingError
from pipeline.sql import parameters

if TYPE_CHECKING:
    import duckdb

EMPTY: Final[dict[str, dict[str, Any]]] = {
    "reuse": {"value": None, "unit": "tokens", "reason": "the lake holds no call in the window", "by": {}},
    "gateway": {
        "value": None, "unit": "ms", "reason": "the lake holds no call in the window", "phases": [],
        "counting": {"reason": None, "by_prompt": [], "by_tools": []},
        "failures": {"calls": 0, "rows": [], "retried_calls": 0, "extra_attempts": 0},
    },
    "catalogue": {"keep": catalogue.KEEP_TOOLS, "by": "key_alias", "rows": []},
}  # fmt: skip


def measure(lake: Path) -> figures.More:
    """Return what computes lost reuse, gateway and catalogues of a bound window of the *lake*."""

    def parts(con: duckdb.DuckDBPyConnection, window: parameters.Window) -> dict[str, Any]:
        advice = catalogue.advice(
            con, lake, window.start, window.end, by="key_alias", keep=catalogue.KEEP_TOOLS
        )
        return {
            "reuse": reuse.compute(con, window),
            "gateway": overhead.compute(con, window),
            "catalogue": {
                "keep": catalogue.KEEP_TOOLS,
                "by": "key_alias",
                "rows": [asdict(a) for a in advice],
            },
        }

    return parts


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
    """Return decision, check of the plan and checklist, and the plan itself where there is one."""
    try:
        stated = planning.load_plan(sizing)
        planned = planning.of_week(content, stated)
        last = _quietly(earlier, stated)
        checked = planning.verified(planned, last, sizing, stated)
        why = None
    except SizingError as error:
        planned, stated, why = None, None, f"no plan: {error}"
        checked = {"rows": [], "reason": why}
    installed = sizing.installed if sizing else None
    return {
        "decision": decision.decide(planned, why, content, installed),
        "plan_check": checked,
        "checklist": planning.checklist(planned, content, sizing),
    }, planned


def _quietly(earlier: Mapping[str, Any] | None, stated: Plan | None) -> planning.Planned | None:
    """The plan that the earlier window would have given; None where it gives none."""
    try:
        return None if earlier is None else planning.of_week(earlier, stated)
    except SizingError:
        return None


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
