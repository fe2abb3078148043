"""What the gateway itself costs: phases of its overhead, token counting, and how its calls fail."""

# ruff: noqa: S608 - column names come from closed lists in this module; values are parameters

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pipeline.sql import parameters
from pipeline.sql.evidence import ratio

if TYPE_CHECKING:
    import duckdb

#: Column of ``fct_call`` -> what the time is.
PHASES: Final = {
    "queue_ms": "received to authenticated (budget reservation included)",
    "pre_call_ms": "our first hook to the call of the provider",
    "overhead_ms": "received to the call of the provider: all of the above and what lies between",
    "count_ms": "token counting, all runs of a call",
    "plugin_ms": "this plugin's own hooks",
}
_PROMPTS: Final = ((8_000, "≤ 8K"), (32_000, "8K to 32K"), (128_000, "32K to 128K"), (None, "> 128K"))
_TOOLS: Final = ((0, "none"), (10, "1 to 10"), (50, "11 to 50"), (None, "> 50"))
_TOP: Final = 10


def compute(con: duckdb.DuckDBPyConnection, window: parameters.Window) -> dict[str, Any]:
    """Return phases, counting by prompt and catalogue size, and failures (facts must be bound)."""
    span = {"start": window.start, "end": window.end}
    phases = [row for name, what in PHASES.items() if (row := _phase(con, name, what, span))]
    measured = [r for r in phases if r["calls"]]
    return {
        "value": next((r["p50_ms"] for r in measured if r["phase"] == "overhead_ms"), None),
        "unit": "ms between the receipt of a call and the call of the provider, median",
        "reason": None if measured else "no call carries the gateway's phases (they come from the plugin)",
        "phases": phases,
        "counting": {
            "reason": None
            if any(r["phase"] == "count_ms" for r in measured)
            else "token counting was not measured (setting count_exact of the plugin switches it on)",
            "by_prompt": _counting(con, "input_tokens", _PROMPTS, span),
            "by_tools": _counting(con, "COALESCE(tool_count, 0)", _TOOLS, span),
        },
        "failures": _failures(con, span),
    }


def _phase(
    con: duckdb.DuckDBPyConnection, name: str, what: str, span: dict[str, Any]
) -> dict[str, Any] | None:
    row = con.execute(
        f"SELECT COUNT({name}), QUANTILE_CONT({name}, 0.5), QUANTILE_CONT({name}, 0.95), SUM({name}) "
        f"FROM fct_call WHERE {name} >= 0 AND start_at >= $start AND start_at < $end",
        span,
    ).fetchone()
    if row is None:
        return None
    calls, middle, high, total = row
    return {"phase": name, "what": what, "calls": calls, "p50_ms": middle, "p95_ms": high,
            "total_s": None if total is None else total / 1000}  # fmt: skip


def _counting(
    con: duckdb.DuckDBPyConnection,
    expression: str,
    buckets: tuple[tuple[int | None, str], ...],
    span: dict[str, Any],
) -> list[dict[str, Any]]:
    cases = " ".join(
        f"WHEN {expression} <= {top} THEN {i}" for i, (top, _) in enumerate(buckets) if top is not None
    )
    found = {
        row[0]: row[1:]
        for row in con.execute(
            f"SELECT CASE {cases} ELSE {len(buckets) - 1} END AS bucket, COUNT(*), "
            "QUANTILE_CONT(count_ms, 0.5), QUANTILE_CONT(count_ms, 0.95), AVG(count_calls) FROM fct_call "
            f"WHERE count_ms >= 0 AND {expression} IS NOT NULL AND start_at >= $start AND start_at < $end "
            "GROUP BY bucket ORDER BY bucket",
            span,
        ).fetchall()
    }
    return [
        {"bucket": label, "calls": found[i][0], "p50_ms": found[i][1], "p95_ms": found[i][2],
         "counts_per_call": found[i][3]}
        for i, (_, label) in enumerate(buckets) if i in found
    ]  # fmt: skip


def _failures(con: duckdb.DuckDBPyConnection, span: dict[str, Any]) -> dict[str, Any]:
    """Calls that did not succeed, by outcome and error class, the most frequent first."""
    (total,) = con.execute(
        "SELECT COUNT(*) FROM fct_call WHERE start_at >= $start AND start_at < $end", span
    ).fetchone() or (0,)
    rows = con.execute(
        "SELECT outcome, COALESCE(error_class, '') AS error_class, COUNT(*), SUM(COALESCE(attempts, 1)), "
        "QUANTILE_CONT(duration_ms, 0.5) FROM fct_call WHERE outcome <> 'success' AND start_at >= $start "
        "AND start_at < $end GROUP BY outcome, COALESCE(error_class, '') "
        f"ORDER BY COUNT(*) DESC, outcome, error_class LIMIT {_TOP}",
        span,
    ).fetchall()
    retried = con.execute(
        "SELECT COUNT(*), SUM(attempts - 1) FROM fct_call WHERE attempts > 1 AND start_at >= $start "
        "AND start_at < $end",
        span,
    ).fetchone() or (0, 0)
    return {
        "calls": total,
        "rows": [
            {"outcome": outcome, "error_class": name or None, "calls": n, "share": ratio(n, total),
             "attempts": attempts, "median_s": None if ms is None else ms / 1000}
            for outcome, name, n, attempts, ms in rows
        ],
        "retried_calls": retried[0],
        "extra_attempts": int(retried[1] or 0),
    }  # fmt: skip
