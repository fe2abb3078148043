"""Tool catalogues of a window, by key, team or client: what resending costs (see ``counting_advice``)."""

# ruff: noqa: S608 - column names come from closed lists; values are parameters

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from gateway_plugin.counting_advice import CatalogueAdvice, advise
from pipeline.sql import binding

if TYPE_CHECKING:
    import duckdb

#: Tools that would be exposed instead, unless somebody says otherwise.
KEEP_TOOLS: Final = 20
By = Literal["key_alias", "team_id", "client"]


def advice(
    con: duckdb.DuckDBPyConnection,
    lake: Path,
    start: datetime | None,
    end: datetime | None,
    *,
    by: By,
    keep: int,
) -> list[CatalogueAdvice]:
    """Return the advice over the final records of the lake that start in [*start*, *end*), naive UTC.

    Calls are summed by catalogue in the database, so the work left does not grow with their number.
    """
    paths = [
        path
        for path in binding.files(lake, "raw/events")
        if (start is None or binding.day_of(path) >= start.date())
        and (end is None or binding.day_of(path) <= end.date())
    ]
    binding.bind_raw(con, "raw_event", paths)
    return advise(_groups(con, start, end, by), by=by, keep=keep)


def _groups(
    con: duckdb.DuckDBPyConnection, start: datetime | None, end: datetime | None, by: By
) -> Iterator[dict[str, Any]]:
    low, high = (None if t is None else round(t.replace(tzinfo=UTC).timestamp() * 1e6) for t in (start, end))
    cursor = con.execute(
        f"""
        WITH final AS (
          SELECT *, count_ms IS NOT NULL AND count_calls IS NOT NULL AND count_tokens IS NOT NULL AS metered
          FROM raw_event
          WHERE stage = 'final' AND started_us >= COALESCE($low, started_us)
            AND started_us < COALESCE($high, started_us + 1)
        )
        SELECT {by}, tool_count, tools_bytes, tools_digest, count_catalogue_tokens, metered,
          COUNT(*) AS calls, COUNT(*) AS counted, SUM(count_ms) AS count_ms, SUM(count_calls) AS count_calls,
          SUM(count_tokens) AS count_tokens
        FROM final GROUP BY ALL ORDER BY ALL
        """,
        {"low": low, "high": high},
    )
    names = [column[0] for column in cursor.description or ()]
    for row in cursor.fetchall():
        record = dict(zip(names, row, strict=True))
        if not record.pop("metered"):
            record["count_ms"] = None
        yield record
