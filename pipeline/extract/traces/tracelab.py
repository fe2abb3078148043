"""TraceLab round traces, derived and sanitized: one model call a record, with the client's event times.

A call runs from the last of its inputs (user message or tool result) to the last block that the client saw,
so its duration includes the network. Upstream ids are not unique: a record is named by its file and place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from gateway_plugin import tools
from pipeline.extract.traces.documents import Head, Record, Rejected
from pipeline.extract.traces.needs import Need
from pipeline.extract.traces.source import (
    BadRowError,
    Event,
    Item,
    Reading,
    Source,
    call,
    count,
    each,
    instant_us,
    text,
)

KIND: Final = "tracelab"
_INPUTS: Final = frozenset({"user_message", "tool_result"})
#: provider of the trace -> (LiteLLM's provider, client, route)
_CLIENTS: Final = {
    "claude": ("anthropic", "claude-code", "messages"),
    "codex": ("openai", "codex", "responses"),
}


def _matches(head: Head) -> bool:
    return {"session_id", "round_index", "input_tokens_total", "timing_events"} <= head.keys


def _read(records: Iterable[Record | Rejected], reading: Reading) -> Iterator[Item]:
    def convert(record: Record) -> Event:
        row = record.value
        session = text(row.get("session_id"))
        if session is None:
            raise BadRowError("no session_id")
        began, ended = _span(row.get("timing_events"))
        told = text(row.get("provider"))
        provider, client, route = _CLIENTS.get(told or "", (told, "other", "chat"))
        user = text(row.get("user"))
        model = text(row.get("model"))
        turn = text(row.get("turn_id"))
        # One id may stand for several files of a project; the parts may be paths, so only a digest is kept.
        place = (text(row.get("project")) or "", session, text(row.get("session_file")) or "")
        initiator = _initiator(row)
        return call(
            KIND,
            reading.row_id(record.place),
            began,
            duration_ms=None if ended is None else (ended - began) / 1000,
            session_key=reading.key("session", *place),
            session_id=reading.hasher.keep_or_hash(session),
            session_source=KIND,
            session_evidence="E1",
            turn_id=None if turn is None else reading.key("turn", *place, turn),
            turn_evidence="E1" if turn else "E3" if initiator != "unknown" else "E5",
            initiator=initiator,
            client=client,
            user_hash=None if user is None else reading.hasher.digest("user", user),
            user_source="none" if user is None else "user_id",
            route=route,
            model_group=model,
            model=model,
            provider=provider,
            input_tokens=count(row.get("input_tokens_total"), "input_tokens_total", needed=True),
            cached_tokens=count(row.get("prefix_tokens"), "prefix_tokens"),
            cache_write_tokens=count(
                row.get("claude_cache_creation_input_tokens"), "claude_cache_creation_input_tokens"
            ),
            output_tokens=count(row.get("output_tokens"), "output_tokens"),
            reasoning_tokens=count(row.get("reasoning_output_tokens"), "reasoning_output_tokens"),
            **_tool_calls(row.get("tools")),
        )

    return each(records, convert)


def _span(events: object) -> tuple[int, int | None]:
    """Start and end of a call (UTC epoch µs); the end is unknown where the inputs were not recorded."""
    inputs: list[int] = []
    outputs: list[int] = []
    for event in events if isinstance(events, list) else ():
        if isinstance(event, dict) and event.get("timestamp"):
            at = instant_us(event["timestamp"], "timing_events.timestamp")
            (inputs if event.get("event_type") in _INPUTS else outputs).append(at)
    if not inputs and not outputs:
        raise BadRowError("no timing event")
    if not inputs:
        return min(outputs), None
    began = max(inputs)
    later = [at for at in outputs if at >= began]
    return began, max(later) if later else None


def _tool_calls(made: object) -> dict[str, int]:
    """Tool calls of the round by class; nothing where the record has no list of them."""
    if not isinstance(made, list):
        return {}
    return tools.count(t.get("tool_name") if isinstance(t, dict) else None for t in made).fields()


def _initiator(row: dict[str, Any]) -> str:
    if count(row.get("current_tool_result_count"), "current_tool_result_count"):
        return "agent"
    if count(row.get("current_user_message_count"), "current_user_message_count"):
        return "user"
    return "unknown"


SOURCE: Final = Source(
    kind=KIND,
    title="TraceLab round traces",
    gives=frozenset(
        {
            Need.SESSIONS,
            Need.INITIATORS,
            Need.DURATIONS,
            Need.INPUT,
            Need.OUTPUT,
            Need.CACHED,
            Need.CALENDAR,
        }
    ),
    sometimes=frozenset({Need.USERS}),
    lacks={
        Need.USERS: "sanitized files name none, so hours of parallel sessions cannot be merged",
        Need.FIRST_TOKEN: "the client wrote down when blocks were finished, not when the first token came, "
        "so whether a turn met a service level is unknown",
        Need.BLOCKS: "prompts have lengths but no identity, so what could be reused is unknown; cached "
        "tokens say what was",
    },
    matches=_matches,
    read=_read,
    notes=(
        "Durations run from the last input to the last block that the client saw; network time is in them.",
        "Upstream ids are not unique: every record counts as a call of its own.",
    ),
)
