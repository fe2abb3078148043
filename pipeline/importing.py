"""Imports trace files into the lake: each once, streaming, with bad records counted and set aside."""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from threading import Event
from typing import Any, Final

from gateway_plugin.hashing import Hasher
from pipeline.errors import ConfigError
from pipeline.extract.traces import documents, registry, table
from pipeline.extract.traces.documents import Rejected
from pipeline.extract.traces.source import Reading, Source
from pipeline.extract.traces.staging import EventStaging
from pipeline.lake import Lake, write_text
from pipeline.runlock import writer_lock
from pipeline.settings import Settings

STATE: Final = "imports"
#: Files are published together until a batch has this many calls: many small files make few Parquet files.
_BATCH_ROWS: Final = 500_000
_KEY_FILE: Final = "import.key"


@dataclass(slots=True)
class FileReport:
    """What became of one file."""

    path: Path
    kind: str
    digest: str
    status: str = "imported"
    columns: dict[str, str] = field(default_factory=dict)
    dataset: str = ""
    dates: list[date] = field(default_factory=list)
    calls: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    def memory(self) -> dict[str, Any]:
        """Return what the lake remembers of the file."""
        return {
            "file": self.path.name,
            "kind": self.kind,
            "columns": self.columns,
            "dataset": self.dataset,
            "calls": self.calls,
            "rejected": dict(self.rejected),
            "dates": [day.isoformat() for day in self.dates],
        }

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return {
            "file": str(self.path),
            "kind": self.kind,
            "status": self.status,
            "calls": self.calls,
            "set_aside": self.rejected.total(),
            "reasons": dict(sorted(self.rejected.items())),
            "seconds": round(self.seconds, 2),
        }


@dataclass(slots=True)
class ImportReport:
    """What an import did."""

    files: list[FileReport] = field(default_factory=list)
    dates: set[date] = field(default_factory=set)
    notes: dict[str, None] = field(default_factory=dict)


def import_files(
    settings: Settings,
    paths: Sequence[Path],
    *,
    kind: str | None = None,
    columns: Mapping[str, str] | None = None,
    dataset: str | None = None,
    show: Callable[[str], None] = lambda _: None,
    stop: Event | None = None,
) -> ImportReport:
    """Import trace files (folders are searched) into ``raw/events``; a file seen before changes nothing.

    Args:
        settings: names the lake; its hash secret keys the digests of users.
        paths: files and folders.
        kind: of all of them; told by each file's first record where it is None.
        columns: field of ours -> column, for plain tables.
        dataset: keeps session ids of collections apart; the kind by default.
        show: told how far the work is.
        stop: a set event ends the import after the last whole file.

    Raises:
        ConfigError: a file is absent, unreadable or of no known kind; the lake cannot be written.
        LockHeldError: another process is writing the lake.
    """
    lake = Lake(settings.lake)
    lake.prepare()
    chosen = None if kind is None else registry.named(kind)
    if columns and chosen is None:
        chosen = registry.named(table.KIND)  # a mapping says that it is a plain table
    if columns and chosen is not None and chosen.kind != table.KIND:
        raise ConfigError(f"--map is for plain tables; {chosen.kind} has columns of its own.")
    asked = _Asked(chosen, columns or {}, dataset, _hasher(lake, settings))
    files = documents.expand(list(paths))
    with writer_lock(lake.root, "import"), EventStaging(lake) as staging:
        work = _Import(lake, asked, staging, show, stop or Event())
        try:
            for number, path in enumerate(files, 1):
                label = path.name if len(files) == 1 else f"{number}/{len(files)} {path.name}"
                if not work.take(path, label):
                    break
        except ConfigError:
            work.publish()  # the files before the bad one stay
            raise
        work.publish()
    return work.report


@dataclass(frozen=True, slots=True)
class _Asked:
    """How all files of an import are to be read."""

    source: Source | None
    columns: Mapping[str, str]
    dataset: str | None
    hasher: Hasher


