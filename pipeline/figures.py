"""The four figures of a window, each with unit, coverage, evidence and the convention it stands on.

A figure that cannot be computed is null with a reason. Sums are taken before dividing: no figure is a mean of
ratios.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pipeline.power import agents, energy
from pipeline.sql import binding, models, parameters

if TYPE_CHECKING:
    import duckdb

#: Names of the figures, and their keys in ``report.json``.
NAMES: Final = ("calls_per_human_hour", "prompt_length", "prefix_hit", "agents_per_megawatt")
#: Upper ends of the coarse histogram for people, tokens.
DISPLAY_BUCKETS: Final = (
    1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000, 256_000, 512_000, 1_000_000,
)  # fmt: skip
_CATEGORIES: Final = ("first_of_session", "model_switch", "compaction", "boundary", "within", "auxiliary", "unattributed")
_ENGINE_OVERCOUNT: Final = 1.05


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one window, and what they were computed from."""

    window: parameters.Window | None
    figures: dict[str, dict[str, Any]]
    counts: dict[str, Any] = field(default_factory=dict)
    reason: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the figures by name, ready for JSON."""
        return dict(self.figures)


def compute(
    lake: Path,
    settings: parameters.Conventions,
    since: date | datetime | None = None,
    until: date | datetime | None = None,
) -> Figures:
    """Compute the four figures over the facts of the lake.

    Args:
        lake: root of the lake; facts must have been built.
        settings: conventions.
        since: start of the window, naive UTC; default: the first call.
        until: end of the window, not included; default: the end of the last call.
    """
    from pipeline.run import connect

    con = connect(lake)
    try:
        window = bind(con, lake, settings, since, until)
        if window is None:
            reason = "the lake holds no call in the window"
            return Figures(None, {n: {"value": None, "unit": None, "coverage": None, "reason": reason} for n in NAMES},
                           reason=reason)  # fmt: skip
        return Figures(
            window,
            {
                "calls_per_human_hour": _calls_per_human_hour(con, settings, window),
                "prompt_length": _prompt_length(con, window),
                "prefix_hit": _prefix_hit(con),
                "agents_per_megawatt": agents.compute(con, settings, window),
            },
            _counts(con),
        )
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
    days = {binding.day_of(p) for p in binding.files(lake, binding.FACTS["fct_call"])}
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
        "WHERE start_at >= COALESCE($start, start_at) AND start_at < COALESCE($end, start_at + INTERVAL 1 SECOND)",
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
    energy.bind_series(con, settings, window)
    models.run(con, (*models.CALL_MARTS, *models.METRIC_MARTS), values)
    return window


def _instant(value: date | datetime | None) -> datetime | None:
    if value is None or isinstance(value, datetime):
        return value
    return datetime.combine(value, time())


def _calls_per_human_hour(
    con: duckdb.DuckDBPyConnection, settings: parameters.Conventions, window: parameters.Window
) -> dict[str, Any]:
    calls, prompts, sessions, turns = _one(
        con,
        "SELECT COUNT(*), COUNT(DISTINCT CASE WHEN initiator = 'user' THEN session_key || '/' || agent_id || '/' || "
        "turn_key END), COUNT(DISTINCT session_key), COUNT(DISTINCT session_key || '/' || agent_id || '/' || turn_key) "
        "FROM fct_call WHERE is_attended = 1 AND start_at >= $start AND start_at < $end",
        {"start": window.start, "end": window.end},
    )
    unattended, everything = _one(
        con,
        "SELECT SUM(1 - is_attended), COUNT(*) FROM fct_call WHERE start_at >= $start AND start_at < $end",
        {"start": window.start, "end": window.end},
    )
    all_hours, attended_hours, main_hours, peak = _one(
        con, "SELECT all_hours, attended_hours, attended_main_hours, peak_calls FROM mart_concurrency"
    )
    flight_all, flight_main = _one(con, _FLIGHT, {"start": window.start, "end": window.end})
    hours = window.seconds / 3600
    by_cap = con.execute(
        "SELECT idle_cap_s, SUM(human_hours), COUNT(DISTINCT user_key) FROM mart_human_hour WHERE scope = 'all' "
        "GROUP BY idle_cap_s ORDER BY idle_cap_s"
    ).fetchall()
    rows = [
        {
            "idle_cap_s": cap,
            "value": _ratio(calls, human),
            "human_hours": human,
            "duty_cycle": _ratio(flight_main, human),
            "amplification": _ratio(flight_all, flight_main),
            "mean_active_people": human / hours,
            "d_rho_a": _product(human / hours, _ratio(flight_main, human), _ratio(flight_all, flight_main)),
            "mean_concurrency": attended_hours / hours,
        }
        for cap, human, _ in by_cap
    ]
    in_turn = con.execute(
        "SELECT tool_cap, SUM(in_turn_hours) FROM mart_in_turn GROUP BY tool_cap, tool_cap_s "
        "ORDER BY COALESCE(tool_cap_s, 1e18)"
    ).fetchall()
    longest = _one(
        con,
        "SELECT MAX(h) FROM (SELECT SUM(human_hours) AS h FROM mart_human_hour WHERE scope = 'all' "
        "GROUP BY user_key, business_day, idle_cap_s)",
    )[0]
    return {
        "value": {f"{row['idle_cap_s'] / 60:g} min": row["value"] for row in rows} or None,
        "unit": "calls per human-hour",
        "reason": None if rows else "no attended work: no session with a user-initiated call and no service key",
        "convention": (
            "union over a user's sessions of in-flight time and gaps ≤ g; a longer gap counts nothing; business "
            f"days of {settings.business_time_zone}; unattended work excluded"
        ),
        "values": rows,
        "calls_per_in_turn_hour": {
            "unit": "calls per in-turn hour, by cap on tool gaps (a longer gap counts the cap)",
            "values": {cap: _ratio(calls, h) for cap, h in in_turn},
            "in_turn_hours": dict(in_turn),
        },
        "calls_per_user_prompt": {"value": _ratio(calls, prompts), "unit": "calls", "prompts": prompts},
        "turns_per_session": {"value": _ratio(turns, sessions), "sessions": sessions, "turns": turns},
        "calls_per_turn": {"value": _ratio(calls, turns)},
        "peak_concurrent_calls": peak,
        "mean_concurrency": {
            "attended": attended_hours / hours,
            "attended_main": main_hours / hours,
            "all": all_hours / hours,
        },
        "longest_user_day_hours": longest,
        "by": {scope: _human_by(con, scope, window) for scope in ("client", "team")},
        "coverage": {
            "attended_calls": calls,
            "unattended_calls": int(unattended or 0),
            "attended_share": _ratio(calls, everything),
            "calls_of_known_user": _known_user(con, window),
            "keys_shared_at_once": _shared_keys(con, window),
        },
        "evidence": _evidence(con),
    }


_FLIGHT: Final = """
SELECT
  COALESCE(SUM(DATE_DIFF('microsecond', GREATEST(start_at, $start), LEAST(end_at, $end))), 0) / 3.6e9,
  COALESCE(SUM(CASE WHEN agent_kind = 'main' AND outcome <> 'failure'
    THEN DATE_DIFF('microsecond', GREATEST(start_at, $start), LEAST(end_at, $end)) END), 0) / 3.6e9
