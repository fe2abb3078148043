"""Agents per megawatt as the stand-in engine and the client know it, beside the figure that was measured.

Of what we measured only the figure and its window are read. Sessions, agents and turns are those of the
scenario; instants are the engine's own (a call is found there by what its conversation says) or the client's;
energy is the engine's, at every change of its power.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Final

from deploy.local.truth import MAIN, TruthCall, TruthError, TurnKey, turns

VISIT_GAP_US: Final = 1_800_000_000
_JOULES_PER_MWH: Final = 3.6e9
_US_PER_HOUR: Final = 3.6e9
#: Tokens from which on a call has a speed, and parts of a turn's calls that may miss.
_LEAST_TOKENS: Final = 16
_LATE_PERCENT, _SLOW_PERCENT = 5, 25

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Sight:
    """One call as one side saw it; microseconds. The first token is None where none came."""

    start_us: int
    end_us: int
    first_us: int | None
    output_tokens: int
    failed: bool

    def late(self, ttft_s: float) -> bool:
        """Whether the first token came after *ttft_s*, or never."""
        return self.failed or ((self.first_us or self.end_us) - self.start_us) > ttft_s * 1e6

    def slow(self, tok_s: float) -> bool:
        """Whether it generated fewer than *tok_s* tokens a second."""
        seconds = (self.end_us - (self.first_us or self.start_us)) / 1e6
        return self.output_tokens >= _LEAST_TOKENS and (self.output_tokens - 1) < tok_s * seconds


def at_engine(calls: Sequence[TruthCall], served: Sequence[Mapping[str, Any]]) -> dict[int, Sight]:
    """Return every call as the engine saw it, by call number; attempts of one call are one sight.

    Raises:
        TruthError: a call never reached the engine.
    """
    by_words: dict[str, list[TruthCall]] = defaultdict(list)
    for call in sorted(calls, key=lambda c: (c.sent_us, c.call)):
        by_words[call.words_sha256].append(call)
    attempts: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for record in served:
        same = by_words.get(str(record["words_sha256"]), [])
        # two sessions may say the same: a request was on its way while its own client waited
        fits = [c for c in same if c.sent_us <= record["started_us"] <= c.done_us] or same
        free = [c for c in fits if c.call not in attempts] or fits
        if free:
            attempts[free[0].call].append(record)
    lost = [c.call for c in calls if c.call not in attempts]
    if lost:
        raise TruthError(f"calls that the engine never saw: {lost[:5]}")
    return {number: _joined(records) for number, records in attempts.items()}


def _joined(records: Sequence[Mapping[str, Any]]) -> Sight:
    last = records[-1]
    return Sight(
        min(int(r["started_us"]) for r in records),
        max(int(r["ended_us"]) for r in records),
        last["first_token_us"],
        int(last["output_tokens"]),
        failed=int(last["status"]) >= 500,
    )


def at_client(calls: Sequence[TruthCall], engine: Mapping[int, Sight]) -> dict[int, Sight]:
    """Return every call as the client saw it; it knows no tokens but those that the engine made."""
    return {
        c.call: Sight(
            c.sent_us,
            c.done_us,
            c.first_byte_us if c.stream else None,
            engine[c.call].output_tokens,
            failed=c.status >= 400,
        )
        for c in calls
    }


def joules_between(history: Sequence[tuple[int, float]], start_us: int, end_us: int) -> float:
    """Return the energy of the boards between two instants.

    Raises:
        TruthError: the history does not reach as far.
    """
    return _joules_at(history, end_us) - _joules_at(history, start_us)


def _joules_at(history: Sequence[tuple[int, float]], at_us: int) -> float:
    if not history or not history[0][0] <= at_us <= history[-1][0]:
        raise TruthError("the engine's energy does not cover the window")
    after = min(bisect_right(history, at_us, key=lambda h: h[0]), len(history) - 1)
    (left, low), (right, high) = history[after - 1], history[after]
    return high if right <= left else low + (high - low) * (at_us - left) / (right - left)


def spans(calls: Sequence[TruthCall], sights: Mapping[int, Sight]) -> dict[str, dict[TurnKey, list[Span]]]:
    """Return when each root agent was in which state, by the turn that answers for it."""
    root = {key: found for key, found in turns(calls).items() if key[1] == MAIN}
    found: dict[str, dict[TurnKey, list[Span]]] = {state: {} for state in ("open", "in_turn", "llm_active")}
    begins = {key: min(sights[c.call].start_us for c in own) for key, own in root.items()}
    for visit in _visits(calls, sights):
        session, (start, end) = visit
        inside = sorted((b, key) for key, b in begins.items() if key[0] == session and start <= b <= end)
        for number, (begin, key) in enumerate(inside):
            until = inside[number + 1][0] if number + 1 < len(inside) else end
            last = max(sights[c.call].end_us for c in root[key])
            found["open"].setdefault(key, []).append((begin, until))
            found["in_turn"].setdefault(key, []).append((begin, min(last, until)))
            found["llm_active"][key] = _union(
                [(s.start_us, min(s.end_us, until)) for s in (sights[c.call] for c in root[key])]
            )
    return found


def _visits(calls: Sequence[TruthCall], sights: Mapping[int, Sight]) -> list[tuple[str, Span]]:
    """Return the sessions, cut where nothing was under way for longer than half an hour."""
    by_session: dict[str, list[Span]] = defaultdict(list)
    for call in calls:
        by_session[call.session].append((sights[call.call].start_us, sights[call.call].end_us))
    visits = []
    for session, own in by_session.items():
        merged = _union(own)
        first = merged[0][0]
        for (_, end), (start, _) in pairwise(merged):
            if start - end > VISIT_GAP_US:
                visits.append((session, (first, end)))
                first = start
        visits.append((session, (first, merged[-1][1])))
    return visits


def _union(own: Sequence[Span]) -> list[Span]:
    joined: list[Span] = []
    for start, end in sorted(own):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined


def conforming(
    calls: Sequence[TruthCall], sights: Mapping[int, Sight], ttft_s: float, tok_s: float
) -> set[TurnKey]:
    """Return the turns that keep a service level as one side saw them."""
    kept = set()
    for key, own in turns(calls).items():
        late = sum(sights[c.call].late(ttft_s) for c in own)
        slow = sum(sights[c.call].slow(tok_s) for c in own)
        if late <= len(own) * _LATE_PERCENT // 100 and slow <= len(own) * _SLOW_PERCENT // 100:
            kept.add(key)
    return kept


def compare(
    report: Mapping[str, Any],
    calls: Sequence[TruthCall],
    served: Sequence[Mapping[str, Any]],
    history: Sequence[tuple[int, float]],
) -> dict[str, Any]:
    """Lay the figure of *report* beside the truth of its own window.

    Returns:
        ``rows``: one per state and service level, and one per state for agents of any conformity, with the
        engine's value (a range where engine and client judge a turn differently), the client's value, the
        measurement interval, and whether it holds the engine's value. ``energy``: measured joules and the
        engine's own over the same seconds.

    Raises:
        TruthError: the engine knows too little, or the report has no figure to compare.
    """
    window = report["meta"]["window"]
    if not report["agents_per_megawatt"].get("values"):
        raise TruthError(f"no figure: {report['agents_per_megawatt'].get('reason')}")
    start, end = _us(window["start"]), _us(window["end"])
    figure = report["agents_per_megawatt"]
    engine = at_engine(calls, served)
    client = at_client(calls, engine)
    megawatt_hours = joules_between(history, start, end) / _JOULES_PER_MWH
    sides = {"engine": spans(calls, engine), "client": spans(calls, client)}

    def value(side: str, state: str, wanted: Callable[[TurnKey], bool]) -> float:
        own = (span for key, found in sides[side][state].items() if wanted(key) for span in found)
        inside = sum(max(0, min(b, end) - max(a, start)) for a, b in own)
        return inside / _US_PER_HOUR / megawatt_hours

    rows = []
    for row in figure["values"]:
        tok_s, ttft_s = (float(part.split()[0]) for part in row["tier"].split(","))
        good = [conforming(calls, sights, ttft_s, tok_s) for sights in (engine, client)]
        both, either = good[0] & good[1], good[0] | good[1]
        rows.append(
            _row(
                row,
                row["tier"],
                row["value"],
                row["measurement_interval"],
                (
                    value("engine", row["state"], both.__contains__),
                    value("engine", row["state"], either.__contains__),
                ),
                value("client", row["state"], good[1].__contains__),
            )
        )
    for state in dict.fromkeys(r["state"] for r in figure["values"]):
        row = next(r for r in figure["values"] if r["state"] == state)
        true = value("engine", state, lambda _: True)
        seen = value("client", state, lambda _: True)
        rows.append(
            _row(row, None, row["any_conformity"], row["any_conformity_interval"], (true, true), seen)
        )
    return {"window": window, "rows": rows, "energy": _energy(figure, history, start, end)}


def _row(
    row: Mapping[str, Any],
    tier: str | None,
    measured: float,
    interval: Sequence[float],
    true: tuple[float, float],
    client: float,
) -> dict[str, Any]:
    return {
        "boundary": row["boundary"],
        "state": row["state"],
        "tier": tier,
        "measured": measured,
        "measurement_interval": list(interval),
        "engine": list(true),
        "client": client,
        "within": interval[0] <= true[1] and true[0] <= interval[1],
    }


def _energy(
    figure: Mapping[str, Any], history: Sequence[tuple[int, float]], start: int, end: int
) -> dict[str, Any]:
    boundary = figure["boundaries"][0]
    missed = sum(
        joules_between(history, _us(gap["start"]), _us(gap["end"]))
        for gap in figure["coverage"]["excluded"].get(boundary["boundary"], [])
    )
    engine = joules_between(history, start, end) - missed
    measured = boundary["megawatt_hours"] * _JOULES_PER_MWH
    off = measured / engine - 1
    return {
        "boundary": boundary["boundary"],
        "measured_joules": measured,
        "engine_joules": engine,
        "difference": off,
        "within": abs(off) <= boundary["accuracy_percent"] / 100,
    }


def _us(iso: str) -> int:
    moment = datetime.fromisoformat(iso).replace(tzinfo=UTC)
    return round((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1e6)


def lines(found: Mapping[str, Any]) -> list[str]:
    """Return the comparison in words, one line a row."""
    said = []
    for row in found["rows"]:
        low, high = row["engine"]
        true = f"{low:,.0f}" if low == high else f"{low:,.0f} to {high:,.0f}"
        name = f"{row['state'].replace('_', '-')}, {row['tier'] or 'any conformity'}"
        span = " to ".join(f"{x:,.0f}" for x in row["measurement_interval"])
        verdict = "holds" if row["within"] else "does NOT hold"
        said.append(
            f"{name}: measured {row['measured']:,.0f}, interval {span}, which {verdict} the engine's {true} "
            f"(the client saw {row['client']:,.0f})"
        )
    energy = found["energy"]
    said.append(
        f"energy, {energy['boundary']}: measured {energy['measured_joules']:,.0f} J, the engine's own "
        f"{energy['engine_joules']:,.0f} J over the same seconds ({energy['difference']:+.2%})"
    )
    return said
