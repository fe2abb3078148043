"""Raw records in buckets, so that no window function ever sorts the whole history.

Records of one session meet in one bucket, whatever day they lie on; so do an event and its ledger rows.
Events are read from their files anew for every bucket, which costs less than a sorted copy of them; the few
columns that most models read are kept in memory meanwhile. Ledger rows, whose session stands inside JSON, are
copied once into the lake's folder for temporary files, bucket by bucket.
"""

# ruff: noqa: S608 - relation names and columns are our own; paths are quoted; values are parameters

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pipeline.reach import ROW_SESSION, Reach
from pipeline.sql import binding, models

if TYPE_CHECKING:
    import duckdb

FOLDER: Final = ".spill"
_RELATIONS: Final = ("raw_event", "raw_spend_log")
#: Columns of events that more than one model or audit reads, kept in memory while a bucket is worked on. The
#: others are read where calls are put together.
_KEPT: Final = (
    "event_id", "record_number", "outcome", "started_us", "ended_us", "duration_ms", "ttft_ms", "idle_ms",
    "session_key", "agent_id", "turn_id", "call_index", "initiator", "compaction_hint", "service_key",
    "key_alias", "team_id", "model_group", "litellm_call_id", "input_tokens", "prompt_bytes", "shared_bytes",
    "prefix_steps", "error_class", "collected_at",
)  # fmt: skip
_ROW_EVENT: Final = ROW_SESSION.replace("session_key", "event_id")
#: Name of a ledger row, as stg_row_match spells it.
_ROW_KEY: Final = (
    "COALESCE(request_id, '') || ':' || COALESCE(litellm_call_id, '') || ':' || CAST(start_time AS VARCHAR)"
)
#: Records on days of which only some sessions are built again.
_TIED: Final = {
    "raw_event": "event_id IN (SELECT event_id FROM reach_event) "
    "OR litellm_call_id IN (SELECT litellm_call_id FROM reach_call)",
    "raw_spend_log": f"{ROW_SESSION} IN (SELECT session_key FROM reach_session) "
    f"OR {_ROW_EVENT} IN (SELECT event_id FROM reach_event) "
    "OR litellm_call_id IN (SELECT litellm_call_id FROM reach_call)",
}


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
    _tie(con, lake, reach)
    count = max(1, -(-_records(con, lake, reach) // limits.bucket_records))
    if count == 1:
        rows = _query(lake, "raw_spend_log", reach)
        con.execute(f"CREATE OR REPLACE TEMP VIEW raw_spend_log AS {rows}")
        bucket = Bucket(0, 1, _query(lake, "raw_event", reach))
        bucket.bind_all(con)
        yield iter([bucket])
        return
    folder = lake / FOLDER / "buckets"
    shutil.rmtree(folder, ignore_errors=True)
    try:
        yield _written(con, lake, reach, count, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _written(
    con: duckdb.DuckDBPyConnection, lake: Path, reach: Reach, count: int, folder: Path
) -> Iterator[Bucket]:
    _move(con, lake, reach)
    folder.mkdir(parents=True)
    for day in reach.days:
        _write_rows(con, lake, reach, day, count, folder)
    moved = con.execute("SELECT 1 FROM moved_event LIMIT 1").fetchone() is not None
    every = _query(lake, "raw_event", reach)
    for number in range(count):
        place = folder / f"bucket={number}"
        binding.bind_raw(con, "raw_spend_log", sorted(place.glob("*.parquet")))
        if moved:
            events = (
                f"SELECT r.* FROM ({every}) AS r LEFT JOIN moved_event AS m ON m.event_id = r.event_id "
                f"WHERE HASH(COALESCE(m.session_key, r.session_key, r.event_id)) % {count} = {number}"
            )
        else:
            events = (
                f"SELECT * FROM ({every}) WHERE HASH(COALESCE(session_key, event_id)) % {count} = {number}"
            )
        bucket = Bucket(number, count, events)
        bucket.bind_all(con)
        yield bucket
        shutil.rmtree(place, ignore_errors=True)


def _records(con: duckdb.DuckDBPyConnection, lake: Path, reach: Reach) -> int:
    """Records to read; of days that are read in part, as many as are tied to the sessions."""
    total = 0
    for relation in _RELATIONS:
        folder = binding.RAW[relation][0]
        if paths := binding.files(lake, folder, reach.whole | reach.near):
            found = con.execute(
                "SELECT SUM(num_rows) FROM parquet_file_metadata($paths)", {"paths": [str(p) for p in paths]}
            ).fetchone()
            total += int(found[0]) if found else 0
    if reach.repaired:
        found = con.execute("SELECT COUNT(*) FROM reach_event").fetchone()
        total += 3 * int(found[0]) if found else 0
    return total


def _tie(con: duckdb.DuckDBPyConnection, lake: Path, reach: Reach) -> None:
    """Find the records on repaired days that belong to sessions of whole days."""
    con.execute("CREATE OR REPLACE TEMP TABLE reach_event (event_id VARCHAR)")
    con.execute("CREATE OR REPLACE TEMP TABLE reach_call (litellm_call_id VARCHAR)")
    if not reach.repaired:
        return
    ours = "(SELECT session_key FROM reach_session)"
    events = binding.raw_query("raw_event", binding.files(lake, "raw/events", reach.repaired))
    rows = binding.raw_query("raw_spend_log", binding.files(lake, "raw/spend_logs", reach.repaired))
    con.execute(
        f"INSERT INTO reach_event SELECT event_id FROM ({events}) WHERE session_key IN {ours} "
        f"UNION SELECT {_ROW_EVENT} FROM ({rows}) WHERE {ROW_SESSION} IN {ours}"
    )
    con.execute(
        f"INSERT INTO reach_call SELECT DISTINCT litellm_call_id FROM ({events}) "
        "WHERE litellm_call_id <> '' AND event_id IN (SELECT event_id FROM reach_event)"
    )


def _query(lake: Path, relation: str, reach: Reach) -> str:
    """The query over every record of a relation that the run reads."""
    folder = binding.RAW[relation][0]
    full = binding.files(lake, folder, reach.whole | reach.near)
    query = binding.raw_query(relation, full)
    if reach.repaired and (part := binding.files(lake, folder, reach.repaired)):
        query += " UNION ALL " + binding.raw_query(relation, part, _TIED[relation], number_from=len(full))
    return query


def _move(con: duckdb.DuckDBPyConnection, lake: Path, reach: Reach) -> None:
    """Find the records whose own session is not that of their call, and the session where they belong.

    Open and final records may name different sessions, and a ledger row may name none. Which session counts
    is for the models to say, so they run over these records alone: moved_event and moved_row.
    """
    for relation in _RELATIONS:
        con.execute(f"CREATE OR REPLACE TEMP VIEW every_{relation} AS {_query(lake, relation, reach)}")
    con.execute(
        f"CREATE OR REPLACE TEMP TABLE loose AS SELECT litellm_call_id, {_ROW_KEY} AS row_key "
        f"FROM every_raw_spend_log WHERE {_ROW_EVENT} IS NULL"
    )
    con.execute(
        f"""
        CREATE OR REPLACE TEMP TABLE torn AS SELECT event_hash FROM (
          SELECT HASH(event_id) AS event_hash, HASH(session_key) AS session_hash,
            CASE WHEN session_key IS NULL THEN 0 ELSE 1 END AS has_session
          FROM (SELECT event_id, session_key FROM every_raw_event
            UNION ALL SELECT {_ROW_EVENT}, {ROW_SESSION} FROM every_raw_spend_log)
          WHERE event_id IS NOT NULL)
        GROUP BY event_hash
        HAVING COUNT(*) > 1 AND (MIN(has_session) < MAX(has_session) OR MIN(session_hash) < MAX(session_hash))
        """
    )
    found = con.execute("SELECT (SELECT COUNT(*) FROM loose), (SELECT COUNT(*) FROM torn)").fetchone()
    if not found or not any(found):
        con.execute(
            "CREATE OR REPLACE TEMP TABLE moved_event (event_id VARCHAR, session_key VARCHAR);"
            "CREATE OR REPLACE TEMP TABLE moved_row (row_key VARCHAR, session_key VARCHAR, call_id VARCHAR)"
        )
        return
    torn = "HASH({0}) IN (SELECT event_hash FROM torn)"
    shared = "litellm_call_id IN (SELECT litellm_call_id FROM loose WHERE litellm_call_id <> '')"
    con.execute(
        f"CREATE OR REPLACE TEMP VIEW raw_event AS SELECT * FROM every_raw_event "
        f"WHERE {torn.format('event_id')} OR {shared}"
    )
    con.execute(
        f"CREATE OR REPLACE TEMP VIEW raw_spend_log AS SELECT * FROM every_raw_spend_log "
        f"WHERE {torn.format(_ROW_EVENT)} OR {shared} OR {_ROW_KEY} IN (SELECT row_key FROM loose)"
    )
    models.run(con, models.STAGING, {})
    con.execute(
        "CREATE OR REPLACE TEMP TABLE moved_event AS SELECT call_id AS event_id, session_key FROM stg_call "
        "WHERE source <> 'row'"
    )
    con.execute(
        f"CREATE OR REPLACE TEMP TABLE moved_row AS SELECT m.row_key, c.session_key, c.call_id FROM "
        f"(SELECT {_ROW_KEY} AS row_key, call_id FROM stg_row_match) AS m "
        "JOIN stg_call AS c ON c.call_id = m.call_id"
    )
    for name in models.STAGING:
        con.execute(f"DROP {'VIEW' if name in models.VIEWS else 'TABLE'} {name}")


def _write_rows(
    con: duckdb.DuckDBPyConnection, lake: Path, reach: Reach, day: date, count: int, folder: Path
) -> None:
    """Copy the ledger rows of a day into the folders of their buckets."""
    relation = "raw_spend_log"
    paths = binding.files(lake, binding.RAW[relation][0], [day])
    if not paths:
        return
    records = binding.raw_query(relation, paths, _TIED[relation] if day in reach.repaired else "")
    key = f"COALESCE(m.session_key, {ROW_SESSION}, m.call_id, {_ROW_EVENT}, {_ROW_KEY})"
    columns = ", ".join(f'r."{c}"' for c in _columns(relation))
    con.execute(
        f"COPY (SELECT {columns}, HASH({key}) % {count} AS bucket "
        f"FROM ({records}) AS r LEFT JOIN moved_row AS m ON m.row_key = {_ROW_KEY}) "
        f"TO '{str(folder).replace(chr(39), chr(39) * 2)}' (FORMAT parquet, COMPRESSION lz4, "
        f"PARTITION_BY (bucket), OVERWRITE_OR_IGNORE, FILENAME_PATTERN '{day.isoformat()}-{{i}}')"
    )


def _columns(relation: str) -> list[str]:
    """The columns of a raw relation that any model or audit names."""
    texts = [models.load(n).sql for n in (*models.STAGING, *models.audit_names())]
    words = set(re.findall(r"\w+", " ".join(texts)))
    return [c for c in binding.RAW[relation][1] if c in words]
