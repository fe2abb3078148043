"""Plain tables of calls (CSV with a header, or JSON lines): every field of ours from a column that is named.

The Azure LLM inference traces are such tables with known columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from pipeline.errors import ConfigError
from pipeline.extract.traces.documents import Head, Record, Rejected
from pipeline.extract.traces.needs import Need
from pipeline.extract.traces.source import (
    EPOCH_US,
    BadRowError,
    Event,
    Item,
    Reading,
    Source,
    amount,
    call,
    count,
    each,
    instant_us,
    text,
)

KIND: Final = "table"
AZURE_KIND: Final = "azure-2023"
#: What a column can be mapped to, and what it must hold.
TARGETS: Final[Mapping[str, str]] = {
    "started": "start: ISO date-time (UTC where it has no offset) or epoch number",
    "started_s": "start: seconds since the trace's beginning (no absolute time)",
    "started_ms": "start: milliseconds since the trace's beginning (no absolute time)",
    "ended": "end: ISO date-time or epoch number",
    "duration_s": "length of the call, seconds",
    "duration_ms": "length of the call, milliseconds",
    "ttft_s": "time to the first token, seconds",
    "ttft_ms": "time to the first token, milliseconds",
    "input_tokens": "all prompt tokens, cached ones included",
    "cached_tokens": "prompt tokens that the backend reused",
    "cache_write_tokens": "prompt tokens newly written to a cache",
    "output_tokens": "generated tokens",
    "reasoning_tokens": "generated reasoning tokens",
    "call": "id of the call, unique in the data set",
    "session": "id of the session",
    "agent": "id of a subagent; empty for the main agent",
    "turn": "id of the turn in its session",
    "initiator": "user, agent, auxiliary or compaction",
    "user": "the person (only a keyed digest is kept)",
    "client": "program that sent the call",
    "team": "team of the person",
    "model": "model",
    "provider": "provider",
    "outcome": "success, failure or aborted",
    "status_code": "HTTP status",
    "stream": "whether the answer was streamed",
}
_STARTS: Final = ("started", "started_s", "started_ms")
_OUTCOMES: Final = {
    "": "success", "success": "success", "ok": "success", "succeeded": "success",
    "failure": "failure", "failed": "failure", "error": "failure",
    "aborted": "aborted", "cancelled": "aborted", "canceled": "aborted",
}  # fmt: skip
_YES: Final = frozenset({"true", "1", "yes", "t"})
_NO: Final = frozenset({"false", "0", "no", "f"})
_AZURE_COLUMNS: Final = {
    "started": "TIMESTAMP",
    "input_tokens": "ContextTokens",
    "output_tokens": "GeneratedTokens",
}


def mapping(pairs: Iterable[str]) -> dict[str, str]:
    """Read ``field=column`` pairs.

    Raises:
        ConfigError: a pair has no ``=``, or names a field that does not exist.
    """
    found: dict[str, str] = {}
    for pair in pairs:
        target, equals, column = pair.partition("=")
        if not equals or not column or target not in TARGETS:
            raise ConfigError(
                f"--map {pair} names no field of a call.",
                why=f"Fields: {', '.join(TARGETS)}.",
                next_step="Write it as field=column, for example --map input_tokens=ContextTokens.",
            )
        found[target] = column
    return found


def columns_of(head: Head, given: Mapping[str, str]) -> dict[str, str]:
    """Return the columns to read: the given ones, and those that bear a field's own name.

    Raises:
        ConfigError: a given column is not there, or none says when a call started.
    """
    lowered = {key.lower(): key for key in head.keys}
    if absent := [c for c in given.values() if c not in head.keys]:
        raise ConfigError(
            f"The file has no column {', '.join(absent)}.", why=f"It has {', '.join(sorted(head.keys))}."
        )
    chosen = {t: lowered[t] for t in TARGETS if t in lowered} | dict(given)
    if sum(start in chosen for start in _STARTS) != 1:
        raise ConfigError(
            "Exactly one column must say when a call started.",
            why=f"The file has {', '.join(sorted(head.keys))}.",
            next_step="--map started=COLUMN, or started_s, started_ms for a clock that begins at 0.",
        )
    return chosen


def _reader(
    kind: str, fixed: Mapping[str, str]
) -> Callable[[Iterable[Record | Rejected], Reading], Iterator[Item]]:
    def read(records: Iterable[Record | Rejected], reading: Reading) -> Iterator[Item]:
        columns = dict(fixed) or dict(reading.columns)
        tag = kind if "started" in columns else f"{kind}-relative"
        return each(records, lambda record: _event(tag, record, reading, columns))

    return read


def _event(tag: str, record: Record, reading: Reading, columns: Mapping[str, str]) -> Event:
    row = {target: record.value.get(column) for target, column in columns.items()}
    began = _start_us(row)
    duration = _milliseconds(row, "duration")
    if duration is None and row.get("ended") not in {None, ""}:
        duration = (instant_us(row["ended"], "ended") - began) / 1000
    names = {k: text(row.get(k)) for k in ("call", "session", "agent", "turn", "user", "model", "provider")}
    session, agent, turn, user = names["session"], names["agent"], names["turn"], names["user"]
    initiator = (text(row.get("initiator")) or "unknown").lower()
    known = initiator in {"user", "agent", "auxiliary", "compaction"}
    # One id may be used by several people: a session belongs to its user, as at the gateway.
    place = None if session is None else (user or "", session)
    status = count(row.get("status_code"), "status_code")
    tokens = count(row.get("input_tokens"), "input_tokens")
    return call(
        tag,
        reading.row_id(record.place) if names["call"] is None else reading.key("event", names["call"]),
        began,
        duration_ms=duration,
        outcome=_outcome(text(row.get("outcome")), status),
        status_code=status,
        session_key=None if place is None else reading.key("session", *place),
        session_id=None if session is None else reading.hasher.keep_or_hash(session),
        session_source=KIND if session else "none",
        session_evidence="E1" if session else "E5",
        agent_id=agent or "main",
        agent_kind="subagent" if agent and agent != "main" else "main",
        turn_id=None if place is None or turn is None else reading.key("turn", *place, agent or "", turn),
        turn_evidence="E1" if known or turn else "E5",
        initiator=initiator if known else "unknown",
        client=text(row.get("client")) or "unknown",
        user_hash=None if user is None else reading.hasher.digest("user", user),
        user_source="none" if user is None else "user_id",
        team_id=text(row.get("team")),
        stream=_yes(row.get("stream")),
        model_group=names["model"],
        model=names["model"],
        provider=names["provider"],
        input_tokens=tokens,
        cached_tokens=count(row.get("cached_tokens"), "cached_tokens"),
        cache_write_tokens=count(row.get("cache_write_tokens"), "cache_write_tokens"),
        output_tokens=count(row.get("output_tokens"), "output_tokens"),
        reasoning_tokens=count(row.get("reasoning_tokens"), "reasoning_tokens"),
        usage_source="none" if tokens is None else "provider",
        ttft_ms=_milliseconds(row, "ttft"),
    )


def _start_us(row: Mapping[str, Any]) -> int:
    if "started" in row:
        return instant_us(row["started"], "started")
    name, factor = ("started_s", 1e6) if "started_s" in row else ("started_ms", 1e3)
    return EPOCH_US + round((amount(row.get(name), name, needed=True) or 0.0) * factor)


def _milliseconds(row: Mapping[str, Any], name: str) -> float | None:
    in_ms = amount(row.get(f"{name}_ms"), f"{name}_ms")
    if in_ms is not None:
        return in_ms
    in_s = amount(row.get(f"{name}_s"), f"{name}_s")
    return None if in_s is None else in_s * 1000


def _outcome(word: str | None, status: int | None) -> str:
    if status is not None and status >= 400:
        return "failure"
    known = _OUTCOMES.get((word or "").lower())
    if known is None:
        raise BadRowError("outcome is none of success, failure, aborted")
    return known


def _yes(value: object) -> bool | None:
    word = (text(value) or "").lower()
    return True if word in _YES else False if word in _NO else None


def _is_azure(head: Head) -> bool:
    return set(_AZURE_COLUMNS.values()) <= head.keys


def _is_table(head: Head) -> bool:
    """A table is told by its columns: a start and the prompt's tokens under our own names."""
    names = {key.lower() for key in head.keys}
    return "input_tokens" in names and sum(s in names for s in _STARTS) == 1


