"""Reading LiteLLM's dicts: what a request, a logging payload and a failure tell, as plain facts.

Nothing here trusts a type: any value may be null, text or an object of a library. LiteLLM itself is not
imported, so that these readers are tested without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from gateway_plugin.answers import field_of
from gateway_plugin.call import Arrival, Ending, OpenCall, now_us
from gateway_plugin.identity import Auth
from gateway_plugin.lineage import tool_call_ids
from gateway_plugin.sinks import spend_logs
from gateway_plugin.text import is_mapping, storable
from gateway_plugin.tools import tool_calls_of
from gateway_plugin.usage import Usage, normalise

_ROUTES: Final = {
    "acompletion": "chat",
    "completion": "chat",
    "atext_completion": "chat",
    "anthropic_messages": "messages",
    "aanthropic_messages": "messages",
    "aresponses": "responses",
    "responses": "responses",
    "aembedding": "embeddings",
    "embeddings": "embeddings",
    "pass_through_endpoint": "pass_through",
}

#: Error classes that keep their name in a record; any other is "other" (closed list, design section 4).
ERROR_CLASSES: Final = frozenset(
    {
        "APIConnectionError",
        "APIError",
        "AuthenticationError",
        "BadGatewayError",
        "BadRequestError",
        "BudgetExceededError",
        "ClientDisconnected",
        "ContentPolicyViolationError",
        "ContextWindowExceededError",
        "HTTPException",
        "InternalServerError",
        "MidStreamFallbackError",
        "NotFoundError",
        "PermissionDeniedError",
        "ProxyException",
        "RateLimitError",
        "ServiceUnavailableError",
        "Timeout",
        "UnprocessableEntityError",
    }
)

#: LiteLLM marks a session id that it made up itself for one request with this metadata key.
_GENERATED_SESSION_KEY: Final = "litellm_session_id_generated"

_NOTHING: Final[Mapping[str, Any]] = {}


def _mapping(value: object) -> Mapping[str, Any]:
    return value if is_mapping(value) else _NOTHING


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _any_text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def epoch_us(value: object) -> int | None:
    """Return UTC microseconds of a datetime (naive = local time, as LiteLLM makes them) or epoch seconds."""
    if isinstance(value, datetime):
        return int(value.timestamp() * 1e6)
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 1e9 < value < 1e11:
        return int(value * 1e6)
    return None


def auth_of(auth: object) -> Auth:
    """Return what LiteLLM's authentication object, or a dict of the same keys, says about the caller."""

    return Auth(
        key_hash=_any_text(field_of(auth, "api_key")) or _any_text(field_of(auth, "token")),
        key_alias=_any_text(field_of(auth, "key_alias")),
        user_id=_any_text(field_of(auth, "user_id")),
        end_user=_any_text(field_of(auth, "end_user_id")),
        team_id=_any_text(field_of(auth, "team_id")),
    )


def arrival_of(auth: object, data: dict[str, Any], call_type: object) -> Arrival:
    """Return what is known of a request when the pre-call hook sees it."""
    bucket = _mapping(spend_logs.bucket_of(data))
    server_request = _mapping(data.get("proxy_server_request"))
    received = epoch_us(bucket.get("litellm_received_at")) or epoch_us(server_request.get("arrival_time"))
    queue = bucket.get("queue_time_seconds")
    queue_s = queue if isinstance(queue, (int, float)) and 0 <= queue < 1e6 else None
    generated = bool(bucket.get(_GENERATED_SESSION_KEY))
    seen = now_us()
    kind = call_type if isinstance(call_type, str) else str(getattr(call_type, "value", "") or "")
    return Arrival(
        body=data,
        headers=server_request.get("headers") or bucket.get("headers"),
        client_metadata=_client_metadata(data, bucket, generated=generated),
        auth=auth_of(auth),
        proxy_session=None if generated else _any_text(data.get("litellm_session_id")),
        route=_ROUTES.get(kind, "other"),
        call_type=storable(kind, 64) or "",
        litellm_call_id=storable(data.get("litellm_call_id"), 128),
        received_us=min(received, seen) if received is not None else seen,
        queue_ms=None if queue_s is None else round(queue_s * 1e3, 3),
    )


def _client_metadata(
    data: Mapping[str, Any], bucket: Mapping[str, Any], *, generated: bool
) -> Mapping[str, Any]:
    """Return the metadata that the client itself sent, from whichever channel this route keeps it in."""
    if "litellm_metadata" in data and is_mapping(data.get("metadata")) and data["metadata"]:
        return _mapping(data["metadata"])
    if sent := _mapping(bucket.get("requester_metadata")):
        return sent
    if generated:
        return {}
    return {k: bucket[k] for k in ("session_id", "user_id") if isinstance(bucket.get(k), str)}


def late_arrival(kwargs: Mapping[str, Any]) -> Arrival:
    """Return the arrival of a call that our pre-call hook never saw, from its logging payload."""
    params = _mapping(kwargs.get("litellm_params"))
    data: dict[str, Any] = {
        k: kwargs[k] for k in ("model", "messages", "input", "stream", "litellm_call_id") if k in kwargs
    }
    data["proxy_server_request"] = params.get("proxy_server_request")
    data["metadata"] = _mapping(params.get("metadata")) or _mapping(params.get("litellm_metadata"))
    meta = _mapping(_mapping(kwargs.get("standard_logging_object")).get("metadata"))
    auth = {
        "api_key": meta.get("user_api_key_hash"),
        "key_alias": meta.get("user_api_key_alias"),
        "user_id": meta.get("user_api_key_user_id"),
        "team_id": meta.get("user_api_key_team_id"),
        "end_user_id": meta.get("user_api_key_end_user_id"),
    }
    return arrival_of(auth, data, kwargs.get("call_type"))


