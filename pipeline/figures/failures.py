"""How calls fail: by outcome and error class, and what attempts they cost."""

# ruff: noqa: S608 - the limit is a constant of this module; values are parameters

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pipeline.sql import parameters
from pipeline.sql.evidence import one, ratio

if TYPE_CHECKING:
    import duckdb

_TOP: Final = 10


def compute(con: duckdb.DuckDBPyConnection, window: parameters.Window) -> dict[str, Any]:
    """Return calls that did not succeed, the most frequent kind first (facts must be bound)."""
    span = {"start": window.start, "end": window.end}
    (total,) = one(con, "SELECT COUNT(*) FROM fct_call WHERE start_at >= $start AND start_at < $end", span)
    rows = con.execute(
        "SELECT outcome, COALESCE(error_class, '') AS error_class, COUNT(*), SUM(COALESCE(attempts, 1)), "
        "QUANTILE_CONT(duration_ms, 0.5) FROM fct_call WHERE outcome <> 'success' AND start_at >= $start "
        "AND start_at < $end GROUP BY outcome, COALESCE(error_class, '') "
        f"ORDER BY COUNT(*) DESC, outcome, error_class LIMIT {_TOP}",
        span,
    ).fetchall()
    (unsuccessful,) = one(
        con,
        "SELECT COUNT(*) FROM fct_call WHERE outcome <> 'success' AND start_at >= $start AND start_at < $end",
        span,
    )
    retried, extra = one(
        con,
        "SELECT COUNT(*), SUM(attempts - 1) FROM fct_call WHERE attempts > 1 AND start_at >= $start "
        "AND start_at < $end",
        span,
    )
    return {
        "calls": total,
        "unsuccessful": unsuccessful,
        "share": ratio(unsuccessful, total),
        "rows": [
            {
                "outcome": outcome,
                "error_class": name or None,
                "calls": calls,
                "share": ratio(calls, total),
                "attempts": attempts,
                "median_s": None if ms is None else ms / 1000,
            }
            for outcome, name, calls, attempts, ms in rows
        ],
        "retried_calls": retried,
        "extra_attempts": int(extra or 0),
    }
