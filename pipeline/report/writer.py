"""Computes the figures of a window and writes every form of the report."""

from __future__ import annotations

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
from pipeline.report import change, extras, markdown, page, planning, sections, tabular, text
from pipeline.report.definitions import DEFINITIONS
from pipeline.report.front import front
from pipeline.sizing import document as plan_document
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
    sizing: planning.Sizing | None = None,
) -> list[Path]:
    """Write ``report.json``, ``.html`` and ``.md``, ``figures.csv`` and ``plan.yaml`` into *out_dir*.

    Args:
        lake: root of the lake; facts must have been built.
        settings: conventions of the figures.
        out_dir: created where it is missing.
        notes: what a reader must know, shown beside the figures a note names (all, where it names none).
        since: start of the window, naive UTC.
        until: end of the window, not included.
        sizing: plan file, what is installed, and what the checklist looks at.

    ``plan.yaml`` is the computed plan of the window, there only where the window gives one.
    """
    computed = figures.compute(lake, settings, since, until, extras.measure(lake))
    content = computed.to_dict()
    shown = text.all_notes(content, notes)
    meta = _meta(lake, settings, computed, shown)
    measured = content | {"counts": meta["counts"], "meta": meta}
    earlier, why = extras.before(lake, settings, computed.window)
    made, planned = extras.plan_of(measured, earlier, sizing)
    rest = computed.more or extras.EMPTY
    document: dict[str, Any] = {
        **content,
        "change": change.compare(measured, earlier, why),
        **made,
        **rest,
        "reuse": extras.cost(rest["reuse"], planned),
        "meta": meta,
    }
    parts = sections.build(document, shown)
    first = front(document)
    general = [n.text for n in shown if set(n.figures or DEFINITIONS) == set(DEFINITIONS)]
    out_dir.mkdir(parents=True, exist_ok=True)
    written = [
        _save(out_dir / "report.json", json.dumps(_plain(document), indent=2, ensure_ascii=False) + "\n"),
        _save(out_dir / "report.html", page.render(document, first, parts, general)),
        _save(out_dir / "report.md", markdown.render(document, first, parts, general)),
        _save(out_dir / "figures.csv", tabular.render(content, parts)),
    ]
    if planned is not None:
        written.append(_save(out_dir / "plan.yaml", plan_document.dump(planned.report)))
    else:
        (out_dir / "plan.yaml").unlink(missing_ok=True)
    return written


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
