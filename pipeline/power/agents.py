"""Agents per megawatt: conformant agent-hours of a window over its measured megawatt-hours."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import TYPE_CHECKING, Any, Final

from pipeline.power import energy
from pipeline.power.interval import Day, ratio_interval
from pipeline.sql import parameters
from pipeline.sql.evidence import evidence

if TYPE_CHECKING:
    import duckdb

STATES: Final = ("in_turn", "open", "llm_active")
UNIT: Final = "agents per megawatt (agent-hours per megawatt-hour)"
CONVENTION: Final = (
    "served, not capacity; root agents; hourly cells; a gap belongs to the turn before it; idle power and "
    "failing turns stay in the denominator; only seconds in which every device was measured count"
)
_LITTLE_LIMIT: Final = 0.02
_KV_NEAR_LIMIT: Final = 0.9


def compute(
    con: duckdb.DuckDBPyConnection, settings: parameters.Conventions, window: parameters.Window
) -> dict[str, Any]:
    """Return the figure for every boundary, state and service level, or null with the reason.

    The marts must be built. Lower counts a turn of unknown conformity as a miss, upper as a pass; ``value``
    is the lower one.
    """
    measured = energy.measured(con, settings, window)
    little = _little(con, window)
    saturation = _saturation(con)
    external = _external(con)
    figure: dict[str, Any] = {
        "value": None,
        "unit": UNIT,
        "reason": None,
        "boundary": None,
        "synthetic": None,
        "convention": CONVENTION,
        "values": [],
        "boundaries": [e.to_dict() for e in measured],
        "facility": _facility(settings, measured),
        "capacity": {
            "value": None,
            "reason": "capacity needs a load sweep or a fitted envelope; this is a served ratio",
        },
        "coverage": {
            "power": {e.scope: e.coverage for e in measured},
            "excluded_s": {e.scope: max(0.0, e.window_s - e.covered_s) for e in measured},
            "turns_of_unknown_conformity": _unknown_share(con),
        },
        "external": external,
        "littles_law": little,
        "saturation": saturation,
        "evidence": evidence(con),
    }
    reason = _refusal(con, measured, window)
    if reason:
        return figure | {"reason": reason}
    usable = [e for e in measured if e.coverage >= energy.MIN_COVERAGE and e.mwh > 0]
    for boundary in usable:
        figure["values"] += _rows(con, settings, boundary)
    figure["refused"] = {e.scope: _too_thin(e) for e in measured if e not in usable}
    headline = next((r for r in figure["values"] if r["state"] == "in_turn"), None)
    if headline is None:
        return figure | {"reason": "no agent of ours was in a turn while power was measured"}
    figure |= {
        "value": headline["value"],
        "headline": {k: headline[k] for k in ("boundary", "state", "tier")},
        "boundary": headline["boundary"],
        "synthetic": headline["synthetic"],
    }
    return figure


def _refusal(
    con: duckdb.DuckDBPyConnection, measured: list[energy.Energy], window: parameters.Window
) -> str | None:
    if not measured:
        return "no power was measured in the window (no configured power series was found in it)"
    if all(e.mwh <= 0 for e in measured):
        return (
            "power series were found, but no two neighbouring samples bound a measured stretch of the window"
        )
    if all(e.coverage < energy.MIN_COVERAGE for e in measured):
        return "; ".join(_too_thin(e) for e in measured)
    sessions = con.execute(
        "SELECT COUNT(DISTINCT session_key) FROM mart_agent_interval "
        "WHERE agent_kind = 'main' AND end_at > $start AND start_at < $end",
        {"start": window.start, "end": window.end},
    ).fetchone()
    count = int(sessions[0]) if sessions else 0
    if count < 2:
        return f"{count} session in the window: a ratio of one session says nothing about a fleet"
    ours = con.execute(
        "SELECT COUNT(*) FROM mart_agent_hour WHERE agent_kind = 'main' AND is_external = 0"
    ).fetchone()
    if not ours or not ours[0]:
        return (
            "no turn was served by power that we measure: every one went to an external provider, or none "
            "overlaps the measured time (map model groups to targets in power.model_groups)"
        )
    return None


def _too_thin(measured: energy.Energy) -> str:
    thinnest = min(measured.devices, key=lambda d: float(d["coverage"]), default=None)
    detail = f"; thinnest device {thinnest['device']} at {thinnest['coverage']:.1%}" if thinnest else ""
    return (
        f"power ({measured.scope}) covers {measured.coverage:.1%} of the window, at least "
        f"{energy.MIN_COVERAGE:.0%} are needed{detail}"
    )


def _rows(
    con: duckdb.DuckDBPyConnection, settings: parameters.Conventions, boundary: energy.Energy
) -> list[dict[str, Any]]:
    rows = []
    tiers = [parameters.tier_label(t) for t in settings.slo_tiers]
    for state in STATES:
        for tier in tiers:
            root = _hours(con, boundary.scope, state, tier, "main")
            subagents = _hours(con, boundary.scope, state, tier, "subagent")
            if root is None:
                continue
            total, lower, upper, pooled = root
            spread = boundary.accuracy_percent / 100
            daily = _daily(con, boundary.scope, state, tier)
            rows.append(
                {
                    "boundary": boundary.scope,
                    "kind": "served",
                    "power": "measured",
                    "synthetic": boundary.synthetic,
                    "state": state,
                    "tier": tier,
                    "rule": "turn",
                    "value": lower / boundary.mwh,
                    "value_upper": upper / boundary.mwh,
                    "any_conformity": total / boundary.mwh,
                    "pooled_rule": pooled / boundary.mwh,
                    "subagents_beside": None if subagents is None else subagents[1] / boundary.mwh,
                    "agent_hours": total,
                    "conformant_agent_hours": [lower, upper],
                    "conformant_share": [lower / total, upper / total] if total > 0 else None,
                    "megawatt_hours": boundary.mwh,
                    "measurement_interval": [
                        lower / (boundary.mwh * (1 + spread)),
                        upper / (boundary.mwh * (1 - spread)),
                    ],
                    "week_interval": _week_interval(daily),
                    "by_day": [
                        {"day": day, "value": hours / mwh, "agent_hours": hours, "megawatt_hours": mwh}
                        for day, hours, mwh, _ in daily
                    ],
                }
            )
    return rows


def _hours(
    con: duckdb.DuckDBPyConnection, scope: str, state: str, tier: str, kind: str
) -> tuple[float, float, float, float] | None:
    row = con.execute(
        "SELECT SUM(agent_hours), SUM(agent_hours_lower), SUM(agent_hours_upper), SUM(agent_hours_pooled) "
        "FROM mart_agent_hour WHERE scope = $scope AND state = $state AND tier = $tier AND agent_kind = "
        "$kind "
        "AND is_external = 0",
        {"scope": scope, "state": state, "tier": tier, "kind": kind},
    ).fetchone()
    if not row or row[0] is None:
        return None
    return float(row[0]), float(row[1]), float(row[2]), float(row[3])


def _daily(
    con: duckdb.DuckDBPyConnection, scope: str, state: str, tier: str
) -> list[tuple[date, float, float, bool]]:
    """Return (business day, conformant agent-hours, MWh, weekend) of every measured day."""
    found = con.execute(
        """
        WITH agents AS (
          SELECT business_day, SUM(agent_hours_lower) AS hours FROM mart_agent_hour
          WHERE scope = $scope AND state = $state AND tier = $tier AND agent_kind = 'main' AND is_external = 0
          GROUP BY business_day
        ),
        energy AS (
          SELECT business_day, MAX(is_weekend) AS is_weekend, SUM(joules) / 3.6e9 AS mwh FROM mart_energy_hour
          WHERE scope = $scope GROUP BY business_day
        )
        SELECT e.business_day, COALESCE(a.hours, 0), e.mwh, e.is_weekend FROM energy AS e
        LEFT JOIN agents AS a ON a.business_day = e.business_day WHERE e.mwh > 0 ORDER BY e.business_day
        """,
        {"scope": scope, "state": state, "tier": tier},
    ).fetchall()
    return [(day, float(hours), float(mwh), bool(weekend)) for day, hours, mwh, weekend in found]


def _week_interval(daily: Sequence[tuple[date, float, float, bool]]) -> dict[str, Any]:
    interval = ratio_interval([Day(hours, mwh, weekend) for _, hours, mwh, weekend in daily])
    if isinstance(interval, str):
        return {"value": None, "reason": interval, "days": len(daily)}
    return {"value": list(interval), "reason": None, "days": len(daily), "confidence": 0.95}


def _facility(settings: parameters.Conventions, measured: list[energy.Energy]) -> dict[str, Any]:
    pue = settings.power.pue
    rack = next((e for e in measured if e.scope == "rack"), None)
    if any(e.scope == "facility" for e in measured):
        return {"value": "measured", "reason": None, "pue": pue}
    if pue is None or rack is None:
        missing = "no PUE is declared" if pue is None else "no rack power is measured"
        return {"megawatt_hours": None, "pue": pue, "reason": f"facility is rack × PUE; {missing}"}
    return {"megawatt_hours": rack.mwh * pue, "pue": pue, "reason": None}


def _external(con: duckdb.DuckDBPyConnection) -> dict[str, Any]:
    rows = con.execute(
        "SELECT state, is_external, SUM(DATE_DIFF('microsecond', start_at, end_at)) / 3.6e9 "
        "FROM mart_agent_interval WHERE agent_kind = 'main' GROUP BY state, is_external ORDER BY state, "
        "is_external"
    ).fetchall()
    return {
        "agent_hours": {state: hours for state, outside, hours in rows if outside},
        "own_agent_hours": {state: hours for state, outside, hours in rows if not outside},
        "meaning": "turns with work at a provider whose power we do not measure; not in the ratio",
    }


def _unknown_share(con: duckdb.DuckDBPyConnection) -> dict[str, float]:
    rows = con.execute(
        "SELECT tier, AVG(CASE WHEN conforms_lower <> conforms_upper THEN 1.0 ELSE 0.0 END) "
        "FROM mart_turn_conformity GROUP BY tier ORDER BY tier"
    ).fetchall()
    return {tier: float(share) for tier, share in rows}


def _little(con: duckdb.DuckDBPyConnection, window: parameters.Window) -> dict[str, Any]:
    row = con.execute(
        "SELECT level_hours, started, residence_hours, carry_in_hours, carry_out_hours FROM mart_little"
    ).fetchone()
    hours = window.seconds / 3600
    if not row or not row[1] or not row[0]:
        return {"residual": None, "reason": "no turn of a root agent in the window"}
    level = float(row[0]) / hours
    flow = (float(row[2]) + float(row[3]) - float(row[4])) / hours
    residual = abs(level - flow) / max(level, flow)
    return {
        "mean_agents_in_turn": level,
        "rate_times_residence": flow,
        "turn_starts_per_hour": row[1] / hours,
        "residual": residual,
        "holds": residual <= _LITTLE_LIMIT,
        "reason": None,
    }


def _saturation(con: duckdb.DuckDBPyConnection) -> dict[str, Any]:
    row = con.execute(
        "SELECT kv_usage_max, waiting_max, waiting_samples, samples FROM mart_saturation"
    ).fetchone()
    if not row or (row[0] is None and row[1] is None):
        return {
            "lower_bound": None,
            "reason": "no engine metrics: it is unknown how near the engine was to its limit",
        }
    near = (row[0] or 0) >= _KV_NEAR_LIMIT or (row[1] or 0) > 0
    return {
        "lower_bound": not near,
        "kv_usage_max": row[0],
        "waiting_requests_max": row[1],
        "share_of_samples_waiting": row[2] / row[3] if row[3] else None,
        "reason": None if near else "the engine was never near its limit: the hardware may carry more",
    }
