"""Computes the figures of a window and writes every form of the report."""

from __future__ import annotations

import csv
import io
import json
import math
import platform
from collections.abc import Sequence
from datetime import UTC, date, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from gateway_plugin.event import SCHEMA_VERSION
from pipeline import figures, run
from pipeline.lake import write_text
from pipeline.report import beside, charts, text
from pipeline.report.definitions import DEFINITIONS
from pipeline.sql import binding, parameters

REPORT_VERSION: Final = 1


def write(
    lake: Path,
    settings: parameters.Conventions,
    out_dir: Path,
    notes: Sequence[text.Note | str] = (),
    *,
    since: date | datetime | None = None,
    until: date | datetime | None = None,
) -> list[Path]:
    """Write ``report.json``, ``report.html``, ``report.md`` and ``figures.csv`` into *out_dir*.

    Args:
        lake: root of the lake; facts must have been built.
        settings: conventions of the figures.
        out_dir: created where it is missing.
        notes: what a reader must know, shown beside the figures a note names (all, where it names none).
        since: start of the window, naive UTC.
        until: end of the window, not included.
    """
    computed = figures.compute(lake, settings, since, until)
    content = computed.to_dict()
    shown = text.all_notes(content, notes)
    document = content | {"meta": _meta(lake, settings, computed, shown)}
    page = _render(document, shown)
    out_dir.mkdir(parents=True, exist_ok=True)
    return [
        _save(out_dir / "report.json", json.dumps(_plain(document), indent=2, ensure_ascii=False) + "\n"),
        _save(out_dir / "report.html", page),
        _save(out_dir / "report.md", _markdown(document, shown)),
        _save(out_dir / "figures.csv", _csv(content)),
    ]


def _meta(
    lake: Path, settings: parameters.Conventions, computed: figures.Figures, notes: Sequence[text.Note]
) -> dict[str, Any]:
    import duckdb

    window = computed.window
    return {
        "report_version": REPORT_VERSION,
        "event_schema": SCHEMA_VERSION,
        "generated_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "window": None
        if window is None
        else {
            "start": window.start.isoformat(),
            "end": window.end.isoformat(),
            "hours": window.seconds / 3600,
            "time_zone": "UTC",
        },
        "versions": {
            "agentwatt": _version("agentwatt"),
            "duckdb": duckdb.__version__,
            "python": platform.python_version(),
            "plugin": computed.counts.get("plugin_versions", []),
            "litellm": computed.counts.get("litellm_versions", []),
        },
        "notes": [{"text": n.text, "figures": list(n.figures) or list(DEFINITIONS)} for n in notes],
        "sources": {
            relation: {"files": len(found), "days": len({p.parent.name for p in found})}
            for relation, (folder, _) in binding.RAW.items()
            for found in [binding.files(lake, folder)]
        },
        "counts": {k: v for k, v in computed.counts.items() if not k.endswith("_versions")},
        "conventions": {
            "business_time_zone": settings.business_time_zone,
            "idle_caps_s": list(settings.idle_caps_s),
            "tool_caps_s": list(settings.tool_caps_s),
            "visit_gap_s": settings.visit_gap_s,
            "retentions": [parameters.retention_label(s) for s in settings.retentions_s],
            "slo_tiers": [parameters.tier_label(t) for t in settings.slo_tiers],
        },
        "audits": [
            {k: a[k] for k in ("name", "severity", "rows", "samples", "meaning")}
            for a in run.last_audits(lake)
        ],
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _render(document: dict[str, Any], notes: Sequence[text.Note]) -> str:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": text.number,
        "share": text.share,
        "sentence": text.sentence,
        "instant": text.instant,
        "duration": text.duration,
    }
    content = {k: v for k, v in document.items() if k != "meta"}
    lines = text.headlines(content)
    return environment.get_template("report.html.j2").render(
        document=document,
        definitions=DEFINITIONS,
        lines={name: [line for line in lines if line.figure == name] for name in DEFINITIONS},
        notes={name: [n.text for n in notes if n.concerns(name)] for name in DEFINITIONS},
        charts={name: _markup(svg) for name, svg in charts.draw(content).items()},
        bad_audits=[a for a in document["meta"]["audits"] if a["rows"]],
    )


def _markup(svg: str) -> Any:
    from markupsafe import Markup

    return Markup(svg)  # noqa: S704 - drawn by us from numbers and closed lists of names


def _markdown(document: dict[str, Any], notes: Sequence[text.Note]) -> str:
    content = {k: v for k, v in document.items() if k != "meta"}
    window = document["meta"]["window"]
    out = ["# agentwatt report", ""]
    if window:
        out += [_window_line(window), ""]
    lines = text.headlines(content)
    for name, definition in DEFINITIONS.items():
        out += [f"## {definition.title}", "", definition.plain, ""]
        out += [f"> **Note:** {n.text}" for n in notes if n.concerns(name)]
        if any(n.concerns(name) for n in notes):
            out.append("")
        out += ["| what | value | unit | coverage |", "|---|---:|---|---:|"]
        for line in lines:
            if line.figure == name:
                what = f"{line.name} ({line.reason})" if line.reason else line.name
                out.append(f"| {_cell(what)} | {line.shown} | {line.unit} | {text.share(line.coverage)} |")
        if name == beside.FIGURE:
            out += _beside(content[name])
        boundary = content[name].get("boundary")
        out += ["", f"Definition: {definition.formula}.", ""]
        if boundary:
            out += [f"Power boundary: {boundary}.", ""]
    return "\n".join(out)


def _beside(figure: dict[str, Any]) -> list[str]:
    """Return what stands beside agents per megawatt: a table and what its lines mean."""
    found = beside.lines(figure)
    if not found:
        return []
    out = ["", "Beside it:", "", "| what | value | unit |", "|---|---:|---|"]
    for line in found:
        what = f"{line.name} ({line.reason})" if line.reason else line.name
        out.append(f"| {_cell(what)} | {line.shown} | {line.unit} |")
    return [*out, "", *(part for text_ in beside.remarks(figure) for part in (text_, ""))]


def _window_line(window: dict[str, Any]) -> str:
    start, end = text.instant(window["start"]), text.instant(window["end"])
    return f"Window: {start} to {end} UTC, {text.duration(window['hours'])}."


def _cell(value: str) -> str:
    return value.replace("|", "\\|").replace("\n", " ")


def _csv(content: dict[str, dict[str, Any]]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(("figure", "name", "value", "unit", "coverage", "reason"))
    for line in (*text.headlines(content), *beside.lines(content[beside.FIGURE])):
        writer.writerow(
            (
                line.figure,
                line.name,
                "" if line.value is None else repr(float(line.value)),
                line.unit,
                "" if line.coverage is None else repr(float(line.coverage)),
                line.reason or "",
            )
        )
    return buffer.getvalue()


def _plain(value: Any) -> Any:
    """Make a document strict JSON: no NaN, no infinity, no decimals or dates."""
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, (date, datetime)):
        return value.isoformat()
    converted = float(value)
    return converted if math.isfinite(converted) else None


def _save(path: Path, content: str) -> Path:
    write_text(path, content)
    return path
