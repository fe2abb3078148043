"""Drain the plugin's Redis stream into ``raw/events``.

An entry is acknowledged only after its Parquet file has been renamed into place. A crash in between makes
the entry arrive again; the second copy has the same ``stream_id`` (and ``event_id`` and ``stage``), by which
compaction and the staging model remove it. Entries trimmed before anybody read them are counted.
"""

from __future__ import annotations

import math
import socket
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import redis
from redis.exceptions import ResponseError

from gateway_plugin.event import STREAM_FIELD
from pipeline.errors import ConfigError
from pipeline.extract.event_record import EventBatch, new_batch
from pipeline.extract.redis_server import order, text, trimmed_unread
from pipeline.lake import Lake
from pipeline.settings import RedisSettings

STATE = "events"
_IDLE_CONSUMER_MS = 86_400_000


@dataclass(slots=True)
class CollectReport:
    """What one collection did; the same counters add up in the lake's state."""

    entries: int = 0
    rows: int = 0
    files_written: int = 0
    claimed: int = 0
    lost: int = 0
    lost_unknown: bool = False
    unknown_fields: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    last_id: str | None = None
    lag: int | None = None
    notices: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return {
            "entries": self.entries,
            "rows": self.rows,
            "batches_written": self.files_written,
            "claimed": self.claimed,
            "lost_before_read": self.lost,
            "lost_unknown": self.lost_unknown,
            "unknown_fields": self.unknown_fields,
            "rejected": dict(sorted(self.rejected.items())),
            "last_id": self.last_id,
            "lag": self.lag,
        }


