"""Figures over imported calls: where a trace lacks what a figure needs, the figure is null and says so.

A gateway's own calls carry everything a figure needs, so only windows that hold nothing but imported calls
lose figures; in a mixed window the imported share is noted beside every figure.
"""

# ruff: noqa: S608 - column names come from closed lists in this module; values are parameters

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from pipeline.extract.traces import registry
from pipeline.extract.traces.needs import FIGURES, Need, sentence
from pipeline.extract.traces.source import TAG, Source
from pipeline.sql import parameters

if TYPE_CHECKING:
    import duckdb

#: How the facts show that a need is met at least once.
_PRESENT: Final = {
    Need.USERS: "user_hash IS NOT NULL",
    Need.SESSIONS: "session_key IS NOT NULL",
    Need.INITIATORS: "initiator IN ('user', 'agent')",
    Need.DURATIONS: "duration_ms IS NOT NULL",
    Need.FIRST_TOKEN: "ttft_ms IS NOT NULL",
    Need.INPUT: "input_tokens > 0",
    Need.OUTPUT: "output_tokens IS NOT NULL",
    Need.CACHED: "cached_tokens IS NOT NULL",
    Need.BLOCKS: "potential_inf_tokens IS NOT NULL",
}
#: Keys of a row of human-hours that stay true for single sessions without a calendar.
_SESSION_ROW: Final = ("idle_cap_s", "value", "duty_cycle", "amplification")


