"""What a client says about itself and the call: its name, its agents, and hints about turn and initiator."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from gateway_plugin.sessions import Request, codex_metadata, text_of

_USER_AGENT: Final = re.compile(r"([A-Za-z0-9._ -]{1,40})/(\d[\w.+-]{0,30})")


class Hints(NamedTuple):
    """Facts that a client states about the call itself; None where it says nothing.

    ``names_agents``: this client names its subagents on the wire, so a call without such a name is the main
    agent's and nothing is inferred.
    """

    turn_id: str | None = None
    turn_source: str | None = None
    request_class: str | None = None
    initiator: str | None = None
    compaction: bool = False
    after_compaction: bool = False
    tool_ms: float | None = None
    names_agents: bool = False


def client_of(headers: Mapping[str, str]) -> tuple[str, str | None]:
    """Return (client, version) from the user agent and the client's own headers; a closed list plus other."""
    agent = headers.get("user-agent", "")
    match = _USER_AGENT.search(agent)
    version = match.group(2)[:32] if match else None
    low = agent.lower()
    if "claude-cli" in low or "claude-code" in low or "x-claude-code-session-id" in headers:
        return "claude-code", version
    if "codex" in low or "x-codex-turn-metadata" in headers:
        return "codex", version
    if "opencode" in low or "x-parent-session-id" in headers or "x-session-affinity" in headers:
        return "opencode", version
    if "copilot" in low or "x-interaction-id" in headers or "x-initiator" in headers:
        return "copilot", version
    if not agent:
        return "unknown", None
    return "other", version


def agent_of(request: Request, client: str) -> tuple[str, str, str, str | None]:
    """Return (agent id, kind, source, parent id); the main agent has no id on the wire."""
    h = request.headers
    if agent := h.get("x-claude-code-agent-id"):
        return agent, "subagent", "x-claude-code-agent-id", h.get("x-claude-code-parent-agent-id") or "main"
    if "x-parent-session-id" in h and (child := h.get("x-session-id") or h.get("x-session-affinity")):
        return child, "subagent", "x-parent-session-id", "main"
    if client == "codex":
        meta = codex_metadata(request)
        parent = h.get("x-codex-parent-thread-id") or text_of(meta.get("parent_thread_id"))
        thread = h.get("thread-id") or text_of(meta.get("thread_id"))
        if h.get("x-openai-subagent") or parent:
            return (
                thread or h.get("x-openai-subagent", "subagent"),
                "subagent",
                "codex-thread",
                parent or "main",
            )
    return "main", "main", "none", None


def tool_durations_ms(value: str | None) -> float | None:
    """Return the longest duration of ``Bash=742;Read=9`` in ms; parallel tools are never summed."""
    longest: float | None = None
    for item in (value or "")[:4096].split(";")[:32]:
        _, _, number = item.rpartition("=")
        try:
            ms = float(number)
        except ValueError:
            continue
        if 0 <= ms < 1e10:
            longest = ms if longest is None else max(longest, ms)
    return longest


_CLASS_INITIATOR: Final = {
    "compaction": "compaction",
    "auxiliary": "auxiliary",
    "workflow": "agent",
    "subagent": "agent",
}
_CODEX_KIND: Final = {"compaction": "compaction", "prewarm": "auxiliary", "memory": "auxiliary"}


#: Claude Code sends x-claude-code-agent-id from this release on.
_CLAUDE_NAMES_AGENTS: Final = (2, 1, 139)


def _release(text: str | None) -> tuple[int, ...]:
    """Return the leading numbers of a version, () when there are none."""
    numbers = []
    for part in (text or "").split("."):
        if not part.isascii() or not part.isdigit() or len(part) > 9:
            break
        numbers.append(int(part))
    return tuple(numbers)


def hints_of(request: Request, client: str, version: str | None) -> Hints:
    """Return what *client* in *version* states about the call."""
    h = request.headers
    if client == "claude-code":
        cls = h.get("x-claude-code-request-class", "").lower() or None
        prompt = h.get("x-claude-code-prompt-id")
        return Hints(
            turn_id=prompt,
            turn_source="x-claude-code-prompt-id" if prompt else None,
            request_class=cls,
            initiator=_CLASS_INITIATOR.get(cls or ""),
            compaction="x-claude-code-compaction" in h or cls == "compaction",
            after_compaction="x-claude-code-context-compacted" in h,
            tool_ms=tool_durations_ms(h.get("x-claude-code-prev-tool-durations")),
            names_agents=cls is not None or prompt is not None or _release(version) >= _CLAUDE_NAMES_AGENTS,
        )
    if client == "codex":
        meta = codex_metadata(request)
        kind = text_of(meta.get("request_kind"))
        turn = text_of(meta.get("turn_id"))
        return Hints(
            turn_id=turn,
            turn_source="codex.turn_id" if turn else None,
            request_class=kind,
            initiator=_CODEX_KIND.get(kind or ""),
            compaction=kind == "compaction",
            names_agents=bool(meta),
        )
    if (initiator := h.get("x-initiator", "").lower()) in ("user", "agent"):
        return Hints(initiator=initiator)
    return Hints(names_agents=client == "opencode")
