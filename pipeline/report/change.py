"""How far a figure moves: from the window before to this one, and from week to week by chance alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

from pipeline.power.interval import Day, ratio_interval

#: Idle cap that stands for calls per human-hour where one number is wanted, seconds.
IDLE_CAP_S: Final = 900
CAP_NAME: Final = "15 min"


@dataclass(frozen=True, slots=True)
class Measure:
    """A number that is compared from window to window; a *share* changes by points, all else by per cent."""

    figure: str
    key: str
    title: str
    unit: str
    is_share: bool = False


MEASURES: Final = (
    Measure("calls_per_human_hour", CAP_NAME, "Calls per human-hour, gaps up to 15 min", "calls/h"),
    Measure("calls_per_human_hour", "human_hours", "Human-hours, gaps up to 15 min", "h"),
    Measure("calls_per_human_hour", "peak", "Most calls in flight at once", "calls"),
    Measure("prompt_length", "p50", "Median prompt", "tokens"),
    Measure("prompt_length", "p95", "95th percentile of prompts", "tokens"),
    Measure("prefix_hit", "realised", "Realised prefix hit", "of tokens", is_share=True),
    Measure("prefix_hit", "potential_inf", "Potential prefix hit, any age", "of tokens", is_share=True),
    Measure("agents_per_megawatt", "headline", "Agents per megawatt, in-turn", "agents/MW"),
    Measure("counts", "calls", "Calls", "calls"),
)  # fmt: skip


def row_at_cap(human: Mapping[str, Any]) -> Mapping[str, Any]:
    """The row of human-hours at the 15-minute cap, or the only one there is."""
    rows: Sequence[Mapping[str, Any]] = human.get("values") or ()
    only: Mapping[str, Any] = rows[0] if len(rows) == 1 else {}
    return next((r for r in rows if r["idle_cap_s"] == IDLE_CAP_S), only)


def value_of(content: Mapping[str, Any], figure: str, key: str) -> float | None:
    """One compared number of a set of figures; None where it is unknown."""
    part = content.get(figure) or {}
    if figure == "counts":
        return part.get(key)
    if figure == "agents_per_megawatt":
        return part.get("value")
    if key == "human_hours":
        return row_at_cap(part).get("human_hours")
    if key == "peak":
        return part.get("peak_concurrent_calls")
    value = part.get("value")
    return value.get(key) if isinstance(value, Mapping) else None


def interval_of(content: Mapping[str, Any], figure: str, key: str) -> dict[str, Any]:
    """Week-to-week interval of a figure: what other weeks like this one would bring; days are the unit.

    Calls per human-hour and the realised hit are ratios of sums over days: stratified jackknife, as for
    agents per megawatt. Percentiles of prompts are none; their days' lowest and highest stand in.
    """
    part = content.get(figure) or {}
    if figure == "agents_per_megawatt":
        head = part.get("headline")
        row = next(
            (r for r in part.get("values") or () if head and all(r[k] == v for k, v in head.items())), None
        )
        found = (row or {}).get("week_interval") or {}
        return _interval(found.get("value"), found.get("reason") or part.get("reason"), "week to week")
    if figure == "prompt_length":
        days = [d[key] for d in (part.get("by") or {}).get("day") or () if d.get(key) is not None]
        if len(days) < 2:
            return _interval(None, f"needs at least two days, has {len(days)}", "days from … to …")
        return _interval((min(days), max(days)), None, "days from … to …")
    days_of = _human_days(part) if figure == "calls_per_human_hour" else _hit_days(part)
    if value_of(content, figure, key) is None:
        return _interval(None, part.get("reason"), "week to week")
    found_ = ratio_interval(_with_empty_days(days_of, content, part))
    if isinstance(found_, str):
        return _interval(
            None, found_.replace("no energy was measured", "nothing to divide by"), "week to week"
        )
    low, high = found_
    return _interval((low, min(1.0, high) if figure == "prefix_hit" else high), None, "week to week")


def _interval(value: Sequence[float] | None, reason: str | None, kind: str) -> dict[str, Any]:
    return {
        "value": None if value is None else list(value),
        "reason": None if value else reason,
        "kind": kind,
    }


def _human_days(human: Mapping[str, Any]) -> dict[date, tuple[float, float]]:
    return {
        _date(d["day"]): (float(d["calls"]), float(d["human_hours"]))
        for d in human.get("by_day") or ()
        if d["idle_cap_s"] == IDLE_CAP_S and d["human_hours"]
    }


def _hit_days(hit: Mapping[str, Any]) -> dict[date, tuple[float, float]]:
    days: dict[date, tuple[float, float]] = {}
    for hour in hit.get("hourly") or ():
        if hour.get("input_tokens"):
            day = datetime.fromisoformat(hour["hour"]).date()
            cached, tokens = days.get(day, (0.0, 0.0))
            days[day] = (cached + float(hour["cached_tokens"]), tokens + float(hour["input_tokens"]))
    return days


def _date(value: Any) -> date:
    return value if isinstance(value, date) else date.fromisoformat(str(value)[:10])


def _with_empty_days(
    days: Mapping[date, tuple[float, float]], content: Mapping[str, Any], part: Mapping[str, Any]
) -> list[Day]:
    """Days as strata of weekdays and weekend; a whole day of the window without work is a day of nothing."""
    window = (content.get("meta") or {}).get("window")
    every = set(days)
    if window:
        first, end = (datetime.fromisoformat(window[k]) for k in ("start", "end"))
        count = (end.date() - first.date()).days
        whole = {
            first.date() + timedelta(days=n) for n in range(count) if first.time() == first.min.time() or n
        }
        every |= whole
    return [Day(*days.get(d, (0.0, 0.0)), d.weekday() >= 5) for d in sorted(every)]


def compare(now: Mapping[str, Any], before: Mapping[str, Any] | None, reason: str | None) -> dict[str, Any]:
    """Every compared number now and in the window before, with its change or why there is none.

    ``within_spread`` says whether the earlier value lies inside this window's week-to-week interval, so that
    chance alone may have moved it; None where there is no such interval.
    """
    rows = []
    for m in MEASURES:
        new = value_of(now, m.figure, m.key)
        old = None if before is None else value_of(before, m.figure, m.key)
        row: dict[str, Any] = {
            "figure": m.figure, "name": m.title, "key": m.key, "unit": m.unit, "is_share": m.is_share,
            "now": new, "before": old, "change": None, "within_spread": None, "reason": None,
        }  # fmt: skip
        if new is None or old is None:
            row["reason"] = reason or _why(
                now if new is None else before, m, "this" if new is None else "the earlier"
            )
        else:
            row["change"] = new - old if m.is_share else (new / old - 1 if old else None)
            if row["change"] is None:
                row["reason"] = "it was 0 in the earlier window"
            bounds = (
                interval_of(now, m.figure, m.key)["value"]
                if m.figure != "counts" and m.key not in ("human_hours", "peak")
                else None
            )
            row["within_spread"] = None if bounds is None else bounds[0] <= old <= bounds[1]
        rows.append(row)
    return {
        "window": None if before is None else (before.get("meta") or {}).get("window"),
        "reason": reason,
        "rows": rows,
    }


def _why(content: Mapping[str, Any] | None, m: Measure, which: str) -> str:
    part = (content or {}).get(m.figure) or {}
    return f"{which} window: {part.get('reason') or 'not known'}"


def window_before(start: datetime, end: datetime, time_zone: str) -> tuple[datetime, datetime]:
    """The window of the same length before this one, naive UTC.

    Whole business days stay whole business days, also when the clocks change in between.
    """
    zone = ZoneInfo(time_zone)
    utc = ZoneInfo("UTC")
    local_start, local_end = (t.replace(tzinfo=utc).astimezone(zone) for t in (start, end))
    midnight = datetime.min.time()
    if local_start.time() == midnight == local_end.time():
        days = (local_end.date() - local_start.date()).days
        earlier = datetime.combine(local_start.date() - timedelta(days=days), midnight, zone)
        return earlier.astimezone(utc).replace(tzinfo=None), start
    return start - (end - start), start
