"""Every kind of trace, how a file's kind is told, and which figures it can carry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pipeline.errors import ConfigError
from pipeline.extract.traces import copilot, mooncake, table, tracelab, weka
from pipeline.extract.traces.documents import Head
from pipeline.extract.traces.needs import FIGURES, MEANING, FigureNeeds, Need
from pipeline.extract.traces.source import TAG, Source

SOURCES: Final[Mapping[str, Source]] = {
    s.kind: s
    for s in (weka.SOURCE, mooncake.SOURCE, copilot.SOURCE, tracelab.SOURCE, table.AZURE, table.SOURCE)
}
_RELATIVE: Final = "-relative"


def named(kind: str) -> Source:
    """Return the source called *kind*.

    Raises:
        ConfigError: there is none.
    """
    try:
        return SOURCES[kind]
    except KeyError:
        raise ConfigError(
            f"There is no kind {kind} of trace.", next_step=f"--kind {' | '.join(SOURCES)}"
        ) from None


def detect(head: Head, place: str) -> Source:
    """Return the one kind that a file's first record fits.

    Raises:
        ConfigError: none fits, or several do.
    """
    fitting = [s for s in SOURCES.values() if s.matches(head)]
    if len(fitting) == 1:
        return fitting[0]
    keys = ", ".join(sorted(head.keys)[:20])
    if fitting:
        raise ConfigError(
            f"{place} may be {' or '.join(s.kind for s in fitting)}.",
            why=f"It has {keys}.",
            next_step="--kind",
        )
    raise ConfigError(
        f"{place} is of no kind that is known by itself.",
        why=f"Its first record has {keys}.",
        next_step="--kind table --map started=COLUMN --map input_tokens=COLUMN … reads any table of calls.",
    )


def by_tag(tag: str) -> tuple[Source, frozenset[Need]] | None:
    """Return the source that a call's ``plugin_version`` names, and what its calls never hold."""
    if not tag.startswith(TAG):
        return None
    kind = tag.removeprefix(TAG)
    relative = kind.endswith(_RELATIVE)
    source = SOURCES.get(kind.removesuffix(_RELATIVE))
    if source is None:
        return None
    never = set(Need) - source.gives - source.sometimes
    return source, frozenset(never | ({Need.CALENDAR} if relative else set()))


def reasons(source: Source, needs: tuple[Need, ...], missing: frozenset[Need]) -> dict[Need, str]:
    """Return why each of *needs* that is *missing* is so, in the order in which they are needed."""
    return {n: source.lacks.get(n, MEANING[n]) for n in needs if n in missing}


def explain(source: Source) -> list[dict[str, Any]]:
    """Return one row a figure: whether *source* can carry it (yes, sometimes, no), and why not."""
    rows = []
    never = frozenset(set(Need) - source.gives - source.sometimes)
    for figure in FIGURES:
        wanted = reasons(source, figure.needs, never)
        unsure = reasons(source, figure.needs, source.sometimes)
        carried = "no" if wanted else "sometimes" if unsure else "yes"
        why = "; ".join(f"no {n}: {text}" for n, text in wanted.items())
        if not wanted and unsure:
            why = "needs " + ", ".join(unsure)
        rows.append({"kind": source.kind, "figure": figure.title, "carried": carried, "why": why or None})
    return rows


def matrix() -> list[dict[str, Any]]:
    """Return one row a figure with a column a kind: yes, sometimes, or what is missing."""
    return [
        {"figure": figure.title} | {s.kind: _cell(s, figure) for s in SOURCES.values()} for figure in FIGURES
    ]


def _cell(source: Source, figure: FigureNeeds) -> str:
    never = set(Need) - source.gives - source.sometimes
    if missing := [n for n in figure.needs if n in never]:
        return "no " + ", ".join(missing)
    if unsure := [n for n in figure.needs if n in source.sometimes]:
        return "with " + ", ".join(unsure)
    return "yes"
