"""Records of a session meet in the bucket of the days on which it begins, and in no other."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from pathlib import Path

from pipeline import publishing, reach, run
from pipeline.sql import models
from pipeline.staging import Limits, buckets
from tests.pipeline.sql.synthetic import MONDAY, event, write

DAY = timedelta(days=1)


def in_buckets(lake: Path, limit: int) -> list[set[str]]:
    """The ids of the events of every bucket; an id twice in a bucket is an error."""
    con = run.connect(lake)
    found = []
    try:
        reached = reach.everything(con, lake)
        with buckets(con, lake, reached, Limits(bucket_records=limit)) as every:
            for _ in every:
                ids = [r[0] for r in con.execute("SELECT event_id FROM raw_event").fetchall()]
                numbers = con.execute("SELECT COUNT(DISTINCT record_number) FROM raw_event").fetchone()
                assert numbers == (len(ids),)
                assert len(ids) == len(set(ids))
                found.append(set(ids))
    finally:
        con.close()
    return found


def test_a_session_stays_in_the_bucket_of_its_first_days(tmp_path: Path) -> None:
    days = {"long": (0, 1, 3), "first": (0,), "second": (1,), "third": (2, 3), "fourth": (3,)}
    write(
        tmp_path,
        "raw_event",
        [event(f"{s}-{d}", MONDAY + d * DAY, session_key=s) for s, ds in days.items() for d in ds],
    )
    *first, second, third = in_buckets(tmp_path, 3)
    assert sorted(i for ids in first for i in ids) == ["first-0", "long-0", "long-1", "long-3"]
    assert {"long-0", "long-1", "long-3"} in [ids - {"first-0"} for ids in first]
    assert second == {"second-1", "third-2", "third-3"}
    assert third == {"fourth-3"}


def test_too_full_a_day_is_split_and_every_record_is_in_one_bucket(tmp_path: Path) -> None:
    events = [
        event(f"{s}-{n}", MONDAY + (n % 2) * DAY, session_key=f"s{s}") for s in range(20) for n in range(4)
    ]
    events += [event(f"none-{n}", MONDAY + n * DAY, session_key=None) for n in range(2)]
    write(tmp_path, "raw_event", events)
    found = in_buckets(tmp_path, 15)
    assert len(found) > 2
    assert sorted(i for ids in found for i in ids) == sorted(e["event_id"] for e in events)
    where = defaultdict(set)
    for number, ids in enumerate(found):
        for name in ids:
            where[name.split("-")[0]].add(number)
    assert all(len(numbers) == 1 for session, numbers in where.items() if session != "none")


def test_no_mart_is_let_go_of_before_its_last_reader() -> None:
    gone: set[str] = set()
    for name in publishing.needed():
        assert not gone & set(publishing._MART.findall(models.load(name).sql)), name
        gone |= set(publishing._last_readers()[name])
    assert gone == set(publishing.needed())
