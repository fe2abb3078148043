"""Builds facts bucket by bucket and puts them in place day by day."""

# ruff: noqa: S608 - relation names and columns are our own; paths are quoted; values are parameters

from __future__ import annotations

import secrets
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pipeline import staging
from pipeline.durable import sync
from pipeline.lake import Lake
from pipeline.reach import Reach
from pipeline.sql import binding, models

if TYPE_CHECKING:
    import duckdb

Progress = Callable[[str, int, int], None]

#: Fact relation -> the query over the models of a bucket that is written. What depends on calls comes first,
#: so that it is compared with the calls that stood beside it.
_WRITTEN: Final = {
    "fct_potential": "SELECT * FROM other_potential",
    "fct_turn": "SELECT * FROM fct_turn",
    "fct_session": "SELECT * FROM fct_session",
    "fct_call": "",  # written as it is built
}
#: Relations that have a file wherever calls have one, if without a row, so that their columns are known.
_WITH_CALLS: Final = frozenset({"fct_turn", "fct_session"})
#: Rows of calls that a thread gathers before it writes them: a quarter of a row group, which the processor's
#: caches hold.
_ROWS_AT_ONCE: Final = 30_720
#: Audits over all calls of a day, whichever bucket they were in.
_OF_DAYS: Final = ("call_id_shared",)


def build(
    con: duckdb.DuckDBPyConnection,
    lake: Path,
    reach: Reach,
    wanted: Callable[[date], bool],
    values: Mapping[str, Any],
    limits: staging.Limits,
    report: Progress,
) -> tuple[list[date], list[models.Audit]]:
    """Build the facts within *reach* and put those of *wanted* days in place.

    Returns:
        The days whose facts were written, and what the audits found.
    """
    aside: dict[tuple[str, date], list[Path]] = defaultdict(list)
    audits: list[models.Audit] = []
    # Calls come day by day: rows kept for longer, to be written by day later, cost memory and a second look.
    con.execute(f"SET partitioned_write_flush_threshold = {_ROWS_AT_ONCE}")
    steps = (*models.STAGING, *models.FACTS)
    run = secrets.token_hex(6)
    try:
        # What a bucket wrote goes to disk while the next one is worked on, not all of it at the end.
        with (
            ThreadPoolExecutor(max_workers=1) as disk,
            staging.buckets(con, lake, reach, limits) as every,
        ):
            for bucket in every:
                number, count = bucket.number, bucket.count
                part = f"part-{run}-{number:03d}"
                for step, name in enumerate(steps):
                    report(name, number * len(steps) + step, count * len(steps))
                    if name == "fct_call":
                        bucket.bind_all(con)
                        calls = _write_calls(con, lake, reach, part, values)
                        bucket.bind_kept(con)
                    else:
                        models.run(con, (name,), values)
                    if name == "stg_record":  # the last model but calls that reads all columns
                        bucket.keep(con)
                        bucket.bind_kept(con)
                report("facts", number, count)
                _write(con, lake, reach, part, wanted, aside)
                report("audits", number, count)
                audits = _merged(audits, models.audit(con, leave_out=_OF_DAYS))
                _put_aside(lake, calls, part, wanted, aside)
                for path in (p for paths in aside.values() for p in paths if part in p.name):
                    disk.submit(sync, path)
                for name in reversed(steps):
                    kind = "VIEW" if name in models.VIEWS or name == "fct_call" else "TABLE"
                    con.execute(f"DROP {kind} {name}")
        days = [d for d in sorted(reach.whole) if wanted(d)]
        for day in days:
            for relation in _WRITTEN:
                Lake(lake).replace(_folder(relation, day), aside.pop((relation, day), []))
        others = sorted({d for _, d in aside} | reach.near | reach.repaired)
        days += [d for d in others if wanted(d) and _mend(con, lake, d, aside, f"part-{run}-old")]
    finally:
        con.execute("RESET partitioned_write_flush_threshold")
        for paths in aside.values():
            for path in paths:
                path.unlink(missing_ok=True)
        for folder in (lake / binding.FACTS["fct_call"]).glob(f".part-{run}-*.tmp"):
            shutil.rmtree(folder)
    return sorted(days), audits + _audit_days(con, lake, days)


