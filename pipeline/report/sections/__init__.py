"""The sections of the report, in the order in which a reader who signs for hardware asks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.report.blocks import Section
from pipeline.report.sections import (
    gateway,
    human,
    levers,
    outcomes,
    plan,
    power,
    prefix,
    profiles,
    prompts,
    quality,
    reuse,
)
from pipeline.report.text import Note


def build(document: Mapping[str, Any], notes: Sequence[Note]) -> list[Section]:
    """Return every section of a report document.

    Args:
        document: figures and what was made of them, as in ``report.json``.
        notes: what stands beside the figures they name.
    """

    def beside(figure: str) -> tuple[str, ...]:
        return tuple(n.text for n in notes if n.concerns(figure))

    return [
        levers.section(document),
        profiles.section(document),
        prompts.section(document, beside("prompt_length")),
        prefix.section(document, beside("prefix_hit")),
        reuse.section(document),
        human.section(document, beside("calls_per_human_hour")),
        power.section(document, beside("agents_per_megawatt")),
        outcomes.section(document),
        gateway.section(document),
        plan.verified(document),
        plan.checklist(document),
        quality.section(document),
    ]
