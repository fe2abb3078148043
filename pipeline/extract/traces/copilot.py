"""The GitHub Copilot coding-agent data set of 2026: one session a record, with turns, calls and tools.

``timestamp`` is a call's start (its end is ``timestamp`` + ``duration_ms``). Prompt tokens include cached
ones. Calls of the model that applies edits at once (``tool-model``) stand beside the work: auxiliary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from gateway_plugin.tools import ToolCalls
from gateway_plugin.tools import count as count_tools
from pipeline.extract.traces.documents import Head, Record, Rejected
from pipeline.extract.traces.needs import Need
from pipeline.extract.traces.source import (
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
    rejected,
    text,
)

KIND: Final = "copilot-2026"
_EDIT_MODEL: Final = "tool-model"


def _matches(head: Head) -> bool:
    turns = head.record.get("turns")
    return (
        "session_id" in head.keys
        and isinstance(turns, list)
        and any(isinstance(t, dict) and "llm_calls" in t for t in turns)
    )


def _read(records: Iterable[Record | Rejected], reading: Reading) -> Iterator[Item]:
    return each(records, lambda record: _session(record, reading))


def _session(record: Record, reading: Reading) -> Iterator[Item]:
    session = text(record.value.get("session_id"))
    turns = record.value.get("turns")
    if session is None:
        raise BadRowError("no session_id")
    if not isinstance(turns, list):
        raise BadRowError("no turns")
    return _turns(record, reading, session, turns)


def _turns(record: Record, reading: Reading, session: str, turns: list[Any]) -> Iterator[Item]:
    for number, turn in enumerate(turns, 1):
        calls = turn.get("llm_calls") if isinstance(turn, dict) else None
        if not isinstance(calls, list):
            yield rejected(record, "turn without llm_calls", f", turn {number}")
            continue
        name = text(turn.get("turn_id")) or str(number)
        place = {
            "session_key": reading.key("session", session),
            "session_id": reading.hasher.keep_or_hash(session),
            "session_source": KIND,
            "session_evidence": "E1",
            "turn_id": reading.key("turn", session, name),
            "turn_evidence": "E1",
        }
        batches = turn.get("tool_batches")
        tools, made = _tool_ms(batches), _tool_calls(batches, calls)
        before: str | None = None
        for position, item in enumerate(calls, 1):
            try:
                if not isinstance(item, dict):
                    raise BadRowError("call is not an object")
                message = text(item.get("message_id"))
                told = (session, name, message or str(position), str(item.get("timestamp")))
                event = _call(item, reading.key("event", *told)) | place
                event["tool_ms"] = tools.get(before or "")
                event |= made(message)
                before = message
                yield event
            except BadRowError as reason:
                yield rejected(record, str(reason), f", turn {number}, call {position}")


def _call(item: dict[str, Any], event_id: str) -> Event:
    tokens = item.get("tokens")
    if not isinstance(tokens, dict):
        tokens = {}
    model = text(item.get("model"))
    initiator = "auxiliary" if model == _EDIT_MODEL else text(item.get("initiator_type"))
    outcome, status = _outcome(text(item.get("result")), text(item.get("status_code")))
    prompt = count(tokens.get("prompt"), "tokens.prompt")
    return call(
        KIND,
        event_id,
        instant_us(item.get("timestamp"), "timestamp"),
        duration_ms=amount(item.get("duration_ms"), "duration_ms"),
        outcome=outcome,
        status_code=status,
        initiator=initiator if initiator in {"user", "agent", "auxiliary"} else "unknown",
        client="copilot",
        model_group=model,
        model=model,
        provider="github_copilot",
        input_tokens=prompt or None,
        cached_tokens=count(tokens.get("cached"), "tokens.cached") if prompt else None,
        output_tokens=count(tokens.get("completion"), "tokens.completion"),
        usage_source="provider" if prompt else "none",
    )


def _outcome(result: str | None, status: str | None) -> tuple[str, int | None]:
    code = int(status) if status is not None and status.isdecimal() else None
    word = (result or "").lower()
    if "cancel" in word or "abort" in word:
        return "aborted", code
    if word in {"", "success", "ok"} and (code is None or code < 400):
        return "success", code
    return "failure", code


def _tool_ms(batches: object) -> dict[str, float]:
    """Longest tool call that followed each message, milliseconds."""
    longest: dict[str, float] = {}
    for batch in batches if isinstance(batches, list) else ():
        if not isinstance(batch, dict) or not isinstance(batch.get("function_calls"), list):
            continue
        told = [c.get("duration_ms") for c in batch["function_calls"] if isinstance(c, dict)]
        known = [float(d) for d in told if isinstance(d, int | float) and d >= 0]
        message = text(batch.get("request_id"))
        if known and message:
            longest[message] = max(longest.get(message, 0.0), *known)
    return longest


def _tool_calls(batches: object, calls: list[Any]) -> Callable[[str | None], dict[str, int]]:
    """How to tell the tool calls, by class, that the answer with a message id made.

    A call without a batch made none, unless the turn has no list of batches or one of an unknown call.
    """
    names: dict[str, list[object]] = {}
    told = isinstance(batches, list)
    known = {text(c.get("message_id")) for c in calls if isinstance(c, dict)} - {None}
    for batch in batches if isinstance(batches, list) else ():
        functions = batch.get("function_calls") if isinstance(batch, dict) else None
        message = text(batch.get("request_id")) if isinstance(batch, dict) else None
        if message is None or message not in known or not isinstance(functions, list):
            told = False
            continue
        names.setdefault(message, []).extend(
            f.get("name") if isinstance(f, dict) else None for f in functions
        )

    def made(message: str | None) -> dict[str, int]:
        if message is not None and message in names:
            return count_tools(names[message]).fields()
        return ToolCalls().fields() if told and message is not None else {}

    return made


SOURCE: Final = Source(
    kind=KIND,
    title="GitHub Copilot coding-agent data set 2026",
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
    lacks={
        Need.USERS: "user identifiers were removed, so hours of parallel sessions cannot be merged",
        Need.FIRST_TOKEN: "only the length of the whole call was recorded, so whether a turn met a service "
        "level is unknown",
        Need.BLOCKS: "the prompts' segments have lengths but no identity, so what could be reused is "
        "unknown; cached tokens say what was",
    },
    matches=_matches,
    read=_read,
    notes=("Models are relabelled; realised reuse includes sharing between sessions.",),
)
