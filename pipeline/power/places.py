"""Which devices a window's series measure, which pool each serves and when, and what is wrong with them.

A pool is a set of devices that serve model groups together. Pool ``*`` is all of them. A device in no
declared pool serves something else and stays out. Nothing is guessed: what does not fit is a problem with a
reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from pipeline.power import known
from pipeline.sql import parameters

if TYPE_CHECKING:
    import duckdb

ALL: Final = "*"
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_Span = tuple[datetime, datetime]


@dataclass(frozen=True, slots=True)
class TargetPool:
    """A pool made of the plain table ``power.model_groups`` (model group to scrape targets)."""

    name: str
    model_groups: tuple[str, ...]
    targets: tuple[str, ...]
    devices: tuple[str, ...] = ()
    match_labels: Mapping[str, str] = field(default_factory=dict)
    since: datetime | None = None
    until: datetime | None = None
    split: str = "none"
    shares: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Series:
    """One series of a power source and the device behind it."""

    metric: str
    target: str
    labels: str
    source: parameters.Source
    device: str
    synthetic: bool


def pools(settings: parameters.Conventions) -> Sequence[parameters.Pool]:
    """Return the declared pools; model groups that share a target are one pool."""
    power = settings.power
    if power.pools:
        return list(power.pools)
    parts: list[tuple[set[str], set[str]]] = []
    for group, targets in sorted(power.model_groups.items()):
        joined = ({group}, set(targets))
        apart = []
        for part in parts:
            if part[1] & joined[1]:
                joined = (joined[0] | part[0], joined[1] | part[1])
            else:
                apart.append(part)
        parts = [*apart, joined]
    return [TargetPool("+".join(sorted(g)), tuple(sorted(g)), tuple(sorted(t))) for g, t in parts]


def bind(con: duckdb.DuckDBPyConnection, settings: parameters.Conventions, window: parameters.Window) -> None:
    """Create ``prm_power_series``, ``…_place``, ``…_problem`` and ``prm_group_place`` for *window*."""
    declared = pools(settings)
    found = _series(con, settings, window)
    places, elsewhere = _places(found, declared, window)
    problems = [*_conflicts(places), *elsewhere, *_missing(con, settings, declared, found, window)]
    mapped = {(scope, device) for scope, _, device, _ in places}
    kept = [s for s in found if (s.source.scope, s.device) in mapped]
    parameters.relation(
        con,
        "prm_power_series",
        name=("VARCHAR", [s.metric for s in kept]),
        target=("VARCHAR", [s.target for s in kept]),
        labels=("VARCHAR", [s.labels for s in kept]),
        source=("VARCHAR", [s.source.name for s in kept]),
        scope=("VARCHAR", [s.source.scope for s in kept]),
        kind=("VARCHAR", [s.source.kind for s in kept]),
        factor=("DOUBLE", [s.source.factor for s in kept]),
        device=("VARCHAR", [s.device for s in kept]),
        is_synthetic=("INTEGER", [int(s.synthetic) for s in kept]),
    )
    spans = [(scope, pool, device, span) for scope, pool, device, own in places for span in own]
    parameters.relation(
        con,
        "prm_power_place",
        scope=("VARCHAR", [s[0] for s in spans]),
        pool=("VARCHAR", [s[1] for s in spans]),
        device=("VARCHAR", [s[2] for s in spans]),
        start_at=("TIMESTAMP", [s[3][0] for s in spans]),
        end_at=("TIMESTAMP", [s[3][1] for s in spans]),
    )
    groups = _group_places(declared, window)
    parameters.relation(
        con,
        "prm_group_place",
        pool=("VARCHAR", [g[0] for g in groups]),
        model_group=("VARCHAR", [g[1] for g in groups]),
        start_at=("TIMESTAMP", [g[2][0] for g in groups]),
        end_at=("TIMESTAMP", [g[2][1] for g in groups]),
    )
    problems += _negative(con, window)
    parameters.relation(
        con,
        "prm_power_problem",
        scope=("VARCHAR", [p[0] for p in problems]),
        kind=("VARCHAR", [p[1] for p in problems]),
        device=("VARCHAR", [p[2] for p in problems]),
        detail=("VARCHAR", [p[3] for p in problems]),
    )


def _series(
    con: duckdb.DuckDBPyConnection, settings: parameters.Conventions, window: parameters.Window
) -> list[Series]:
    declared = known.sources(settings)
    margin = timedelta(seconds=float(settings.power.max_gap_s))
    rows = con.execute(
        "SELECT DISTINCT name, target, labels FROM raw_metric "
        "WHERE name IN (SELECT UNNEST(CAST($names AS VARCHAR[]))) AND ts >= $start AND ts <= $end "
        "ORDER BY name, target, labels",
        {
            "names": [s.metric for s in declared],
            "start": window.start - margin,
            "end": window.end + margin,
        },
    ).fetchall()
    found = []
    for name, target, text in rows:
        labels = label_map(text)
        for source in declared:
            if source.metric == name and all(labels.get(k) == v for k, v in source.match_labels.items()):
                made_up = source.synthetic or labels.get("synthetic", "").lower() in {"true", "1", "yes"}
                found.append(Series(name, target, text, source, device(source, labels, target), made_up))
                break
    return found


def _places(
    found: Sequence[Series], declared: Sequence[parameters.Pool], window: parameters.Window
) -> tuple[list[tuple[str, str, str, list[_Span]]], list[tuple[str, str, str, str]]]:
    """Return (scope, pool, device, spans) and the devices that serve something else."""
    owned: dict[tuple[str, str], dict[str, list[_Span]]] = {}
    for series in found:
        pools_of = owned.setdefault((series.source.scope, series.device), {})
        if not declared:
            pools_of[ALL] = [(window.start, window.end)]
        for pool in declared:
            span = _span(pool, window)
            if span and _fits(pool, series) and span not in pools_of.setdefault(pool.name, []):
                pools_of[pool.name].append(span)
    places, elsewhere = [], []
    for (scope, name), pools_of in sorted(owned.items()):
        spans = {pool: union(s) for pool, s in pools_of.items() if s}
        if not spans:
            elsewhere.append((scope, "elsewhere", name, "in no declared pool: it serves something else"))
            continue
        places += [(scope, pool, name, s) for pool, s in sorted(spans.items()) if pool != ALL]
        places.append((scope, ALL, name, union([x for s in spans.values() for x in s])))
    return places, elsewhere


def _conflicts(places: Sequence[tuple[str, str, str, list[_Span]]]) -> list[tuple[str, str, str, str]]:
    """Name devices that stand in two pools at once; one pool of several model groups is what is meant."""
    problems = []
    seen: dict[tuple[str, str], list[tuple[str, _Span]]] = {}
    for scope, pool, name, spans in places:
        if pool == ALL:
            continue
        earlier = seen.setdefault((scope, name), [])
        for span in spans:
            for other, taken in earlier:
                if taken[0] < span[1] and span[0] < taken[1]:
                    detail = (
                        f"is in the pools {other} and {pool} at once: declare one pool with the model groups "
                        "of both"
                    )
                    problems.append((scope, "conflict", name, detail))
        earlier += [(pool, span) for span in spans]
    return problems


def _group_places(
    declared: Sequence[parameters.Pool], window: parameters.Window
) -> list[tuple[str, str | None, _Span]]:
    if not declared:
        return [(ALL, None, (window.start, window.end))]
    own: dict[tuple[str, str], list[_Span]] = {}
    for pool in declared:
        if span := _span(pool, window):
            for group in pool.model_groups:
                own.setdefault((pool.name, group), []).append(span)
                own.setdefault((ALL, group), []).append(span)
    return [(pool, group, span) for (pool, group), spans in sorted(own.items()) for span in union(spans)]


def _missing(
    con: duckdb.DuckDBPyConnection,
    settings: parameters.Conventions,
    declared: Sequence[parameters.Pool],
    found: Sequence[Series],
    window: parameters.Window,
) -> list[tuple[str, str, str, str]]:
    """Name sensors that should be there: fewer devices than declared, or a GPU that exports all but power."""
    problems = []
    for scope in sorted({s.scope for s in known.sources(settings)}):
        wanted = max((s.devices or 0 for s in known.sources(settings) if s.scope == scope), default=0)
        seen = {s.device for s in found if s.source.scope == scope}
        if len(seen) < wanted:
            detail = f"{len(seen)} of {wanted} declared {scope} devices have a power series"
            problems.append((scope, "missing", "", detail))
    boards = {s.device for s in found if s.source.scope == "board"}
    if not any(s.metric.startswith("DCGM_FI_") for s in found):
        return problems
    rows = con.execute(
        "SELECT DISTINCT target, labels FROM raw_metric WHERE name LIKE 'DCGM_FI_DEV_%' "
        "AND ts >= $start AND ts <= $end ORDER BY target, labels",
        {"start": window.start, "end": window.end},
    ).fetchall()
    for target, text in rows:
        labels = label_map(text)
        source = known.PRESETS["dcgm"][0]
        name = device(source, labels, target)
        ghost = Series(source.metric, target, text, source, name, synthetic=False)
        wanted_here = not declared or any(_fits(p, ghost) for p in declared)
        if labels.get("UUID") and wanted_here and name not in boards:
            boards.add(name)
            problems.append(("board", "missing", name, f"board {name} exports metrics but no power"))
    return problems


def _negative(con: duckdb.DuckDBPyConnection, window: parameters.Window) -> list[tuple[str, str, str, str]]:
    rows = con.execute(
        "SELECT s.scope, s.device, AVG(CASE WHEN m.value < 0 THEN 1.0 ELSE 0.0 END) AS share "
        "FROM raw_metric AS m JOIN prm_power_series AS s ON s.name = m.name AND s.target = m.target "
        "AND s.labels = m.labels WHERE m.ts >= $start AND m.ts <= $end GROUP BY s.scope, s.device "
        "HAVING AVG(CASE WHEN m.value < 0 THEN 1.0 ELSE 0.0 END) >= 0.5 ORDER BY s.scope, s.device",
        {"start": window.start, "end": window.end},
    ).fetchall()
    return [
        (
            scope,
            "negative",
            name,
            f"device {name}: {share:.0%} of its samples are negative (a reversed clamp?)",
        )
        for scope, name, share in rows
    ]


def _span(pool: parameters.Pool, window: parameters.Window) -> _Span | None:
    start = max(window.start, pool.since or window.start)
    end = min(window.end, pool.until or window.end)
    return (start, end) if start < end else None


def _fits(pool: parameters.Pool, series: Series) -> bool:
    labels = label_map(series.labels)
    return (
        (not pool.targets or series.target in pool.targets)
        and (not pool.devices or any(fnmatchcase(series.device, p) for p in pool.devices))
        and all(labels.get(k) == v for k, v in pool.match_labels.items())
    )


def union(spans: Sequence[_Span]) -> list[_Span]:
    """Return the union of half-open spans, rising."""
    joined: list[_Span] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined


def label_map(text: str | None) -> dict[str, str]:
    """Return the labels of a series; text that is no object has none."""
    try:
        content = json.loads(text or "{}")
    except ValueError:
        return {}
    return {str(k): str(v) for k, v in content.items()} if isinstance(content, dict) else {}


def device(source: parameters.Source, labels: Mapping[str, str], target: str) -> str:
    """Name the physical thing a series measures.

    A board's id is unique in the world, and the same through every exporter. Other ids (an outlet's number)
    are unique below their target only.
    """
    named = [labels[n] for n in source.identity_labels if labels.get(n)]
    if source.scope != "board":
        return "/".join([target, *named])
    if not named:
        named = [labels[n] for n in ("UUID", "uuid", "gpu_uuid") if labels.get(n)][:1]
    if named:
        return "/".join(f"GPU-{n}" if _UUID.fullmatch(n) else n for n in named)
    return f"{labels.get('Hostname', target)}/{labels.get('gpu', json.dumps(dict(labels), sort_keys=True))}"
