"""What a window of power series adds up to, by boundary and pool.

Boundaries are never mixed: every source has a scope (board, node, rack or facility), and a figure names the
one it was measured in. Facility is rack times a declared PUE when no facility meter exists.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING, Any, Final

from pipeline.power import known, places
from pipeline.power.interval import JOULES_PER_MWH
from pipeline.sql import parameters

if TYPE_CHECKING:
    import duckdb

#: Counter and gauge of one device should agree within this share.
AGREEMENT: Final = 0.05
SCOPES: Final = ("board", "node", "rack", "facility")


@dataclass(frozen=True, slots=True)
class Energy:
    """Measured energy of a window within one boundary.

    ``joules`` covers ``covered_s`` of ``window_s``: the seconds in which every device was measured.
    ``joules_low`` and ``joules_high`` bound the energy of the whole window: a silent device drew between the
    least and the most power it ever showed. ``idle_joules``: every device at its least hourly power.
    """

    scope: str
    joules: float
    covered_s: float
    window_s: float
    devices: tuple[dict[str, Any], ...]
    synthetic: bool
    accuracy_percent: float
    accuracy_declared: bool
    resets: int
    agreement: float | None
    pool: str = places.ALL
    joules_low: float = 0.0
    joules_high: float = 0.0
    idle_joules: float | None = None
    implausible: int = 0
    problems: tuple[str, ...] = ()
    #: business day -> bounds of its energy; their sums are ``joules_low`` and ``joules_high``
    day_bounds: Mapping[date, tuple[float, float]] = field(default_factory=dict)

    @property
    def coverage(self) -> float:
        """Measured share of the window."""
        return self.covered_s / self.window_s if self.window_s > 0 else 0.0

    @property
    def mwh(self) -> float:
        """Energy in megawatt-hours."""
        return self.joules / JOULES_PER_MWH

    @property
    def mean_watts(self) -> float | None:
        """Mean power over the measured seconds."""
        return self.joules / self.covered_s if self.covered_s > 0 else None

    @property
    def idle_share(self) -> float | None:
        """Share of the energy that idle devices would have drawn too; reported, never subtracted."""
        if self.idle_joules is None or self.joules <= 0:
            return None
        return min(1.0, self.idle_joules / self.joules)

    def to_dict(self) -> dict[str, Any]:
        """Return the summary that a report prints."""
        return {
            "boundary": self.scope,
            "pool": self.pool,
            "megawatt_hours": self.mwh,
            "mean_watts": self.mean_watts,
            "coverage": self.coverage,
            "covered_s": self.covered_s,
            "excluded_s": max(0.0, self.window_s - self.covered_s),
            "devices": list(self.devices),
            "synthetic": self.synthetic,
            "accuracy_percent": self.accuracy_percent,
            "accuracy_source": "declared" if self.accuracy_declared else "assumed",
            "counter_resets": self.resets,
            "implausible_steps": self.implausible,
            "counter_to_gauge": self.agreement,
            "counter_and_gauge_agree": None
            if self.agreement is None
            else abs(self.agreement - 1) <= AGREEMENT,
            "idle_share": self.idle_share,
            "problems": list(self.problems),
        }


def measured(
    con: duckdb.DuckDBPyConnection, settings: parameters.Conventions, window: parameters.Window
) -> list[Energy]:
    """Return the energy of *window* by boundary and pool, pool ``*`` first (marts must be built)."""
    accuracies: dict[str, list[float]] = {}
    for source in known.sources(settings):
        if source.accuracy_percent is not None:
            accuracies.setdefault(source.scope, []).append(source.accuracy_percent)
    rows = con.execute(
        """
        SELECT b.scope, b.pool, SUM(b.joules + GREATEST(b.expected_s - b.measured_s, 0) * b.min_watts),
          SUM(b.joules + (GREATEST(b.expected_s - b.measured_s, 0) + b.reset_s) * b.max_watts),
          SUM(b.idle_watts * b.expected_s)
        FROM mart_energy_bound AS b GROUP BY b.scope, b.pool ORDER BY b.scope, b.pool
        """
    ).fetchall()
    results = []
    for scope, pool, low, high, idle in rows:
        total = con.execute(
            "SELECT COALESCE(SUM(joules), 0), COALESCE(SUM(covered_s), 0) FROM mart_energy_hour "
            "WHERE scope = $scope AND pool = $pool",
            {"scope": scope, "pool": pool},
        ).fetchone()
        joules, covered = total if total else (0.0, 0.0)
        whole = _expected_seconds(con, scope, pool)
        declared = accuracies.get(scope)
        resets, implausible = _steps(con, scope, pool)
        results.append(
            Energy(
                scope=scope,
                pool=pool,
                joules=float(joules),
                covered_s=float(covered),
                window_s=window.seconds if pool == places.ALL else whole,
                devices=tuple(_devices(con, scope, pool)),
                synthetic=_synthetic(con, scope, pool),
                accuracy_percent=max(declared) if declared else known.DEFAULT_ACCURACY_PERCENT,
                accuracy_declared=bool(declared),
                resets=resets,
                implausible=implausible,
                agreement=_agreement(con, scope, pool),
                joules_low=float(low or 0.0),
                joules_high=float(high or 0.0),
                idle_joules=None if idle is None or not whole else float(idle) / whole * float(covered),
                problems=_problems(con, scope, pool),
                day_bounds=_day_bounds(con, scope, pool),
            )
        )
    return sorted(results, key=lambda e: (SCOPES.index(e.scope), e.pool != places.ALL, e.pool))


def elsewhere(con: duckdb.DuckDBPyConnection) -> list[dict[str, str]]:
    """Return devices with power series that serve none of our model groups."""
    rows = con.execute(
        "SELECT scope, device, detail FROM prm_power_problem WHERE kind = 'elsewhere' ORDER BY scope, device"
    ).fetchall()
    return [{"boundary": scope, "device": name, "reason": detail} for scope, name, detail in rows]


def problems_without_series(con: duckdb.DuckDBPyConnection) -> list[str]:
    """Return what is wrong with sensors, of boundaries that have no series at all too."""
    rows = con.execute(
        "SELECT DISTINCT detail FROM prm_power_problem WHERE kind <> 'elsewhere' ORDER BY detail"
    ).fetchall()
    return [detail for (detail,) in rows]


def excluded(con: duckdb.DuckDBPyConnection, window: parameters.Window) -> dict[str, list[dict[str, Any]]]:
    """Return the stretches of the window that were not measured, by boundary (pool ``*``)."""
    found: dict[str, list[dict[str, Any]]] = {}
    rows = con.execute(
        "SELECT scope, start_at, end_at FROM mart_energy_island WHERE pool = '*' ORDER BY scope, start_at"
    ).fetchall()
    for scope in sorted({r[0] for r in rows}):
        at = window.start
        stretches = found.setdefault(scope, [])
        for _, start, end in (r for r in rows if r[0] == scope):
            if start > at:
                stretches.append(_stretch(at, start))
            at = max(at, end)
        if at < window.end:
            stretches.append(_stretch(at, window.end))
    return found


def _stretch(start: Any, end: Any) -> dict[str, Any]:
    return {"start": start.isoformat(), "end": end.isoformat(), "seconds": (end - start).total_seconds()}


def _problems(con: duckdb.DuckDBPyConnection, scope: str, pool: str) -> tuple[str, ...]:
    """What makes a total of this boundary and pool a partial one."""
    rows = con.execute(
        "SELECT DISTINCT detail FROM prm_power_problem AS q WHERE q.scope = $scope AND q.kind <> 'elsewhere' "
        "AND (q.device = '' OR $pool = '*' OR EXISTS (SELECT 1 FROM prm_power_place AS p WHERE "
        "p.scope = q.scope AND p.pool = $pool AND p.device = q.device)) ORDER BY detail",
        {"scope": scope, "pool": pool},
    ).fetchall()
    return tuple(detail for (detail,) in rows)


def _expected_seconds(con: duckdb.DuckDBPyConnection, scope: str, pool: str) -> float:
    """Seconds of the window in which the pool has any device."""
    spans = con.execute(
        "SELECT start_at, end_at FROM prm_power_place WHERE scope = $scope AND pool = $pool",
        {"scope": scope, "pool": pool},
    ).fetchall()
    return sum((end - start).total_seconds() for start, end in places.union(spans))


def _synthetic(con: duckdb.DuckDBPyConnection, scope: str, pool: str) -> bool:
    row = con.execute(
        "SELECT MAX(s.is_synthetic) FROM prm_power_series AS s JOIN prm_power_place AS p "
        "ON p.scope = s.scope AND p.device = s.device WHERE p.scope = $scope AND p.pool = $pool",
        {"scope": scope, "pool": pool},
    ).fetchone()
    return bool(row and row[0])


def _day_bounds(con: duckdb.DuckDBPyConnection, scope: str, pool: str) -> dict[date, tuple[float, float]]:
    rows = con.execute(
        "SELECT business_day, SUM(joules_low), SUM(joules_high) FROM mart_energy_bound_day "
        "WHERE scope = $scope AND pool = $pool GROUP BY business_day ORDER BY business_day",
        {"scope": scope, "pool": pool},
    ).fetchall()
    return {day: (float(low or 0.0), float(high or 0.0)) for day, low, high in rows}


def _devices(con: duckdb.DuckDBPyConnection, scope: str, pool: str) -> list[dict[str, Any]]:
    found = con.execute(
        """
        SELECT b.device, MAX(g.kind), MAX(b.measured_s / b.expected_s), MAX(b.idle_watts)
        FROM mart_energy_bound AS b
        LEFT JOIN mart_energy_segment AS g ON g.scope = b.scope AND g.device = b.device AND g.is_chosen = 1
        WHERE b.scope = $scope AND b.pool = $pool GROUP BY b.device ORDER BY b.device
        """,
        {"scope": scope, "pool": pool},
    ).fetchall()
    return [{"device": d, "read_from": k, "coverage": s, "idle_watts": w} for d, k, s, w in found]


def _steps(con: duckdb.DuckDBPyConnection, scope: str, pool: str) -> tuple[int, int]:
    """Counter restarts that were counted, and steps back that were no restart."""
    row = con.execute(
        "SELECT COALESCE(SUM(g.is_reset * (1 - g.is_implausible)), 0), COALESCE(SUM(g.is_implausible), 0) "
        "FROM mart_energy_segment AS g JOIN (SELECT DISTINCT scope, device FROM prm_power_place "
        "WHERE pool = $pool) AS p ON p.scope = g.scope AND p.device = g.device WHERE g.scope = $scope",
        {"scope": scope, "pool": pool},
    ).fetchone()
    return (int(row[0]), int(row[1])) if row else (0, 0)


def _agreement(con: duckdb.DuckDBPyConnection, scope: str, pool: str) -> float | None:
    """Counter energy ÷ gauge energy over the devices' common samples; None when one of them is missing."""
    row = con.execute(
        """
        SELECT SUM(c.joules), SUM(g.joules) FROM mart_energy_segment AS c
        JOIN mart_energy_segment AS g ON g.scope = c.scope AND g.device = c.device
          AND g.start_at = c.start_at AND g.end_at = c.end_at AND g.kind = 'gauge'
        JOIN (SELECT DISTINCT scope, device FROM prm_power_place WHERE pool = $pool) AS p
          ON p.scope = c.scope AND p.device = c.device
        WHERE c.scope = $scope AND c.kind = 'counter' AND c.is_reset = 0
        """,
        {"scope": scope, "pool": pool},
    ).fetchone()
    if not row or not row[0] or not row[1]:
        return None
    return float(row[0]) / float(row[1])
