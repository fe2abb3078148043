"""The short definition of each figure, printed in every report beside the figure it explains.

The long form, with worked examples, is ``docs/definitions.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Definition:
    """What a figure is, what it is made of, and what can be wrong with it."""

    title: str
    plain: str
    formula: str
    unit: str
    inputs: str
    coverage: str
    errors: str


DEFINITIONS: Final[dict[str, Definition]] = {
    "calls_per_human_hour": Definition(
        title="Calls per human-hour",
        plain="How many requests to a model one hour of a person's work with agents makes.",
        formula=(
            "attended calls ÷ Σ over users of |⋃ over the user's sessions {in-flight time ∪ gaps ≤ g}|, "
            "for g = 5, 15 and 30 min together"
        ),
        unit="calls per human-hour",
        inputs="start and end of every call, session, user, initiator, declared service keys",
        coverage="share of calls in sessions with a user-initiated call; share of calls whose user is known",
        errors=(
            "the idle cap g (all three are printed; none is the truth); a key shared by several people "
            "collapses "
            "into one; reading after the last call is not seen; lost ends of calls shorten the time"
        ),
    ),
    "prompt_length": Definition(
        title="Prompt length",
        plain="How long the prompts are that the engines receive, counted in tokens, cached ones included.",
        formula="percentiles (linear interpolation) and mean of input tokens over calls that an engine "
        "answered",
        unit="tokens per call",
        inputs="input tokens as the provider reported them, else estimated",
        coverage="calls with a known length ÷ calls that reached an engine; share of estimated lengths",
        errors="aborted calls often report no length; tokenizers differ between providers",
    ),
    "prefix_hit": Definition(
        title="Prefix hit",
        plain=(
            "How much of the prompts was sent before and could be reused (potential), and how much the "
            "engines "
            "did reuse (realised)."
        ),
        formula=(
            "realised = Σ cached ÷ Σ input over calls whose backend reported cached tokens; potential(R) = "
            "Σ min(input, input × shared bytes within R ÷ prompt bytes) ÷ Σ input"
        ),
        unit="share of prompt tokens",
        inputs="cached and input tokens of the provider; the digest chain of the plugin; the engine's own "
        "counters",
        coverage="share of calls and of tokens that report cached tokens; share of calls with a known chain",
        errors=(
            "unknown is not zero; engines count recomputation after preemption as hits; bytes stand for "
            "tokens; "
            "sharing between sessions is realised but not in the potential"
        ),
    ),
    "agents_per_megawatt": Definition(
        title="Agents per megawatt",
        plain="How many agents, served within the promised speed, one megawatt of measured power carried.",
        formula="conformant agent-hours ÷ measured megawatt-hours over the same seconds",
        unit="agents per megawatt",
        inputs="calls, turns and visits; power or energy of every device of one boundary",
        coverage="measured seconds ÷ seconds of the window; share of turns whose conformity is unknown",
        errors=(
            "sensor accuracy; the boundary (a board is not a facility); idle power is included; other "
            "tenants of "
            "the same boards; missing times to first token; work sent to external providers is left out"
        ),
    ),
}
