"""Prefix hit: what could be reused of the prompts, what the backends say was, and what the engine counted."""

# ruff: noqa: S608 - column names come from closed lists in this module; values are parameters

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pipeline.sql.evidence import evidence, one, ratio

if TYPE_CHECKING:
    import duckdb

_CATEGORIES: Final = (
    "first_of_session",
    "model_switch",
    "compaction",
    "boundary",
    "within",
    "auxiliary",
    "unattributed",
)
_ENGINE_OVERCOUNT: Final = 1.05


def compute(con: duckdb.DuckDBPyConnection) -> dict[str, Any]:
    """Return realised, potential and the engine's own hit, whole and in parts (the marts must be built)."""
    calls, tokens, reporting, reporting_tokens, cached, written, suspect = one(
        con,
        "SELECT SUM(calls), SUM(input_tokens), SUM(reporting_calls), SUM(reporting_input_tokens), "
        "SUM(cached_tokens), "
        "SUM(cache_write_tokens), SUM(suspect_calls) FROM mart_realised",
    )
    realised = ratio(cached, reporting_tokens)
    retentions = con.execute(
        "SELECT retention, SUM(calls), SUM(input_tokens), SUM(potential_tokens), "
        "SUM(reporting_input_tokens), "
        "SUM(reporting_potential_tokens) FROM mart_potential GROUP BY retention"
    ).fetchall()
    potential = {
        r: {
            "value": ratio(p, t),
            "calls": n,
            "coverage": ratio(n, calls),
            "on_reporting_calls": ratio(rp, rt),
        }
        for r, n, t, p, rt, rp in sorted(retentions, key=lambda row: (row[0] != "inf", -float(row[0])))
    }
    engine = _engine_hit(con)
    value: dict[str, Any] = {"realised": realised} | {
        f"potential_{r}": v["value"] for r, v in potential.items()
    }
    reason = None
    if all(v is None for v in value.values()):
        reason = "no backend reported cached tokens and no prefix chain is known"
    return {
        "value": None if reason else value,
        "unit": "share of prompt tokens",
        "reason": reason,
        "convention": (
            "realised = Σ cached ÷ Σ input over calls whose backend reported cached tokens (unknown is not "
            "0); "
            "potential = Σ prefix tokens that an earlier call of the same session, agent and model sent "
            "within the "
            "retention ÷ Σ input; never a mean of ratios"
        ),
        "realised": {
            "value": realised,
            "reason": None if reporting else "no backend reported cached tokens",
            "cached_tokens": cached,
            "input_tokens": reporting_tokens,
            "written_share": ratio(written, reporting_tokens),
        },
        "potential": potential,
        "engine": engine,
        "suspect_cells": [
            {"provider": p, "stream": bool(s), "calls": n}
            for p, s, n in con.execute(
                "SELECT provider, is_stream, reporting_calls FROM mart_suspect_cell ORDER BY provider"
            ).fetchall()
        ],
        "by": {
            name: _hit_by(con, name)
            for name in (
                "category",
                "position",
                "break_reason",
                "idle_bin",
                "model_group",
                "client",
                "team_id",
            )
        }
        | {name: _hit_by_who(con, name) for name in ("key_alias", "profile")},
        "hourly": _hit_hourly(con),
        "coverage": {
            "engine_calls": calls,
            "engine_input_tokens": tokens,
            "reporting_calls": reporting,
            "share_of_calls": ratio(reporting, calls),
            "share_of_input_tokens": ratio(reporting_tokens, tokens),
            "suspect_calls": suspect,
        },
        "evidence": evidence(con),
    }


def _hit_by(con: duckdb.DuckDBPyConnection, column: str) -> list[dict[str, Any]]:
    realised = con.execute(
        f"SELECT {column}, SUM(calls), SUM(reporting_calls), SUM(reporting_input_tokens), SUM(cached_tokens) "
        f"FROM mart_realised WHERE {column} IS NOT NULL GROUP BY {column} ORDER BY {column}"
    ).fetchall()
    potential = con.execute(
        f"SELECT {column}, retention, SUM(potential_tokens), SUM(input_tokens), SUM(calls) FROM "
        "mart_potential "
        f"WHERE {column} IS NOT NULL GROUP BY {column}, retention ORDER BY {column}, retention"
    ).fetchall()
    rows = []
    for value, calls, reporting, tokens, cached in realised:
        row = {column: value, "calls": calls, "reporting_calls": reporting, "realised": ratio(cached, tokens)}
        for other, retention, shared, total, known in potential:
            if other == value:
                row[f"potential_{retention}"] = ratio(shared, total)
                row["potential_calls"] = known if retention == "inf" else row.get("potential_calls")
        rows.append(row)
    if column == "category":
        rows.sort(key=lambda r: _CATEGORIES.index(r["category"]) if r["category"] in _CATEGORIES else 99)
    if column == "idle_bin":
        order = ("<10 s", "10–60 s", "1–5 min", "5–10 min", "10–60 min", "≥60 min")
        rows.sort(key=lambda r: order.index(r["idle_bin"]))
    return rows


