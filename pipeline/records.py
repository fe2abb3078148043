"""The raw records of a run: which they are, how many, and which belong to another session than they name."""

# ruff: noqa: S608 - relation names and columns are our own; paths are quoted; values are parameters

from __future__ import annotations

from collections.abc import Collection
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pipeline.reach import ROW_SESSION, Reach
from pipeline.sql import binding, models

if TYPE_CHECKING:
    import duckdb

RELATIONS: Final = ("raw_event", "raw_spend_log")
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


def query(lake: Path, relation: str, reach: Reach, days: Collection[date] | None = None) -> str:
    """Return the query over every record of a relation that the run reads, or over those of *days*."""
    folder = binding.RAW[relation][0]
    wanted = set(reach.days if days is None else days)
    full = binding.files(lake, folder, (reach.whole | reach.near) & wanted)
    text = binding.raw_query(relation, full)
    if part := binding.files(lake, folder, reach.repaired & wanted):
        text += " UNION ALL " + binding.raw_query(relation, part, _TIED[relation], number_from=len(full))
    return text


def source(
    con: duckdb.DuckDBPyConnection, lake: Path, relation: str, reach: Reach, days: Collection[date]
) -> tuple[str, str]:
    """Return the records r of *days*, to be put after FROM, and the hash of what brings records together.

    That is the session, or the event where there is none, by what :func:`move` found.
    """
    text = f"({query(lake, relation, reach, days)}) AS r"
    if relation == "raw_spend_log":
        key = f"COALESCE(m.session_key, {ROW_SESSION}, m.call_id, {_ROW_EVENT}, {_ROW_KEY})"
        return f"{text} LEFT JOIN moved_row AS m ON m.row_key = {_ROW_KEY}", f"HASH({key})"
    if con.execute("SELECT 1 FROM moved_event LIMIT 1").fetchone() is None:
        return text, "HASH(COALESCE(r.session_key, r.event_id))"
    key = "COALESCE(m.session_key, r.session_key, r.event_id)"
    return f"{text} LEFT JOIN moved_event AS m ON m.event_id = r.event_id", f"HASH({key})"


def counts(con: duckdb.DuckDBPyConnection, lake: Path, reach: Reach) -> dict[date, int]:
    """Return the records to read of every day; of days that are read in part, about as many as are tied."""
    found = dict.fromkeys(reach.days, 0)
    for relation in RELATIONS:
        if paths := binding.files(lake, binding.RAW[relation][0], reach.whole | reach.near):
            days = {str(p): binding.day_of(p) for p in paths}
            rows = con.execute(
                "SELECT file_name, num_rows FROM parquet_file_metadata($paths)", {"paths": list(days)}
            ).fetchall()
            for name, count in rows:
                found[days[name]] += int(count)
    if reach.repaired:
        row = con.execute("SELECT COUNT(*) FROM reach_event").fetchone()
        share = -(-3 * int(row[0]) // len(reach.repaired)) if row else 0
        found |= dict.fromkeys(reach.repaired, share)
    return found


def tie(con: duckdb.DuckDBPyConnection, lake: Path, reach: Reach) -> None:
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


def move(con: duckdb.DuckDBPyConnection, lake: Path, reach: Reach) -> None:
    """Find the records whose own session is not that of their call, and the session where they belong.

    Open and final records may name different sessions, and a ledger row may name none. Which session counts
    is for the models to say, so they run over these records alone: moved_event and moved_row.
    """
    for relation in RELATIONS:
        con.execute(f"CREATE OR REPLACE TEMP VIEW every_{relation} AS {query(lake, relation, reach)}")
    con.execute(
        f"CREATE OR REPLACE TEMP TABLE loose AS SELECT litellm_call_id, {_ROW_KEY} AS row_key "
        f"FROM every_raw_spend_log WHERE {_ROW_EVENT} IS NULL"
    )
    # One state an event, and no session is a session of its own: this groups every event there is.
    con.execute(
        f"""
        CREATE OR REPLACE TEMP TABLE torn AS SELECT event_hash FROM (
          SELECT HASH(event_id) AS event_hash,
            CASE WHEN session_key IS NULL THEN 0 ELSE HASH(session_key) END AS session_hash
          FROM (SELECT event_id, session_key FROM every_raw_event
            UNION ALL SELECT {_ROW_EVENT}, {ROW_SESSION} FROM every_raw_spend_log)
          WHERE event_id IS NOT NULL)
        GROUP BY event_hash
        HAVING MIN(session_hash) < MAX(session_hash)
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
