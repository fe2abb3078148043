"""Which scraped series are power, of which device and boundary; and what a window of them adds up to.

Boundaries are never mixed: every source has a scope (board, node, rack or facility), and a figure names the
one it was measured in. Facility is rack times a declared PUE when no facility meter exists.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from pipeline.sql import parameters

if TYPE_CHECKING:
    import duckdb

#: ± per cent assumed for a source that states none (board sensors are specified at about five).
DEFAULT_ACCURACY_PERCENT: Final = 5.0
#: Share of the window that must be measured before a ratio is published.
MIN_COVERAGE: Final = 0.8
#: Counter and gauge of one device should agree within this share.
AGREEMENT: Final = 0.05
_JOULES_PER_MWH: Final = 3.6e9


@dataclass(frozen=True, slots=True)
class BoardSource:
    """A power series of the usual GPU exporter, used when the settings declare none."""

    name: str
    metric: str
    kind: str
    factor: float
    scope: str = "board"
    identity_labels: tuple[str, ...] = ("UUID",)
    match_labels: Mapping[str, str] = field(default_factory=dict)
    accuracy_percent: float | None = None
    synthetic: bool = False


#: The energy counter is in millijoules, the gauge in watts.
DEFAULT_SOURCES: Final = (
    BoardSource("dcgm energy counter", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "counter", 1e-3),
    BoardSource("dcgm power gauge", "DCGM_FI_DEV_POWER_USAGE", "gauge", 1.0),
)


@dataclass(frozen=True, slots=True)
class Energy:
    """Measured energy of a window within one boundary.

    ``joules`` covers ``covered_s`` of ``window_s``: the seconds in which every device was measured.
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

    @property
    def coverage(self) -> float:
        """Measured share of the window."""
        return self.covered_s / self.window_s if self.window_s > 0 else 0.0

    @property
    def mwh(self) -> float:
        """Energy in megawatt-hours."""
        return self.joules / _JOULES_PER_MWH

    @property
    def mean_watts(self) -> float | None:
        """Mean power over the measured seconds."""
        return self.joules / self.covered_s if self.covered_s > 0 else None

    def to_dict(self) -> dict[str, Any]:
        """Return the summary that a report prints."""
        return {
            "boundary": self.scope,
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
            "counter_to_gauge": self.agreement,
            "counter_and_gauge_agree": None
            if self.agreement is None
            else abs(self.agreement - 1) <= AGREEMENT,
        }


def sources(settings: parameters.Conventions) -> Sequence[parameters.Source]:
    """Return the declared sources, else those of the usual GPU exporter."""
    return list(settings.power.sources) or list(DEFAULT_SOURCES)


def bind_series(
    con: duckdb.DuckDBPyConnection, settings: parameters.Conventions, window: parameters.Window
) -> None:
    """Create ``prm_power_series`` and ``prm_power_device`` from the label sets seen in *window*."""
    declared = sources(settings)
    targets = {t for group in settings.power.model_groups.values() for t in group}
    found = con.execute(
        "SELECT DISTINCT name, target, labels FROM raw_metric "
        "WHERE name IN (SELECT UNNEST(CAST($names AS VARCHAR[]))) AND ts >= $start AND ts <= $end "
        "ORDER BY name, target, labels",
        {
            "names": [s.metric for s in declared],
            "start": window.start - timedelta(seconds=float(settings.power.max_gap_s)),
            "end": window.end + timedelta(seconds=float(settings.power.max_gap_s)),
        },
    ).fetchall()
    rows: list[tuple[str, str, str, str, str, str, float, str, int]] = []
    for name, target, text in found:
        if targets and target not in targets:
            continue
        labels = _labels(text)
        for source in declared:
            if source.metric == name and all(labels.get(k) == v for k, v in source.match_labels.items()):
                device = _device(source, labels, target)
                made_up = int(source.synthetic or _says_synthetic(labels))
                rows.append(
                    (
                        name,
                        target,
                        text,
                        source.name,
                        source.scope,
                        source.kind,
                        source.factor,
                        device,
                        made_up,
                    )
                )
                break
    names = (("name", "VARCHAR"), ("target", "VARCHAR"), ("labels", "VARCHAR"), ("source", "VARCHAR"),
             ("scope", "VARCHAR"), ("kind", "VARCHAR"), ("factor", "DOUBLE"), ("device", "VARCHAR"),
             ("is_synthetic", "INTEGER"))  # fmt: skip
    parameters.relation(
        con, "prm_power_series", **{n: (kind, [r[i] for r in rows]) for i, (n, kind) in enumerate(names)}
    )
    pairs = {(r[4], r[7]) for r in rows}
    scopes = sorted({scope for scope, _ in pairs})
    parameters.relation(
        con,
        "prm_power_device",
        scope=("VARCHAR", scopes),
        devices=("INTEGER", [sum(1 for s, _ in pairs if s == scope) for scope in scopes]),
    )


