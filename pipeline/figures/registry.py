"""Every quantity that is published by day and week, and by who: its name, unit, formula in SQL and needs.

``docs/definitions.md`` explains each under its name. :mod:`pipeline.figures.series` computes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from pipeline.extract.traces.needs import Need
from pipeline.figures.registry_reuse import GATEWAY, OUTCOMES, REUSE
from pipeline.figures.registry_work import WORK
from pipeline.figures.specification import KNOWN_LENGTH, Quantity, ratio, spread

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

LENGTH: Final = (
    spread(
        "prompt_length",
        "tokens",
        "quantiles and mean of input tokens of engine calls with a known length",
        "call",
        "CASE WHEN is_engine = 1 AND input_tokens > 0 THEN input_tokens END",
        ("p50", "p90", "p95", "p99", "mean"),
        coverage=KNOWN_LENGTH,
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
        coverage=KNOWN_LENGTH,
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
