"""Agents per megawatt: conformant agent-hours of a window over its measured megawatt-hours."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from pipeline.power import (
    cells,
    companions,
    energy,
    facility,
    groups,
    known,
    places,
    provisioned,
    saturation,
    served,
)
from pipeline.power.capacity import LoadHour, capacity
from pipeline.sql import parameters
from pipeline.sql.evidence import evidence

if TYPE_CHECKING:
    import duckdb

UNIT: Final = "agents per megawatt (agent-hours per megawatt-hour)"
CONVENTION: Final = (
    "served, not capacity; root agents; hourly cells; a gap belongs to the turn before it; idle power and "
    "failing turns stay in the denominator; only seconds in which every device was measured count"
)
_LITTLE_LIMIT: Final = 0.02


def compute(
    con: duckdb.DuckDBPyConnection, settings: parameters.Conventions, window: parameters.Window
) -> dict[str, Any]:
    """Return the figure for every boundary, state and service level, or null with the reason.

    The marts must be built. Lower counts a turn of unknown conformity as a miss, upper as a pass; ``value``
    is the lower one.
    """
    everything = energy.measured(con, settings, window)
    measured = [e for e in everything if e.pool == places.ALL]
    limit = saturation.saturation(con)
    figure: dict[str, Any] = {
        "value": None,
        "unit": UNIT,
        "reason": None,
        "boundary": None,
        "synthetic": None,
        "convention": CONVENTION,
        "values": [],
        "pooled": [],
        "cells": [],
        "boundaries": [e.to_dict() for e in measured],
        "pools": [e.to_dict() for e in everything if e.pool != places.ALL],
        "elsewhere": energy.elsewhere(con),
        "facility": facility.energy(settings, measured),
        "capacity": {"value": None, "reason": "no served ratio to read it from", "rows": []},
        "companions": [],
        "provisioned": None,
        "coverage": {
            "power": {e.scope: e.coverage for e in measured},
            "excluded_s": {e.scope: max(0.0, e.window_s - e.covered_s) for e in measured},
            "excluded": energy.excluded(con, window),
            "by_hour": _hourly_coverage(con),
            "turns_of_unknown_conformity": _unknown_share(con),
        },
        "external": _external(con),
        "littles_law": _little(con, window),
        "saturation": limit,
        "evidence": evidence(con),
    }
    refused = {e.scope: why for e in measured if (why := _unusable(e, settings, everything))}
    figure["refused"] = refused
    usable = [e for e in measured if e.scope not in refused]
    reason = _refusal(con, settings, measured, refused, window)
    if reason:
        where = {"state": None, "tier": None}
        return figure | {"reason": reason, "provisioned": _provisioned(con, settings, None, where)}
    for boundary in usable:
        _add_boundary(con, settings, figure, boundary, everything, limit)
    facility.add(settings, figure)
    headline = next((r for r in figure["values"] if r["state"] == "in_turn"), None)
    if headline is None:
        return figure | {"reason": "no agent of ours was in a turn while power was measured"}
    where = {k: headline[k] for k in ("boundary", "state", "tier")}
    own = next((r for r in figure["capacity"]["rows"] if all(r[k] == v for k, v in where.items())), None)
    figure["capacity"] |= {k: own[k] for k in ("value", "reason", "lower_bound")} if own else {}
    covered = next(e.covered_s for e in usable if e.scope == headline["boundary"])
    mean = headline["conformant_agent_hours"][0] / (covered / 3600)
    return figure | {
        "value": headline["value"],
        "headline": where,
        "boundary": headline["boundary"],
        "synthetic": headline["synthetic"],
        "provisioned": _provisioned(con, settings, mean, where),
    }


def _add_boundary(
    con: duckdb.DuckDBPyConnection,
    settings: parameters.Conventions,
    figure: dict[str, Any],
    boundary: energy.Energy,
    everything: Sequence[energy.Energy],
    limit: dict[str, Any],
) -> None:
    """Add rows, capacity and companions of one boundary to *figure*."""
    unseen_s = settings.power.unseen_ms / 1e3
    whole = cells.load(con, boundary, unseen_s)
    pools = [
        cells.load(con, e, unseen_s) for e in everything if e.scope == boundary.scope and e.pool != places.ALL
    ]
    declared = places.pools(settings)
    rows = served.rows(whole, settings)
    for row in rows:
        row["by_model_group"] = groups.by_model_group(whole, pools, declared, row["state"], row["tier"])
        near = None if limit["lower_bound"] is None else not limit["lower_bound"]
        envelope = capacity(
            _load_hours(whole, row["state"], row["tier"]), settings.power.capacity_share, near
        )
        figure["capacity"]["rows"].append(
            {k: row[k] for k in ("boundary", "state", "tier", "synthetic")} | envelope
        )
    figure["values"] += rows
    figure["pooled"] += served.pooled_rows(rows)
    first = next((r for r in rows if r["state"] == "in_turn"), None)
    if first is not None:
        figure["cells"].append(
            {k: first[k] for k in ("boundary", "state", "tier", "synthetic")}
            | {"hours": served.by_hour(whole, first["state"], first["tier"])}
        )
    hours = boundary.covered_s / 3600
    mean = first["conformant_agent_hours"][0] / hours if first and hours > 0 else None
    figure["companions"].append(companions.companions(con, boundary, mean))


def _load_hours(whole: cells.Served, state: str, tier: str) -> list[LoadHour]:
    agents: dict[datetime, tuple[float, float]] = {}
    for cell in whole.of("main", state, tier):
        total, lower = agents.get(cell.hour, (0.0, 0.0))
        agents[cell.hour] = (total + cell.total, lower + cell.lower)
    return [LoadHour(h.day, h.covered_s, h.joules, *agents.get(h.hour, (0.0, 0.0))) for h in whole.hours]


def _unusable(
    measured: energy.Energy, settings: parameters.Conventions, everything: Sequence[energy.Energy]
) -> str | None:
    """Why no ratio is printed for a boundary, or None."""
    if measured.problems:
        return f"power ({measured.scope}): " + "; ".join(measured.problems)
    declared = {p.name for p in places.pools(settings)}
    seen = {e.pool for e in everything if e.scope == measured.scope}
    elsewhere = {e.pool: e.scope for e in everything if e.scope != measured.scope}
    for pool in sorted(declared - seen):
        where = f"at {elsewhere[pool]}" if pool in elsewhere else "nowhere"
        return (
            f"mixed boundaries: pool {pool} is measured {where}, not at {measured.scope}; a total needs one "
            "boundary for all pools"
        )
    if measured.mwh <= 0:
        return (
            f"power ({measured.scope}): series were found, but no two neighbouring samples bound a measured "
            "stretch of the window"
        )
    if measured.coverage < settings.power.min_coverage:
        return _too_thin(measured, settings)
    return None


def _refusal(
    con: duckdb.DuckDBPyConnection,
    settings: parameters.Conventions,
    measured: Sequence[energy.Energy],
    refused: dict[str, str],
    window: parameters.Window,
) -> str | None:
    if not measured:
        return _no_power(con, settings, window)
    if len(refused) == len(measured):
        return "; ".join(refused.values())
    sessions = con.execute(
        "SELECT COUNT(DISTINCT session_key), COUNT(DISTINCT CASE WHEN is_external = 0 THEN session_key END) "
        "FROM mart_agent_interval WHERE agent_kind = 'main' AND end_at > $start AND start_at < $end",
        {"start": window.start, "end": window.end},
    ).fetchone()
    everyone, own = (int(sessions[0]), int(sessions[1])) if sessions else (0, 0)
    if own == 1 or everyone < 2:
        outside = f" ({everyone - own} more at external providers)" if everyone > own else ""
        return f"{own} session in the window{outside}: a ratio of one session says nothing about a fleet"
    ours = con.execute(
        "SELECT COUNT(*) FROM mart_agent_hour WHERE agent_kind = 'main' AND is_external = 0"
    ).fetchone()
    if not ours or not ours[0]:
        return (
            "no turn was served by power that we measure: every one went to an external provider, or none "
            "overlaps the measured time (map model groups to devices in power.pools or power.model_groups)"
        )
    return None


def _no_power(
    con: duckdb.DuckDBPyConnection, settings: parameters.Conventions, window: parameters.Window
) -> str:
    """Say why there is no energy at all: nothing configured was found, or it was found at another time."""
    elsewhere = energy.elsewhere(con)
    if elsewhere:
        return (
            f"no power was measured for our model groups: all {len(elsewhere)} devices found serve something "
            "else (power.pools)"
        )
    sensors = energy.problems_without_series(con)
    if sensors:
        return "no power was measured in the window: " + "; ".join(sensors)
    found = con.execute(
        "SELECT MIN(ts), MAX(ts) FROM raw_metric WHERE name IN (SELECT UNNEST(CAST($names AS VARCHAR[])))",
        {"names": [s.metric for s in known.sources(settings)]},
    ).fetchone()
    first, last = found if found else (None, None)
    if first is None:
        days = con.execute("SELECT MIN(day), MAX(day), COUNT(*) FROM prm_metric_day").fetchone()
        if days and days[2] and (days[1] < window.start.date() or days[0] > window.end.date()):
            first, last = days[0], days[1]
    if first is not None:
        return (
            f"no power was measured in the window: metrics run from {first} to {last} and do not overlap it "
            f"({window.start} to {window.end})"
        )
    return "no power was measured in the window (no configured power series was found in it)"


def _too_thin(measured: energy.Energy, settings: parameters.Conventions) -> str:
    thinnest = min(measured.devices, key=lambda d: float(d["coverage"]), default=None)
    detail = f"; thinnest device {thinnest['device']} at {thinnest['coverage']:.1%}" if thinnest else ""
    return (
        f"power ({measured.scope}) covers {measured.coverage:.1%} of the window, at least "
        f"{settings.power.min_coverage:.0%} are needed{detail}"
    )


def _provisioned(
    con: duckdb.DuckDBPyConnection,
    settings: parameters.Conventions,
    mean_agents: float | None,
    where: dict[str, Any],
) -> dict[str, Any]:
    state = {k: where[k] for k in ("state", "tier")}
    models = companions.board_models(con, settings.power.gpu_model)
    return {
        "declared": provisioned.declared(settings, mean_agents, state),
        "public_constants": provisioned.public(models, mean_agents, state),
    }


def _hourly_coverage(con: duckdb.DuckDBPyConnection) -> dict[str, list[dict[str, Any]]]:
    """Return the measured share of every hour of the window, by boundary."""
    rows = con.execute(
        "SELECT s.scope, h.hour_start, COALESCE(e.covered_s, 0) * 1e6 "
        "/ DATE_DIFF('microsecond', h.start_at, h.end_at) "
        "FROM (SELECT DISTINCT scope FROM prm_power_place) AS s CROSS JOIN prm_hour AS h "
        "LEFT JOIN mart_energy_hour AS e ON e.scope = s.scope AND e.pool = '*' "
        "AND e.hour_start = h.hour_start WHERE h.end_at > h.start_at ORDER BY s.scope, h.hour_start"
    ).fetchall()
    found: dict[str, list[dict[str, Any]]] = {}
    for scope, hour, share in rows:
        found.setdefault(scope, []).append({"hour": hour.isoformat(), "coverage": float(share)})
    return found


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
