"""Published quantities by day and week and by who, each with its coverage and its shares of evidence.

One row a (figure, part, period, member): long, so that notebooks and spreadsheets can pivot it. Sums are
taken before dividing. A value that cannot be computed is null with its reason.
"""

# ruff: noqa: S608 - expressions come from the registry, closed lists of this package; values are parameters

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pipeline.errors import ConfigError
from pipeline.figures import provenance, relations
from pipeline.figures.registry import DIMENSIONS, QUANTITIES, Period
from pipeline.figures.specification import Quantity
from pipeline.figures.table import Table
from pipeline.sql import parameters

if TYPE_CHECKING:
    import duckdb

COLUMNS: Final = {
    "figure": "VARCHAR",
    "part": "VARCHAR",
    "period": "VARCHAR",
    "start": "DATE",
    "dimension": "VARCHAR",
    "member": "VARCHAR",
    "value": "DOUBLE",
    "unit": "VARCHAR",
    "top": "DOUBLE",
    "bottom": "DOUBLE",
    "calls": "BIGINT",
    "coverage": "DOUBLE",
    **{f"{of}_e{n}": "DOUBLE" for of in ("session", "turn") for n in range(1, 6)},
    "reason": "VARCHAR",
}
_EVIDENCE: Final = ", ".join(
    f"SUM({of}_e{n}_calls) / NULLIF(CAST(SUM(calls) AS DOUBLE), 0) AS {of}_e{n}"
    for of in ("session", "turn")
    for n in range(1, 6)
)
_EVIDENCE_NAMES: Final = ", ".join(f"b.{of}_e{n}" for of in ("session", "turn") for n in range(1, 6))
_STAT: Final = {
    "p50": "QUANTILE_CONT(value, 0.5)",
    "p90": "QUANTILE_CONT(value, 0.9)",
    "p95": "QUANTILE_CONT(value, 0.95)",
    "p99": "QUANTILE_CONT(value, 0.99)",
    "slow90": "QUANTILE_CONT(value, 0.1)",
    "mean": "AVG(value)",
    "max": "MAX(value)",
}
_WEIGHTED: Final = {"p50": 0.5, "p95": 0.95, "max": 1.0}
PERIODS: Final[tuple[Period, ...]] = ("day", "week", "window")


def series(
    lake: Path,
    settings: parameters.Conventions,
    names: Sequence[str] = (),
    *,
    period: Period = "day",
    by: Sequence[str] = ("all", "profile"),
    since: date | datetime | None = None,
    until: date | datetime | None = None,
) -> Table:
    """Compute quantities of the registry over the facts of the lake.

    Args:
        lake: root of the lake; facts must have been built.
        settings: conventions.
        names: quantities; all by default.
        period: business days, their ISO weeks, or the window as one.
        by: dimensions; a pooled row (``all``) always comes with its split by profile.
        since: start of the window, naive UTC.
        until: end of the window, not included.

    Returns:
        A table with the columns :data:`COLUMNS`: value = top ÷ bottom, or a statistic of ``bottom``
        samples (seconds, for calls in flight); ``calls`` carry what the quantity needs, ``coverage`` is
        their share of those that should.

    Raises:
        ConfigError: no such quantity, dimension or period, or no call in the window.
    """
    from pipeline.figures import bind
    from pipeline.run import connect

    chosen = [_known(QUANTITIES, name, "figure") for name in names] or list(QUANTITIES.values())
    if period not in PERIODS:
        raise ConfigError(f"There is no period {period}.", why=f"Periods: {', '.join(PERIODS)}.")
    for dimension in by:
        _known(DIMENSIONS, dimension, "dimension")
    con = connect(lake)
    window = bind(con, lake, settings, since, until)
    if window is None:
        con.close()
        raise ConfigError(f"The lake {lake} holds no call in the window.", next_step="agentwatt run")
    relation = compute(con, window, chosen, period, split(by))
    return Table("figures", con, relation)


def split(by: Iterable[str]) -> tuple[str, ...]:
    """Return *by* in the registry's order, with the split by profile beside a pooled figure."""
    wanted = set(by) | ({"profile"} if "all" in by else set())
    return tuple(d for d in DIMENSIONS if d in wanted)


def compute(
    con: duckdb.DuckDBPyConnection,
    window: parameters.Window,
    quantities: Iterable[Quantity],
    period: Period,
    by: Sequence[str],
) -> duckdb.DuckDBPyRelation:
    """Fill the table ``figure_series`` of *con* (the marts must be built) and return it."""
    relations.bind(con, window)
    lacking = provenance.lacking(con, window)
    columns = ", ".join(f'"{name}" {kind}' for name, kind in COLUMNS.items())
    con.execute(f"CREATE OR REPLACE TEMP TABLE figure_series ({columns})")
    for quantity in quantities:
        why = lacking(quantity.needs)
        for dimension in by:
            if dimension in quantity.dimensions:
                query = _query(quantity, dimension, period)
                con.execute(
                    f"INSERT INTO figure_series {query}",
                    {"reason": why or quantity.reason, "gone": bool(why)},
                )
    return con.sql("SELECT * FROM figure_series")


