"""The call event: the contract between the plugin and the pipeline.

One JSON object per record. Every call writes an ``open`` record when its request is first seen and one
``final`` record; both carry the same ``event_id`` (ours, UUIDv7), and the reader keeps the record with the
highest-ranked outcome. No field holds prompt or response text, a raw key or a raw e-mail address.

The table :data:`FIELDS` is the single list of names, types and meanings: the plugin writes these keys, the
pipeline derives its columns from it, and the documentation is generated from it. A key that is absent or
null means *unknown*; zero means zero.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import orjson

SCHEMA_VERSION: Final = 1

#: Redis stream that carries the records, and the field of an entry that holds the JSON. The braces make
#: every key of ours hash to one slot of a Redis Cluster.
STREAM_KEY: Final = "{agentwatt}:events"
#: Redis key of the secret that the workers share when no setting gives one.
SECRET_KEY: Final = "{agentwatt}:secret"  # noqa: S105 - the name of a key
STREAM_FIELD: Final = "e"

#: Name of our object inside ``metadata.spend_logs_metadata`` of a SpendLogs row.
SPEND_LOGS_NAMESPACE: Final = "agentwatt"

FieldType = Literal["str", "int", "float", "bool", "steps"]

Outcome = Literal["success", "failure", "rejected", "aborted", "open"]

#: Higher wins when several records of one event id arrive.
OUTCOME_RANK: Final[dict[str, int]] = {"open": 0, "aborted": 1, "rejected": 2, "failure": 3, "success": 4}

INITIATORS: Final = ("user", "agent", "auxiliary", "compaction", "unknown")
EVIDENCE: Final = ("E1", "E2", "E3", "E4", "E5")
BREAK_REASONS: Final = (
    "first",
    "none",
    "model_switch",
    "system_changed",
    "tools_changed",
    "tool_reorder",
    "history_edited",
    "compaction",
    "retrieved_context",
    "unknown",
)


@dataclass(frozen=True, slots=True)
class Field:
    """One key of the event: its name, JSON type, whether a SpendLogs row also carries it, and its meaning."""

    name: str
    type: FieldType
    in_row: bool
    meaning: str


def _f(name: str, type_: FieldType, meaning: str, *, row: bool = False) -> Field:
    return Field(name, type_, row, meaning)


FIELDS: Final[tuple[Field, ...]] = (
    # -- record
    _f("schema", "int", "version of this contract", row=True),
    _f("event_id", "str", "ours, UUIDv7; one per call, shared by its open and final record", row=True),
    _f("stage", "str", "open | final"),
    _f("outcome", "str", "success | failure | rejected | aborted | open", row=True),
    _f("started_us", "int", "UTC epoch microseconds when the proxy received the request", row=True),
    _f("ended_us", "int", "UTC epoch microseconds of the end of the call (started_us + duration)"),
    # -- who
    _f("session_key", "str", "keyed hash of (user, session id): never merges two tenants", row=True),
    _f("session_id", "str", "client's own id when it is id-shaped, else a keyed hash of it", row=True),
    _f(
        "session_source",
        "str",
        "header or body field of the id, or tool_call_lineage | inferred | none",
        row=True,
    ),
    _f(
        "session_evidence",
        "str",
        "E1 explicit, E2 tool-call lineage, E4 inferred lineage, E5 none",
        row=True,
    ),
    _f("agent_id", "str", "main, or the subagent's id", row=True),
    _f("agent_kind", "str", "main | subagent", row=True),
    _f("parent_agent_id", "str", "parent of a subagent when told"),
    _f("turn_id", "str", "client's prompt or turn id when given, else a keyed hash", row=True),
    _f("turn_index", "int", "1-based number of the turn in its stream, when the request shows it", row=True),
    _f("call_index", "int", "1-based number of the call in its turn, when the request shows it", row=True),
    _f("turn_evidence", "str", "E1 to E5", row=True),
    _f("initiator", "str", "user | agent | auxiliary | compaction | unknown", row=True),
    _f(
        "compaction_hint",
        "bool",
        "first call of its stream after a compaction, as the client or the summary tells",
        row=True,
    ),
    _f("client", "str", "claude-code | codex | opencode | copilot | other | unknown", row=True),
    _f("client_version", "str", "version from the user agent, at most 32 characters", row=True),
    _f("user_hash", "str", "keyed hash of end user, else user id, else key", row=True),
    _f("user_source", "str", "end_user | user_id | key | none", row=True),
    _f("service_key", "bool", "the key is declared as unattended work"),
    _f("key_alias", "str", "alias of the virtual key"),
    _f("team_id", "str", "team of the key"),
    # -- where
    _f("route", "str", "chat | messages | responses | embeddings | pass_through | other", row=True),
    _f("call_type", "str", "LiteLLM's call type"),
    _f("stream", "bool", "the client asked for a stream"),
    _f("model_group", "str", "model name that the client asked for"),
    _f("model", "str", "model of the deployment that answered"),
    _f("deployment_id", "str", "LiteLLM's id of the deployment that answered"),
    _f("provider", "str", "LiteLLM's provider name"),
    _f("litellm_call_id", "str", "LiteLLM's call id: joins rows; client-settable, so never unique"),
    _f("litellm_version", "str", "version of the proxy"),
    _f("plugin_version", "str", "version of this plugin"),
    # -- usage (tokens)
    _f("input_tokens", "int", "all prompt tokens, cached and written ones included"),
    _f(
        "cached_tokens",
        "int",
        "prompt tokens that the backend served from its prefix cache; null unknown",
        row=True,
    ),
    _f(
        "cache_write_tokens", "int", "prompt tokens newly written to a provider cache; null unknown", row=True
    ),
    _f("output_tokens", "int", "generated tokens, reasoning included"),
    _f("reasoning_tokens", "int", "generated reasoning tokens; null unknown"),
    _f("usage_source", "str", "provider | estimated | none", row=True),
    # -- what the answer does (tool calls by class of their names; null when the answer is not known)
    _f("tool_reads", "int", "tool calls of the answer that read: files, searches, pages", row=True),
    _f("tool_edits", "int", "tool calls of the answer that edit files", row=True),
    _f("tool_runs", "int", "tool calls of the answer that run commands", row=True),
    _f("tool_others", "int", "tool calls of the answer of any other name", row=True),
    # -- prefix (bytes of our canonical serialisation, in the provider's order)
    _f("message_count", "int", "messages or items in the request"),
    _f("prompt_bytes", "int", "canonical bytes of tools + system + messages", row=True),
    _f(
        "shared_bytes", "int", "longest prefix sent before by this (session, agent, model), any age", row=True
    ),
    _f("prefix_steps", "steps", "[[age s, shared bytes], …] by rising age: prefix within a retention"),
    _f("break_reason", "str", "why the prefix ended: see BREAK_REASONS", row=True),
    _f("idle_ms", "float", "since the previous call of the stream ended; null for the first", row=True),
    _f("previous_event_id", "str", "previous call of the same (session, agent)"),
    _f("system_digest", "str", "keyed digest of the system prompt, 16 hex", row=True),
    _f("tools_digest", "str", "keyed digest of the tool catalogue as sent, 16 hex", row=True),
    _f("head_digest", "str", "keyed digest of tools + system + first user message, 16 hex"),
    _f("tool_count", "int", "tools in the request", row=True),
    _f("tools_bytes", "int", "canonical bytes of the tool catalogue", row=True),
    _f("state", "str", "ok | local | late | off: where the stream's history came from", row=True),
    _f("truncated", "bool", "the request was above the size cut-off; the chain is incomplete"),
    # -- time (milliseconds, monotonic clock of one process unless said)
    _f("queue_ms", "float", "LiteLLM: receive to the end of authentication and budget reservation", row=True),
    _f("pre_call_ms", "float", "our pre-call hook to the provider call of the first attempt", row=True),
    _f("overhead_ms", "float", "receive to the provider call of the first attempt"),
    _f("ttft_ms", "float", "receive to first token of a stream; null otherwise", row=True),
    _f("duration_ms", "float", "receive to the end of the call", row=True),
    _f("plugin_ms", "float", "time spent in this plugin's own hooks on the request path"),
    _f("tool_ms", "float", "longest tool duration before this call that the client told"),
    _f("count_ms", "float", "time in LiteLLM's token counter; null when not measured", row=True),
    _f("count_calls", "int", "runs of LiteLLM's token counter; null when not measured", row=True),
    _f("count_auth_ms", "float", "part of count_ms before our first hook: the budget reservation"),
    _f("count_router_ms", "float", "part of count_ms in router checks and routing strategies"),
    _f("count_post_ms", "float", "part of count_ms after the answer"),
    _f("count_tokenizer", "str", "tiktoken | huggingface | native | custom | unknown | mixed"),
    _f("count_wait_ms", "float", "wait for LiteLLM's limiter of concurrent counts; null when not measured"),
    _f("count_on_loop_ms", "float", "part of count_ms that blocked the event loop; null when not measured"),
    _f("count_tokens", "int", "tokens counted over all runs; null when not measured"),
    _f("count_catalogue_tokens", "int", "tokens of the tool catalogue; null when not known"),
    _f("count_reason", "str", "why token counting was not measured; null when it was"),
    # -- how it ended
    _f("attempts", "int", "tries against deployments: 1 + retries + fallbacks", row=True),
    _f("error_class", "str", "class name of the error, from a closed list or other"),
    _f("status_code", "int", "HTTP status of a failure"),
    _f("response_cache_hit", "bool", "answered from LiteLLM's response cache: no engine work"),
    _f("degraded", "bool", "built from partial data because LiteLLM gave no full payload"),
)

FIELD_NAMES: Final = frozenset(f.name for f in FIELDS)
ROW_FIELDS: Final = tuple(f.name for f in FIELDS if f.in_row)

#: Upper bound of our object in a SpendLogs row, bytes of JSON (design: at most 1 KB of ours per row).
ROW_LIMIT_BYTES: Final = 1024

#: Dropped first, in this order, when a row's object is over the limit.
_ROW_SHED: Final = ("client_version", "head_digest", "tools_digest", "system_digest", "session_id")


def new_event_id(now_ns: int | None = None) -> str:
    """Return a UUIDv7 (RFC 9562 §5.7) as text: 48-bit Unix milliseconds, then 74 random bits."""
    ms = (time.time_ns() if now_ns is None else now_ns) // 1_000_000
    t, r = f"{ms & ((1 << 48) - 1):012x}", os.urandom(10).hex()
    return f"{t[:8]}-{t[8:]}-7{r[:3]}-{'89ab'[int(r[3], 16) & 3]}{r[4:7]}-{r[7:19]}"


def encode(record: Mapping[str, Any]) -> bytes:
    """Serialise a record for the stream: known keys only, nulls left out.

    Raises:
        TypeError: a value is not of a JSON type (a bug in the plugin; the caller counts it).
    """
    return orjson.dumps({k: v for k, v in record.items() if v is not None and k in FIELD_NAMES})


def row_object(record: dict[str, Any]) -> dict[str, Any]:
    """Return the part of *record* that goes into a SpendLogs row, within :data:`ROW_LIMIT_BYTES`."""
    row = {k: value for k in ROW_FIELDS if (value := record.get(k)) is not None}
    for name in _ROW_SHED:
        if len(orjson.dumps(row)) <= ROW_LIMIT_BYTES:
            break
        row.pop(name, None)
    return row
