"""Who a SpendLogs row belongs to, as the plugin would say it: same secret, same digest, same rules."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from gateway_plugin.hashing import Hasher

_SESSION_SUFFIX: Final = re.compile(r"_session_[A-Za-z0-9-]{8,}\s*$")
#: The user id that LiteLLM gives to everybody who uses the master key names nobody.
_NOBODY: Final = "default_user_id"
_NO_SECRET: Final = Hasher(b"ids are not hashed without a secret")


def user_digest(hasher: Hasher, value: str) -> str:
    """Digest of a person, equal to the plugin's ``user_hash`` under the same secret."""
    return hasher.digest("user", value)


def person(values: Mapping[str, str | None], precedence: Sequence[str]) -> str | None:
    """Return what names the person: the first of *precedence* that does.

    Args:
        values: ``end_user``, ``user_id`` and ``key`` as the row has them.
        precedence: order of those names.
    """
    for source in precedence:
        value = values.get(source)
        if source == "end_user" and value:
            value = _without_session(value)
        if value and not (source == "user_id" and value == _NOBODY):
            return value
    return None


def safe_id(hasher: Hasher | None, value: str | None) -> str | None:
    """Return *value* when it is shaped like an id, else its digest (null without a secret)."""
    if not value:
        return None
    kept = (hasher or _NO_SECRET).keep_or_hash(value)
    return kept if hasher or kept == value else None


def _without_session(end_user: str) -> str | None:
    """Claude Code puts its session into the user id: keep what stays the same between sessions."""
    if end_user.lstrip().startswith("{"):
        try:
            parsed: Any = json.loads(end_user)
        except (ValueError, RecursionError):
            return end_user
        if isinstance(parsed, dict) and parsed:
            return "/".join(str(parsed[k]) for k in ("device_id", "account_uuid") if parsed.get(k)) or None
        return end_user
    return _SESSION_SUFFIX.sub("", end_user).strip() or None
