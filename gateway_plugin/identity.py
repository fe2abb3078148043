"""Who is calling: session, agent, user and client, each with the evidence for it.

Everything here is computed from one request (headers, body, what the proxy's authentication said) and needs
no state. The session rules are one ordered table, :data:`SESSION_RULES`; the first rule that yields a usable
value wins. Header names are matched with hyphens and underscores alike.

A session id comes from the client and is never trusted across tenants: ``session_key`` binds it to the user.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

from gateway_plugin.hashing import Hasher

#: Longest part of a client's id that is looked at; ids that differ only beyond it differ by their length.
_MAX_RAW_ID: Final = 4096
_SESSION_SUFFIX: Final = re.compile(r"_session_([A-Za-z0-9-]{8,})\s*$")
_ANY_SESSION_HEADER: Final = re.compile(r"^x-[a-z0-9-]+-session-id$")
_USER_AGENT: Final = re.compile(r"([A-Za-z0-9._ -]{1,40})/(\d[\w.+-]{0,30})")


@dataclass(frozen=True, slots=True)
class Auth:
    """What the proxy's authentication established about the caller."""

    key_hash: str | None = None
    key_alias: str | None = None
    user_id: str | None = None
    end_user: str | None = None
    team_id: str | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """The parts of a request that identity needs; *headers* have canonical names (see canonical_headers)."""

    headers: Mapping[str, str]
    body: Mapping[str, Any]
    metadata: Mapping[str, Any]
    proxy_session: str | None = None


@dataclass(frozen=True, slots=True)
class Hints:
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


@dataclass(frozen=True, slots=True)
class Identity:
    """Resolved identity of one call."""

    session_key: str | None
    session_id: str | None
    session_source: str
    session_evidence: str
    agent_id: str
    agent_kind: str
    agent_source: str
    parent_agent_id: str | None
    user_hash: str | None
    user_source: str
    client: str
    client_version: str | None
    hints: Hints


def canonical_headers(headers: object) -> dict[str, str]:
    """Return *headers* with lower-case, hyphenated names and text values; anything else is dropped."""
    if not isinstance(headers, Mapping):
        return {}
    out: dict[str, str] = {}
    for name, value in headers.items():
        if isinstance(name, str) and isinstance(value, str):
            out.setdefault(name.strip().lower().replace("_", "-"), value.strip())
    return out


# -- clients


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


# -- session rules, in order


def _header(name: str) -> Callable[[Request], str | None]:
    return lambda r: r.headers.get(name)


def _body(name: str) -> Callable[[Request], str | None]:
    return lambda r: _text(r.body.get(name))


def _metadata(name: str) -> Callable[[Request], str | None]:
    return lambda r: _text(r.metadata.get(name))


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value.strip() else None


def _codex_metadata(request: Request) -> dict[str, Any]:
    """Return Codex's turn metadata: the header's JSON, else the canonical copy in the body."""
    raw = request.headers.get("x-codex-turn-metadata")
    for candidate in (
        raw,
        request.body.get("client_metadata"),
        request.metadata.get("x-codex-turn-metadata"),
    ):
        parsed = _json_object(candidate)
        inner = _json_object(parsed.get("x-codex-turn-metadata")) if parsed else {}
        if inner or parsed:
            return inner or parsed
    return {}


def _json_object(value: object) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, str) and value.lstrip().startswith("{") and len(value) <= 65536:
        try:
            parsed = json.loads(value)
        except (ValueError, RecursionError):
            return {}
        return parsed if isinstance(parsed, dict) else {}
    return {}


def _any_session_header(request: Request) -> str | None:
    for name in sorted(request.headers):
        if _ANY_SESSION_HEADER.match(name) and name != "x-parent-session-id":
            return request.headers[name]
    return None


def _anthropic_user_id(request: Request) -> str | None:
    """Claude Code's body id: ``user_…_account_…_session_<uuid>``, or JSON text with a session_id."""
    value = request.metadata.get("user_id")
    as_object = _json_object(value)
    if as_object:
        return _text(as_object.get("session_id"))
    if isinstance(value, str):
        match = _SESSION_SUFFIX.search(value)
        return match.group(1) if match else None
    return None


def _baggage(*keys: str) -> Callable[[Request], str | None]:
    def read(request: Request) -> str | None:
        for item in request.headers.get("baggage", "").split(","):
            name, _, value = item.partition("=")
            if name.strip() in keys and value:
                return unquote(value.split(";")[0].strip()) or None
        return None

    return read


def _conversation(request: Request) -> str | None:
    value = request.body.get("conversation")
    if isinstance(value, Mapping):
        return _text(value.get("id"))
    return _text(value)


@dataclass(frozen=True, slots=True)
class SessionRule:
    """One way to find a session id: its name (stored as session_source) and how to read it."""

    name: str
    read: Callable[[Request], str | None]


