"""Provider usage, normalised: what went in, what was cached, what came out, and how we know.

Unknown is None and never zero. Conventions differ: OpenAI-shaped usage counts cached tokens *inside*
``prompt_tokens``; Anthropic's raw usage leaves cache reads and writes *outside* ``input_tokens``. The shape
of each record decides, never the provider's name. A record whose numbers contradict each other loses its
cache figures (``usage_source`` stays, ``cached`` becomes unknown) instead of being clamped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from gateway_plugin.text import is_mapping


class Usage(NamedTuple):
    """Tokens of one call. ``input`` includes cached and written tokens; ``fresh`` is what neither covers.

    ``semantics`` tells how the record itself counted: ``inclusive`` (cached tokens inside its prompt
    count) or ``exclusive`` (beside it).
    """

    input: int | None = None
    cached: int | None = None
    cache_write: int | None = None
    cache_write_1h: int | None = None
    output: int | None = None
    reasoning: int | None = None
    source: str = "none"
    semantics: str | None = None
    suspect: bool = False

    @property
    def fresh(self) -> int | None:
        """Input tokens neither read from nor written to a cache; None when the cached part is unknown."""
        if self.input is None or self.cached is None:
            return None
        return max(0, self.input - self.cached - (self.cache_write or 0))


def as_mapping(value: object) -> Mapping[str, Any]:
    """Return *value* as a mapping: dicts as they are, pydantic objects dumped, anything else empty."""
    if is_mapping(value):
        return value
    for name in ("model_dump", "dict"):
        method = getattr(value, name, None)
        if callable(method) and not isinstance(value, type):
            try:
                dumped = method()
            except (TypeError, ValueError, RuntimeError):
                return {}
            return dumped if is_mapping(dumped) else {}
    return {}


def _count(value: object) -> int | None:
    """Return a token count; booleans, negatives, fractions and text are no counts."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and 0 <= value < 1 << 40 else None


def _first(*values: object) -> int | None:
    for value in values:
        if (count := _count(value)) is not None:
            return count
    return None


def _raw_anthropic(raw: Mapping[str, Any], details: Mapping[str, Any]) -> bool:
    """Anthropic's own shape: input_tokens beside cache fields, without an OpenAI-shaped total."""
    return (
        "input_tokens" in raw
        and "prompt_tokens" not in raw
        and not details
        and ("cache_read_input_tokens" in raw or "cache_creation_input_tokens" in raw)
    )


def normalise(usage: object, *, estimated: bool = False) -> Usage:
    """Return the usage of one call from whatever the payload holds.

    Args:
        usage: OpenAI chat usage, Responses usage, Anthropic usage, Bedrock Converse (camel case), Gemini
            (``*TokenCount``) or LiteLLM's merged object; a mapping, a pydantic object or anything else.
        estimated: the proxy counted the tokens itself (client disconnect, no provider usage): the cached
            tokens of such a record are invented and therefore unknown.
    """
    raw = as_mapping(usage)
    if not raw:
        return Usage()
    details = as_mapping(raw.get("prompt_tokens_details") or raw.get("input_tokens_details"))
    out_details = as_mapping(raw.get("completion_tokens_details") or raw.get("output_tokens_details"))
    base = _first(
        raw.get("prompt_tokens"), raw.get("input_tokens"), raw.get("inputTokens"), raw.get("promptTokenCount")
    )
    cached = _first(
        details.get("cached_tokens"),
        raw.get("cache_read_input_tokens"),
        raw.get("prompt_cache_hit_tokens"),  # DeepSeek
        raw.get("cacheReadInputTokens"),  # Bedrock Converse
        raw.get("cachedContentTokenCount"),  # Gemini
    )
    write = _first(
        raw.get("cache_creation_input_tokens"),
        details.get("cache_creation_tokens"),
        details.get("created_cache_tokens"),  # vLLM chat
        details.get("cache_write_tokens"),  # vLLM responses
        raw.get("cacheWriteInputTokens"),
    )
    split = as_mapping(details.get("cache_creation_token_details") or raw.get("cache_creation"))
    output = _first(
        raw.get("completion_tokens"),
        raw.get("output_tokens"),
        raw.get("outputTokens"),
        raw.get("candidatesTokenCount"),
    )
    thoughts = _count(raw.get("thoughtsTokenCount"))
    if output is not None and thoughts and "candidatesTokenCount" in raw:
        output += thoughts  # Gemini counts its reasoning beside the answer
    total = base
    bedrock = "inputTokens" in raw and ("cacheReadInputTokens" in raw or "cacheWriteInputTokens" in raw)
    exclusive = bedrock or _raw_anthropic(raw, details)
    if base is not None and exclusive:
        total = base + (cached or 0) + (write or 0)
    suspect = False
    if total is not None and ((cached or 0) > total or (cached or 0) + (write or 0) > total):
        suspect, cached, write = True, None, None
    if _negative(raw) or _negative(details):
        suspect = True
    if estimated:
        cached = write = None
    source = "none" if total is None and output is None else ("estimated" if estimated else "provider")
    return Usage(
        input=total,
        cached=cached,
        cache_write=write,
        cache_write_1h=_first(split.get("ephemeral_1h_input_tokens")) if write is not None else None,
        output=output,
        reasoning=_first(out_details.get("reasoning_tokens"), thoughts),
        source=source,
        semantics=None if total is None else ("exclusive" if exclusive else "inclusive"),
        suspect=suspect,
    )


def _negative(values: Mapping[str, Any]) -> bool:
    return any(isinstance(v, (int, float)) and v < 0 for v in values.values())
