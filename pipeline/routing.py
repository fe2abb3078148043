"""Which bucket a record is worked on in: that of the days on which its session begins.

Neighbouring days are put together until they hold as many records as a bucket may, and the sessions that
begin on too full a day are spread over several buckets by their hash. So a day's records are read for its own
buckets and no others, however long the history: only what goes on after the days on which it began is copied,
once, beside the records of the days where it belongs.
"""

# ruff: noqa: S608 - relation names and columns are our own; paths are quoted; values are parameters

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pipeline import records
from pipeline.reach import Reach
from pipeline.sql import binding, models

if TYPE_CHECKING:
    import duckdb


#: By how much of its size a bucket may be too large before its days are split, for which they are read again.
_OVER: Final = 0.1


@dataclass(frozen=True, slots=True)
class Group:
    """Neighbouring days, and the ``splits`` buckets, from number ``first`` on, of what begins on them."""

    number: int
    days: frozenset[date]
    first: int
    splits: int


def groups(
    con: duckdb.DuckDBPyConnection, lake: Path, reach: Reach, counts: Mapping[date, int], limit: int
) -> list[Group]:
    """Return the groups of days of a run, none of whose buckets should hold more than *limit* records.

    *counts* are the records of each day (:func:`pipeline.records.counts`).

    Leaves behind where a session belongs that lies in more than one group: ``spread`` (key_hash, home,
    bucket). :func:`pipeline.records.move` must have run.
    """
    found = _neighbours(counts, limit)
    keyed = []
    for number, days in enumerate(found):
        for relation in records.RELATIONS:
            if binding.files(lake, binding.RAW[relation][0], days):
                source, key = records.source(con, lake, relation, reach, days)
                keyed.append(f"SELECT {key} AS key_hash, {number} AS number FROM {source}")
    con.execute(
        "CREATE OR REPLACE TEMP TABLE homed AS SELECT key_hash, MIN(number) AS home, MAX(number) AS last, "
        f"COUNT(*) AS records FROM ({' UNION ALL '.join(keyed)}) GROUP BY key_hash"
    )
    sizes = dict(con.execute("SELECT home, CAST(SUM(records) AS BIGINT) FROM homed GROUP BY home").fetchall())
    made: list[Group] = []
    for number, days in enumerate(found):
        splits = max(1, math.ceil(sizes.get(number, 0) / limit - _OVER))
        made.append(Group(number, days, made[-1].first + made[-1].splits if made else 0, splits))
    con.execute("CREATE OR REPLACE TEMP TABLE spread (key_hash UBIGINT, home INTEGER, bucket INTEGER)")
    for group in made:
        con.execute(
            f"INSERT INTO spread SELECT key_hash, home, {group.first} + key_hash % {group.splits} FROM homed "
            f"WHERE home = {group.number} AND last > {group.number}"
        )
    con.execute("DROP TABLE homed")
    return made


def _neighbours(counts: Mapping[date, int], limit: int) -> list[frozenset[date]]:
    """Put days together, in order, as long as they do not hold more than *limit* records."""
    found: list[set[date]] = []
    held = 0
    for day in sorted(counts):
        if not found or held + counts[day] > limit:
            found.append(set())
            held = 0
        found[-1].add(day)
        held += counts[day]
    return [frozenset(days) for days in found]


def copy(con: duckdb.DuckDBPyConnection, lake: Path, reach: Reach, every: list[Group], folder: Path) -> None:
    """Copy below *folder* what is not read where it lies.

    Ledger rows, whose session stands inside JSON, and events whose session began on the days of an earlier
    group: :func:`copied` finds them.
    """
    for group in every:
        _copy(con, lake, reach, group, "raw_spend_log", folder)
        if group.number:
            _copy(con, lake, reach, group, "raw_event", folder)


def copied(folder: Path, relation: str, bucket: int) -> list[Path]:
    """Return the files that :func:`copy` wrote for a bucket."""
    return sorted((folder / relation / f"bucket={bucket}").glob("*.parquet"))


def events(
    con: duckdb.DuckDBPyConnection, lake: Path, reach: Reach, group: Group, split: int, folder: Path
) -> str:
    """Return the query over the events of a bucket, in every column."""
    source, key = records.source(con, lake, "raw_event", reach, group.days)
    own = f"SELECT r.* FROM {source}"
    conditions = [f"{key} % {group.splits} = {split}"] if group.splits > 1 else []
    if group.number:
        earlier = f"SELECT key_hash FROM spread WHERE home < {group.number}"
        own += f" LEFT JOIN ({earlier}) AS s ON s.key_hash = {key}"
        conditions.append("s.key_hash IS NULL")
    if conditions:
        own += f" WHERE {' AND '.join(conditions)}"
    paths = copied(folder, "raw_event", group.first + split)
    if not paths:
        return own
    number_from = len(binding.files(lake, binding.RAW["raw_event"][0], group.days))
    return f"{own} UNION ALL {binding.raw_query('raw_event', paths, number_from=number_from)}"


def _copy(
    con: duckdb.DuckDBPyConnection, lake: Path, reach: Reach, group: Group, relation: str, folder: Path
) -> None:
    if not binding.files(lake, binding.RAW[relation][0], group.days):
        return
    source, key = records.source(con, lake, relation, reach, group.days)
    if relation == "raw_event":  # those of the group's own sessions are read where they lie
        join, bucket = f"JOIN (SELECT * FROM spread WHERE home < {group.number})", "s.bucket"
    else:
        join, bucket = "LEFT JOIN spread", f"COALESCE(s.bucket, {group.first} + {key} % {group.splits})"
    columns = ", ".join(f'r."{c}"' for c in _columns(relation))
    target = folder / relation
    target.mkdir(parents=True, exist_ok=True)
    con.execute(
        f"COPY (SELECT {columns}, {bucket} AS bucket FROM {source} {join} AS s ON s.key_hash = {key}) "
        f"TO '{str(target).replace(chr(39), chr(39) * 2)}' (FORMAT parquet, COMPRESSION lz4, "
        f"PARTITION_BY (bucket), OVERWRITE_OR_IGNORE, FILENAME_PATTERN '{min(group.days)}-{{i}}')"
    )


def _columns(relation: str) -> list[str]:
    """The columns of a raw relation that any model or audit names."""
    texts = [models.load(n).sql for n in (*models.STAGING, *models.audit_names())]
    words = set(re.findall(r"\w+", " ".join(texts)))
    return [c for c in binding.RAW[relation][1] if c in words]
