"""Prompt length: the distribution of input tokens over calls that an engine answered."""

# ruff: noqa: S608 - column names come from closed lists in this module; values are parameters

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from pipeline.sql import parameters
from pipeline.sql.evidence import evidence, one, ratio

if TYPE_CHECKING:
    import duckdb

#: Upper ends of the coarse histogram for people, tokens.
DISPLAY_BUCKETS: Final = (
    1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000, 256_000, 512_000, 1_000_000,
)  # fmt: skip


def compute(con: duckdb.DuckDBPyConnection, window: parameters.Window) -> dict[str, Any]:
    """Return percentiles, mean and histograms of prompt lengths (the marts must be built)."""
    span = {"start": window.start, "end": window.end}
    calls, known, estimated, p50, p90, p95, p99, mean, with_both, tokens_in, tokens_out = one(
        con, _LENGTH, span
    )
    fresh_calls, fresh_mean, fresh_p50, fresh_p95 = one(
        con,
        "SELECT COUNT(new_tokens), AVG(new_tokens), QUANTILE_CONT(new_tokens, 0.5), "
        "QUANTILE_CONT(new_tokens, 0.95) "
        "FROM fct_call WHERE is_engine = 1 AND input_tokens > 0 AND start_at >= $start AND start_at < $end",
        span,
    )
    buckets = con.execute(
        "SELECT bucket, SUM(calls), SUM(input_tokens) FROM mart_prompt_bucket GROUP BY bucket ORDER BY bucket"
    ).fetchall()
    return {
        "value": {"p50": p50, "p90": p90, "p95": p95, "p99": p99, "mean": mean} if known else None,
        "unit": "prompt tokens per call, cached and written ones included",
        "reason": None if known else "no call of the window has a known prompt length",
        "convention": "calls an engine answered; percentiles linear-interpolated; response-cache hits left "
        "out",
        "calls": known,
        "histogram": {"gamma": 1.02, "buckets": [[int(b), int(n), int(t)] for b, n, t in buckets]},
        "display_histogram": _display_histogram(con, span),
        "new_tokens_per_call": {
            "value": fresh_mean,
            "p50": fresh_p50,
            "p95": fresh_p95,
            "calls": fresh_calls,
            "reason": None if fresh_calls else "no backend reported cached tokens",
        },
        "input_to_output": {"value": ratio(tokens_in, tokens_out), "calls": with_both},
        "by": {
            "model_group": _length_by(con, "model_group", span),
            "profile": _length_by_profile(con),
            "client": _length_by(con, "client", span),
            "team": _length_by(con, "team_id", span),
            "key": _length_by(con, "key_alias", span),
            "day": _length_by(con, "start_date", span),
        },
        "coverage": {
            "engine_calls": calls,
            "calls_with_length": known,
            "share": ratio(known, calls),
            "estimated_share": ratio(estimated, known),
        },
        "evidence": evidence(con),
    }


_LENGTH: Final = """
SELECT
  COUNT(*),
  SUM(CASE WHEN input_tokens > 0 THEN 1 ELSE 0 END),
  SUM(CASE WHEN input_tokens > 0 AND usage_source = 'estimated' THEN 1 ELSE 0 END),
  QUANTILE_CONT(CASE WHEN input_tokens > 0 THEN input_tokens END, 0.5),
  QUANTILE_CONT(CASE WHEN input_tokens > 0 THEN input_tokens END, 0.9),
  QUANTILE_CONT(CASE WHEN input_tokens > 0 THEN input_tokens END, 0.95),
  QUANTILE_CONT(CASE WHEN input_tokens > 0 THEN input_tokens END, 0.99),
  AVG(CASE WHEN input_tokens > 0 THEN input_tokens END),
  SUM(CASE WHEN input_tokens > 0 AND output_tokens IS NOT NULL THEN 1 ELSE 0 END),
  SUM(CASE WHEN output_tokens IS NOT NULL AND input_tokens > 0 THEN input_tokens END),
  SUM(CASE WHEN input_tokens > 0 THEN output_tokens END)
FROM fct_call
WHERE is_engine = 1 AND start_at >= $start AND start_at < $end
"""


def _display_histogram(con: duckdb.DuckDBPyConnection, span: dict[str, Any]) -> list[dict[str, Any]]:
    cases = " ".join(f"WHEN input_tokens <= {top} THEN {top}" for top in DISPLAY_BUCKETS)
    found = dict(
        con.execute(
            f"SELECT CASE {cases} ELSE NULL END AS top, COUNT(*) FROM fct_call WHERE is_engine = 1 "
            "AND input_tokens > 0 AND start_at >= $start AND start_at < $end GROUP BY top",
            span,
        ).fetchall()
    )
    bounds: list[tuple[int, int | None]] = [*pairwise((0, *DISPLAY_BUCKETS)), (DISPLAY_BUCKETS[-1], None)]
    return [{"above": low, "up_to": high, "calls": int(found.get(high, 0))} for low, high in bounds]


def _length_by(con: duckdb.DuckDBPyConnection, column: str, span: dict[str, Any]) -> list[dict[str, Any]]:
    rows = con.execute(
        f"SELECT {column}, COUNT(*), QUANTILE_CONT(input_tokens, 0.5), QUANTILE_CONT(input_tokens, 0.95), "
        "AVG(input_tokens) FROM fct_call WHERE is_engine = 1 AND input_tokens > 0 AND start_at >= $start "
        f"AND start_at < $end AND {column} IS NOT NULL GROUP BY {column} ORDER BY {column}",
        span,
    ).fetchall()
    return [{column: v, "calls": n, "p50": p50, "p95": p95, "mean": mean} for v, n, p50, p95, mean in rows]


def _length_by_profile(con: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    rows = con.execute(
        "SELECT profile, COUNT(*), QUANTILE_CONT(input_tokens, 0.5), QUANTILE_CONT(input_tokens, 0.95), "
        "AVG(input_tokens) FROM rel_call WHERE is_engine = 1 AND input_tokens > 0 GROUP BY profile "
        "ORDER BY profile"
    ).fetchall()
    return [{"profile": v, "calls": n, "p50": p50, "p95": p95, "mean": mean} for v, n, p50, p95, mean in rows]
