"""The engine that works on the lake: DuckDB, told how long to keep memory it has let go of."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

    import duckdb

_VARIABLE: Final = "DUCKDB_JE_MALLOC_CONF"
#: The engine's allocator gives memory back to the system once it was free for a second, and a build frees and
#: takes gigabytes all the time: pages that come anew were a tenth of its CPU. Ten seconds halve them.
_KEEP: Final = "dirty_decay_ms:10000,muzzy_decay_ms:10000"


def connect(
    database: str | Path = ":memory:", **config: str | bool | int | float | list[str]
) -> duckdb.DuckDBPyConnection:
    """Open an engine in UTC that shows no progress of its own.

    Before DuckDB is imported for the first time, its allocator is told what to keep; one that is configured
    from outside stays as it is.

    Args:
        database: its file; in memory by default.
        config: DuckDB's own options.
    """
    os.environ.setdefault(_VARIABLE, _KEEP)
    import duckdb

    con = duckdb.connect(database, config=config)
    con.execute("SET TimeZone = 'UTC'; SET enable_progress_bar = false")
    return con
