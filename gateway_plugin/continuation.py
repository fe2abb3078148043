"""Improving a call's facts with what another worker knew of its stream when the call began."""

from __future__ import annotations

from typing import Any

from gateway_plugin import prefix
from gateway_plugin.state import Entry, SessionState
from gateway_plugin.state_codec import Known


def merge(record: dict[str, Any], entry: Entry, known: Known, state: SessionState) -> None:
    """Bring prefix, lineage and turn of *record* up to what *known* adds, and remember its heads.

    The prefix is the longer of both at every age. Lineage and turn follow *known* only when it ends with a
    call that this worker did not see, later than all that it saw.
    """
    heads = known.heads.get(entry.model, [])
    points = prefix.union_of_steps(
        entry.facts.steps, prefix.steps(heads, entry.chain, int(record["started_us"]))
    )
    record["prefix_steps"] = [[round(age, 3), size] for age, size in points]
    record["shared_bytes"] = points[-1][1] if points else 0
    state.merge_heads(entry.stream, entry.model, heads)
    if entry.lane is entry.stream.work and _is_newer(known, entry):
        _follow(known, record, entry)


def _is_newer(known: Known, entry: Entry) -> bool:
    if known.event_id is None or known.end_us is None or known.event_id == entry.event_id:
        return False
    return known.event_id != entry.facts.previous_event_id and known.end_us >= (entry.previous_end_us or 0)


def _follow(known: Known, record: dict[str, Any], entry: Entry) -> None:
    record["previous_event_id"] = known.event_id
    record["idle_ms"] = max(0.0, (int(record["started_us"]) - (known.end_us or 0)) / 1e3)
    record["break_reason"] = "unknown"
    if known.last_chain is not None:
        record["break_reason"] = prefix.break_reason(
            known.last_chain,
            entry.chain,
            same_model=known.model == entry.model,
            compaction_hint=entry.compaction_hint,
            previous_tool_set=known.tool_set,
            tool_set=entry.tool_set,
        )
    if known.turn_id is None:
        return
    if entry.own_turn is None:
        # The request shows no turn of its own: it continues the one that the other worker was in.
        record["turn_id"] = known.turn_id
        record["turn_index"] = known.turn_index or None
        record["call_index"] = known.call_index + 1
    elif record["turn_id"] == known.turn_id:
        record["call_index"] = max(record["call_index"] or 0, known.call_index + 1)
    elif entry.own_turn_index is None:
        record["turn_index"] = max(record["turn_index"] or 0, known.turn_index + 1)
    stream = entry.stream
    if stream.work.event_id == entry.event_id:
        stream.turn_id = record["turn_id"]
        stream.turn_index = record["turn_index"] or 0
        stream.call_index = record["call_index"] or 0
