"""Removes old dates from the lake: raw records first, then their facts, then what the marts held of them.

Every date goes by one rename out of the tables, so a reader sees all of a date or nothing. A crash leaves a
state that the next run or the next removal completes: raw records without facts are never left behind as
built, and facts without raw records are dropped by the next build.
"""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from pipeline.importing import STATE as IMPORTS
from pipeline.lake import Lake, write_text
from pipeline.run import MANIFEST, build
from pipeline.runlock import writer_lock
from pipeline.settings import Settings

#: Layers with a folder a date, in the order in which they are emptied.
_LAYERS: Final = ("raw", "rejects", "facts")
_TRASH: Final = ".trash"


@dataclass(frozen=True, slots=True)
class Removed:
    """One date of one table that went, or would go."""

    table: str
    date: date
    files: int
    bytes: int

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {"table": self.table, "date": self.date, "files": self.files, "bytes": self.bytes}


@dataclass(slots=True)
class RetentionReport:
    """What a removal did."""

    cutoff: date
    removed: list[Removed] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)


def retain(
    settings: Settings,
    keep_days: int,
    *,
    dry_run: bool = False,
    today: date | None = None,
    show: Callable[[str], None] = lambda _: None,
) -> RetentionReport:
    """Keep the last *keep_days* UTC days (the present one included) and remove every date before them.

    Args:
        settings: names the lake; the marts are built anew with its conventions.
        keep_days: at least 1.
        dry_run: only say what would go.
        today: the present UTC day; default: this host's.
        show: told how far the work is.

    Raises:
        LockHeldError: another process is writing the lake.
    """
    lake = Lake(settings.lake)
    today = today or datetime.now(UTC).date()
    report = RetentionReport(today - timedelta(days=max(1, keep_days) - 1))
    if dry_run:
        report.removed = [_measure(lake.root, folder) for folder in _old(lake.root, report.cutoff)]
        return report
    lake.prepare()
    with writer_lock(lake.root, "retention"):
        trash = lake.root / _TRASH
        shutil.rmtree(trash, ignore_errors=True)  # what a crash left behind
        old = _old(lake.root, report.cutoff)
        for folder in old:
            gone = _measure(lake.root, folder)
            show(f"{gone.table} {gone.date}")
            target = trash / secrets.token_hex(8)
            target.mkdir(parents=True)
            folder.rename(target / folder.name)
            report.removed.append(gone)
        if old:
            _forget(lake, {r.date for r in report.removed if r.table.startswith("raw/")}, report)
            show("marts")
            _marts(lake, settings)
        shutil.rmtree(trash, ignore_errors=True)
    return report


def _old(root: Path, cutoff: date) -> list[Path]:
    """Folders of dates before *cutoff*, layer by layer."""
    found = []
    for layer in _LAYERS:
        for folder in sorted((root / layer).glob("*/date=*")):
            day = _day(folder)
            if day is not None and day < cutoff and folder.is_dir():
                found.append(folder)
    return found


def _measure(root: Path, folder: Path) -> Removed:
    files = [p for p in folder.iterdir() if p.is_file()]
    table = folder.parent.relative_to(root).as_posix()
    day = _day(folder)
    assert day is not None  # only folders of dates are measured
    return Removed(table, day, len(files), sum(p.stat().st_size for p in files))


def _day(folder: Path) -> date | None:
    try:
        return date.fromisoformat(folder.name.removeprefix("date="))
    except ValueError:
        return None


def _forget(lake: Lake, days: set[date], report: RetentionReport) -> None:
    """Strike what went from the memory of builds and imports.

    A build takes a file of its list that vanished for a loss and builds everything again; an import takes a
    file that it knows for present.
    """
    path = lake.root / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        kept = {name: size for name, size in manifest["files"].items() if _day(Path(name).parent) not in days}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass  # absent or unreadable: the next build starts from nothing
    else:
        write_text(path, json.dumps(manifest | {"files": kept}))
    imports = lake.read_state(IMPORTS)
    texts = {day.isoformat() for day in days}
    files = imports.get("files", {})
    stay = {digest: entry for digest, entry in files.items() if not texts & set(entry.get("dates", ()))}
    if len(stay) < len(files):
        lake.write_state(IMPORTS, imports | {"files": stay})
        names = sorted(entry["file"] for digest, entry in files.items() if digest not in stay)
        report.notices.append(
            f"{len(names)} imported files lost dates and may be imported again: {', '.join(names[:3])}"
            + (" …" if len(names) > 3 else ".")
        )


def _marts(lake: Lake, settings: Settings) -> None:
    """Build the marts over what is left; without any fact they go too."""
    if not (lake.root / MANIFEST).exists():
        return
    if not any((lake.root / "facts/call").glob("date=*/*.parquet")):
        shutil.rmtree(lake.root / "marts", ignore_errors=True)
    build(lake.root, settings)
