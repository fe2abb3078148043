"""The plan of a week: the sizing model over what was measured, for the decision and for next week's check."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from pipeline.report.change import interval_of
from pipeline.sizing import checks, document, evaluation, measured, outputs, plan, plan_compare, plan_file
from pipeline.sizing.evidence import Evidence
from pipeline.sizing.units import SizingError


class Installed(Protocol):
    """What is in place, by declaration."""

    @property
    def gpus(self) -> int | None:
        """Accelerators, spares included."""

    @property
    def replicas(self) -> int | None:
        """Engine replicas, spares included."""

    @property
    def workers(self) -> int | None:
        """Gateway workers."""

    @property
    def source(self) -> str:
        """Who says so."""


class Sizing(Protocol):
    """What the plan of a week is made from, beside the week."""

    @property
    def plan(self) -> Path | None:
        """Plan file."""

    @property
    def last_plan(self) -> Path | None:
        """Computed plan of an earlier week."""

    @property
    def installed(self) -> Installed | None:
        """What is in place."""

    @property
    def proxy_config(self) -> Path | None:
        """The proxy's configuration, for the checklist."""

    @property
    def chart_values(self) -> Path | None:
        """Chart values, for the checklist."""

    @property
    def dashboards(self) -> Path | None:
        """Folder of dashboards and rules, for the checklist."""

    @property
    def engine_command(self) -> str | None:
        """The engine's command line, for the checklist."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What a plan asks for; None where its method does not say."""

    gpus: int
    replicas: int | None
    workers: int | None


@dataclass(frozen=True)
class Planned:
    """The plan of a week, ready to be asked again with other values."""

    stated: plan_file.Plan
    report: dict[str, Any]
    account: dict[str, Any]
    week: measured.Week
    is_published: bool

    def needs(self, **changed: float) -> Needs | None:
        """What it takes with some inputs changed (dots of keys as ``__``); None where nothing holds."""
        values = plan.stated_values(self.stated)
        values |= {key.replace("__", "."): value for key, value in changed.items()}
        try:
            return needs(self.stated, values)
        except SizingError:
            return None


def needs(stated: plan_file.Plan, values: Mapping[str, Any]) -> Needs:
    """GPUs, engine replicas and gateway workers for these values.

    Raises:
        SizingError: no fleet exists for them.
    """
    if stated.method == "throughput":
        return Needs(evaluation.throughput(values).gpus_installed, None, None)
    found = evaluation.agents(stated, values)
    gate = evaluation.gateway_of(values, outputs.mean_rps(values), found.demand.sequences)
    spare = int(values["fleet.spare_replicas"])
    return Needs(found.chosen.gpus, found.chosen.replicas + spare, gate.workers)


def of_week(content: Mapping[str, Any], stated: plan_file.Plan | None) -> Planned:
    """Lay a week's figures over a plan (the published example without one) and compute it.

    Measured inputs take the week-to-week interval of their figure as bounds, where there is one.

    Raises:
        SizingError: no fleet exists for the week, or there are no figures.
    """
    week = measured.read(content)
    laid, account = measured.overlay(stated or measured.published(), week)
    laid = replace(laid, inputs={k: _bounded(k, i, content) for k, i in laid.inputs.items()})
    return Planned(laid, plan.compute(laid), document.rounded(account), week, stated is None)


#: Input -> the figure and key whose week-to-week interval bounds it.
_BOUNDS = {
    "calls.per_human_hour": ("calls_per_human_hour", "15 min"),
    "calls.prefix_hit": ("prefix_hit", "realised"),
}


def _bounded(key: str, one: Any, content: Mapping[str, Any]) -> Any:
    if key not in _BOUNDS or one.tag != "measured" or one.low is not None:
        return one
    bounds = interval_of(content, *_BOUNDS[key])["value"]
    if bounds is None or not bounds[0] <= one.value <= bounds[1]:
        return one
    high = min(bounds[1], 1.0) if key == "calls.prefix_hit" else bounds[1]
    return replace(one, low=bounds[0], high=high)


def load_plan(sizing: Sizing | None) -> plan_file.Plan | None:
    """The declared plan file, or None.

    Raises:
        SizingError: it cannot be read, or entries of it are wrong.
    """
    return plan_file.load(sizing.plan) if sizing and sizing.plan else None


def verified(
    planned: Planned, before: Planned | None, sizing: Sizing | None, stated: plan_file.Plan | None
) -> dict[str, Any]:
    """What was predicted against what this week measured.

    The prediction is the declared computed plan, else the plan that the week before would have given, else
    the plan file (or the published example) before anything was measured.

    Raises:
        SizingError: the declared computed plan cannot be read.
    """
    if sizing and sizing.last_plan:
        predicted, source = _read(sizing.last_plan), f"computed plan {sizing.last_plan.name}"
    elif before is not None:
        predicted, source = before.report, "plan of the week before, computed from its figures"
    else:
        predicted = plan.compute(stated or measured.published())
        source = "plan file as written" if stated else "published example, before anything was measured"
    return document.rounded(plan_compare.check(predicted, planned.week)) | {"source": source}  # type: ignore[no-any-return]


def checklist(
    planned: Planned | None, content: Mapping[str, Any], sizing: Sizing | None
) -> list[dict[str, str]]:
    """The published checklist over what is declared; a check without evidence says so.

    Raises:
        SizingError: a declared file cannot be read.
    """
    given = Evidence(
        config=_read(sizing.proxy_config) if sizing and sizing.proxy_config else None,
        chart=_read(sizing.chart_values) if sizing and sizing.chart_values else None,
        report=content,
        plan=planned.report if planned else None,
        dashboards=_texts(sizing.dashboards) if sizing and sizing.dashboards else None,
        engine=sizing.engine_command if sizing else None,
    )
    return [
        {"id": c.id, "question": c.question, "status": c.status, "evidence": c.evidence}
        for c in checks.run(given)
    ]


def _read(path: Path) -> Any:
    try:
        return document.parse(path.read_text(encoding="utf-8"), path.name).data
    except OSError as error:
        raise SizingError(f"{path}: {error.strerror or error}") from error


def _texts(folder: Path) -> list[tuple[str, str]]:
    suffixes = {".json", ".yaml", ".yml"}
    found = sorted(p for p in folder.rglob("*") if p.suffix in suffixes and p.is_file())
    if not found:
        raise SizingError(f"{folder}: no dashboard, rule or manifest in it")
    return [(str(p.relative_to(folder)), p.read_text(encoding="utf-8")) for p in found]