def counts(con: duckdb.DuckDBPyConnection, lake: Path, days: Iterable[date]) -> tuple[int, int, int]:
    """Return the numbers of calls, turns and visits on *days*."""
    found = []
    for relation in ("fct_call", "fct_turn", "fct_session"):
        paths = [str(p) for p in binding.files(lake, binding.FACTS[relation], days)]
        row = (
            con.execute(
                "SELECT SUM(num_rows) FROM parquet_file_metadata($paths)", {"paths": paths}
            ).fetchone()
            if paths
            else None
        )
        found.append(int(row[0]) if row else 0)
    return found[0], found[1], found[2]


def drop_other_days(lake: Path, days: Iterable[date]) -> None:
    """After a full build, remove days of facts that no raw record supports any more."""
    kept = {f"date={d.isoformat()}" for d in days}
    for folder in binding.FACTS.values():
        for old in (lake / folder).glob("date=*"):
            if old.name not in kept:
                shutil.rmtree(old)


def _folder(relation: str, day: date) -> Path:
    return Path(binding.FACTS[relation]) / f"date={day.isoformat()}"


def _write_calls(
    con: duckdb.DuckDBPyConnection, lake: Path, reach: Reach, part: str, values: Mapping[str, Any]
) -> Path:
    """Build the calls of a bucket straight into files by day, and bind ``fct_call`` to them.

    Calls are wide: a table of them between the join and the files would cost as much as the files. What
    records of near days gave on their own is left out, because their sessions were not read in full.
    """
    model = models.load("fct_call")
    query = model.sql
    if not reach.is_all:
        days = ", ".join(f"DATE '{d.isoformat()}'" for d in sorted(reach.whole))
        query = (
            f"SELECT * FROM ({query}) WHERE start_date IN ({days}) "
            "OR COALESCE(session_key IN (SELECT session_key FROM reach_session), FALSE)"
        )
    folder = lake / binding.FACTS["fct_call"] / f".{part}.tmp"
    folder.mkdir(parents=True)
    con.execute(
        f"COPY ({query}) TO '{_text(folder)}' (FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 1, "
        "PARQUET_VERSION V2, WRITE_BLOOM_FILTER false, "  # delta encodings; nothing looks up one value
        "PARTITION_BY (start_date), WRITE_PARTITION_COLUMNS true, OVERWRITE_OR_IGNORE)",
        {key: values[key] for key in model.parameters} or None,
    )
    paths = sorted(folder.glob("*/*.parquet"))
    if not paths:  # a bucket without a call: the columns alone
        con.execute(f"COPY ({query} LIMIT 0) TO '{_text(folder / 'none.parquet')}' (FORMAT parquet)")
        paths = [folder / "none.parquet"]
    con.execute(f"CREATE OR REPLACE TEMP VIEW fct_call AS SELECT * FROM {binding.parquet(paths)}")
    return folder


def _put_aside(
    lake: Path,
    folder: Path,
    part: str,
    wanted: Callable[[date], bool],
    aside: dict[tuple[str, date], list[Path]],
) -> None:
    """Move the files of calls beside the days that they belong to."""
    for number, path in enumerate(sorted(folder.glob("start_date=*/*.parquet"))):
        day = date.fromisoformat(path.parent.name.removeprefix("start_date="))
        if not wanted(day):
            continue
        target = lake / _folder("fct_call", day)
        target.mkdir(parents=True, exist_ok=True)
        target /= f".{part}-{number}.parquet.tmp"
        path.replace(target)
        aside["fct_call", day].append(target)
    shutil.rmtree(folder)


