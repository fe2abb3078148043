"""The four figures of a window, each with unit, coverage, evidence and the convention it stands on.

A figure that cannot be computed is null with a reason. Sums are taken before dividing: no figure is a mean of
ratios.
"""

# ruff: noqa: S608 - column names come from closed lists in this module; values are parameters

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pipeline.figures import human, length, prefix, provenance, relations, table
from pipeline.figures.registry import QUANTITIES, Period
from pipeline.figures.table import Table
from pipeline.power import agents, places
from pipeline.sql import binding, models, parameters

if TYPE_CHECKING:
    import duckdb

__all__ = ["NAMES", "QUANTITIES", "Figures", "Table", "bind", "compute", "load", "names"]

#: Names of the figures, and their keys in ``report.json``.
NAMES: Final = ("calls_per_human_hour", "prompt_length", "prefix_hit", "agents_per_megawatt")

#: Computes further parts of a report from bound facts and marts.
More = Callable[["duckdb.DuckDBPyConnection", parameters.Window], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one window, and what they were computed from."""

    window: parameters.Window | None
    figures: dict[str, dict[str, Any]]
    counts: dict[str, Any] = field(default_factory=dict)
    reason: str | None = None
    more: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the figures by name, ready for JSON."""
        return dict(self.figures)


def names() -> list[str]:
    """Names of everything that :func:`load` knows: tables of the lake, then quantities of the registry."""
    return [*table.names(), *QUANTITIES]


def load(
    lake: Path,
    name: str,
    *,
    since: date | None = None,
    until: date | None = None,
    columns: Sequence[str] = (),
    period: Period = "day",
    by: Sequence[str] = ("all", "profile"),
    settings: parameters.Conventions | None = None,
) -> Table:
    """Open one table of the lake, or compute one quantity by period and by who.

    Args:
        lake: root of the lake.
        name: a table as it lies in the lake (``facts/call``, ``marts/human_hour``, ``raw/events``), or a
            quantity of :data:`QUANTITIES` (``calls_per_user_prompt``).
        since: first UTC day; of a mart, the first business day.
        until: day after the last one.
        columns: the columns to read; all by default.
        period: of a quantity: business days, ISO weeks, or the window as one.
        by: of a quantity: dimensions of it.
        settings: conventions of a quantity; default: the pipeline's defaults.

    Raises:
        ConfigError: no such name, nothing of it is in the lake, or no such column.
    """
    if name not in QUANTITIES:
        return table.load(lake, name, since=since, until=until, columns=columns)
    from pipeline.figures.series import series

    if settings is None:
        from pipeline.settings import Settings

        settings = Settings()
    found = series(lake, settings, (name,), period=period, by=by, since=since, until=until)
    return found.project(columns) if columns else found


def compute(
    lake: Path,
    settings: parameters.Conventions,
    since: date | datetime | None = None,
    until: date | datetime | None = None,
    more: More | None = None,
) -> Figures:
    """Compute the four figures over the facts of the lake.

    Args:
        lake: root of the lake; facts must have been built.
        settings: conventions.
        since: start of the window, naive UTC; default: the first call.
        until: end of the window, not included; default: the end of the last call.
        more: what else is wanted of the same window while its facts and marts are bound.
    """
    from pipeline.run import connect

    con = connect(lake)
    try:
        window = bind(con, lake, settings, since, until)
        if window is None:
            reason = "the lake holds no call in the window"
            nothing = {"value": None, "unit": None, "coverage": None, "reason": reason}
            return Figures(None, {name: dict(nothing) for name in NAMES}, reason=reason)
        relations.bind(con, window)
        figures = {
            "calls_per_human_hour": human.compute(con, settings, window),
            "prompt_length": length.compute(con, window),
            "prefix_hit": prefix.compute(con),
            "agents_per_megawatt": agents.compute(con, settings, window),
        }
        counts = _counts(con)
        extra = more(con, window) if more else {}
        return Figures(window, provenance.apply(con, window, figures), counts, more=extra)
    finally:
        con.close()


def bind(
    con: duckdb.DuckDBPyConnection,
    lake: Path,
    settings: parameters.Conventions,
    since: date | datetime | None = None,
    until: date | datetime | None = None,
) -> parameters.Window | None:
    """Bind facts and metrics of a window in *con* and build every mart; None where there is no call."""
    start, end = _instant(since), _instant(until)
    days = binding.days(lake, binding.FACTS["fct_call"])
    wanted = {
        d
        for d in days
        if (start is None or d >= start.date() - timedelta(days=2)) and (end is None or d <= end.date())
    }
    if not wanted:
        return None
    for relation, folder in binding.FACTS.items():
        binding.bind_fact(con, relation, binding.files(lake, folder, wanted))
    row = con.execute(
        "SELECT MIN(start_at), MAX(COALESCE(end_at, start_at)), MAX(start_at), COUNT(*) FROM fct_call "
        "WHERE start_at >= COALESCE($start, start_at) AND start_at < COALESCE($end, start_at + INTERVAL 1 "
        "SECOND)",
        {"start": start, "end": end},
    ).fetchone()
    if not row or not row[3]:
        return None
    window = parameters.Window(start or row[0], end or max(row[1], row[2] + timedelta(microseconds=1)))
    metric_days = [
        window.start.date() + timedelta(days=n) for n in range(-1, (window.end - window.start).days + 3)
    ]
    binding.bind_raw(con, "raw_metric", binding.files(lake, "raw/metrics", metric_days))
    values = parameters.bind_conventions(con, settings) | parameters.bind_window(con, settings, window)
    # The days on which the lake holds any metric tell no power from power at another time.
    parameters.relation(con, "prm_metric_day", day=("DATE", sorted(binding.days(lake, "raw/metrics"))))
    places.bind(con, settings, window)
    models.run(con, (*models.CALL_MARTS, *models.METRIC_MARTS), values)
    return window


def _instant(value: date | datetime | None) -> datetime | None:
    if value is None or isinstance(value, datetime):
        return value
    return datetime.combine(value, time())


def _counts(con: duckdb.DuckDBPyConnection) -> dict[str, Any]:
    total = con.execute(
        "SELECT SUM(calls), SUM(engine_calls), SUM(engine_attempts), SUM(response_cache_hits), "
        "SUM(calls_without_session), SUM(calls_with_invalid_cached), SUM(calls) - SUM(generation_calls) "
        "FROM mart_call_day"
    ).fetchone()
    names = ("calls", "engine_calls", "engine_attempts", "response_cache_hits", "calls_without_session",
             "calls_with_impossible_cached_tokens", "calls_not_of_generation")  # fmt: skip
    counts: dict[str, Any] = dict(zip(names, total or (), strict=False))
    for column in ("outcome", "source", "initiator"):
        rows = con.execute(
            f"SELECT {column}, SUM(calls) FROM mart_call_day GROUP BY {column} ORDER BY {column}"
        )
        counts[f"by_{column}"] = dict(rows.fetchall())
    for column in ("plugin_version", "litellm_version"):
        rows = con.execute(
            f"SELECT DISTINCT {column} FROM fct_call WHERE {column} IS NOT NULL ORDER BY {column}"
        )
        counts[f"{column}s"] = [value for (value,) in rows.fetchall()]
    return counts