class Collector:
    """Reads one stream through its consumer group and writes the lake."""

    def __init__(
        self,
        connection: redis.Redis,
        lake: Lake,
        settings: RedisSettings,
        *,
        progress: Callable[[CollectReport], None] = lambda _: None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self._redis = connection
        self._lake = lake
        self._settings = settings
        self._progress = progress
        self._should_stop = should_stop
        self._host = settings.consumer or socket.gethostname()
        self._consumer = self._host
        self._delivered = "0-0"
        self._counted = int(lake.read_state(STATE).get("lost_upto", 0))
        self.report = CollectReport()

    def once(self, max_wait_s: float = 0.0) -> CollectReport:
        """Read all that is there, then return; wait up to *max_wait_s* for a first entry."""
        self._consumer = f"{self._host}-once"  # not the name of a follower beside us: its entries are its own
        self._open_group()
        self._recover()
        self._drain(None)
        deadline = time.monotonic() + max_wait_s
        while not self.report.entries and not self._should_stop() and time.monotonic() < deadline:
            self._wait(deadline - time.monotonic())
            self._drain(None)
        return self._close()

    def follow(self, max_wait_s: float = 30.0) -> CollectReport:
        """Read until told to stop; no entry waits in memory longer than about *max_wait_s*."""
        self._consumer = f"{self._host}-follow"
        self._open_group()
        recovered_at = -math.inf
        while not self._should_stop():
            if time.monotonic() - recovered_at > self._settings.claim_idle_s:
                self._recover()
                recovered_at = time.monotonic()
            self._drain(max_wait_s)
        return self._close()

    # -- reading

    def _open_group(self) -> None:
        key, group = self._settings.stream_key, self._settings.group
        try:
            self._redis.xgroup_create(key, group, id="0", mkstream=True, entries_read=0)
        except ResponseError as error:
            if "BUSYGROUP" in str(error):
                return
            if "WRONGTYPE" in str(error):
                raise ConfigError(
                    f"The Redis key {key} holds no stream.",
                    why=str(error),
                    next_step="Check redis.stream_key.",
                ) from None
            self._redis.xgroup_create(key, group, id="0", mkstream=True)  # a server before version 7
        known = self._lake.read_state(STATE)
        if known.get("last_id"):
            self.report.notices.append(
                f"The consumer group {group} was missing although entries up to {known['last_id']} had been "
                "collected: the stream was deleted or moved, and entries in between may be lost."
            )
            self.report.lost_unknown = True

    def _recover(self) -> None:
        """Take what a crashed run left: first this consumer's own entries, then those of dead consumers."""
        key, group, name = self._settings.stream_key, self._settings.group, self._consumer
        batch, cursor = new_batch(), "0"
        while not self._should_stop():
            answer: Any = self._redis.xreadgroup(group, name, {key: cursor}, count=self._settings.batch)
            entries = answer[0][1] if answer else []
            if not entries:
                break
            cursor = self._take(batch, entries)
            batch = self._write_if_full(batch)
        cursor = "0-0"
        while not self._should_stop():
            claimed: Any = self._redis.xautoclaim(
                key,
                group,
                name,
                min_idle_time=int(self._settings.claim_idle_s * 1000),
                start_id=cursor,
                count=self._settings.batch,
            )
            self.report.claimed += len(claimed[1])
            self._take(batch, claimed[1])
            # Third part since Redis 7: pending entries that were trimmed before anybody wrote them.
            self._lose(len(claimed[2]) if len(claimed) > 2 else 0)
            batch = self._write_if_full(batch)
            cursor = text(claimed[0])
            if cursor == "0-0":
                break
        self._write(batch)

    def _drain(self, max_age_s: float | None) -> None:
        """Read new entries and write them.

        With *max_age_s*, wait for more until the oldest unwritten entry is that old; else stop when the
        stream has no more.
        """
        batch = new_batch()
        while not self._should_stop():
            entries = self._read_new()
            self._take(batch, entries)
            batch = self._write_if_full(batch)
            if max_age_s is None:
                if not entries:
                    break
                continue
            if len(batch) and batch.age_s >= max_age_s:
                break
            if not entries:
                self._wait(max_age_s - batch.age_s if len(batch) else 1.0)
                if not len(batch):
                    break  # idle: let the caller look after dead consumers
        self._write(batch)

    def _read_new(self) -> list[Any]:
        """One batch of new entries; what was trimmed before it is counted in the same transaction."""
        key, group = self._settings.stream_key, self._settings.group
        pipe = self._redis.pipeline(transaction=True)
        pipe.xinfo_stream(key)
        pipe.xinfo_groups(key)
        pipe.xreadgroup(group, self._consumer, {key: ">"}, count=self._settings.batch)
        stream, groups, answer = pipe.execute()
        info: dict[str, Any] = next((g for g in groups if text(g["name"]) == group), {})
        added = int(stream.get("entries-added") or 0)
        if added < self._counted:
            self._counted = 0  # another stream under the same name
        lost = trimmed_unread(stream, info, self._counted)
        if lost is None:
            self.report.lost_unknown = True
        elif lost:
            self._counted = added - int(stream["length"])
            self._lose(lost)
        entries = list(answer[0][1]) if answer else []
        self._delivered = text(entries[-1][0] if entries else info.get("last-delivered-id", "0-0"))
        return entries

    def _wait(self, seconds: float) -> None:
        """Wait until the stream has an entry beyond the last one delivered, at most a second."""
        # Redis must end the wait before the socket's own deadline does.
        block_s = min(seconds, 1.0, self._settings.timeout_s / 2)
        self._redis.xread(
            {self._settings.stream_key: self._delivered}, count=1, block=max(1, int(block_s * 1000))
        )

    def _take(self, batch: EventBatch, entries: list[Any]) -> str:
        """Put entries into the batch; one whose fields are gone was trimmed while it was pending."""
        last = "0"
        gone: list[str] = []
        for entry_id, fields in entries:
            last = text(entry_id)
            if not fields:
                gone.append(last)
                continue
            batch.add(last, fields.get(STREAM_FIELD.encode()))
        if gone:
            self._redis.xack(self._settings.stream_key, self._settings.group, *gone)
            self._lose(len(gone))
        return last

    def _lose(self, count: int) -> None:
        if count:
            self.report.lost += count
            self._remember(lost=count)

    # -- writing

    def _write_if_full(self, batch: EventBatch) -> EventBatch:
        if len(batch) < self._settings.max_file_rows and batch.size < self._settings.max_file_bytes:
            return batch
        self._write(batch)
        return new_batch()

    def _write(self, batch: EventBatch) -> None:
        if not len(batch):
            return
        rows = batch.write(self._lake)
        self._acknowledge(batch)
        report = self.report
        report.entries += len(batch)
        report.rows += rows
        report.files_written += 1
        report.rejected.update(batch.reasons)
        report.unknown_fields += batch.unknown_fields
        report.last_id = max(batch.ids, key=order)
        self._remember(batch=batch, rows=rows)
        self._progress(report)

    def _acknowledge(self, batch: EventBatch) -> None:
        key, group = self._settings.stream_key, self._settings.group
        for start in range(0, len(batch.ids), 1000):
            self._redis.xack(key, group, *batch.ids[start : start + 1000])

    def _remember(self, *, lost: int = 0, batch: EventBatch | None = None, rows: int = 0) -> None:
        state = self._lake.read_state(STATE)
        state["lost_before_read"] = state.get("lost_before_read", 0) + lost
        if batch is not None:
            rejected = Counter(state.get("rejected", {}))
            rejected.update(batch.reasons)
            state["rejected"] = dict(rejected)
            state["entries"] = state.get("entries", 0) + len(batch)
            state["rows"] = state.get("rows", 0) + rows
            last = max([*batch.ids, state.get("last_id") or "0-0"], key=order)
            state["last_id"] = last
            state["updated_at"] = batch.collected_at.isoformat(timespec="seconds")
        if lost:
            state["lost_upto"] = self._counted
            day = new_batch().collected_at.date().isoformat()
            by_date = state.setdefault("lost_by_date", {})
            by_date[day] = by_date.get(day, 0) + lost
        self._lake.write_state(STATE, state)

    def _close(self) -> CollectReport:
        """Remove consumers of ours that hold nothing and have been silent for a day."""
        key, group = self._settings.stream_key, self._settings.group
        for info in self._redis.xinfo_consumers(key, group):
            name = text(info["name"])
            if name != self._consumer and info["pending"] == 0 and info["idle"] > _IDLE_CONSUMER_MS:
                self._redis.xgroup_delconsumer(key, group, name)
        self.report.lag = next(
            (g.get("lag") for g in self._redis.xinfo_groups(key) if text(g["name"]) == group), None
        )
        if self.report.lost_unknown:
            self.report.notices.append("Whether entries were trimmed before they were read cannot be told.")
        return self.report