SESSION_RULES: Final[tuple[SessionRule, ...]] = (
    SessionRule("x-claude-code-session-id", _header("x-claude-code-session-id")),
    # OpenCode: a child session names its parent; the parent is the session, the child an agent of it.
    SessionRule("x-parent-session-id", _header("x-parent-session-id")),
    SessionRule("session-id", _header("session-id")),
    SessionRule("x-session-id", _header("x-session-id")),
    SessionRule("x-session-affinity", _header("x-session-affinity")),
    SessionRule("x-client-session-id", _header("x-client-session-id")),
    SessionRule("x-interaction-id", _header("x-interaction-id")),
    SessionRule("x-litellm-session-id", _header("x-litellm-session-id")),
    SessionRule("x-any-session-id", _any_session_header),
    SessionRule("codex-turn-metadata", lambda r: _text(_codex_metadata(r).get("session_id"))),
    SessionRule("thread-id", _header("thread-id")),
    SessionRule("conversation-id", _header("conversation-id")),
    SessionRule("x-litellm-trace-id", _header("x-litellm-trace-id")),
    SessionRule("metadata.user_id", _anthropic_user_id),
    SessionRule("metadata.session_id", _metadata("session_id")),
    SessionRule("body.litellm_session_id", _body("litellm_session_id")),
    SessionRule("body.conversation", _conversation),
    SessionRule("baggage", _baggage("session.id", "gen_ai.conversation.id")),
    SessionRule("body.prompt_cache_key", _body("prompt_cache_key")),
    SessionRule("proxy", lambda r: r.proxy_session),
)


def _agent(request: Request, client: str) -> tuple[str, str, str, str | None]:
    """Return (agent id, kind, source, parent id); the main agent has no id on the wire."""
    h = request.headers
    if agent := h.get("x-claude-code-agent-id"):
        return agent, "subagent", "x-claude-code-agent-id", h.get("x-claude-code-parent-agent-id") or "main"
    if "x-parent-session-id" in h and (child := h.get("x-session-id") or h.get("x-session-affinity")):
        return child, "subagent", "x-parent-session-id", "main"
    if client == "codex":
        meta = _codex_metadata(request)
        parent = h.get("x-codex-parent-thread-id") or _text(meta.get("parent_thread_id"))
        thread = h.get("thread-id") or _text(meta.get("thread_id"))
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


def _hints(request: Request, client: str, version: tuple[int, ...]) -> Hints:
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
            names_agents=cls is not None or prompt is not None or version >= _CLAUDE_NAMES_AGENTS,
        )
    if client == "codex":
        meta = _codex_metadata(request)
        kind = _text(meta.get("request_kind"))
        turn = _text(meta.get("turn_id"))
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


def _bounded(value: str) -> str:
    if len(value) > _MAX_RAW_ID:
        value = f"{value[:_MAX_RAW_ID]} {len(value)}"
    return value.strip()


def _user(auth: Auth, hasher: Hasher, precedence: tuple[str, ...]) -> tuple[str | None, str]:
    values = {"end_user": auth.end_user, "user_id": auth.user_id, "key": auth.key_hash}
    for source in precedence:
        if value := values.get(source):
            return hasher.digest("user", value), source
    return None, "none"


#: A user id that LiteLLM gives to everybody who uses the master key names nobody.
_NOBODY: Final = frozenset({"default_user_id"})


def resolve(
    request: Request,
    auth: Auth,
    hasher: Hasher,
    *,
    head_material: tuple[str, str],
    user_precedence: tuple[str, ...] = ("end_user", "user_id", "key"),
) -> Identity:
    """Resolve the identity of one call.

    Args:
        request: canonical headers, body, metadata of the client and the proxy's own session id.
        auth: result of authentication.
        hasher: keyed hasher of this installation.
        head_material: (digest of the system prompt, first human text), for an inferred session.
        user_precedence: which of end user, user id and key names the person, first present wins.

    Returns:
        The identity; an inferred session has evidence E4, no session at all E5.
    """
    client, version = client_of(request.headers)
    hints = _hints(request, client, _release(version))
    named = auth.user_id is not None and auth.user_id not in _NOBODY
    end_user = auth.end_user
    if end_user and (_SESSION_SUFFIX.search(end_user) or _json_object(end_user)):
        # Claude Code's metadata.user_id lands in end_user verbatim. It changes with every session and names
        # a device, so it stands for the person only where the key has no user of its own.
        end_user = None if named else _stable_part(end_user)
    person = Auth(
        key_hash=auth.key_hash,
        user_id=None if auth.user_id in _NOBODY else auth.user_id,
        end_user=end_user,
    )
    user_hash, user_source = _user(person, hasher, user_precedence)
    tenant = user_hash or "anonymous"
    agent_id, agent_kind, agent_source, parent = _agent(request, client)
    session_id = session_key = None
    source, evidence = "none", "E5"
    for rule in SESSION_RULES:
        value = rule.read(request)
        if value and (value := _bounded(value)):
            session_id = hasher.keep_or_hash(value)
            session_key = hasher.digest("session", tenant, value, size=16)
            source, evidence = rule.name, "E1"
            break
    else:
        if head_material[1]:
            session_id = session_key = hasher.digest("inferred-session", tenant, *head_material, size=16)
            source, evidence = "inferred", "E4"
    return Identity(
        session_key=session_key,
        session_id=session_id,
        session_source=source,
        session_evidence=evidence,
        agent_id=agent_id if agent_id == "main" else hasher.keep_or_hash(agent_id),
        agent_kind=agent_kind,
        agent_source=agent_source,
        parent_agent_id=parent if parent in (None, "main") else hasher.keep_or_hash(parent),
        user_hash=user_hash,
        user_source=user_source,
        client=client,
        client_version=version,
        hints=hints,
    )


def _stable_part(end_user: str) -> str | None:
    """Return what names the person in Claude Code's user id: device and account, without the session."""
    as_object = _json_object(end_user)
    if as_object:
        parts = [str(as_object[k]) for k in ("device_id", "account_uuid") if as_object.get(k)]
        return "/".join(parts) or None
    return _SESSION_SUFFIX.sub("", end_user).strip() or None