def _write(
    con: duckdb.DuckDBPyConnection,
    lake: Path,
    reach: Reach,
    part: str,
    wanted: Callable[[date], bool],
    aside: dict[tuple[str, date], list[Path]],
) -> None:
    """Write what was made of the calls of a bucket, by day."""
    if not reach.is_all:
        for relation in ("fct_turn", "fct_session"):
            con.execute(
                f"DELETE FROM {relation} WHERE session_key NOT IN (SELECT session_key FROM reach_session)"
            )
    found = con.execute("SELECT DISTINCT start_date FROM fct_call ORDER BY start_date").fetchall()
    con.execute(f"CREATE OR REPLACE TEMP TABLE other_potential AS {binding.OTHER_POTENTIAL}")
    empty = con.execute("SELECT 1 FROM other_potential LIMIT 1").fetchone() is None
    for relation, query in _WRITTEN.items():
        for (day,) in found:
            if not query or not wanted(day) or (relation == "fct_potential" and empty):
                continue
            of_day = f"SELECT * FROM ({query}) WHERE start_date = DATE '{day.isoformat()}'"
            path = Lake(lake).write_aside(
                con, of_day, _folder(relation, day), f"{part}.parquet", empty=relation in _WITH_CALLS
            )
            if path is not None:
                aside[relation, day].append(path)
    con.execute("DROP TABLE other_potential")


def _text(path: Path) -> str:
    return str(path).replace("'", "''")


def _mend(
    con: duckdb.DuckDBPyConnection,
    lake: Path,
    day: date,
    aside: dict[tuple[str, date], list[Path]],
    name: str,
) -> bool:
    """Put the sessions that were built again into the facts of a day; return whether anything changed."""
    changed = False
    for relation in _WRITTEN:
        new, old = aside.get((relation, day), []), binding.files(lake, binding.FACTS[relation], [day])
        ours = "session_key IN (SELECT session_key FROM reach_session)"
        if relation == "fct_potential":
            calls = binding.files(lake, binding.FACTS["fct_call"], [day])
            ours = (
                f"call_id IN (SELECT call_id FROM {binding.parquet(calls)} WHERE {ours})"
                if calls
                else "FALSE"
            )
        before = f"SELECT * FROM {binding.parquet(old)} WHERE {ours}" if old else None
        after = f"SELECT * FROM {binding.parquet(new)}" if new else None
        if _content(con, before) == _content(con, after):
            continue
        changed = True
        files = list(aside.pop((relation, day), []))
        if old:
            rest = f"SELECT * FROM {binding.parquet(old)} WHERE NOT COALESCE({ours}, FALSE)"
            empty = relation in _WITH_CALLS and not files
            kept = Lake(lake).write_aside(con, rest, _folder(relation, day), f"{name}.parquet", empty=empty)
            files += [kept] if kept is not None else []
        Lake(lake).replace(_folder(relation, day), files)
    return changed


def _content(con: duckdb.DuckDBPyConnection, query: str | None) -> tuple[Any, ...]:
    """What rows hold, whatever their order."""
    if query is None:
        return (0, None)
    row = con.execute(f"SELECT COUNT(*), SUM(CAST(HASH(r) AS HUGEINT)) FROM ({query}) AS r").fetchone()
    return tuple(row or ())


def _merged(before: list[models.Audit], more: list[models.Audit]) -> list[models.Audit]:
    """Audits of several buckets or days as if they had been one."""
    if not before:
        return more
    return [
        models.Audit(
            a.name,
            a.severity,
            a.rows + b.rows,
            tuple(sorted((*a.samples, *b.samples))[: models.SAMPLES]),
            a.meaning,
        )
        for a, b in zip(before, more, strict=True)
    ]


def _audit_days(con: duckdb.DuckDBPyConnection, lake: Path, days: Iterable[date]) -> list[models.Audit]:
    found: list[models.Audit] = []
    for day in days:
        if paths := binding.files(lake, binding.FACTS["fct_call"], [day]):
            binding.bind_fact(con, "fct_call", paths)
            found = _merged(found, models.audit(con, only=_OF_DAYS))
            con.execute("DROP VIEW fct_call")
    return found