def _query(q: Quantity, dimension: str, period: Period) -> str:
    column = DIMENSIONS[dimension]
    member = "'all'" if column is None else f"CAST({column} AS VARCHAR)"
    body = _spread(q, member, period) if q.stats else _ratio(q, dimension, member, period)
    covered, all_of_them = q.coverage
    return f"""
    WITH base AS (
      SELECT {_start(period)} AS start, {member} AS member, CAST({covered} AS BIGINT) AS calls,
        ({covered}) / NULLIF(CAST({all_of_them} AS DOUBLE), 0) AS coverage, {_EVIDENCE}
      FROM mart_call_sum JOIN series_day USING (business_day) WHERE {member} IS NOT NULL GROUP BY 1, 2
    ),
    found AS ({body})
    SELECT '{q.name}', COALESCE(f.part, 'all'), '{period}', b.start, '{dimension}', b.member,
      CASE WHEN $gone THEN NULL ELSE f.value END, '{q.unit}', CASE WHEN $gone THEN NULL ELSE f.top END,
      CASE WHEN $gone THEN NULL ELSE f.bottom END, b.calls, b.coverage, {_EVIDENCE_NAMES},
      CASE WHEN $gone OR f.value IS NULL THEN $reason END
    FROM base AS b LEFT JOIN found AS f ON f.start = b.start AND f.member = b.member
    ORDER BY b.start, b.member, f.part
    """


def _start(period: Period) -> str:
    return {
        "day": "business_day",
        "week": "week",
        "window": "(SELECT MIN(business_day) FROM series_day)",
    }[period]


def _ratio(q: Quantity, dimension: str, member: str, period: Period) -> str:
    hours = f"SELECT {_start(period)} AS start, SUM(hours) AS hours FROM series_day GROUP BY 1"
    source, part = f"rel_{q.relation}", q.part
    if q.relation == "human":
        source = f"(SELECT * FROM rel_human WHERE scope = '{dimension}')"
        member = "member"
        part = "'g = ' || CAST(CAST(cap_s / 60 AS INTEGER) AS VARCHAR) || ' min'"
    return f"""
    SELECT start, member, part, top / NULLIF(bottom, 0) AS value, top, bottom FROM (
    SELECT start, member, part, CAST({q.top} AS DOUBLE) AS top, CAST({q.bottom} AS DOUBLE) AS bottom
    FROM (
      SELECT r.*, {_start(period)} AS start, {part} AS part, {member} AS member
      FROM {source} AS r JOIN series_day USING (business_day)
    ) AS r
    JOIN ({hours}) AS h USING (start)
    WHERE member IS NOT NULL AND part IS NOT NULL GROUP BY start, member, part)
    """


def _spread(q: Quantity, member: str, period: Period) -> str:
    # Where rows last (levels of concurrency), a quantile is the least value for that share of time.
    if q.relation == "level":
        cases = "UNION ALL ".join(
            f"SELECT start, member, '{s}' AS part, MIN(value) AS value, NULL AS top, "
            "MAX(seconds) AS bottom FROM risen "
            f"WHERE passed >= {_WEIGHTED[s]} - 1e-12 GROUP BY start, member "
            for s in q.stats
        )
        return f"""
        WITH level AS (
          SELECT {_start(period)} AS start, {member} AS member, CAST({q.value} AS DOUBLE) AS value,
            SUM(seconds) AS seconds
          FROM rel_level JOIN series_day USING (business_day) GROUP BY 1, 2, 3
        ),
        risen AS (
          SELECT start, member, value, SUM(seconds) OVER (PARTITION BY start, member ORDER BY value
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
            / SUM(seconds) OVER (PARTITION BY start, member) AS passed,
            SUM(seconds) OVER (PARTITION BY start, member) AS seconds
          FROM level
        )
        {cases}
        """
    stats = ", ".join(f"{_STAT[s]} AS {s}" for s in q.stats)
    label = "stat" if q.part == "'all'" else "part || ' ' || stat"
    return f"""
    SELECT start, member, {label} AS part, value, NULL AS top, bottom FROM (
      SELECT start, member, part, COUNT(*) AS bottom, {stats} FROM (
        SELECT {_start(period)} AS start, {member} AS member, {q.part} AS part,
          CAST({q.value} AS DOUBLE) AS value
        FROM rel_{q.relation} JOIN series_day USING (business_day)
      ) WHERE value IS NOT NULL AND part IS NOT NULL AND member IS NOT NULL GROUP BY start, member, part
    ) UNPIVOT (value FOR stat IN ({", ".join(q.stats)}))
    """


def _known(of: dict[str, Any], name: str, kind: str) -> Any:
    if name not in of:
        raise ConfigError(f"There is no {kind} {name}.", why=f"There are: {', '.join(of)}.")
    return of[name]
