"""One SpendLogs row: from the text that COPY gives to the text columns of ``raw/spend_logs``.

Everything here is pure. Identities are hashed here, before anything is written; JSON is read here, since
``metadata`` may be an object, a string that holds JSON, or unreadable.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from gateway_plugin.event import FIELDS, SPEND_LOGS_NAMESPACE
from gateway_plugin.hashing import Hasher
from pipeline.extract.event_record import fits
from pipeline.extract.identity_hash import person, safe_id, user_digest

#: What the SELECT delivers, in this order.
SOURCE_COLUMNS: Final = (
    "request_id", "litellm_call_id", "call_type", "api_key", "spend", "prompt_tokens", "completion_tokens",
    "total_tokens", "start_time", "end_time", "completion_start_time", "model", "model_id", "model_group",
    "provider", "end_user", "user", "team_id", "session_id", "status", "cache_hit", "usage", "extra_cached",
    "extra_written", "attempted_retries", "error_class", "error_code", "aw", "metadata_text",
)  # fmt: skip

#: What :meth:`RowReader.read` returns, in this order (all text or None; DuckDB casts).
TEXT_COLUMNS: Final = (
    "request_id", "litellm_call_id", "call_type", "key_hash", "spend", "prompt_tokens", "completion_tokens",
    "total_tokens", "start_time", "end_time", "completion_start_time", "model", "model_id", "model_group",
    "provider", "user_hash", "team_id", "row_session_id", "status", "cache_hit", "usage_input",
    "usage_cached", "usage_cache_write", "usage_output", "attempted_retries", "error_class", "error_code",
    "aw",
)  # fmt: skip

_CACHE_HIT: Final = {"true": "true", "false": "false"}
_CLASS_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,127}")
_CODE: Final = re.compile(r"[A-Za-z0-9_.\-]{1,64}")
_TYPES: Final = {f.name: f.type for f in FIELDS}
_AW_LIMIT: Final = 8192


@dataclass(slots=True)
class RowReader:
    """Turns source rows into text rows; counts what had to be set to null, by reason."""

    hasher: Hasher | None
    precedence: Sequence[str]
    repairs: Counter[str] = field(default_factory=Counter)
    _hashes: dict[str, str] = field(default_factory=dict)

    def read(self, values: Sequence[str | None]) -> list[str | None]:
        """Return the text row of one source row (empty text means null)."""
        row: dict[str, str | None] = {
            name: value or None for name, value in zip(SOURCE_COLUMNS, values, strict=True)
        }
        if row["metadata_text"]:
            self._unpack(row, row["metadata_text"])
        usage = read_usage(row["usage"], row["extra_cached"], row["extra_written"], self._count)
        error_class = row["error_class"]
        if error_class and not _CLASS_NAME.fullmatch(error_class):
            error_class = "other"
        code = row["error_code"]
        return [
            row["request_id"], row["litellm_call_id"], row["call_type"], row["api_key"], row["spend"],
            row["prompt_tokens"], row["completion_tokens"], row["total_tokens"],
            row["start_time"], row["end_time"], row["completion_start_time"],
            row["model"], row["model_id"], row["model_group"], row["provider"],
            self._user(row), row["team_id"], safe_id(self.hasher, row["session_id"]), row["status"],
            _CACHE_HIT.get((row["cache_hit"] or "").strip().lower()),
            *usage,
            _number_text(row["attempted_retries"]), error_class,
            code if code and _CODE.fullmatch(code) else None,
            read_aw(row["aw"], self._count),
        ]  # fmt: skip

    def _count(self, reason: str) -> None:
        self.repairs[reason] += 1

    def _user(self, row: Mapping[str, str | None]) -> str | None:
        value = person(
            {"end_user": row["end_user"], "user_id": row["user"], "key": row["api_key"]}, self.precedence
        )
        if value is None:
            return None
        if self.hasher is None:
            self._count("user_hash null: no hash_secret")
            return None
        known = self._hashes.get(value)
        if known is None:
            if len(self._hashes) > 100_000:
                self._hashes.clear()
            known = self._hashes[value] = user_digest(self.hasher, value)
        return known

    def _unpack(self, row: dict[str, str | None], text: str) -> None:
        """Fill in what the database could not look into: metadata that is a string holding JSON."""
        metadata = _loads(text)
        if isinstance(metadata, str):
            metadata = _loads(metadata)
        if not isinstance(metadata, dict):
            self._count("metadata unreadable")
            return
        self._count("metadata double-encoded")
        error = metadata.get("error_information")
        extra = metadata.get("additional_usage_values")
        found = {
            "litellm_call_id": metadata.get("litellm_call_id"),
            "status": metadata.get("status"),
            "usage": metadata.get("usage_object"),
            "attempted_retries": metadata.get("attempted_retries"),
            "aw": metadata.get("spend_logs_metadata"),
            "error_class": error.get("error_class") if isinstance(error, dict) else None,
            "error_code": error.get("error_code") if isinstance(error, dict) else None,
            "extra_cached": extra.get("cache_read_input_tokens") if isinstance(extra, dict) else None,
            "extra_written": extra.get("cache_creation_input_tokens") if isinstance(extra, dict) else None,
        }
        for name, value in found.items():
            if row[name] is None and value is not None:
                row[name] = value if isinstance(value, str) else json.dumps(value)


def read_usage(
    text: str | None, extra_cached: str | None, extra_written: str | None, count: Callable[[str], None]
) -> list[str | None]:
    """Input, cached, cache-written and output tokens of a usage object; null means unknown, never 0.

    LiteLLM's ``prompt_tokens`` includes cached tokens, as does the ``input_tokens`` of the Responses API.
    Anthropic's own ``input_tokens`` (told by ``cache_read_input_tokens`` beside it and no
    ``prompt_tokens``) excludes what was read from and written to the cache, so those are added.
    """
    usage = _loads(text) if text else {}
    if not isinstance(usage, dict):
        count("usage_object unreadable")
        usage = {}
    details = _section(usage, "prompt_tokens_details") or _section(usage, "input_tokens_details")
    read = _first(count, details.get("cached_tokens"), usage.get("cache_read_input_tokens"), extra_cached)
    written = _first(
        count,
        details.get("cache_creation_tokens"),
        details.get("cache_write_tokens"),
        details.get("created_cache_tokens"),
        usage.get("cache_creation_input_tokens"),
        extra_written,
    )
    total = _first(count, usage.get("prompt_tokens"))
    if total is None:
        total = _first(count, usage.get("input_tokens"))
        if total is not None and "cache_read_input_tokens" in usage and not details:
            total += (read or 0) + (written or 0)
    output = _first(count, usage.get("completion_tokens"), usage.get("output_tokens"))
    if total is not None and read is not None and read > total:
        count("cached tokens above input tokens")
        read = None
    return [None if n is None else str(n) for n in (total, read, written, output)]


def read_aw(text: str | None, count: Callable[[str], None]) -> str | None:
    """Our object as JSON text: known keys of the right type only; null when there is none."""
    if not text:
        return None
    value: Any = _loads(text)
    for _ in range(2):  # the namespace may still be inside, and may itself be a string
        if isinstance(value, dict) and SPEND_LOGS_NAMESPACE in value:
            value = value[SPEND_LOGS_NAMESPACE]
        if isinstance(value, str):
            value = _loads(value)
    if not isinstance(value, dict):
        if value is not None:
            count("agentwatt object unreadable")
        return None
    kept = {k: v for k, v in value.items() if k in _TYPES and v is not None and fits(_TYPES[k], v)}
    if "event_id" not in kept:
        if value and not _foreign(value):
            count("agentwatt object without event_id")
        return None
    try:
        encoded = orjson.dumps(kept)
    except TypeError:  # an integer beyond 64 bits
        count("agentwatt object unreadable")
        return None
    if len(encoded) > _AW_LIMIT:
        count("agentwatt object too large")
        return None
    return encoded.decode()


def _foreign(value: dict[str, Any]) -> bool:
    """Other people's metadata without our namespace: nothing to count."""
    return not (value.keys() & _TYPES.keys())


def _section(usage: dict[str, Any], name: str) -> dict[str, Any]:
    value = usage.get(name)
    return value if isinstance(value, dict) else {}


def _first(count: Callable[[str], None], *values: object) -> int | None:
    for value in values:
        number = _integer(value)
        if number is None:
            continue
        if number < 0:
            count("negative token count")
            continue
        return number
    return None


def _integer(value: object) -> int | None:
    """A whole number written as int, float or text; null for anything else."""
    if isinstance(value, bool) or value is None:
        return None
    try:
        number = float(value) if isinstance(value, int | float | str) else float("nan")
    except (ValueError, OverflowError):
        return None
    return int(number) if number == number and abs(number) < 2**53 and number == int(number) else None


def _number_text(value: str | None) -> str | None:
    number = _integer(value)
    return None if number is None else str(number)


def _loads(text: str) -> Any:
    """Read JSON; Python's reader after the strict one, for NaN and Infinity; None when unreadable."""
    try:
        return orjson.loads(text)
    except ValueError:
        pass
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
