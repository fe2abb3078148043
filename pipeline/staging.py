"""Raw records in buckets, so that no window function ever sorts the whole history.

Records of one session meet in one bucket, whatever day they lie on; so do an event and its ledger rows
(``pipeline.routing``). Events are read from their files, which costs less than a sorted copy of them; the few
columns that most models read are kept in memory meanwhile. What must be copied lies in the lake's folder for
temporary files until its bucket is done.
"""

# ruff: noqa: S608 - relation names and columns are our own; paths are quoted; values are parameters

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pipeline import records, routing
from pipeline.reach import Reach
from pipeline.sql import binding

if TYPE_CHECKING:
    import duckdb

FOLDER: Final = ".spill"
#: Columns of events that more than one model or audit reads, kept in memory while a bucket is worked on. The
#: others are read where calls are put together.
_KEPT: Final = (
    "event_id", "record_number", "outcome", "started_us", "ended_us", "duration_ms", "ttft_ms", "idle_ms",
    "session_key", "agent_id", "turn_id", "call_index", "initiator", "compaction_hint", "service_key",
    "key_alias", "team_id", "model_group", "litellm_call_id", "input_tokens", "prompt_bytes", "shared_bytes",
    "prefix_steps", "error_class", "collected_at",
)  # fmt: skip

_MEMORY_GIB: Final = 4.0
#: Records of a bucket that fit that memory.
_BUCKET_RECORDS: Final = 2_000_000


@dataclass(frozen=True, slots=True)
class Limits:
    """How much memory a run may take, and how many records it works on at once.

    ``memory_gib`` is meant for the whole process; the engine gets what the rest does not need.
    """

    memory_gib: float = _MEMORY_GIB
    bucket_records: int = _BUCKET_RECORDS
    threads: int = 0

    @classmethod
    def of(cls, memory_gib: float) -> Limits:
        """Return the limits of a run that may take *memory_gib*: buckets shrink with it."""
        return cls(memory_gib, max(50_000, int(_BUCKET_RECORDS * min(1.0, memory_gib / _MEMORY_GIB))))

    @property
    def engine_gib(self) -> float:
        """Memory that the engine may use before it writes to disk."""
        return max(0.5, self.memory_gib * 0.6)


@dataclass(frozen=True, slots=True)
class Bucket:
    """One of *count* buckets: ``raw_spend_log`` is bound to its rows, ``raw_event`` to all of its columns."""

    number: int
    count: int
    events: str

    def bind_all(self, con: duckdb.DuckDBPyConnection) -> None:
        """Bind ``raw_event`` to the events of the bucket, with every column."""
        con.execute(f"CREATE OR REPLACE TEMP VIEW raw_event AS {self.events}")

    def keep(self, con: duckdb.DuckDBPyConnection) -> None:
        """Take the columns that are read again and again into memory."""
        names = ", ".join(f'"{c}"' for c in _KEPT)
        con.execute(f"CREATE OR REPLACE TEMP TABLE kept_event AS SELECT {names} FROM ({self.events})")

    def bind_kept(self, con: duckdb.DuckDBPyConnection) -> None:
        """Bind ``raw_event`` to what is kept; to read another column of it is an error."""
        columns = binding.RAW["raw_event"][1] | {"record_number": "BIGINT"}
        chosen = ", ".join(
            f'"{name}"' if name in _KEPT else f"CAST(ERROR('{name} is not kept') AS {kind}) AS \"{name}\""
            for name, kind in columns.items()
        )
        con.execute(f"CREATE OR REPLACE TEMP VIEW raw_event AS SELECT {chosen} FROM kept_event")


@contextmanager
def buckets(
    con: duckdb.DuckDBPyConnection, lake: Path, reach: Reach, limits: Limits
) -> Iterator[Iterator[Bucket]]:
    """Give the buckets of a run one after the other, each with the raw relations bound.

    What was written for them is removed at the end.
    """
    records.tie(con, lake, reach)
    counts = records.counts(con, lake, reach)
    if sum(counts.values()) <= limits.bucket_records:
        rows = records.query(lake, "raw_spend_log", reach)
        con.execute(f"CREATE OR REPLACE TEMP VIEW raw_spend_log AS {rows}")
        bucket = Bucket(0, 1, records.query(lake, "raw_event", reach))
        bucket.bind_all(con)
        yield iter([bucket])
        return
    folder = lake / FOLDER / "buckets"
    shutil.rmtree(folder, ignore_errors=True)
    try:
        yield _routed(con, lake, reach, counts, limits.bucket_records, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _routed(
    con: duckdb.DuckDBPyConnection,
    lake: Path,
    reach: Reach,
    counts: Mapping[date, int],
    limit: int,
    folder: Path,
) -> Iterator[Bucket]:
    records.move(con, lake, reach)
    groups = routing.groups(con, lake, reach, counts, limit)
    routing.copy(con, lake, reach, groups, folder)
    count = sum(g.splits for g in groups)
    for group in groups:
        for split in range(group.splits):
            number = group.first + split
            rows = routing.copied(folder, "raw_spend_log", number)
            binding.bind_raw(con, "raw_spend_log", rows)
            bucket = Bucket(number, count, routing.events(con, lake, reach, group, split, folder))
            bucket.bind_all(con)
            yield bucket
            for path in (*rows, *routing.copied(folder, "raw_event", number)):
                path.unlink()
