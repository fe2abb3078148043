"""Where prefix reuse is lost: what was sent before and computed again, by age of the prefix and situation."""

# ruff: noqa: S608 - column names come from closed lists in this module; values are parameters

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pipeline.sql import parameters
from pipeline.sql.evidence import ratio

if TYPE_CHECKING:
    import duckdb

#: Break reasons behind which a prompt differs from what was sent before, though it need not have.
BREAKS: Final = (
    "system_changed",
    "tools_changed",
    "tool_reorder",
    "history_edited",
    "retrieved_context",
    "model_switch",
    "compaction",
)
_COLUMNS: Final = ("category", "break_reason", "idle_bin", "model_group", "client")
_TOP: Final = 12


def compute(con: duckdb.DuckDBPyConnection, window: parameters.Window) -> dict[str, Any]:
    """Return lost tokens of calls on our own engines (the marts must be built).

    Lost tokens of a call = max(0, potential − cached), over engine calls that report cached tokens and have
    a known prefix chain; call by call, so that sharing between sessions does not hide a loss elsewhere.
    """
    span = {"start": window.start, "end": window.end}
    total = _sums(con, None, span)
    if not total or not total[0]["calls"]:
        reason = "no call of ours has both reported cached tokens and a known prefix chain"
        return {"value": None, "unit": "tokens", "reason": reason, "by": {}}
    whole = total[0]
    ages = _ages(whole)
    return {
        "value": whole["lost_tokens"],
        "unit": "prompt tokens computed again although the same stream had sent them before",
        "reason": None,
        "share_of_input": ratio(whole["lost_tokens"], whole["input_tokens"]),
        "whole": whole,
        "by_age": ages,
        "by": {name: _sums(con, name, span) for name in _COLUMNS},
        "broken": {
            "value": sum(r["new_tokens"] for r in _sums(con, "break_reason", span) if _breaks(r)),
            "meaning": "new tokens of calls whose prefix was broken by a change of system prompt, tools, "
            "history, retrieved context or model, or by compaction",
        },
        "coverage": {"calls": whole["calls"], "share_of_calls": _covered(con, whole["calls"], span)},
    }


def _breaks(row: dict[str, Any]) -> bool:
    return row["break_reason"] in BREAKS


def _ages(whole: dict[str, Any]) -> list[dict[str, Any]]:
    """Lost tokens by how long ago the prefix had last been touched; each age without the younger ones."""
    young, middle, all_ = whole["lost_300_tokens"], whole["lost_3600_tokens"], whole["lost_tokens"]
    rows = (("within 5 min", young), ("5 min to 1 h", middle - young), ("more than 1 h", all_ - middle))
    return [{"age": age, "lost_tokens": max(0.0, lost)} for age, lost in rows]


def _sums(con: duckdb.DuckDBPyConnection, column: str | None, span: dict[str, Any]) -> list[dict[str, Any]]:
    chosen = f"c.{column}" if column else "NULL"
    rows = con.execute(
        f"""
        SELECT {chosen} AS part, COUNT(*), SUM(c.input_tokens), SUM(c.cached_tokens),
          SUM(c.potential_inf_tokens),
          SUM(GREATEST(0, c.potential_inf_tokens - c.cached_tokens)),
          SUM(GREATEST(0, COALESCE(c.potential_3600_tokens, c.potential_inf_tokens) - c.cached_tokens)),
          SUM(GREATEST(0, COALESCE(c.potential_300_tokens, c.potential_inf_tokens) - c.cached_tokens))
        FROM fct_call AS c
        LEFT JOIN mart_suspect_cell AS s ON s.provider = c.provider AND s.is_stream = c.is_stream
        WHERE c.is_engine = 1 AND c.is_external = 0 AND c.cached_tokens IS NOT NULL
          AND c.potential_inf_tokens IS NOT NULL AND s.provider IS NULL
          AND c.start_at >= $start AND c.start_at < $end
        GROUP BY {chosen} ORDER BY 6 DESC, part LIMIT {_TOP}
        """,
        span,
    ).fetchall()
    return [
        {
            **({column: part} if column else {}),
            "calls": int(calls),
            "input_tokens": float(tokens or 0),
            "cached_tokens": float(cached or 0),
            "potential_tokens": float(known or 0),
            "new_tokens": max(0.0, float(tokens or 0) - float(known or 0)),
            "lost_tokens": float(lost or 0),
            "lost_3600_tokens": float(lost_3600 or 0),
            "lost_300_tokens": float(lost_300 or 0),
        }
        for part, calls, tokens, cached, known, lost, lost_3600, lost_300 in rows
        if column is None or part is not None
    ]


def _covered(con: duckdb.DuckDBPyConnection, calls: int, span: dict[str, Any]) -> float | None:
    row = con.execute(
        "SELECT COUNT(*) FROM fct_call WHERE is_engine = 1 AND is_external = 0 AND start_at >= $start "
        "AND start_at < $end",
        span,
    ).fetchone()
    return ratio(calls, row[0] if row else None)
