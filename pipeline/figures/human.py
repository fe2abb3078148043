"""Calls per human-hour: how much one hour of a person's work with agents asks of the models."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from pipeline.figures import concurrency
from pipeline.sql import parameters
from pipeline.sql.evidence import evidence, one, product, ratio

if TYPE_CHECKING:
    import duckdb


def compute(
    con: duckdb.DuckDBPyConnection, settings: parameters.Conventions, window: parameters.Window
) -> dict[str, Any]:
    """Return the figure for every idle cap, with what it is made of (the marts must be built)."""
    calls, main_calls, prompts, sessions, turns = one(
        con, _COUNTS, {"start": window.start, "end": window.end}
    )
    unattended, homeless, everything = one(
        con,
        "SELECT SUM(1 - is_attended), SUM(CASE WHEN session_key IS NULL THEN 1 ELSE 0 END), COUNT(*) FROM "
        "fct_call WHERE start_at >= $start AND start_at < $end",
        {"start": window.start, "end": window.end},
    )
    all_hours, attended_hours, main_hours, peak = one(
        con, "SELECT all_hours, attended_hours, attended_main_hours, peak_calls FROM mart_concurrency"
    )
    flight_all, flight_main = one(con, _FLIGHT, {"start": window.start, "end": window.end})
    hours = window.seconds / 3600
    by_cap = con.execute(
        "SELECT idle_cap_s, SUM(human_hours), COUNT(DISTINCT user_key) FROM mart_human_hour WHERE scope = "
        "'all' "
        "GROUP BY idle_cap_s ORDER BY idle_cap_s"
    ).fetchall()
    rows = [
        {
            "idle_cap_s": cap,
            "value": ratio(calls, human),
            "human_hours": human,
            "duty_cycle": ratio(flight_main, human),
            "amplification": ratio(flight_all, flight_main),
            "mean_active_people": human / hours,
            "d_rho_a": product(human / hours, ratio(flight_main, human), ratio(flight_all, flight_main)),
            "mean_concurrency": attended_hours / hours,
        }
        for cap, human, _ in by_cap
    ]
    in_turn = con.execute(
        "SELECT tool_cap, SUM(in_turn_hours) FROM mart_in_turn GROUP BY tool_cap, tool_cap_s "
        "ORDER BY COALESCE(tool_cap_s, 1e18)"
    ).fetchall()
    longest = one(
        con,
        "SELECT MAX(h) FROM (SELECT SUM(human_hours) AS h FROM mart_human_hour WHERE scope = 'all' "
        "GROUP BY user_key, business_day, idle_cap_s)",
    )[0]
    return {
        "value": {f"{row['idle_cap_s'] / 60:g} min": row["value"] for row in rows} or None,
        "unit": "calls per human-hour",
        "reason": None
        if rows
        else "no attended work: no session with a user-initiated call and no service key",
        "convention": (
            "union over a user's sessions of in-flight time and gaps ≤ g; a longer gap counts nothing; "
            "business "
            f"days of {settings.business_time_zone}; unattended work excluded"
        ),
        "values": rows,
        "calls_per_in_turn_hour": {
            "unit": "main-thread calls per in-turn hour, by cap on tool gaps (a longer gap counts the cap)",
            "values": {cap: ratio(main_calls, h) for cap, h in in_turn},
            "in_turn_hours": dict(in_turn),
        },
        "calls_per_user_prompt": {"value": ratio(calls, prompts), "unit": "calls", "prompts": prompts},
        "turns_per_session": {"value": ratio(turns, sessions), "sessions": sessions, "turns": turns},
        "calls_per_turn": {
            "value": ratio(main_calls, turns),
            "meaning": "main-thread calls per main-thread turn",
        },
        "peak_concurrent_calls": peak,
        "concurrency_by_hour_of_week": _by_hour_of_week(con, settings.business_time_zone),
        "concurrency_quantiles_by_hour_of_week": concurrency.by_hour_of_week(
            con, settings.business_time_zone
        ),
        "mean_concurrency": {
            "attended": attended_hours / hours,
            "attended_main": main_hours / hours,
            "all": all_hours / hours,
        },
        "longest_user_day_hours": longest,
        "by": {scope: _human_by(con, scope) for scope in ("profile", "client", "team", "key", "model")},
        "by_day": _by_day(con),
        "coverage": {
            "attended_calls": calls,
            "unattended_calls": int(unattended or 0),
            "attended_share": ratio(calls, everything),
            "calls_without_session": int(homeless or 0),
            "calls_of_known_user": _known_user(con, window),
            "keys_shared_at_once": _shared_keys(con, window),
        },
        "evidence": evidence(con),
    }


#: A subagent's first call may look user-initiated; prompts and turns are the main thread's.
_COUNTS: Final = """
SELECT
  COUNT(*),
  SUM(CASE WHEN agent_kind = 'main' THEN 1 ELSE 0 END),
  COUNT(DISTINCT CASE WHEN agent_kind = 'main' AND initiator = 'user'
    THEN session_key || '/' || agent_id || '/' || turn_key END),
  COUNT(DISTINCT session_key),
  COUNT(DISTINCT CASE WHEN agent_kind = 'main' THEN session_key || '/' || agent_id || '/' || turn_key END)
