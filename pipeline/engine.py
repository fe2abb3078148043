"""The engine that works on the lake: DuckDB, told how long to keep memory it has let go of."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import ModuleType

_VARIABLE: Final = "DUCKDB_JE_MALLOC_CONF"
#: The engine's allocator gives memory back to the system once it was free for a second, and a build frees and
#: takes gigabytes all the time: pages that come anew were a tenth of its CPU. Ten seconds halve them.
_KEEP: Final = "dirty_decay_ms:10000,muzzy_decay_ms:10000"


def load() -> ModuleType:
    """Return ``duckdb``; before it is imported for the first time, its allocator is told what to keep.

    An allocator that is configured from outside stays as it is.
    """
    os.environ.setdefault(_VARIABLE, _KEEP)
    import duckdb

    return duckdb
