"""Numbers and figures in words: formatting shared by every form of the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

from pipeline.report.definitions import DEFINITIONS

NONE = "n/a"


@dataclass(frozen=True, slots=True)
class Note:
    """Something a reader must know before believing a figure; no names = every figure."""

    text: str
    figures: tuple[str, ...] = ()

    def concerns(self, figure: str) -> bool:
        """Whether the note stands beside *figure*."""
        return not self.figures or figure in self.figures


@dataclass(frozen=True, slots=True)
class Line:
    """One number of a figure: what it is, its value in words, and how much it rests on."""

    figure: str
    name: str
    value: float | None
    shown: str
    unit: str
    coverage: float | None
    reason: str | None = None


def number(value: float | None) -> str:
    """Write a number with about three significant digits and thousands apart; a whole count in full."""
    if value is None:
        return NONE
    if isinstance(value, int):
        return f"{value:,}"
    size = abs(value)
    if size >= 1000:
        return f"{value:,.0f}"
    if size >= 100:
        return f"{value:.0f}"
    if size >= 10:
        return f"{value:.1f}"
    if size >= 1:
        return f"{value:.2f}"
    return f"{value:.3g}"


def share(value: float | None) -> str:
    """Write a share as per cent."""
    return NONE if value is None else f"{value * 100:.1f} %"


def percent(value: float | None) -> str:
    """Write a share as whole per cent, for labels; near 0 and 1 with the digit that tells them from it."""
    if value is None:
        return NONE
    if 0 < value < 0.0005:
        return "< 0.1%"
    if 0.9995 <= value < 1:
        return "> 99.9%"
    near = 0 < value < 0.005 or 0.995 <= value < 1
    return f"{value * 100:.1f}%" if near else f"{value * 100:.0f}%"


def span(low: float, high: float) -> str:
    """Write a range; one number where both ends read the same."""
    first, last = number(low), number(high)
    return first if first == last else f"{first} to {last}"


def count(value: int, noun: str) -> str:
    """Write how many there are of a thing whose plural takes an s."""
    return f"{value:,} {noun}" if value == 1 else f"{value:,} {noun}s"


def capital(phrase: str) -> str:
    """Write the first letter as a capital."""
    return f"{phrase[:1].upper()}{phrase[1:]}"


def sentence(phrase: str) -> str:
    """Make a phrase a sentence: a capital letter and a full stop."""
    return f"{phrase[:1].upper()}{phrase[1:]}."


def instant(iso: str) -> str:
    """Write an instant to the second."""
    return iso.replace("T", " ")[:19]


def duration(hours: float) -> str:
    """Write a length of time in the unit that suits it."""
    if hours >= 48:
        return f"{number(hours / 24)} days"
    if hours >= 1:
        return f"{number(hours)} hours"
    if hours >= 1 / 30:
        return f"{number(hours * 60)} minutes"
    return f"{hours * 3600:.0f} seconds"


_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def hour_of_week(hour: int) -> str:
    """Write an hour of the business week, 0 being Monday 00:00."""
    return f"{_DAYS[hour // 24]} {hour % 24:02d}:00"


def window(found: Mapping[str, Any], time_zone: str) -> str:
    """Write a window: whole business days as days, anything else as two instants."""
    zone = ZoneInfo(time_zone)
    ends = [datetime.fromisoformat(found[k]).replace(tzinfo=UTC).astimezone(zone) for k in ("start", "end")]
    if all(at.time() == at.min.time() for at in ends):
        first, last = ends[0].date(), ends[1].date() - timedelta(days=1)
        days = f"{first:%a %-d %b %Y}" if first == last else f"{first:%a %-d %b} to {last:%a %-d %b %Y}"
        week = last - first == timedelta(days=6) and first.weekday() == 0
        number_ = f", week {first.isocalendar().week}" if week else ""
        return f"{days}{number_} ({time_zone})"
    return f"{instant(found['start'])} to {instant(found['end'])} UTC, {duration(found['hours'])}"


def all_notes(figures: Mapping[str, Mapping[str, Any]], given: Sequence[Note | str]) -> list[Note]:
    """Return the given notes and those that the figures themselves call for, each once."""
    notes = [Note(n, _concerned(n)) if isinstance(n, str) else n for n in given]
    told = any("synthetic" in n.text.lower() and n.concerns("agents_per_megawatt") for n in notes)
    agents = figures["agents_per_megawatt"]
    if not told and any(b.get("synthetic") for b in agents.get("boundaries") or ()):
        notes.append(
            Note("Power is synthetic: it was made up by a stand-in, not measured.", ("agents_per_megawatt",))
        )
    saturation = agents.get("saturation") or {}
    if agents.get("value") is not None and saturation.get("lower_bound"):
        notes.append(Note(f"Lower bound: {saturation['reason']}.", ("agents_per_megawatt",)))
    little = agents.get("littles_law") or {}
    if little.get("holds") is False:
        notes.append(
            Note(
                f"Little's law is off by {share(little['residual'])}: overlapping turns, lost ends or clock "
                "skew.",
                ("agents_per_megawatt", "calls_per_human_hour"),
            )
        )
    imported = {text: None for name in DEFINITIONS for text in figures[name].get("import_notes", ())}
    notes += [Note(f"Imported calls. {text}") for text in imported]
    hit = figures["prefix_hit"]
    if hit.get("suspect_cells"):
        cells = ", ".join(
            f"{c['provider']} {'streamed' if c['stream'] else 'not streamed'}" for c in hit["suspect_cells"]
        )
        notes.append(
            Note(f"Cached tokens of {cells} are always zero and were set aside as unknown.", ("prefix_hit",))
        )
    if (hit.get("engine") or {}).get("overcounted"):
        notes.append(
            Note(
                "The engine's query counter grew faster than its prompts: its hit is overcounted.",
                ("prefix_hit",),
            )
        )
    shared = (figures["calls_per_human_hour"].get("coverage") or {}).get("keys_shared_at_once")
    if shared:
        notes.append(
            Note(
                f"{shared} key(s) without a user were in several turns at once: several people may share "
                "them, and the union counts them as one.",
                ("calls_per_human_hour",),
            )
        )
    return list(dict.fromkeys(notes))


def _concerned(note: str) -> tuple[str, ...]:
    """The figures that a plain note is about: one about power stands beside the one figure made of power."""
    return ("agents_per_megawatt",) if note.lower().startswith(("power", "energy")) else ()


def headlines(figures: Mapping[str, Mapping[str, Any]]) -> list[Line]:
    """Return the few numbers that stand for each figure, with coverage."""
    lines: list[Line] = []
    human = figures["calls_per_human_hour"]
    covered = (human.get("coverage") or {}).get("attended_share")
    unit = DEFINITIONS["calls_per_human_hour"].unit
    sessions = human.get("calls_per_session_hour") or {}
    for cap, value in (sessions.get("value") or {}).items():
        name = f"per session-hour, gaps up to {cap}"
        lines.append(Line("calls_per_human_hour", name, value, number(value), sessions["unit"], covered))
    for cap, value in (human.get("value") or {}).items():
        lines.append(Line("calls_per_human_hour", f"gaps up to {cap}", value, number(value), unit, covered))
    for name, key, what in (
        ("calls per user prompt", "calls_per_user_prompt", "calls"),
        ("turns per session", "turns_per_session", "turns"),
    ):
        value = (human.get(key) or {}).get("value")
        if value is not None:
            lines.append(Line("calls_per_human_hour", name, value, number(value), what, covered))
    for cap, value in ((human.get("calls_per_in_turn_hour") or {}).get("values") or {}).items():
        name = (
            f"per in-turn hour, tool gaps up to {cap}"
            if cap != "none"
            else "per in-turn hour, tool gaps in full"
        )
        lines.append(
            Line("calls_per_human_hour", name, value, number(value), "calls per in-turn hour", covered)
        )
    length = figures["prompt_length"]
    covered = (length.get("coverage") or {}).get("share")
    for name, value in (length.get("value") or {}).items():
        lines.append(
            Line(
                "prompt_length",
                name.upper() if name != "mean" else name,
                value,
                number(value),
                "tokens",
                covered,
            )
        )
    hit = figures["prefix_hit"]
    if hit.get("value"):
        covered = hit["coverage"]["share_of_input_tokens"]
        real = hit["realised"]
        lines.append(
            Line(
                "prefix_hit",
                "realised",
                real["value"],
                share(real["value"]),
                "of tokens",
                covered,
                real["reason"],
            )
        )
        for label, row in hit["potential"].items():
            name = "potential, any age" if label == "inf" else f"potential within {label} s"
            lines.append(
                Line("prefix_hit", name, row["value"], share(row["value"]), "of tokens", row["coverage"])
            )
        engine = hit["engine"]
        own = engine["value"]
        lines.append(
            Line("prefix_hit", "engine's own counters", own, share(own), "of tokens", None, engine["reason"])
        )
    agents = figures["agents_per_megawatt"]
    for row in agents.get("values") or ():
        name = f"{row['state'].replace('_', '-')}, {row['tier']}, {row['boundary']}"
        if row["synthetic"]:
            name += ", synthetic"
        shown = number(row["value"])
        if row["value_upper"] > row["value"]:
            shown += f" to {number(row['value_upper'])}"
        covered = agents["coverage"]["power"].get(row["boundary"])
        lines.append(Line("agents_per_megawatt", name, row["value"], shown, "agents/MW", covered))
    for figure in DEFINITIONS:
        content = figures[figure]
        if content.get("reason"):
            lines.append(
                Line(
                    figure,
                    DEFINITIONS[figure].title,
                    None,
                    NONE,
                    DEFINITIONS[figure].unit,
                    None,
                    content["reason"],
                )
            )
    order = list(DEFINITIONS)
    return sorted(lines, key=lambda line: order.index(line.figure))