FROM fct_call
WHERE is_attended = 1 AND is_engine = 1 AND end_at > $start AND start_at < $end
"""


def _human_by(con: duckdb.DuckDBPyConnection, scope: str, window: parameters.Window) -> list[dict[str, Any]]:
    column = {"client": "client", "team": "team_id"}[scope]
    rows = con.execute(
        f"""
        WITH human AS (
          SELECT scope_value, idle_cap_s, SUM(human_hours) AS hours FROM mart_human_hour
          WHERE scope = $scope GROUP BY scope_value, idle_cap_s
        ),
        calls AS (
          SELECT {column} AS scope_value, COUNT(*) AS calls FROM fct_call
          WHERE is_attended = 1 AND start_at >= $start AND start_at < $end GROUP BY {column}
        )
        SELECT h.scope_value, h.idle_cap_s, h.hours, c.calls FROM human AS h
        JOIN calls AS c ON c.scope_value = h.scope_value ORDER BY h.scope_value, h.idle_cap_s
        """,
        {"scope": scope, "start": window.start, "end": window.end},
    ).fetchall()
    return [
        {scope: v, "idle_cap_s": cap, "human_hours": h, "calls": n, "value": _ratio(n, h)} for v, cap, h, n in rows
    ]


def _known_user(con: duckdb.DuckDBPyConnection, window: parameters.Window) -> float | None:
    known, total = _one(
        con,
        "SELECT SUM(CASE WHEN user_hash IS NOT NULL THEN 1 ELSE 0 END), COUNT(*) FROM fct_call "
        "WHERE is_attended = 1 AND start_at >= $start AND start_at < $end",
        {"start": window.start, "end": window.end},
    )
    return _ratio(known, total)


def _shared_keys(con: duckdb.DuckDBPyConnection, window: parameters.Window) -> int:
    """Users known by their key alone who were in several turns at the same instant: maybe several people."""
    (count,) = _one(
        con,
        """
        WITH keyed AS (
          SELECT DISTINCT user_hash FROM fct_call WHERE user_source = 'key' AND is_attended = 1
        ),
        turn AS (
          SELECT t.user_hash, t.session_key, t.start_at, t.end_at FROM fct_turn AS t
          JOIN keyed AS k ON k.user_hash = t.user_hash
          WHERE t.agent_kind = 'main' AND t.end_at > $start AND t.start_at < $end
        ),
        edge AS (
          SELECT user_hash, start_at AS instant, 1 AS step FROM turn UNION ALL SELECT user_hash, end_at, -1 FROM turn
        ),
        level AS (
          SELECT user_hash, SUM(step) OVER (PARTITION BY user_hash ORDER BY instant, step
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS turns FROM edge
        )
        SELECT COUNT(DISTINCT user_hash) FROM level WHERE turns > 1
        """,
        {"start": window.start, "end": window.end},
    )
    return int(count or 0)


def _prompt_length(con: duckdb.DuckDBPyConnection, window: parameters.Window) -> dict[str, Any]:
    span = {"start": window.start, "end": window.end}
    calls, known, estimated, p50, p90, p95, p99, mean, with_both, tokens_in, tokens_out = _one(con, _LENGTH, span)
    fresh_calls, fresh_mean, fresh_p50, fresh_p95 = _one(
        con,
        "SELECT COUNT(new_tokens), AVG(new_tokens), QUANTILE_CONT(new_tokens, 0.5), QUANTILE_CONT(new_tokens, 0.95) "
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
        "convention": "calls an engine answered; percentiles linear-interpolated; response-cache hits left out",
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
        "input_to_output": {"value": _ratio(tokens_in, tokens_out), "calls": with_both},
        "by": {
            "model_group": _length_by(con, "model_group", span),
            "client": _length_by(con, "client", span),
            "team": _length_by(con, "team_id", span),
        },
        "coverage": {
            "engine_calls": calls,
            "calls_with_length": known,
            "share": _ratio(known, calls),
            "estimated_share": _ratio(estimated, known),
        },
        "evidence": _evidence(con),
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


def _prefix_hit(con: duckdb.DuckDBPyConnection) -> dict[str, Any]:
    calls, tokens, reporting, reporting_tokens, cached, written, suspect = _one(
        con,
        "SELECT SUM(calls), SUM(input_tokens), SUM(reporting_calls), SUM(reporting_input_tokens), SUM(cached_tokens), "
        "SUM(cache_write_tokens), SUM(suspect_calls) FROM mart_realised",
    )
    realised = _ratio(cached, reporting_tokens)
    retentions = con.execute(
        "SELECT retention, SUM(calls), SUM(input_tokens), SUM(potential_tokens), SUM(reporting_input_tokens), "
        "SUM(reporting_potential_tokens) FROM mart_potential GROUP BY retention"
    ).fetchall()
    potential = {
        r: {
            "value": _ratio(p, t),
            "calls": n,
            "coverage": _ratio(n, calls),
            "on_reporting_calls": _ratio(rp, rt),
        }
        for r, n, t, p, rt, rp in sorted(retentions, key=lambda row: (row[0] != "inf", -_number(row[0])))
    }
    engine = _engine_hit(con)
    value: dict[str, Any] = {"realised": realised} | {f"potential_{r}": v["value"] for r, v in potential.items()}
    reason = None
    if all(v is None for v in value.values()):
        reason = "no backend reported cached tokens and no prefix chain is known"
    return {
        "value": None if reason else value,
        "unit": "share of prompt tokens",
        "reason": reason,
        "convention": (
            "realised = Σ cached ÷ Σ input over calls whose backend reported cached tokens (unknown is not 0); "
            "potential = Σ prefix tokens that an earlier call of the same session, agent and model sent within the "
            "retention ÷ Σ input; never a mean of ratios"
        ),
        "realised": {
            "value": realised,
            "reason": None if reporting else "no backend reported cached tokens",
            "cached_tokens": cached,
            "input_tokens": reporting_tokens,
            "written_share": _ratio(written, reporting_tokens),
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
            for name in ("category", "position", "break_reason", "idle_bin", "model_group", "client", "team_id")
        },
        "hourly": _hit_hourly(con),
        "coverage": {
            "engine_calls": calls,
            "engine_input_tokens": tokens,
            "reporting_calls": reporting,
            "share_of_calls": _ratio(reporting, calls),
            "share_of_input_tokens": _ratio(reporting_tokens, tokens),
            "suspect_calls": suspect,
        },
        "evidence": _evidence(con),
    }


def _hit_by(con: duckdb.DuckDBPyConnection, column: str) -> list[dict[str, Any]]:
    realised = con.execute(
        f"SELECT {column}, SUM(calls), SUM(reporting_calls), SUM(reporting_input_tokens), SUM(cached_tokens) "
        f"FROM mart_realised WHERE {column} IS NOT NULL GROUP BY {column} ORDER BY {column}"
    ).fetchall()
    potential = con.execute(
        f"SELECT {column}, retention, SUM(potential_tokens), SUM(input_tokens), SUM(calls) FROM mart_potential "
        f"WHERE {column} IS NOT NULL GROUP BY {column}, retention ORDER BY {column}, retention"
    ).fetchall()
    rows = []
    for value, calls, reporting, tokens, cached in realised:
        row = {column: value, "calls": calls, "reporting_calls": reporting, "realised": _ratio(cached, tokens)}
        for other, retention, shared, total, known in potential:
            if other == value:
                row[f"potential_{retention}"] = _ratio(shared, total)
                row["potential_calls"] = known if retention == "inf" else row.get("potential_calls")
        rows.append(row)
    if column == "category":
        rows.sort(key=lambda r: _CATEGORIES.index(r["category"]) if r["category"] in _CATEGORIES else 99)
    if column == "idle_bin":
        order = ("<10 s", "10–60 s", "1–5 min", "5–10 min", "10–60 min", "≥60 min")
        rows.sort(key=lambda r: order.index(r["idle_bin"]))
    return rows


def _hit_hourly(con: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    rows = con.execute(
        """
        WITH realised AS (
          SELECT hour, SUM(calls) AS calls, SUM(reporting_calls) AS reporting_calls,
            SUM(reporting_input_tokens) AS tokens, SUM(cached_tokens) AS cached FROM mart_realised GROUP BY hour
        ),
        potential AS (
          SELECT hour, SUM(potential_tokens) AS shared, SUM(input_tokens) AS tokens FROM mart_potential
          WHERE retention = 'inf' GROUP BY hour
        ),
        engine AS (
          SELECT hour, SUM(hit_tokens) AS hits, SUM(query_tokens) AS queries FROM mart_engine_prefix GROUP BY hour
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
            "realised": _ratio(cached, tokens),
            "potential_inf": _ratio(shared, total),
            "engine": _ratio(hits, queries),
        }
        for hour, calls, reporting, cached, tokens, shared, total, hits, queries in rows
    ]


