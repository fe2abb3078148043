"""What the lake holds, how far each source was read and how far behind that is."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

from pipeline import run, status
from pipeline.lake import Lake
from tests.pipeline.sql.synthetic import MONDAY, Settings, event, row, write

NOW = MONDAY + timedelta(hours=3)


def test_each_source_tells_its_watermark_and_its_lag(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    milliseconds = round((MONDAY + timedelta(hours=2) - datetime(1970, 1, 1)).total_seconds() * 1000)
    lake.write_state(
        "events",
        {"last_id": f"{milliseconds}-7", "lost_before_read": 4, "rejected": {"not JSON": 2, "too large": 1}},
    )
    mark = (MONDAY + timedelta(hours=1)).isoformat()
    lake.write_state("spend_logs", {"watermark": [mark, "req-9"], "rejected": {"missing request_id": 1}})
    stream, ledger, spool = status.sources(tmp_path, NOW)
    assert (stream["source"], stream["watermark"], stream["age_s"]) == (
        "event stream",
        f"{milliseconds}-7",
        3600.0,
    )
    assert (stream["lost_before_read"], stream["rejected"]) == (4, 3)
    assert (ledger["source"], ledger["watermark"], ledger["age_s"], ledger["rejected"]) == (
        "spend logs", mark, 7200.0, 1,
    )  # fmt: skip
    assert (spool["source"], spool["watermark"]) == ("spool files", None)


def test_a_source_that_was_never_read_has_no_watermark_and_no_lag(tmp_path: Path) -> None:
    for source in status.sources(tmp_path, NOW):
        assert source["watermark"] is None
        assert source["age_s"] is None
        assert source["rejected"] is None


def test_an_id_of_the_spool_tells_no_lag(tmp_path: Path) -> None:
    Lake(tmp_path).write_state("events", {"last_id": "spool:a-1"})
    assert status.sources(tmp_path, NOW)[0]["age_s"] is None


def test_tables_tell_rows_files_and_dates(tmp_path: Path) -> None:
    calls = [event("a", MONDAY, initiator="user"), event("b", MONDAY + timedelta(days=2))]
    write(tmp_path, "raw_event", calls)
    write(tmp_path, "raw_spend_log", [row(calls[0])])
    run.build(tmp_path, Settings())
    found = {t["table"]: t for t in status.tables(tmp_path)}
    first, last = MONDAY.date(), (MONDAY + timedelta(days=2)).date()
    assert (found["raw/events"]["rows"], found["raw/events"]["files"]) == (2, 2)
    assert (found["raw/events"]["first_date"], found["raw/events"]["last_date"]) == (first, last)
    assert (found["facts/call"]["rows"], found["facts/turn"]["rows"]) == (2, 1)
    assert (found["raw/metrics"]["rows"], found["raw/metrics"]["first_date"]) == (0, None)
