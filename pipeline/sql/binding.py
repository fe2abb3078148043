"""Binds the lake's Parquet files to the relation names that the models use.

The only place that knows paths and ``read_parquet``: a model names ``raw_event`` or ``fct_call`` and runs
unchanged wherever these relations exist.
"""

# ruff: noqa: S608 - relation names and columns are our own; paths are quoted; values are parameters

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gateway_plugin.event import FIELDS

if TYPE_CHECKING:
    import duckdb

_TYPES: Final = {"str": "VARCHAR", "int": "BIGINT", "float": "DOUBLE", "bool": "BOOLEAN", "steps": "VARCHAR"}

EVENT_COLUMNS: Final[dict[str, str]] = {
    **{f.name: _TYPES[f.type] for f in FIELDS},
    "stream_id": "VARCHAR",
    "collected_at": "TIMESTAMP",
}
SPEND_LOG_COLUMNS: Final[dict[str, str]] = {
    "request_id": "VARCHAR",
    "litellm_call_id": "VARCHAR",
    "call_type": "VARCHAR",
    "key_hash": "VARCHAR",
    "spend": "DECIMAL(18,9)",
    "prompt_tokens": "BIGINT",
    "completion_tokens": "BIGINT",
    "total_tokens": "BIGINT",
    "start_time": "TIMESTAMP",
    "end_time": "TIMESTAMP",
    "completion_start_time": "TIMESTAMP",
    "model": "VARCHAR",
    "model_id": "VARCHAR",
    "model_group": "VARCHAR",
    "provider": "VARCHAR",
    "user_hash": "VARCHAR",
    "team_id": "VARCHAR",
    "row_session_id": "VARCHAR",
    "status": "VARCHAR",
    "cache_hit": "BOOLEAN",
    "usage_input": "BIGINT",
    "usage_cached": "BIGINT",
    "usage_cache_write": "BIGINT",
    "usage_output": "BIGINT",
    "attempted_retries": "BIGINT",
    "error_class": "VARCHAR",
    "error_code": "VARCHAR",
    "aw": "VARCHAR",
    "extracted_at": "TIMESTAMP",
}
METRIC_COLUMNS: Final[dict[str, str]] = {
    "ts": "TIMESTAMP",
    "target": "VARCHAR",
    "name": "VARCHAR",
    "labels": "VARCHAR",
    "value": "DOUBLE",
    "kind": "VARCHAR",
}
#: relation name -> (folder below the lake, columns)
RAW: Final = {
    "raw_event": ("raw/events", EVENT_COLUMNS),
    "raw_spend_log": ("raw/spend_logs", SPEND_LOG_COLUMNS),
    "raw_metric": ("raw/metrics", METRIC_COLUMNS),
}
#: fact relation -> folder below the lake
FACTS: Final = {
    "fct_call": "facts/call",
    "fct_turn": "facts/turn",
    "fct_session": "facts/session",
    "fct_potential": "facts/potential",
}


def files(lake: Path, folder: str, days: Iterable[date] | None = None) -> list[Path]:
    """Return the Parquet files of *folder*, of all days or of the given ones, in a stable order.

    Names that begin with a dot or an underscore are unfinished or not ours; files that a compaction has
    merged into a finished one are left out.
    """
    root = lake / folder
    if days is None:
        found = root.glob("date=*/*.parquet")
    else:
        found = (p for d in sorted(set(days)) for p in (root / f"date={d.isoformat()}").glob("*.parquet"))
    paths = sorted(p for p in found if p.name[0] not in "._")
    merged = {path for parent in {p.parent for p in paths} for path in _merged(parent)}
    return [p for p in paths if p not in merged]


def _merged(folder: Path) -> set[Path]:
    """Files of *folder* whose rows a compaction that has not cleaned up yet already wrote elsewhere."""
    try:
        plan = json.loads((folder / ".compaction.json").read_text(encoding="utf-8"))
        return {folder / name for name in plan["inputs"]} if (folder / plan["output"]).exists() else set()
    except (OSError, ValueError, KeyError, TypeError):
        return set()


def day_of(path: Path) -> date:
    """Return the day of a file's ``date=`` folder."""
    return date.fromisoformat(path.parent.name.removeprefix("date="))


def bind_raw(con: duckdb.DuckDBPyConnection, relation: str, paths: list[Path]) -> None:
    """Bind a raw relation to *paths*; columns that the files lack are null, unknown ones are left out."""
    _, columns = RAW[relation]
    typed = ", ".join(f'CAST(NULL AS {kind}) AS "{name}"' for name, kind in columns.items())
    chosen = ", ".join(f'CAST("{name}" AS {kind}) AS "{name}"' for name, kind in columns.items())
    source = f"SELECT {typed} WHERE FALSE"
    if paths:
        source += f" UNION ALL BY NAME SELECT * FROM {parquet(paths)}"
    con.execute(f"CREATE OR REPLACE TEMP VIEW {relation} AS SELECT {chosen} FROM ({source})")


def bind_fact(con: duckdb.DuckDBPyConnection, relation: str, paths: list[Path]) -> None:
    """Bind a fact relation to *paths*.

    Raises:
        FileNotFoundError: there are no files, so the relation's columns are unknown.
    """
    if not paths:
        raise FileNotFoundError(f"no files for {relation}")
    con.execute(f"CREATE OR REPLACE TEMP VIEW {relation} AS SELECT * FROM {parquet(paths)}")


def parquet(paths: list[Path], *, with_day: bool = False) -> str:
    """Return the table function over *paths*; *with_day* adds the folder's day as column ``date``."""
    listed = ", ".join("'" + str(p).replace("'", "''") + "'" for p in paths)
    partitions = "true, hive_types = {'date': DATE}" if with_day else "false"
    return f"read_parquet([{listed}], union_by_name = true, hive_partitioning = {partitions})"