class _Import:
    """One import on its way: the files staged since the last publication, and the report of all."""

    def __init__(
        self, lake: Lake, asked: _Asked, staging: EventStaging, show: Callable[[str], None], stop: Event
    ) -> None:
        self.report = ImportReport()
        self._lake = lake
        self._asked = asked
        self._staging = staging
        self._show = show
        self._stop = stop
        self._known: dict[str, Any] = lake.read_state(STATE).get("files", {})
        self._batch: list[FileReport] = []

    def take(self, path: Path, label: str) -> bool:
        """Stage one file, unless it is known; False once the import was interrupted."""
        if self._stop.is_set():
            return False
        self._show(f"{label}: looking")
        digest = documents.digest(path)
        staged = (f.memory() for f in self._batch if f.digest == digest)
        earlier = self._known.get(digest) or next(staged, None)
        if earlier is not None:
            _same_reading(path, earlier, self._asked)
            self.report.files.append(FileReport(path, str(earlier["kind"]), digest, "already imported"))
            return True
        entry = self._stage(path, digest, label)
        if entry is None:
            return False
        self._batch.append(entry)
        self.report.files.append(entry)
        if self._staging.rows >= _BATCH_ROWS:
            self.publish()
        return True

    def publish(self) -> None:
        """Write what is staged, then remember the files; a crash in between makes them arrive again."""
        if not self._batch:
            return
        now = datetime.now(UTC).replace(tzinfo=None)
        days = self._staging.publish([f.digest for f in self._batch], now)
        for entry in self._batch:
            entry.dates = days[entry.digest]
            self.report.dates |= set(entry.dates)
        # A file without a single call was most likely read as the wrong kind: it may come again.
        stamp = {"imported_at": now.isoformat(timespec="seconds")}
        self._known |= {f.digest: f.memory() | stamp for f in self._batch if f.calls}
        self._lake.write_state(STATE, {"files": self._known})
        self._batch.clear()

    def _stage(self, path: Path, digest: str, label: str) -> FileReport | None:
        """Read one file; None where the work was interrupted, which leaves nothing of the file."""
        began = time.monotonic()
        head = documents.head(path)
        source = self._asked.source or registry.detect(head, str(path))
        columns = table.columns_of(head, self._asked.columns) if source.kind == table.KIND else {}
        entry = FileReport(
            path, source.kind, digest, columns=columns, dataset=self._asked.dataset or source.kind
        )
        reading = Reading(digest, entry.dataset, self._asked.hasher, columns)

        def told(done: int, size: int) -> None:
            share = f"{done / size:.0%}, " if size else ""
            self._show(f"{label}: {share}{entry.calls:,} calls, {entry.rejected.total():,} set aside")

        self._staging.begin()
        try:
            for item in source.read(documents.records(path, told), reading):
                if isinstance(item, Rejected):
                    entry.rejected[item.reason] += 1
                    self._staging.set_aside(item)
                else:
                    entry.calls += 1
                    self._staging.add(item)
                if self._stop.is_set():
                    self._staging.forget()
                    return None
        except ConfigError:
            self._staging.forget()
            raise
        entry.seconds = time.monotonic() - began
        self.report.notes |= dict.fromkeys(f"{source.title}: {note}" for note in source.notes)
        return entry


def _same_reading(path: Path, earlier: Mapping[str, Any], asked: _Asked) -> None:
    """A file that is in the lake cannot come in again under another reading: its calls would count twice."""
    wanted = {"kind": asked.source.kind if asked.source else None, "dataset": asked.dataset}
    differing = [key for key, value in wanted.items() if value is not None and value != earlier[key]]
    if not asked.columns.items() <= earlier["columns"].items():
        differing.append("map")
    if differing:
        raise ConfigError(
            f"{path} is in the lake already, read with another {', '.join(differing)}.",
            why=f"It was imported as {earlier['kind']}, data set {earlier['dataset']}, columns "
            f"{earlier['columns'] or 'of its own'}; its calls would count twice.",
            next_step="Import it into another lake: agentwatt import … --lake NEW",
        )


def _hasher(lake: Lake, settings: Settings) -> Hasher:
    """Digests with the installation's secret, else with one made for this lake and kept in it."""
    if settings.hash_secret is not None and settings.hash_secret.get_secret_value():
        return Hasher(settings.hash_secret.get_secret_value().encode())
    path = lake.root / "state" / _KEY_FILE
    if not path.exists():
        write_text(path, secrets.token_hex(32))
        path.chmod(0o600)
    return Hasher(path.read_text(encoding="utf-8").strip().encode())
