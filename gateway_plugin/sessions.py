"""Where clients put the id of a session: one ordered table of rules, and the request that they read.

Header names are matched with hyphens and underscores alike; the first rule that yields a usable value wins.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from gateway_plugin.text import is_mapping

#: Longest part of a client's id that is looked at; ids that differ only beyond it differ by their length.
_MAX_RAW_ID: Final = 4096
SESSION_SUFFIX: Final = re.compile(r"_session_([A-Za-z0-9-]{8,})\s*$")
_ANY_SESSION_HEADER: Final = re.compile(r"^x-[a-z0-9-]+-session-id$")


class Request(NamedTuple):
    """The parts of a request that identity needs; *headers* have canonical names (see canonical_headers)."""

    headers: Mapping[str, str]
    body: Mapping[str, Any]
    metadata: Mapping[str, Any]
    proxy_session: str | None = None


def canonical_headers(headers: object) -> dict[str, str]:
    """Return *headers* with lower-case, hyphenated names and text values; anything else is dropped."""
    if not is_mapping(headers):
        return {}
    out: dict[str, str] = {}
    for name, value in headers.items():
        if isinstance(name, str) and isinstance(value, str):
            out.setdefault(name.strip().lower().replace("_", "-"), value.strip())
    return out


def _header(name: str) -> Callable[[Request], str | None]:
    return lambda r: r.headers.get(name)


def _body(name: str) -> Callable[[Request], str | None]:
    return lambda r: text_of(r.body.get(name))


def _metadata(name: str) -> Callable[[Request], str | None]:
    return lambda r: text_of(r.metadata.get(name))


def text_of(value: object) -> str | None:
    """Return *value* when it is text with something in it."""
    return value if isinstance(value, str) and value.strip() else None


def codex_metadata(request: Request) -> dict[str, Any]:
    """Return Codex's turn metadata: the header's JSON, else the canonical copy in the body."""
    raw = request.headers.get("x-codex-turn-metadata")
    for candidate in (
        raw,
        request.body.get("client_metadata"),
        request.metadata.get("x-codex-turn-metadata"),
    ):
        parsed = json_object(candidate)
        inner = json_object(parsed.get("x-codex-turn-metadata")) if parsed else {}
        if inner or parsed:
            return inner or parsed
    return {}


def json_object(value: object) -> dict[str, Any]:
    """Return a JSON object given as one or as its text; empty for anything else."""
    if is_mapping(value):
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
    as_object = json_object(value)
    if as_object:
        return text_of(as_object.get("session_id"))
    if isinstance(value, str):
        match = SESSION_SUFFIX.search(value)
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
    if is_mapping(value):
        return text_of(value.get("id"))
    return text_of(value)


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
    SessionRule("codex-turn-metadata", lambda r: text_of(codex_metadata(r).get("session_id"))),
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


def bounded(value: str) -> str:
    """Return *value* cut to what is looked at; its length keeps ids apart that differ only beyond."""
    if len(value) > _MAX_RAW_ID:
        value = f"{value[:_MAX_RAW_ID]} {len(value)}"
    return value.strip()
