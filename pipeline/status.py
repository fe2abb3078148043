"""What a lake holds and how far each source has been read."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pipeline import runlock
from pipeline.lake import Lake, connect

_RAW = ("raw/events", "raw/spend_logs", "raw/metrics", "rejects/events", "rejects/spend_logs")
_FACTS = ("facts/call", "facts/turn", "facts/session")


def tables(root: Path) -> list[dict[str, Any]]:
    """One row per table: files, rows, bytes, first and last date."""
    lake = Lake(root)
    found = []
    with connect() as con:
        for table in (*_RAW, *_FACTS):
            size, paths = lake.size(table), lake.files(table)
            rows = None
            if paths:
                counted = con.execute(
                    "SELECT sum(num_rows)::BIGINT FROM parquet_file_metadata(?)", [[str(p) for p in paths]]
                ).fetchone()
                rows = counted[0] if counted else None
            found.append(
                {
                    "table": table,
                    "files": size.files,
                    "rows": rows or 0,
                    "bytes": size.bytes,
                    "first_date": size.first_date,
                    "last_date": size.last_date,
                }
            )
    return found


def sources(root: Path, now: datetime | None = None) -> list[dict[str, Any]]:
    """One row per source: watermark, its age in seconds, when it last ran, what was lost or set aside."""
    lake = Lake(root)
    now = now or datetime.now(UTC).replace(tzinfo=None)
    events, spend, spool = (lake.read_state(s) for s in ("events", "spend_logs", "spool"))
    mark = spend.get("watermark") or [None]
    return [
        {
            "source": "event stream",
            "watermark": events.get("last_id"),
            "age_s": _age(_stream_instant(events.get("last_id")), now),
            "updated_at": events.get("updated_at"),
            "lost_before_read": events.get("lost_before_read"),
            "rejected": sum(events.get("rejected", {}).values()) if events else None,
        },
        {
            "source": "spend logs",
            "watermark": mark[0],
            "age_s": _age(datetime.fromisoformat(mark[0]) if mark[0] else None, now),
            "updated_at": spend.get("updated_at"),
            "lost_before_read": None,
            "rejected": sum(spend.get("rejected", {}).values()) if spend else None,
        },
        {
            "source": "spool files",
            "watermark": f"{len(spool)} files" if spool else None,
            "age_s": None,
            "updated_at": None,
            "lost_before_read": None,
            "rejected": None,
        },
    ]


def parts(root: Path, *, as_tables: bool) -> list[list[dict[str, Any]]]:
    """Everything to print: two tables for people, or one list of rows with the same keys for programs."""
    rows = [{"kind": "table", "name": r.pop("table"), **r} for r in tables(root)]
    more = [{"kind": "source", "name": r.pop("source"), **r} for r in sources(root)]
    if as_tables:
        return [[{k: v for k, v in r.items() if k != "kind"} for r in part] for part in (rows, more)]
    columns = dict.fromkeys(key for r in (*rows, *more) for key in r)
    return [[{key: r.get(key) for key in columns} for r in (*rows, *more)]]


def writer(root: Path) -> str | None:
    """Who is writing the lake now, if anybody."""
    who = runlock.holder(root)
    return None if who is None else runlock.describe(who)


def _stream_instant(entry_id: str | None) -> datetime | None:
    if not entry_id or entry_id.startswith("spool:"):
        return None
    return datetime.fromtimestamp(int(entry_id.partition("-")[0]) / 1000, UTC).replace(tzinfo=None)


def _age(moment: datetime | None, now: datetime) -> float | None:
    return None if moment is None else round((now - moment).total_seconds(), 1)