def success_ending(kwargs: Mapping[str, Any], result: object, call: OpenCall) -> Ending:
    """Read the end of a call that LiteLLM logs as a success: really one, a cache hit, or a disconnect."""
    payload = _mapping(kwargs.get("standard_logging_object"))
    meta = _mapping(payload.get("metadata"))
    error_class = _mapping(payload.get("error_information")).get("error_class")
    params = _mapping(kwargs.get("litellm_params"))
    own = _mapping(params.get("litellm_metadata")) or _mapping(params.get("metadata"))
    disconnected = (
        error_class == "ClientDisconnected"
        or bool(own.get("client_disconnected"))
        or _cut_short(kwargs, call)
    )
    usage_object = meta.get("usage_object") or field_of(result, "usage")
    known = [
        n
        for n in (_integer(own.get("attempted_retries")), _integer(own.get("attempted_fallbacks")))
        if n is not None
    ]
    return Ending(
        outcome="aborted" if disconnected else "success",
        ended_us=epoch_us(payload.get("endTime")) or epoch_us(kwargs.get("end_time")),
        first_token_us=epoch_us(kwargs.get("completion_start_time"))
        or epoch_us(payload.get("completionStartTime")),
        handoff_us=epoch_us(kwargs.get("first_api_call_start_time"))
        or epoch_us(kwargs.get("api_call_start_time")),
        usage=normalise(usage_object, estimated=disconnected),
        model=storable(payload.get("model")) or storable(kwargs.get("model")),
        deployment_id=storable(payload.get("model_id"), 128)
        or storable(_mapping(own.get("model_info")).get("id"), 128),
        provider=storable(payload.get("custom_llm_provider"), 64)
        or storable(params.get("custom_llm_provider"), 64),
        attempts=max(1 + sum(known), 1 + call.failed_attempts, call.attempts),
        error_class="ClientDisconnected" if disconnected else None,
        status_code=499 if disconnected else None,
        response_cache_hit=kwargs.get("cache_hit") is True or payload.get("cache_hit") is True,
        litellm_call_id=storable(kwargs.get("litellm_call_id"), 128)
        or storable(payload.get("litellm_call_id"), 128),
        degraded=not payload,
        tool_call_ids=tool_call_ids(result),
        tool_calls=None if disconnected else tool_calls_of(result),
    )


def _cut_short(kwargs: Mapping[str, Any], call: OpenCall) -> bool:
    """Return whether a streamed message ended without its last event.

    On this route LiteLLM (1.108) may log what had come before it marks that the client left: it says only
    that the provider's closing event is missing. It says the same of every pass-through of other providers,
    and a bridged message has no such word at all, so nothing is concluded from either.
    """
    return call.record.get("route") == "messages" and kwargs.get("prompt_cache_response_complete") is False


def failure_ending(request_data: Mapping[str, Any], error: BaseException, call: OpenCall) -> Ending:
    """Read the end of a call that failed upstream, or that the gateway refused before any provider saw it.

    Tokens of a failure are what LiteLLM estimated for it (a stream that broke off), never a cached count.
    """
    details = _mapping(getattr(request_data.get("litellm_logging_obj"), "model_call_details", None))
    handoff = epoch_us(details.get("first_api_call_start_time")) or epoch_us(
        request_data.get("first_api_call_start_time")
    )
    first_token = epoch_us(details.get("completion_start_time"))
    payload = _mapping(details.get("standard_logging_object")) or _mapping(
        request_data.get("standard_logging_object")
    )
    partial = request_data.get("combined_usage_object")
    # LiteLLM logs a refusal of its own through the same step, which stamps a hand-off; only a request that
    # went to a deployment leaves more: its address and body, its deployment, or what a broken stream used.
    went_out = (
        bool(details.get("additional_args"))
        or bool(payload.get("model_id"))
        or partial is not None
        or call.record.get("route") == "pass_through"
    )
    reached = call.attempts > 0 or (handoff is not None and went_out)
    usage = Usage()
    if reached and (first_token is not None or partial is not None):
        usage = normalise(partial or _mapping(payload.get("metadata")).get("usage_object"), estimated=True)
    name = type(error).__name__
    return Ending(
        outcome="failure" if reached else "rejected",
        ended_us=now_us(),
        first_token_us=first_token,
        handoff_us=handoff if reached else None,
        usage=usage,
        model=storable(details.get("model")) or storable(payload.get("model")),
        deployment_id=storable(payload.get("model_id"), 128),
        provider=storable(details.get("custom_llm_provider"), 64)
        or storable(payload.get("custom_llm_provider"), 64),
        attempts=max(1, call.attempts) if reached else 0,
        error_class=name if name in ERROR_CLASSES else "other",
        status_code=_status(error),
    )


def _status(error: BaseException) -> int | None:
    for name in ("status_code", "code"):
        value = getattr(error, name, None)
        try:
            number = int(value) if isinstance(value, (int, str)) else None
        except ValueError:
            number = None
        if number is not None and 100 <= number <= 599:
            return number
    return None
