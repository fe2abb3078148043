"""Small pieces that every figure needs: one-row queries, ratios that may be unknown, evidence shares."""

# ruff: noqa: S608 - column names come from closed lists in this module; values are parameters

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import duckdb


#: What tells the profile of a visit; the names of its tool calls, its loops, or its tokens a turn.
PROFILE_EVIDENCE: Final = ("tools", "loops", "tokens", "none")


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
    """Return the shares of calls by evidence of session, turn and profile, and by where they come from."""
    shares: dict[str, dict[str, float | None]] = {}
    for name in ("session_evidence", "turn_evidence", "source"):
        rows = con.execute(
            f"SELECT {name}, SUM(calls) FROM mart_call_day GROUP BY {name} ORDER BY {name}"
        ).fetchall()
        total = sum(n for _, n in rows)
        shares[name] = {str(k): ratio(n, total) for k, n in rows}
    columns = ", ".join(f"SUM(profile_{told}_calls)" for told in PROFILE_EVIDENCE)
    total, *counts = one(con, f"SELECT SUM(calls), {columns} FROM mart_call_sum")
    shares["profile_evidence"] = {
        told: ratio(n, total) for told, n in zip(PROFILE_EVIDENCE, counts, strict=True) if n
    }
    return shares
