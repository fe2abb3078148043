"""Names of span attributes: OpenTelemetry's GenAI conventions where they have a name, ours beside them.

The GenAI conventions are in development and were renamed in 1.37 (``gen_ai.system`` became
``gen_ai.provider.name``). ``legacy`` keeps the names before that, ``latest`` uses the new ones; ``auto``
follows the switch of the conventions themselves, ``OTEL_SEMCONV_STABILITY_OPT_IN`` holding
``gen_ai_latest_experimental``.
"""

from __future__ import annotations

import os
from typing import Final, Literal

Version = Literal["auto", "legacy", "latest"]

#: (attribute, key of the record)
_SHARED: Final = (
    ("gen_ai.conversation.id", "session_id"),
    ("gen_ai.agent.id", "agent_id"),
    ("gen_ai.request.model", "model_group"),
    ("gen_ai.response.model", "model"),
    ("gen_ai.usage.input_tokens", "input_tokens"),
    ("gen_ai.usage.output_tokens", "output_tokens"),
)
_LEGACY: Final = (("gen_ai.system", "provider"),)
_LATEST: Final = (
    ("gen_ai.provider.name", "provider"),
    ("gen_ai.usage.cache_read.input_tokens", "cached_tokens"),
    ("gen_ai.usage.cache_creation.input_tokens", "cache_write_tokens"),
)
_OURS: Final = (
    ("agentwatt.event.id", "event_id"),
    ("agentwatt.session.evidence", "session_evidence"),
    ("agentwatt.agent.kind", "agent_kind"),
    ("agentwatt.turn.id", "turn_id"),
    ("agentwatt.turn.index", "turn_index"),
    ("agentwatt.turn.evidence", "turn_evidence"),
    ("agentwatt.call.index", "call_index"),
    ("agentwatt.call.initiator", "initiator"),
    ("agentwatt.call.outcome", "outcome"),
    ("agentwatt.call.attempts", "attempts"),
    ("agentwatt.client.name", "client"),
    ("agentwatt.prompt.bytes", "prompt_bytes"),
    ("agentwatt.prompt.tool_count", "tool_count"),
    ("agentwatt.prefix.shared_bytes", "shared_bytes"),
    ("agentwatt.prefix.break_reason", "break_reason"),
    ("agentwatt.idle_ms", "idle_ms"),
    ("agentwatt.usage.cached_tokens", "cached_tokens"),
)

#: GenAI operation by route.
OPERATIONS: Final = {"chat": "chat", "messages": "chat", "responses": "chat", "embeddings": "embeddings"}


def attributes(version: Version) -> tuple[tuple[str, str], ...]:
    """Return (attribute, record key) pairs for *version* of the GenAI conventions."""
    if version == "auto":
        opted = os.environ.get("OTEL_SEMCONV_STABILITY_OPT_IN", "")
        version = "latest" if "gen_ai_latest_experimental" in opted.split(",") else "legacy"
    return (*_SHARED, *(_LATEST if version == "latest" else _LEGACY), *_OURS)