def measured(
    con: duckdb.DuckDBPyConnection, settings: parameters.Conventions, window: parameters.Window
) -> list[Energy]:
    """Return the energy of *window* for every boundary that has a series in it (marts must be built)."""
    accuracies: dict[str, list[float]] = {}
    for source in sources(settings):
        if source.accuracy_percent is not None:
            accuracies.setdefault(source.scope, []).append(source.accuracy_percent)
    results = []
    scopes = con.execute("SELECT scope FROM prm_power_device ORDER BY scope").fetchall()
    for (scope,) in scopes:
        total = con.execute(
            "SELECT COALESCE(SUM(joules), 0), COALESCE(SUM(covered_s), 0) FROM mart_energy_hour WHERE scope "
            "= $scope",
            {"scope": scope},
        ).fetchone()
        joules, covered = total if total else (0.0, 0.0)
        flags = con.execute(
            "SELECT MAX(is_synthetic) FROM prm_power_series WHERE scope = $scope", {"scope": scope}
        ).fetchone()
        declared = accuracies.get(scope)
        results.append(
            Energy(
                scope=scope,
                joules=float(joules),
                covered_s=float(covered),
                window_s=window.seconds,
                devices=tuple(_devices(con, scope, window)),
                synthetic=bool(flags and flags[0]),
                accuracy_percent=max(declared) if declared else DEFAULT_ACCURACY_PERCENT,
                accuracy_declared=bool(declared),
                resets=_resets(con, scope),
                agreement=_agreement(con, scope),
            )
        )
    return results


def _devices(con: duckdb.DuckDBPyConnection, scope: str, window: parameters.Window) -> list[dict[str, Any]]:
    found = con.execute(
        """
        SELECT s.device, MAX(g.kind),
          COALESCE(SUM(DATE_DIFF('microsecond', GREATEST(g.start_at, $start), LEAST(g.end_at, $end))), 0)
            / 1e6
        FROM (SELECT DISTINCT scope, device FROM prm_power_series) AS s
        LEFT JOIN mart_energy_segment AS g ON g.scope = s.scope AND g.device = s.device AND g.is_chosen = 1
        WHERE s.scope = $scope GROUP BY s.device ORDER BY s.device
        """,
        {"scope": scope, "start": window.start, "end": window.end},
    ).fetchall()
    return [{"device": d, "read_from": kind, "coverage": s / window.seconds} for d, kind, s in found]


def _resets(con: duckdb.DuckDBPyConnection, scope: str) -> int:
    row = con.execute(
        "SELECT COALESCE(SUM(is_reset), 0) FROM mart_energy_segment WHERE scope = $scope", {"scope": scope}
    ).fetchone()
    return int(row[0]) if row else 0


def _agreement(con: duckdb.DuckDBPyConnection, scope: str) -> float | None:
    """Counter energy ÷ gauge energy over the devices' common samples; None when one of them is missing."""
    row = con.execute(
        """
        SELECT SUM(c.joules), SUM(g.joules) FROM mart_energy_segment AS c
        JOIN mart_energy_segment AS g ON g.scope = c.scope AND g.device = c.device
          AND g.start_at = c.start_at AND g.end_at = c.end_at AND g.kind = 'gauge'
        WHERE c.scope = $scope AND c.kind = 'counter' AND c.is_reset = 0
        """,
        {"scope": scope},
    ).fetchone()
    if not row or not row[0] or not row[1]:
        return None
    return float(row[0]) / float(row[1])


def _labels(text: str | None) -> dict[str, str]:
    try:
        content = json.loads(text or "{}")
    except ValueError:
        return {}
    return {str(k): str(v) for k, v in content.items()} if isinstance(content, dict) else {}


def _says_synthetic(labels: Mapping[str, str]) -> bool:
    return labels.get("synthetic", "").lower() in {"true", "1", "yes"}


def _device(source: parameters.Source, labels: Mapping[str, str], target: str) -> str:
    """Name the physical thing a series measures: its declared labels, else what tells it apart."""
    named = [labels[n] for n in source.identity_labels if labels.get(n)]
    if named:
        return "/".join(named)
    if source.scope != "board":
        return target
    for name in ("UUID", "uuid", "gpu_uuid"):
        if labels.get(name):
            return labels[name]
    return f"{labels.get('Hostname', target)}/{labels.get('gpu', json.dumps(dict(labels), sort_keys=True))}"