FROM fct_call
WHERE is_attended = 1 AND start_at >= $start AND start_at < $end
"""

_FLIGHT: Final = """
SELECT
  COALESCE(SUM(DATE_DIFF('microsecond', GREATEST(start_at, $start), LEAST(end_at, $end))), 0) / 3.6e9,
  COALESCE(SUM(CASE WHEN agent_kind = 'main' AND outcome <> 'failure'
    THEN DATE_DIFF('microsecond', GREATEST(start_at, $start), LEAST(end_at, $end)) END), 0) / 3.6e9
FROM fct_call
WHERE is_attended = 1 AND is_engine = 1 AND end_at > $start AND start_at < $end
"""


def _human_by(con: duckdb.DuckDBPyConnection, scope: str) -> list[dict[str, Any]]:
    rows = con.execute(
        "SELECT member, cap_s, SUM(human_hours), SUM(calls) FROM rel_human WHERE scope = $scope "
        "GROUP BY member, cap_s HAVING SUM(human_hours) > 0 ORDER BY member, cap_s",
        {"scope": scope},
    ).fetchall()
    return [
        {scope: v, "idle_cap_s": cap, "human_hours": h, "calls": int(n), "value": ratio(n, h)}
        for v, cap, h, n in rows
    ]


def _by_day(con: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    """Human-hours and calls of each business day; a call belongs to the day it starts in."""
    rows = con.execute(
        """
        WITH human AS (
          SELECT business_day, idle_cap_s, SUM(human_hours) AS hours FROM mart_human_hour
          WHERE scope = 'all' GROUP BY business_day, idle_cap_s
        ),
        calls AS (
          SELECT d.business_day, COUNT(*) AS calls FROM prm_business_day AS d
          JOIN fct_call AS c ON c.start_at >= d.start_at AND c.start_at < d.end_at
          WHERE c.is_attended = 1 AND c.start_at >= (SELECT MIN(start_at) FROM prm_hour)
            AND c.start_at < (SELECT MAX(end_at) FROM prm_hour)
          GROUP BY d.business_day
        )
        SELECT h.business_day, h.idle_cap_s, h.hours, c.calls FROM human AS h
        LEFT JOIN calls AS c ON c.business_day = h.business_day ORDER BY h.business_day, h.idle_cap_s
        """
    ).fetchall()
    return [
        {"day": d, "idle_cap_s": cap, "human_hours": h, "calls": n or 0, "value": ratio(n or 0, h)}
        for d, cap, h, n in rows
    ]


def _known_user(con: duckdb.DuckDBPyConnection, window: parameters.Window) -> float | None:
    known, total = one(
        con,
        "SELECT SUM(CASE WHEN user_hash IS NOT NULL THEN 1 ELSE 0 END), COUNT(*) FROM fct_call "
        "WHERE is_attended = 1 AND start_at >= $start AND start_at < $end",
        {"start": window.start, "end": window.end},
    )
    return ratio(known, total)


def _shared_keys(con: duckdb.DuckDBPyConnection, window: parameters.Window) -> int:
    """Users known by their key alone who were in several turns at the same instant: maybe several people."""
    (count,) = one(
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
          SELECT user_hash, start_at AS instant, 1 AS step FROM turn
          UNION ALL SELECT user_hash, end_at, -1 FROM turn
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


#: An hour counts as a sample when at least this much of it lies inside the window, seconds.
_SAMPLE_SECONDS: Final = 1800


def _by_hour_of_week(con: duckdb.DuckDBPyConnection, time_zone: str) -> dict[str, list[float]]:
    """Mean calls in flight of every hour, by hour of the business week (0 = Monday 00:00 to 167)."""
    zone = ZoneInfo(time_zone)
    found: dict[int, list[float]] = {}
    for hour, seconds, mean in con.execute(
        "SELECT hour_start, seconds, mean_calls FROM mart_concurrency_hour ORDER BY hour_start"
    ).fetchall():
        if seconds >= _SAMPLE_SECONDS:
            local = hour.replace(tzinfo=UTC).astimezone(zone)
            found.setdefault(local.weekday() * 24 + local.hour, []).append(float(mean))
    return {str(hour): values for hour, values in sorted(found.items())}
