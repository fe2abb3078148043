"""Small pieces that every figure needs: one-row queries, ratios that may be unknown, evidence shares."""

# ruff: noqa: S608 - column names come from closed lists in this module; values are parameters

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import duckdb


def one(con: duckdb.DuckDBPyConnection, query: str, values: dict[str, Any] | None = None) -> Sequence[Any]:
    """Return the single row of an aggregate."""
    row = con.execute(query, values).fetchone()
    assert row is not None  # an aggregate without GROUP BY always returns one row
    return row


def ratio(top: float | None, bottom: float | None) -> float | None:
    """Return top ÷ bottom, or None where one of them is unknown or the bottom is 0."""
    if top is None or not bottom:
        return None
    return float(top) / float(bottom)


def product(*factors: float | None) -> float | None:
    """Return the product, or None where a factor is unknown."""
    result = 1.0
    for factor in factors:
        if factor is None:
            return None
        result *= factor
    return result


def evidence(con: duckdb.DuckDBPyConnection) -> dict[str, dict[str, float | None]]:
    """Return the shares of calls by evidence class of session and turn, and by where they are known from."""
    shares: dict[str, dict[str, float | None]] = {}
    for name in ("session_evidence", "turn_evidence", "source"):
        rows = con.execute(
            f"SELECT {name}, SUM(calls) FROM mart_call_day GROUP BY {name} ORDER BY {name}"
        ).fetchall()
        total = sum(n for _, n in rows)
        shares[name] = {str(k): ratio(n, total) for k, n in rows}
    return shares
