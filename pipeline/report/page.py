"""The report as one HTML page that needs no network: style, charts and definitions are inside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pipeline.report import text
from pipeline.report.blocks import Charts, Points, Section, Table
from pipeline.report.definitions import DEFINITIONS, GLOSSARY
from pipeline.report.front import Front

_TEMPLATES: Final = Path(__file__).parent / "templates"


def render(
    document: Mapping[str, Any], front: Front, sections: Sequence[Section], notes: Sequence[str]
) -> str:
    """Return the report as HTML; *notes* concern every figure."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"sentence": text.sentence, "drawing": _markup}
    for name, kind in (("table_block", Table), ("charts_block", Charts), ("points_block", Points)):
        environment.tests[name] = lambda value, kind=kind: isinstance(value, kind)
    meta = document["meta"]
    return environment.get_template("report.html.j2").render(
        window=meta["window"] and text.window(meta["window"], meta["conventions"]["business_time_zone"]),
        counts=_counts(meta["counts"]),
        front=front,
        sections=sections,
        general_notes=notes,
        definitions=DEFINITIONS,
        glossary=GLOSSARY,
        style=_markup((_TEMPLATES / "report.css").read_text(encoding="utf-8")),
    )


def _counts(counts: Mapping[str, Any]) -> str:
    if not counts:
        return ""
    return f"{text.count(int(counts['calls']), 'call')}, {counts['engine_calls']:,} of them reached an engine"


def _markup(drawn: str) -> Any:
    from markupsafe import Markup

    return Markup(drawn)  # noqa: S704 - drawn by us; names from the data are escaped where they enter
