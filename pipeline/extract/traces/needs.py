"""What a figure needs of a trace, and the words that say why it is null where a trace lacks it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Need(StrEnum):
    """Something that records of calls may hold."""

    USERS = "users"
    SESSIONS = "sessions"
    INITIATORS = "initiators"
    DURATIONS = "durations"
    FIRST_TOKEN = "first-token times"  # noqa: S105 - not a password
    INPUT = "prompt tokens"
    OUTPUT = "output tokens"
    CACHED = "cached tokens"
    BLOCKS = "block ids"
    CALENDAR = "absolute time"
    POWER = "power"
    ENGINE = "engine counters"


#: What follows from a lack.
MEANING: Final = {
    Need.USERS: "nothing says which sessions belong to one person, so parallel hours cannot be merged",
    Need.SESSIONS: "calls cannot be put into sessions, agents or turns",
    Need.INITIATORS: "nothing says which calls a person started",
    Need.DURATIONS: "the end of a call is unknown",
    Need.FIRST_TOKEN: "whether a turn met a service level is unknown",
    Need.INPUT: "the length of a prompt is unknown",
    Need.OUTPUT: "how much was generated is unknown",
    Need.CACHED: "what the backend reused is unknown",
    Need.BLOCKS: "what a prompt shares with earlier ones is unknown",
    Need.CALENDAR: "its clock starts at 0, so hours, days and what ran at once are unknown",
    Need.POWER: "a trace of calls measures none",
    Need.ENGINE: "a trace of calls holds none",
}


@dataclass(frozen=True, slots=True)
class FigureNeeds:
    """One number or table of the report: what it needs, and where it stands in ``report.json``.

    Args:
        title: its name for people.
        figure: key of the figure that it belongs to.
        needs: all of them must be there.
        paths: keys below the figure; () is the figure's own value.
    """

    title: str
    figure: str
    needs: tuple[Need, ...]
    paths: tuple[tuple[str, ...], ...]


_WORK: Final = (Need.SESSIONS, Need.INITIATORS)
_HUMAN: Final = "calls_per_human_hour"
FIGURES: Final = (
    FigureNeeds(
        "calls per human-hour",
        _HUMAN,
        (*_WORK, Need.DURATIONS, Need.USERS),
        (
            (),
            ("values",),
            *(("by", who) for who in ("profile", "client", "team", "key", "model")),
            ("longest_user_day_hours",),
        ),
    ),
    FigureNeeds(
        "calls per session-hour",
        _HUMAN,
        (*_WORK, Need.DURATIONS),
        (("calls_per_session_hour",),),
    ),
    FigureNeeds(
        "calls per in-turn hour", _HUMAN, (*_WORK, Need.DURATIONS), (("calls_per_in_turn_hour", "values"),)
    ),
    FigureNeeds(
        "calls per user prompt and turn, turns per session",
        _HUMAN,
        _WORK,
        (("calls_per_user_prompt",), ("calls_per_turn",), ("turns_per_session",)),
    ),
    FigureNeeds(
        "human-hours by day", _HUMAN, (*_WORK, Need.DURATIONS, Need.USERS, Need.CALENDAR), (("by_day",),)
    ),
    FigureNeeds(
        "calls in flight at once",
        _HUMAN,
        (Need.DURATIONS, Need.CALENDAR),
        (("mean_concurrency",), ("peak_concurrent_calls",), ("concurrency_quantiles_by_hour_of_week",)),
    ),
    FigureNeeds("prompt length", "prompt_length", (Need.INPUT,), ((),)),
    FigureNeeds("prompt length by day", "prompt_length", (Need.INPUT, Need.CALENDAR), (("by", "day"),)),
    FigureNeeds("input to output", "prompt_length", (Need.INPUT, Need.OUTPUT), (("input_to_output",),)),
    FigureNeeds(
        "new tokens per call", "prompt_length", (Need.INPUT, Need.CACHED), (("new_tokens_per_call",),)
    ),
    FigureNeeds("realised prefix hit", "prefix_hit", (Need.INPUT, Need.CACHED), (("realised",),)),
    FigureNeeds("potential prefix hit", "prefix_hit", (Need.INPUT, Need.BLOCKS), (("potential",),)),
    FigureNeeds(
        "prefix hit by category and position", "prefix_hit", _WORK, (("by", "category"), ("by", "position"))
    ),
    FigureNeeds(
        "prefix hit by idle time", "prefix_hit", (Need.SESSIONS, Need.DURATIONS), (("by", "idle_bin"),)
    ),
    FigureNeeds("prefix hit by hour", "prefix_hit", (Need.CALENDAR,), (("hourly",),)),
    FigureNeeds("the engine's own prefix hit", "prefix_hit", (Need.ENGINE,), (("engine",),)),
    FigureNeeds(
        "agents per megawatt",
        "agents_per_megawatt",
        (*_WORK, Need.DURATIONS, Need.CALENDAR, Need.POWER),
        ((), ("values",)),
    ),
    FigureNeeds(
        "conformity to a service level",
        "agents_per_megawatt",
        (*_WORK, Need.DURATIONS, Need.FIRST_TOKEN),
        (("coverage", "turns_of_unknown_conformity"),),
    ),
    FigureNeeds(
        "Little's law",
        "agents_per_megawatt",
        (*_WORK, Need.DURATIONS, Need.CALENDAR),
        (("littles_law",),),
    ),
)


def sentence(title: str, missing: dict[Need, str]) -> str:
    """Say why a figure is null: what the trace lacks, and what follows from it."""
    return f"{title}: " + "; ".join(f"no {need} ({missing[need]})" for need in missing)
