"""The short definition of each figure, printed in every report beside the figure it explains.

The long form, with worked examples, is ``docs/definitions.md``. ``GLOSSARY`` holds what the report derives
from the figures; a table links to one or the other.
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
            "collapses into one; reading after the last call is not seen; lost ends of calls shorten the "
            "time"
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
            "engines did reuse (realised)."
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
            "tokens; sharing between sessions is realised but not in the potential"
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
            "tenants of the same boards; missing times to first token; work sent to external providers is "
            "left out"
        ),
    ),
}


@dataclass(frozen=True, slots=True)
class Entry:
    """What a derived number is, and how it is made, in as few words as it takes."""

    title: str
    formula: str


GLOSSARY: Final[dict[str, Entry]] = {
    "decision": Entry(
        "Decision",
        "the sizing model over the window's figures and the plan file, against what is declared as "
        "installed; more, same or fewer is the sign of needed − installed. Its interval is the central "
        "share of seeded draws within the bounds of the inputs",
    ),
    "sensitivity": Entry(
        "What would change it",
        "one input moved alone between its bounds (± 20 % where it has none), and the nearest value, within "
        "a factor of four, at which the number of GPUs differs",
    ),
    "change": Entry(
        "Change",
        "this window ÷ the window of the same length before it − 1; shares in points. Usual: the earlier "
        "value lies in the week-to-week interval (jackknife over days in strata of weekdays and weekend, "
        "Student's t, 95 %; for prompts between the lowest and the highest day), so chance alone may have "
        "moved it",
    ),
    "human_hour": Entry(
        "Human-hour, ρ, A, D",
        "human-hour: union over a person's sessions of calls in flight and pauses up to the cap; ρ = "
        "in-flight time of main-thread calls that did not fail ÷ human-hours; A = all in-flight time ÷ "
        "that; D = human-hours ÷ hours of the window; D·ρ·A = mean calls in flight",
    ),
    "reuse": Entry(
        "Lost reuse",
        "Σ over own engine calls of max(0, potential − cached) tokens; ages apart by how long ago the "
        "prefix was last touched. GPU-hours = tokens ÷ (TFLOP/s × efficiency ÷ (2 × active parameters)) ÷ "
        "3,600",
    ),
    "profiles": Entry(
        "Profile",
        "a kind of visit told by tool use and length of turns, as far as the gateway sees; every row is the "
        "figure's own formula over the calls of that part",
    ),
    "outcomes": Entry(
        "Waiting",
        "turn: first start to last end; session: Σ over its main-thread turns; speed = (output − 1) ÷ "
        "(duration − time to first token) for 16 tokens or more; context at end: prompt + answer of the last "
        "main-thread call",
    ),
    "gateway": Entry(
        "Gateway time",
        "overhead = receipt of a call to the call of its provider, first attempt; queue = to the end of "
        "authentication; pre call = from our first hook; plugin = our own hooks",
    ),
    "counting": Entry(
        "Token counting",
        "time in LiteLLM's token counter over all its runs for a call; known where the exact meter ran",
    ),
    "failures": Entry(
        "Failures", "calls whose best record is not a success ÷ calls; attempts = 1 + retries + fallbacks"
    ),
    "catalogue": Entry(
        "Tool catalogue",
        "tokens of the tools of a request, counted or derived from bytes; saved = tokens × (tools − kept) ÷ "
        "tools, as if tools were equally long",
    ),
    "plan_check": Entry(
        "Plan against measured",
        "held: measured lies within the plan's bounds, ± 20 % where it has none; a hit is judged by what "
        "misses",
    ),
    "checklist": Entry(
        "Checklist", "published traps as machine checks; without evidence a check is unknown, never passed"
    ),
    "boundary": Entry(
        "Boundary",
        "what the meter includes: board, node, rack, facility (rack × PUE); idle share: each device at its "
        "least hourly mean ÷ its mean",
    ),
    "companions": Entry(
        "Energy of the work",
        "energy of the measured seconds, idle and failures included, ÷ what began in them; requests share "
        "the hardware, so it is an allocation",
    ),
    "coverage": Entry(
        "Coverage", "what a figure could be computed from ÷ what it stands for; unknown is not zero"
    ),
    "evidence": Entry("Evidence", "how a session or turn is known; shares are of calls"),
    "audits": Entry("Checks of the data", "queries that return the rows that must not exist"),
}