def _engine_hit(con: duckdb.DuckDBPyConnection) -> dict[str, Any]:
    hits, queries, prompt, preemptions, resets, series = _one(
        con,
        "SELECT SUM(hit_tokens), SUM(query_tokens), SUM(prompt_tokens), SUM(preemptions), SUM(resets), COUNT(*) "
        "FROM mart_engine_prefix",
    )
    value = _ratio(hits, queries)
    growth = _ratio(queries, prompt)
    if not series or queries is None:
        reason: str | None = "no engine counters vllm:prefix_cache_hits / vllm:prefix_cache_queries in the window"
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
        "meaning": "the engine's own counters: all its traffic, recomputation after preemption counted as hits",
    }


def _evidence(con: duckdb.DuckDBPyConnection) -> dict[str, dict[str, float | None]]:
    shares: dict[str, dict[str, float | None]] = {}
    for name in ("session_evidence", "turn_evidence", "source"):
        rows = con.execute(
            f"SELECT {name}, SUM(calls) FROM mart_call_day GROUP BY {name} ORDER BY {name}"
        ).fetchall()
        total = sum(n for _, n in rows)
        shares[name] = {str(k): _ratio(n, total) for k, n in rows}
    return shares


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
        rows = con.execute(f"SELECT {column}, SUM(calls) FROM mart_call_day GROUP BY {column} ORDER BY {column}")
        counts[f"by_{column}"] = dict(rows.fetchall())
    for column in ("plugin_version", "litellm_version"):
        rows = con.execute(f"SELECT DISTINCT {column} FROM fct_call WHERE {column} IS NOT NULL ORDER BY {column}")
        counts[f"{column}s"] = [value for (value,) in rows.fetchall()]
    return counts


def _one(con: duckdb.DuckDBPyConnection, query: str, values: dict[str, Any] | None = None) -> Sequence[Any]:
    row = con.execute(query, values).fetchone()
    assert row is not None  # an aggregate without GROUP BY always returns one row
    return row


def _ratio(top: float | None, bottom: float | None) -> float | None:
    if top is None or not bottom:
        return None
    return float(top) / float(bottom)


def _product(*factors: float | None) -> float | None:
    result = 1.0
    for factor in factors:
        if factor is None:
            return None
        result *= factor
    return result


def _number(label: str) -> float:
    return float(label)