def apply(
    con: duckdb.DuckDBPyConnection, window: parameters.Window, figures: dict[str, dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Return *figures* with what imported calls cannot carry set to null, each with its reason.

    Adds to a figure that rests on imported calls ``imported`` (kind -> calls), ``import_notes``, and
    ``unavailable`` (path below the figure -> reason). The facts and marts must be bound in *con*.
    """
    span = {"start": window.start, "end": window.end}
    found = _calls_by_tag(con, span)
    imported = [known for _, known, _ in found if known]
    if not imported:
        return figures
    sources, title = _sources(imported)
    kinds = {tag.removeprefix(TAG): calls for tag, known, calls in found if known}
    own = sum(calls for _, known, calls in found if known is None)
    missing = frozenset() if own else _missing(con, span, imported)
    notes = [f"{s.title}: {note}" for s in sources for note in s.notes]
    if own:
        total = own + sum(kinds.values())
        notes.append(f"{sum(kinds.values()) / total:.1%} of the calls were imported ({title}).")
    changed = {
        name: figure | {"imported": kinds, "import_notes": list(notes)} for name, figure in figures.items()
    }
    if missing:
        _blank(changed, sources, missing, title)
    return changed


def lacking(
    con: duckdb.DuckDBPyConnection, window: parameters.Window
) -> Callable[[Sequence[Need]], str | None]:
    """Return a function that says why calls of the window cannot carry what is needed; None: they can.

    Only windows of nothing but imported calls lack anything. The facts and marts must be bound in *con*.
    """
    span = {"start": window.start, "end": window.end}
    tags = _calls_by_tag(con, span)
    imported = [known for _, known, _ in tags if known]
    if len(imported) < len(tags):
        return lambda needs: None
    sources, title = _sources(imported)
    missing = _missing(con, span, imported)

    def why(needs: Sequence[Need]) -> str | None:
        found = _reasons(sources, tuple(needs), missing)
        return sentence(title, found) if found else None

    return why


def _reasons(sources: Sequence[Source], needs: tuple[Need, ...], missing: frozenset[Need]) -> dict[Need, str]:
    reasons: dict[Need, str] = {}
    for source in sources:
        reasons |= {n: why for n, why in registry.reasons(source, needs, missing).items() if n not in reasons}
    return reasons


_Known = tuple[Source, frozenset[Need]]


def _calls_by_tag(
    con: duckdb.DuckDBPyConnection, span: dict[str, Any]
) -> list[tuple[str, _Known | None, int]]:
    """Return each tag of the span's calls with what it names (None: no import) and their number."""
    rows = con.execute(
        "SELECT plugin_version, COUNT(*) FROM fct_call WHERE start_at >= $start AND start_at < $end "
        "GROUP BY plugin_version ORDER BY plugin_version",
        span,
    ).fetchall()
    return [(tag or "", registry.by_tag(tag or ""), int(calls)) for tag, calls in rows]


def _sources(imported: Sequence[_Known]) -> tuple[list[Source], str]:
    """Return the sources once each (a table with and one without a calendar are one), and their titles."""
    sources = list({source.kind: source for source, _ in imported}.values())
    return sources, " and ".join(s.title for s in sources)


def _missing(
    con: duckdb.DuckDBPyConnection,
    span: dict[str, Any],
    known: Sequence[_Known],
) -> frozenset[Need]:
    """What no call of the window tells, and what a part of them never tells of time."""
    tests = ", ".join(f"MAX(CASE WHEN {test} THEN 1 ELSE 0 END)" for test in _PRESENT.values())
    row = con.execute(
        f"SELECT {tests} FROM fct_call WHERE start_at >= $start AND start_at < $end", span
    ).fetchone()
    absent = {need for need, met in zip(_PRESENT, row or (), strict=True) if not met}
    measured = con.execute(
        "SELECT (SELECT COUNT(*) FROM mart_energy_hour), (SELECT COUNT(*) FROM mart_engine_prefix)"
    ).fetchone()
    absent |= {need for need, n in zip((Need.POWER, Need.ENGINE), measured or (0, 0), strict=True) if not n}
    if any(Need.CALENDAR in never for _, never in known):
        absent.add(Need.CALENDAR)
    return frozenset(absent)


def _blank(
    figures: dict[str, dict[str, Any]], sources: Sequence[Source], missing: frozenset[Need], title: str
) -> None:
    human = figures["calls_per_human_hour"]
    if Need.USERS in missing:
        # Without users a session stands for a person: another figure, under another name.
        human["calls_per_session_hour"] = _session_hours(human)
    for needs in FIGURES:
        reasons = _reasons(sources, needs.needs, missing)
        if not reasons:
            continue
        why = sentence(title, reasons)
        figure = figures[needs.figure]
        for path in needs.paths:
            _erase(figure, path, why)
            figure.setdefault("unavailable", {}).setdefault(".".join(path) or "value", why)
    hit = figures["prefix_hit"]
    if {Need.CACHED, Need.BLOCKS} <= missing or Need.INPUT in missing:
        hit["value"] = None
        hit["reason"] = hit.get("unavailable", {}).get("realised") or hit.get("reason")


def _session_hours(human: dict[str, Any]) -> dict[str, Any]:
    rows = [
        {key: row[key] for key in _SESSION_ROW} | {"session_hours": row["human_hours"]}
        for row in human.get("values") or ()
    ]
    return {
        "value": {f"{row['idle_cap_s'] / 60:g} min": row["value"] for row in rows} or None,
        "unit": "calls per session-hour",
        "reason": None if rows else "no session with a user-initiated call",
        "convention": "as calls per human-hour, with every session taken for one person: parallel sessions "
        "of one person count several times, so calls per human-hour are at least this",
        "values": rows,
    }


def _erase(figure: dict[str, Any], path: tuple[str, ...], why: str) -> None:
    """Set what stands at *path* to null (a list or a mapping: empty), with the reason where there is room."""
    if not path:
        figure |= {"value": None, "reason": why}
        return
    place: Any = figure
    for key in path[:-1]:
        place = place.get(key)
        if not isinstance(place, dict):
            return
    key = path[-1]
    held = place.get(key)
    if isinstance(held, dict) and "value" in held:
        place[key] = dict.fromkeys(held) | {"value": None, "reason": why}
    elif isinstance(held, list):
        place[key] = []
    elif isinstance(held, dict):
        place[key] = {}
    elif key in place:
        place[key] = None