def _hit_by_who(con: duckdb.DuckDBPyConnection, column: str) -> list[dict[str, Any]]:
    """As :func:`_hit_by`, for who the hourly sums do not tell apart."""
    rows = con.execute(
        f"SELECT {column}, SUM(engine_calls), SUM(cached_calls), SUM(cached_tokens), "
        "SUM(cached_input_tokens), SUM(chain_calls), SUM(potential_inf_tokens), SUM(chain_input_tokens), "
        "SUM(potential_3600_tokens), SUM(chain_3600_input_tokens), SUM(potential_300_tokens), "
        "SUM(chain_300_input_tokens) "
        f"FROM mart_prefix_cell WHERE {column} IS NOT NULL GROUP BY {column} ORDER BY {column}"
    ).fetchall()
    return [
        {
            column: row[0],
            "calls": row[1],
            "reporting_calls": row[2],
            "realised": ratio(row[3], row[4]),
            "potential_calls": row[5],
            "potential_inf": ratio(row[6], row[7]),
            "potential_3600": ratio(row[8], row[9]),
            "potential_300": ratio(row[10], row[11]),
        }
        for row in rows
    ]


def _hit_hourly(con: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    rows = con.execute(
        """
        WITH realised AS (
          SELECT hour, SUM(calls) AS calls, SUM(reporting_calls) AS reporting_calls,
            SUM(reporting_input_tokens) AS tokens, SUM(cached_tokens) AS cached
          FROM mart_realised GROUP BY hour
        ),
        potential AS (
          SELECT hour, SUM(potential_tokens) AS shared, SUM(input_tokens) AS tokens FROM mart_potential
          WHERE retention = 'inf' GROUP BY hour
        ),
        engine AS (
          SELECT hour, SUM(hit_tokens) AS hits, SUM(query_tokens) AS queries
          FROM mart_engine_prefix GROUP BY hour
        )
        SELECT r.hour, r.calls, r.reporting_calls, r.cached, r.tokens, p.shared, p.tokens, e.hits, e.queries
        FROM realised AS r
        LEFT JOIN potential AS p ON p.hour = r.hour
        LEFT JOIN engine AS e ON e.hour = r.hour
        ORDER BY r.hour
        """
    ).fetchall()
    return [
        {
            "hour": hour.isoformat(),
            "calls": calls,
            "reporting_calls": reporting,
            "input_tokens": tokens,
            "cached_tokens": cached,
            "realised": ratio(cached, tokens),
            "potential_inf": ratio(shared, total),
            "engine": ratio(hits, queries),
        }
        for hour, calls, reporting, cached, tokens, shared, total, hits, queries in rows
    ]


def _engine_hit(con: duckdb.DuckDBPyConnection) -> dict[str, Any]:
    hits, queries, prompt, preemptions, resets, series = one(
        con,
        "SELECT SUM(hit_tokens), SUM(query_tokens), SUM(prompt_tokens), SUM(preemptions), SUM(resets), "
        "COUNT(*) "
        "FROM mart_engine_prefix",
    )
    value = ratio(hits, queries)
    growth = ratio(queries, prompt)
    if not series or queries is None:
        reason: str | None = (
            "no engine counters vllm:prefix_cache_hits / vllm:prefix_cache_queries in the window"
        )
    elif value is None:
        reason = "the engine's query counter did not grow"
    elif value > 1:
        value, reason = None, f"the engine counted {hits:g} hits for {queries:g} queries: not a share"
    else:
        reason = None
    return {
        "value": value,
        "reason": reason,
        "hit_tokens": hits,
        "query_tokens": queries,
        "queries_to_prompt_tokens": growth,
        "overcounted": None if growth is None else growth > _ENGINE_OVERCOUNT,
        "preemptions": preemptions,
        "counter_resets": resets,
        "meaning": "the engine's own counters: all its traffic, recomputation after preemption counted as "
        "hits",
    }
