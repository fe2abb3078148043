"""Who is calling: session, agent, user and client, each with the evidence for it.

Everything here is computed from one request (headers, body, what the proxy's authentication said) and needs
no state: sessions.py finds the id of the session, clients.py what the client says about itself.

A session id comes from the client and is never trusted across tenants: ``session_key`` binds it to the user.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from gateway_plugin.clients import Hints, agent_of, client_of, hints_of
from gateway_plugin.hashing import Hasher
from gateway_plugin.sessions import SESSION_RULES, SESSION_SUFFIX, Request, bounded, json_object


class Auth(NamedTuple):
    """What the proxy's authentication established about the caller."""

    key_hash: str | None = None
    key_alias: str | None = None
    user_id: str | None = None
    end_user: str | None = None
    team_id: str | None = None


class Identity(NamedTuple):
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


def _user(auth: Auth, hasher: Hasher, precedence: tuple[str, ...]) -> tuple[str | None, str]:
    values = {"end_user": auth.end_user, "user_id": auth.user_id, "key": auth.key_hash}
    for source in precedence:
        if value := values.get(source):
            return hasher.lasting("user", value), source
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
    hints = hints_of(request, client, version)
    named = auth.user_id is not None and auth.user_id not in _NOBODY
    end_user = auth.end_user
    if end_user and (SESSION_SUFFIX.search(end_user) or json_object(end_user)):
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
    agent_id, agent_kind, agent_source, parent = agent_of(request, client)
    session_id = session_key = None
    source, evidence = "none", "E5"
    for rule in SESSION_RULES:
        value = rule.read(request)
        if value and (value := bounded(value)):
            session_id = hasher.keep_or_hash(value)
            session_key = hasher.lasting("session", tenant, value, size=16)
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
    as_object = json_object(end_user)
    if as_object:
        parts = [str(as_object[k]) for k in ("device_id", "account_uuid") if as_object.get(k)]
        return "/".join(parts) or None
    return SESSION_SUFFIX.sub("", end_user).strip() or None