SOURCE: Final = Source(
    kind=KIND,
    title="plain CSV or JSON lines with a column mapping",
    gives=frozenset(),
    sometimes=frozenset(set(Need) - {Need.BLOCKS, Need.POWER, Need.ENGINE}),
    lacks={
        need: f"no column was mapped to {column}, so {meaning}"
        for need, column, meaning in (
            (Need.USERS, "user", "hours of parallel sessions cannot be merged"),
            (Need.SESSIONS, "session", "calls cannot be put into sessions, agents or turns"),
            (Need.INITIATORS, "initiator", "nothing says which calls a person started"),
            (Need.DURATIONS, "duration_s, duration_ms or ended", "the end of a call is unknown"),
            (Need.FIRST_TOKEN, "ttft_s or ttft_ms", "whether a turn met a service level is unknown"),
            (Need.INPUT, "input_tokens", "the length of a prompt is unknown"),
            (Need.OUTPUT, "output_tokens", "how much was generated is unknown"),
            (Need.CACHED, "cached_tokens", "what the backend reused is unknown"),
            (Need.CALENDAR, "started", "hours, days and what ran at once are unknown"),
        )
    }
    | {Need.BLOCKS: "a plain table names no blocks of a prompt, so what it could reuse is unknown"},
    matches=_is_table,
    read=_reader(KIND, {}),
)
AZURE: Final = Source(
    kind=AZURE_KIND,
    title="Azure LLM inference traces",
    gives=frozenset({Need.INPUT, Need.OUTPUT, Need.CALENDAR}),
    matches=_is_azure,
    read=_reader(AZURE_KIND, _AZURE_COLUMNS),
    notes=("An arrival process only: when a request came and how long prompt and answer were.",),
)
