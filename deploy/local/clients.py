"""Client headers: what Claude Code, Codex, OpenCode and plain SDKs send with a call.

Names and vocabularies follow what these clients document or send on the wire. Nothing here tells a proxy that
a call is part of a replay.
"""

from __future__ import annotations

import uuid
from typing import Final
from urllib.parse import quote

import orjson

from deploy.local.scenario.plan import PlannedCall, PlannedSession
from deploy.local.scenario.wire import claude_code_version

CODEX_VERSION: Final = "0.153.0"
OPENCODE_VERSION: Final = "1.3.4"

_CLASSES: Final = {"auxiliary": "auxiliary", "compaction": "compaction"}


def headers(
    session: PlannedSession, call: PlannedCall, tool_durations: list[tuple[str, int]], turn_started_ms: int
) -> dict[str, str]:
    """Return the client's headers of *call*, without the authorization.

    ``tool_durations`` are (tool name, milliseconds) of the tools whose results the call brings, as they
    passed in this replay; ``turn_started_ms`` is the Unix time in milliseconds of the turn's first call.
    """
    if session.client == "claude-code":
        return _claude_code(session, call, tool_durations)
    if session.client == "codex":
        return _codex(session, call, turn_started_ms)
    if session.client == "opencode":
        return _opencode(session, call)
    sdk = "Anthropic/Python 0.75.0" if session.route == "messages" else "OpenAI/Python 2.8.1"
    result = {"user-agent": sdk}
    if session.route == "messages":
        result["anthropic-version"] = "2023-06-01"
    if session.session_id is not None:
        result["x-litellm-session-id"] = session.session_id
    return result


def session_id_sent(session: PlannedSession, call: PlannedCall) -> str | None:
    """Return the session id that the request of *call* carries, in a header or in the body.

    OpenCode runs a subagent as a session of its own and names the parent in another header.
    """
    if session.client == "opencode" and call.agent_id is not None:
        return call.agent_id
    return session.session_id if call.sends_session_id else None


def _claude_code(
    session: PlannedSession, call: PlannedCall, tool_durations: list[tuple[str, int]]
) -> dict[str, str]:
    result = {
        "user-agent": f"claude-cli/{claude_code_version(session)} (external, cli)",
        "anthropic-version": "2023-06-01",
        "anthropic-beta": "claude-code-20250219",
        "x-app": "cli",
        "x-stainless-lang": "js",
        "x-stainless-retry-count": "0",
    }
    if session.session_id is not None and not session.legacy:
        result["x-claude-code-session-id"] = session.session_id
    if call.agent_id is not None and not session.legacy:
        result["x-claude-code-agent-id"] = call.agent_id
    if not session.hints:
        return result
    result["x-claude-code-prompt-id"] = call.prompt_id
    result["x-claude-code-request-class"] = _CLASSES.get(
        call.initiator, "subagent" if call.agent_id is not None else "main"
    )
    if call.agent_type is not None:
        result["x-claude-code-agent-type"] = call.agent_type
    if call.special == "compaction":
        result["x-claude-code-compaction"] = "auto"
    if call.special == "post_compaction":
        result["x-claude-code-context-compacted"] = "auto"
    if tool_durations:
        result["x-claude-code-prev-tool-durations"] = ";".join(
            f"{quote(name, safe='')}={milliseconds}" for name, milliseconds in tool_durations
        )
    return result


def _codex(session: PlannedSession, call: PlannedCall, turn_started_ms: int) -> dict[str, str]:
    session_id = str(session.session_id)
    thread_id = call.agent_id or session_id
    child = call.agent_id is not None
    metadata: dict[str, object] = {
        "session_id": session_id,
        "thread_id": thread_id,
        "turn_id": _child_turn_id(call) if child else call.prompt_id,
        "request_kind": "compaction" if call.initiator == "compaction" else "turn",
        "thread_source": "subagent" if child else "user",
        "turn_started_at_unix_ms": turn_started_ms,
    }
    result = {
        "user-agent": f"codex_cli_rs/{CODEX_VERSION} (Ubuntu 24.4.0; x86_64) xterm-256color",
        "originator": "codex_cli_rs",
        "session_id" if session.legacy else "session-id": session_id,
        "thread-id": thread_id,
        "x-codex-window-id": f"{thread_id}:{call.window}",
    }
    if child:
        metadata["subagent_kind"] = "thread_spawn"
        metadata["parent_turn_id"] = call.prompt_id
        result["x-codex-parent-thread-id"] = session_id
        result["x-openai-subagent"] = "collab_spawn"
    result["x-codex-turn-metadata"] = orjson.dumps(metadata).decode()
    return result


def _child_turn_id(call: PlannedCall) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{call.agent_id}/{call.turn}"))


def _opencode(session: PlannedSession, call: PlannedCall) -> dict[str, str]:
    result = {"user-agent": f"opencode/{OPENCODE_VERSION} ai-sdk/provider-utils/4.0.1 runtime/bun/1.3.5"}
    own = session_id_sent(session, call)
    if own is not None:
        result["x-session-id"] = own
        result["x-session-affinity"] = own
    if call.agent_id is not None:
        result["x-parent-session-id"] = str(session.session_id)
    return result
