"""Every quantity that is published by day and week, and by who: its name, unit, formula in SQL and needs.

``docs/definitions.md`` explains each under its name. :mod:`pipeline.figures.series` computes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from pipeline.extract.traces.needs import Need
from pipeline.figures.registry_reuse import GATEWAY, OUTCOMES, REUSE
from pipeline.figures.specification import WORK_NEEDS, Quantity, ratio, spread

#: What a figure may be split by, and the column that tells it.
DIMENSIONS: Final[dict[str, str | None]] = {
    "all": None,
    "team": "team_id",
    "key": "key_alias",
    "client": "client",
    "model": "model_group",
    "profile": "profile",
}
Period = Literal["day", "week", "window"]
_ATTENDED: Final = ("SUM(attended_calls)", "SUM(calls)")
_LENGTH: Final = ("SUM(input_calls)", "SUM(engine_calls)")
_TIMED: Final = (*WORK_NEEDS, Need.DURATIONS)

WORK: Final = (
    Quantity(
        "calls_per_human_hour",
        "calls per human-hour",
        "attended calls ÷ human-hours, by idle cap g",
        relation="human",
        top="SUM(calls)",
        bottom="SUM(human_hours)",
        coverage=_ATTENDED,
        needs=(*_TIMED, Need.USERS),
        reason="no attended work",
    ),
    Quantity(
        "duty_cycle",
        "share of a human-hour",
        "in-flight hours of attended main-thread calls that did not fail ÷ human-hours, by idle cap g",
        relation="human",
        top="SUM(main_flight_hours)",
        bottom="SUM(human_hours)",
        coverage=_ATTENDED,
        needs=(*_TIMED, Need.USERS),
        reason="no attended work",
    ),
    Quantity(
        "active_people",
        "people",
        "human-hours ÷ hours of the period inside the window, by idle cap g",
        relation="human",
        top="SUM(human_hours)",
        bottom="MAX(hours)",
        coverage=_ATTENDED,
        needs=(*_TIMED, Need.USERS, Need.CALENDAR),
        reason="no attended work",
    ),
    ratio(
        "amplification",
        "×",
        "in-flight hours of all attended calls ÷ those of main-thread calls that did not fail",
        "SUM(attended_flight_hours)",
        "SUM(attended_main_flight_hours)",
        coverage=_ATTENDED,
        needs=_TIMED,
        reason="no attended main-thread call with an end",
    ),
    ratio(
        "mean_concurrency",
        "calls in flight",
        "in-flight hours of attended calls ÷ hours of the period inside the window",
        "SUM(attended_flight_hours)",
        "MAX(hours)",
        coverage=_ATTENDED,
        needs=(Need.DURATIONS, Need.CALENDAR),
        reason="no attended call with an end",
    ),
    spread(
        "calls_in_flight",
        "calls in flight",
        "time-weighted quantiles of the number of engine calls in flight",
        "level",
        "calls_in_flight",
        ("p50", "p95", "max"),
        dimensions=("all",),
        coverage=("SUM(engine_calls) - SUM(open_calls)", "SUM(engine_calls)"),
        needs=(Need.DURATIONS, Need.CALENDAR),
        reason="no call with an end",
    ),
    ratio(
        "calls_per_in_turn_hour",
        "calls per in-turn hour",
        "main-thread calls ÷ in-turn hours, by cap on tool gaps",
        "SUM(calls)",
        "SUM(in_turn_hours)",
        relation="in_turn",
        part="tool_cap",
        coverage=_ATTENDED,
        needs=_TIMED,
        reason="no time inside turns",
    ),
    ratio(
        "calls_per_user_prompt",
        "calls per prompt",
        "calls of attended visits ÷ their main-thread turns with a user-initiated call",
        "SUM(calls)",
        "SUM(prompts)",
        relation="visit",
        coverage=_ATTENDED,
        needs=WORK_NEEDS,
        reason="no user prompt",
    ),
    ratio(
        "turns_per_session",
        "turns per session",
        "main-thread turns ÷ sessions with a visit that starts in the period",
        "SUM(turns)",
        "COUNT(DISTINCT session_key)",
        relation="visit",
        coverage=_ATTENDED,
        needs=WORK_NEEDS,
        reason="no attended session",
    ),
    ratio(
        "calls_per_turn",
        "calls per turn",
        "main-thread calls in turns ÷ main-thread turns",
        "SUM(turn_calls)",
        "SUM(turns)",
        relation="visit",
        coverage=_ATTENDED,
        needs=WORK_NEEDS,
        reason="no turn",
    ),
    ratio(
        "tokens_per_turn",
        "tokens per turn",
        "input tokens of attended visits, subagents included, ÷ their main-thread turns",
        "SUM(input_tokens)",
        "SUM(CASE WHEN input_calls > 0 THEN turns END)",
        relation="visit",
        coverage=_LENGTH,
        needs=(*WORK_NEEDS, Need.INPUT),
        reason="no turn with a known prompt length",
    ),
    ratio(
        "intra_turn_concurrency",
        "calls in flight while any is",
        "Σ in-flight time of the calls of a visit ÷ time in which any of them was in flight",
        "SUM(overlapping_s)",
        "SUM(busy_s)",
        relation="visit",
        coverage=_ATTENDED,
        needs=(Need.SESSIONS, Need.DURATIONS),
        reason="no call with an end",
    ),
    ratio(
        "subagent_share",
        "share of calls",
        "calls of subagents ÷ calls in sessions",
        "SUM(subagent_calls)",
        "SUM(session_calls)",
        coverage=("SUM(session_calls)", "SUM(calls)"),
        needs=(Need.SESSIONS,),
        reason="no call in a session",
    ),
    ratio(
        "agent_started_share",
        "share of calls",
        "calls that an agent started ÷ calls that a user or an agent started",
        "SUM(agent_calls)",
        "SUM(initiator_calls)",
        coverage=("SUM(initiator_calls)", "SUM(calls)"),
        needs=(Need.INITIATORS,),
        reason="no call of known initiator",
    ),
    ratio(
        "failing_turn_share",
        "share of turns",
        "main-thread turns with a failed call ÷ main-thread turns",
        "SUM(failing_turns)",
        "SUM(turns)",
        relation="visit",
        coverage=_ATTENDED,
        needs=WORK_NEEDS,
        reason="no turn",
    ),
    ratio(
        "failing_turn_amplification",
        "×",
        "calls per turn with a failed call ÷ calls per turn without one",
        "SUM(failing_turn_calls) / NULLIF(CAST(SUM(failing_turns) AS DOUBLE), 0)",
        "SUM(turn_calls - failing_turn_calls) / NULLIF(CAST(SUM(turns - failing_turns) AS DOUBLE), 0)",
        relation="visit",
        coverage=_ATTENDED,
        needs=WORK_NEEDS,
        reason="no turn with a failed call, or none without",
    ),
    ratio(
        "profile_share",
        "share of calls",
        "calls of visits of a profile ÷ all calls",
        "SUM(calls)",
        "SUM(SUM(calls)) OVER (PARTITION BY start, member)",
        part="profile",
        dimensions=("all", "team", "key", "client", "model"),
        coverage=("SUM(session_calls)", "SUM(calls)"),
        needs=WORK_NEEDS,
        reason="no call",
    ),
    ratio(
        "profile_evidence",
        "share of calls",
        "calls of visits whose profile one kind of evidence told ÷ all calls",
        "SUM(told)",
        "CAST(SUM(calls) AS DOUBLE)",
        relation="profile",
        part="told_by",
        coverage=("SUM(session_calls)", "SUM(calls)"),
        needs=WORK_NEEDS,
        reason="no call",
    ),
    ratio(
        "tool_call_share",
        "share of tool calls",
        "tool calls of one kind ÷ all tool calls",
        "SUM(made)",
        "CAST(SUM(tool_calls) AS DOUBLE)",
        relation="tools",
        part="kind",
        coverage=("SUM(told_calls)", "SUM(calls)"),
        needs=(),
        reason="no answer tells its tool calls, or none calls a tool",
    ),
)
LENGTH: Final = (
    spread(
        "prompt_length",
        "tokens",
        "quantiles and mean of input tokens of engine calls with a known length",
        "call",
        "CASE WHEN is_engine = 1 AND input_tokens > 0 THEN input_tokens END",
        ("p50", "p90", "p95", "p99", "mean"),
        coverage=_LENGTH,
        needs=(Need.INPUT,),
        reason="no known prompt length",
    ),
    spread(
        "new_tokens_per_call",
        "tokens",
        "mean and quantiles of input − cached tokens of calls that report cached tokens",
        "call",
        "CASE WHEN is_engine = 1 AND input_tokens > 0 AND believed = 1 THEN new_tokens END",
        ("mean", "p50", "p95"),
        coverage=("SUM(cached_calls)", "SUM(engine_calls)"),
        needs=(Need.INPUT, Need.CACHED),
        reason="no backend reported cached tokens",
    ),
    ratio(
        "input_to_output",
        "input tokens per output token",
        "Σ input ÷ Σ output of engine calls that know both",
        "SUM(input_output_input_tokens)",
        "SUM(input_output_output_tokens)",
        coverage=("SUM(input_output_calls)", "SUM(engine_calls)"),
        needs=(Need.INPUT, Need.OUTPUT),
        reason="no call with known input and output",
    ),
    ratio(
        "new_to_output",
        "new tokens per output token",
        "Σ (input − cached) ÷ Σ output of engine calls that know all three",
        "SUM(new_output_new_tokens)",
        "SUM(new_output_output_tokens)",
        coverage=("SUM(new_output_calls)", "SUM(engine_calls)"),
        needs=(Need.INPUT, Need.CACHED, Need.OUTPUT),
        reason="no backend reported cached tokens",
    ),
    spread(
        "context_at_end",
        "tokens",
        "quantiles of prompt + answer of the last main-thread call of a visit",
        "visit",
        "context_end_tokens",
        ("p50", "p90", "p95"),
        coverage=_LENGTH,
        needs=(Need.SESSIONS, Need.INPUT),
        reason="no visit whose last prompt is known",
    ),
    ratio(
        "catalogue_tokens_per_call",
        "tokens",
        "Σ tokens of the tool catalogue ÷ engine calls that tell them",
        "SUM(catalogue_tokens)",
        "SUM(catalogue_calls)",
        coverage=("SUM(catalogue_calls)", "SUM(engine_calls)"),
        needs=(),
        reason="no call tells its tool catalogue",
    ),
)

#: Every quantity by its name.
QUANTITIES: Final = {q.name: q for q in (*WORK, *LENGTH, *REUSE, *OUTCOMES, *GATEWAY)}


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the issue of figures: its title in the documentation and the quantities in it."""

    title: str
    quantities: tuple[Quantity, ...]


SECTIONS: Final = (
    Section("Work", WORK),
    Section("Prompts", LENGTH),
    Section("Reuse", REUSE),
    Section("Outcomes", OUTCOMES),
    Section("Gateway", GATEWAY),
)
