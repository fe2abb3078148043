"""Collects imported calls on disk and publishes them into ``raw/events``, one file a day and batch."""

# ruff: noqa: S608 - identifiers come from the schema; paths are our own

from __future__ import annotations

import hashlib
import secrets
import shutil
from collections.abc import Sequence
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import orjson

from pipeline import engine
from pipeline.extract.traces.documents import Rejected
from pipeline.extract.traces.source import TAG, Event
from pipeline.lake import Lake
from pipeline.schema import SCHEMAS

if TYPE_CHECKING:
    pass

EVENTS: Final = "raw/events"
REJECTS: Final = "rejects/events"
_CHUNK_ROWS: Final = 20_000
_MEMORY: Final = "512MB"


class EventStaging:
    """Rows of several files on their way into the lake; use it as a context manager.

    Rows wait in a DuckDB file below the lake, so memory stays bounded whatever the size of a trace.
    """

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._folder = lake.root / ".tmp" / f"import-{secrets.token_hex(8)}"
        self._chunk: list[bytes] = []
        self._rejects: list[tuple[int, Rejected]] = []
        self._file = 0
        self.rows = 0

    def __enter__(self) -> EventStaging:
        self._folder.mkdir(parents=True)
        self._con = engine.connect(self._folder / "staged.duckdb", memory_limit=_MEMORY, threads=2)
        self._con.execute("SET preserve_insertion_order = false")
        columns = ", ".join(f"{name} {type_}" for name, type_ in SCHEMAS[EVENTS].items())
        self._con.execute(f"CREATE TABLE staged ({columns}, file_number BIGINT)")
        return self

    def __exit__(self, *_: object) -> None:
        self._con.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def begin(self) -> None:
        """Start the next file."""
        self._file += 1

    def add(self, event: Event) -> None:
        """Take one call of the present file."""
        self._chunk.append(orjson.dumps(event | {"file_number": self._file}))
        self.rows += 1
        if len(self._chunk) >= _CHUNK_ROWS:
            self._load()

    def set_aside(self, rejected: Rejected) -> None:
        """Take one record of the present file that cannot become a call."""
        self._rejects.append((self._file, rejected))

    def forget(self) -> None:
        """Drop what was taken of the present file."""
        self._load()
        self._con.execute("DELETE FROM staged WHERE file_number = ?", [self._file])
        self._rejects = [r for r in self._rejects if r[0] != self._file]
        self.rows = self._count()

    def publish(self, digests: Sequence[str], now: datetime) -> dict[str, list[date]]:
        """Write everything taken, under a name that the *digests* of the files give.

        Returns the days of each file, by its digest.

        A name says what is in a file: the same batch again replaces its own files.
        """
        self._load()
        batch = hashlib.blake2b("".join(digests).encode(), digest_size=8).hexdigest()
        columns = ", ".join(SCHEMAS[EVENTS])
        found: dict[str, list[date]] = {digest: [] for digest in digests}
        for number, day in self._con.execute(
            "SELECT DISTINCT file_number, CAST(make_timestamp(started_us) AS DATE) AS day FROM staged "
            "ORDER BY file_number, day"
        ).fetchall():
            found[digests[number - 1]].append(day)
        for day in sorted({day for days in found.values() for day in days}):
            rows = (
                f"SELECT {columns} FROM staged "
                f"WHERE CAST(make_timestamp(started_us) AS DATE) = DATE '{day.isoformat()}'"
            )
            path = Path(EVENTS) / f"date={day.isoformat()}" / f"import-{batch}.parquet"
            self._lake.write(self._con, rows, path, "started_us, event_id")
        if self._rejects:
            path = Path(REJECTS) / f"date={now.date().isoformat()}" / f"import-{batch}.parquet"
            listed = [
                [f"{TAG}{digests[number - 1]}/{r.place}", r.reason, r.size, f"keys: {r.keys}", now]
                for number, r in self._rejects
            ]
            self._lake.write_columns(self._con, REJECTS, path, listed, "stream_id")
        self._con.execute("DELETE FROM staged")
        self._rejects.clear()
        self._file = self.rows = 0
        return found

    def _load(self) -> None:
        if not self._chunk:
            return
        path = self._folder / "chunk.jsonl"
        path.write_bytes(b"\n".join(self._chunk) + b"\n")
        self._chunk.clear()
        types = ", ".join(
            f"'{name}': '{type_}'" for name, type_ in {**SCHEMAS[EVENTS], "file_number": "BIGINT"}.items()
        )
        self._con.execute(
            "INSERT INTO staged SELECT * FROM read_json(?, format = 'newline_delimited', "
            f"columns = {{{types}}})",
            [str(path)],
        )
        path.unlink()

    def _count(self) -> int:
        found = self._con.execute("SELECT count(*) FROM staged").fetchone()
        return int(found[0]) if found else 0
