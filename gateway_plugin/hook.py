"""The LiteLLM callback: reads the proxy's dicts, feeds the recorder, and never harms a request.

This is the only module of the plugin that imports litellm. Every hook body runs inside :func:`_guarded`:
an error is counted, logged at most once a minute, and the request goes on unchanged.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import importlib.metadata
import logging
import os
import secrets
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from datetime import datetime
from typing import Any, Final

import redis
from litellm.integrations.custom_logger import CustomLogger

from gateway_plugin import settings as plugin_settings
from gateway_plugin.hashing import Hasher
from gateway_plugin.identity import Auth
from gateway_plugin.recorder import Arrival, Ending, OpenCall, Recorder, now_us
from gateway_plugin.settings import PluginSettings, SettingsError
from gateway_plugin.sinks import spend_logs
from gateway_plugin.sinks.redis_stream import RedisStreamSink
from gateway_plugin.usage import normalise

log = logging.getLogger("agentwatt")

_current: ContextVar[OpenCall | None] = ContextVar("agentwatt_call", default=None)

#: Where the shared secret is kept when no setting gives one.
SECRET_KEY: Final = "{agentwatt}:secret"  # noqa: S105 - the name of a Redis key

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


class _Guard:
    """Counts and rate-limits the log lines of our own errors."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._last_log = float("-inf")

    @contextlib.contextmanager
    def __call__(self, hook: str) -> Iterator[None]:
        """Swallow any error of the body: it is ours, and a request must not feel it."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - the one place where everything is caught, and counted
            self.counts[hook] += 1
            if time.monotonic() - self._last_log > 60:
                self._last_log = time.monotonic()
                # Type and place only: a message may quote prompt text.
                frame = error.__traceback__
                while frame is not None and frame.tb_next is not None:
                    frame = frame.tb_next
                place = f"{frame.tb_frame.f_code.co_filename}:{frame.tb_lineno}" if frame else "?"
                log.error(
                    "agentwatt: %s in %s at %s; the request is not affected",
                    type(error).__name__,
                    hook,
                    place,
                )


def _proxy_module() -> Any:
    """The running proxy's module, or None outside a proxy (never imports it: that costs seconds)."""
    return sys.modules.get("litellm.proxy.proxy_server")


def _epoch_us(value: object) -> int | None:
    """Return UTC microseconds of a datetime (naive = local time, as LiteLLM makes them) or epoch seconds."""
    if isinstance(value, datetime):
        return int(value.timestamp() * 1e6)
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 1e9 < value < 1e11:
        return int(value * 1e6)
    return None


def _shared_secret(config: PluginSettings) -> bytes:
    """Return the secret: setting, else the one in Redis (made when absent), else from the proxy's own key.

    Runs once, at import in a worker that does not serve yet, with a short deadline.
    """
    if config.secret is not None and config.secret.get_secret_value():
        return config.secret.get_secret_value().encode()
    if config.redis_url is not None:
        try:
            client = redis.Redis.from_url(
                config.redis_url.get_secret_value(), socket_timeout=1.0, socket_connect_timeout=1.0
            )
            with contextlib.closing(client):
                client.set(SECRET_KEY, secrets.token_hex(32), nx=True)
                stored = client.get(SECRET_KEY)
            if isinstance(stored, bytes) and stored:
                return stored
        except (redis.RedisError, OSError) as error:
            log.warning("agentwatt: no shared secret from Redis (%s)", type(error).__name__)
    salt = os.environ.get("LITELLM_SALT_KEY") or os.environ.get("LITELLM_MASTER_KEY")
    if salt:
        return hashlib.blake2b(salt.encode(), person=b"agentwatt-salt").digest()
    log.warning("agentwatt: no secret, no Redis and no master key: digests of this worker match no other's")
    return secrets.token_bytes(32)


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


# litellm's own types are not followed: analysing them takes minutes.
class AgentwattLogger(CustomLogger):  # type: ignore[misc]
    """Telemetry of agentic traffic. One instance per worker; LiteLLM calls the hooks by keyword.

    The hooks that LiteLLM looks up on the leaf class only are defined here, so do not subclass.
    """

    def __init__(self) -> None:
        super().__init__()
        self._guard = _Guard()
        self._recorder: Recorder | None = None
        self._stream: RedisStreamSink | None = None
        self._watchdog: asyncio.Task[None] | None = None
        self.guarded_errors = self._guard.counts
        try:
            module = _proxy_module()
            path = (
                getattr(module, "user_config_file_path", None)
                or plugin_settings.config_path_from_environment()
            )
            config = plugin_settings.load(path if isinstance(path, str) else None)
        except SettingsError as error:
            log.error("%s; telemetry is off, the proxy serves as usual", error)
            return
        if config.enabled:
            with self._guard("start"):
                self._start(config)

    def _start(self, config: PluginSettings) -> None:
        secret = _shared_secret(config)
        if config.redis_url is not None:
            self._stream = RedisStreamSink(
                config.redis_url.get_secret_value(),
                stream_max_len=config.stream_max_len,
                queue_max_events=config.queue_max_events,
                batch_max_events=config.batch_max_events,
                flush_interval_s=config.flush_interval_s,
                redis_timeout_s=config.redis_timeout_s,
                shutdown_flush_s=config.shutdown_flush_s,
            )
        else:
            log.warning("agentwatt: no Redis address: calls are recorded in SpendLogs rows only")
        self._recorder = Recorder(
            config,
            Hasher(secret),
            emit=self._emit,
            versions=(_version("litellm"), _version("agentwatt")),
            seed=int.from_bytes(
                hashlib.blake2b(secret, digest_size=8, person=b"agentwatt-seed").digest(), "big"
            ),
        )
        self._interval = min(60.0, config.open_timeout_s / 4)

    def _emit(self, record: dict[str, Any]) -> None:
        if self._stream is not None:
            self._stream.put(record)

    def _ensure_watchdog(self) -> None:
        if self._watchdog is None or self._watchdog.done():
            self._watchdog = asyncio.get_running_loop().create_task(self._watch(), name="agentwatt-watchdog")

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            with self._guard("watchdog"):
                if self._recorder is not None:
                    self._recorder.close_stale()

    # -- request path

    async def async_pre_call_hook(
        self, user_api_key_dict: Any, cache: Any, data: dict[str, Any], call_type: str
    ) -> dict[str, Any]:
        """Identify the call, digest its prompt and tag its row; return *data* itself, never a copy."""
        with self._guard("pre_call"):
            if self._recorder is not None:
                self._ensure_watchdog()
                call = self._recorder.begin(self._arrival(user_api_key_dict, data, call_type))
                _current.set(call)
                bucket = spend_logs.bucket_of(data)
                if bucket is not None:
                    spend_logs.write(bucket, call.record)
                else:
                    self._recorder.counts["no_bucket"] += 1
        return data

    def _arrival(self, auth: Any, data: dict[str, Any], call_type: str) -> Arrival:
        bucket = spend_logs.bucket_of(data) or {}
        server_request = data.get("proxy_server_request")
        server_request = server_request if isinstance(server_request, dict) else {}
        client_metadata = (
            data.get("metadata") if "litellm_metadata" in data else bucket.get("requester_metadata")
        )
        received = _epoch_us(bucket.get("litellm_received_at")) or _epoch_us(
            server_request.get("arrival_time")
        )
        queue = bucket.get("queue_time_seconds")
        generated = bool(bucket.get(_GENERATED_SESSION_KEY))
        session = data.get("litellm_session_id")
        call_id = data.get("litellm_call_id")
        seen = now_us()
        return Arrival(
            body=data,
            headers=server_request.get("headers") or bucket.get("headers"),
            client_metadata=client_metadata if isinstance(client_metadata, Mapping) else {},
            auth=_auth(auth),
            proxy_session=session if isinstance(session, str) and not generated else None,
            route=_ROUTES.get(str(call_type), "other"),
            call_type=str(call_type)[:64],
            litellm_call_id=call_id[:128] if isinstance(call_id, str) else None,
            received_us=min(received, seen) if received is not None else seen,
            queue_ms=round(queue * 1e3, 3) if isinstance(queue, (int, float)) and queue >= 0 else None,
        )

    async def async_post_call_failure_deployment_hook(
        self,
        request_data: Mapping[str, Any],
        exception: Exception,
        call_type: Any,
        fallback_depth: int | None = None,
    ) -> None:
        """Count one failed try against a deployment."""
        with self._guard("failed_attempt"):
            if (call := self._find(request_data)) is not None:
                call.failed_attempts += 1

    # -- after the answer

    async def async_logging_hook(
        self, kwargs: dict[str, Any], result: Any, call_type: str
    ) -> tuple[dict[str, Any], Any]:
        """Write the final record and complete the row: the last moment at which a row can be changed."""
        with self._guard("logging"):
            self._succeed(kwargs, result)
        return kwargs, result

    async def async_log_success_event(
        self, kwargs: dict[str, Any], response_obj: Any, start_time: Any, end_time: Any
    ) -> None:
        """Back-up for versions or routes in which the logging hook did not run; normally a no-op."""
        with self._guard("success"):
            call = self._find(kwargs)
            if call is None or self._recorder is None or call.event_id in self._recorder.open_calls:
                self._succeed(kwargs, response_obj)

    def _succeed(self, kwargs: dict[str, Any], result: Any) -> None:
        if self._recorder is None:
            return
        call = self._find(kwargs) or self._late_call(kwargs)
        record = self._recorder.finish(call, _success_ending(kwargs, result, call))
        if record is None:
            return
        params = kwargs.get("litellm_params")
        if isinstance(params, dict):
            for name in spend_logs.BUCKETS:
                bucket = params.get(name)
                if isinstance(bucket, dict) and ("spend_logs_metadata" in bucket or name == "metadata"):
                    # The copy keeps a dict that other threads iterate free of growth under their feet.
                    copy = dict(bucket)
                    spend_logs.write(copy, record)
                    params[name] = copy

    def _late_call(self, kwargs: Mapping[str, Any]) -> OpenCall:
        """Build a call from the logging payload when our pre-call hook never saw the request."""
        assert self._recorder is not None
        self._recorder.counts["late_begin"] += 1
        params = kwargs.get("litellm_params")
        params = params if isinstance(params, dict) else {}
        data: dict[str, Any] = {
            k: kwargs[k] for k in ("model", "messages", "input", "stream", "litellm_call_id") if k in kwargs
        }
        data["proxy_server_request"] = params.get("proxy_server_request")
        data["metadata"] = params.get("metadata") or params.get("litellm_metadata") or {}
        slp = kwargs.get("standard_logging_object")
        meta = slp.get("metadata") if isinstance(slp, Mapping) else None
        meta = meta if isinstance(meta, Mapping) else {}
        auth = {
            "api_key": meta.get("user_api_key_hash"),
            "key_alias": meta.get("user_api_key_alias"),
            "user_id": meta.get("user_api_key_user_id"),
            "team_id": meta.get("user_api_key_team_id"),
            "end_user_id": meta.get("user_api_key_end_user_id"),
        }
        return self._recorder.begin(self._arrival(auth, data, str(kwargs.get("call_type") or "")))

    async def async_post_call_failure_hook(
        self,
        request_data: dict[str, Any],
        original_exception: Exception,
        user_api_key_dict: Any,
        traceback_str: str | None = None,
    ) -> None:
        """Write the final record of a failed or refused request and tag its row.

        The row of a failure is built from ``request_data["metadata"]`` on every route, which on the routes of
        providers with a metadata field of their own is not the bucket that we tagged at pre-call.
        """
        with self._guard("failure"):
            if self._recorder is None:
                return
            call = self._find(request_data)
            if call is None:
                call_type = str(request_data.get("call_type") or "")
                call = self._recorder.begin(self._arrival(user_api_key_dict, request_data, call_type))
            record = self._recorder.finish(call, _failure_ending(request_data, original_exception, call))
            if record is None:
                record = call.record
            metadata = request_data.get("metadata")
            copy = dict(metadata) if isinstance(metadata, dict) else {}
            spend_logs.write(copy, record)
            request_data["metadata"] = copy
            own = request_data.get("litellm_metadata")
            if isinstance(own, dict):
                copy = dict(own)
                spend_logs.write(copy, record)
                request_data["litellm_metadata"] = copy

    def _find(self, data: Mapping[str, Any]) -> OpenCall | None:
        """Find our call: by the event id that we wrote into the request, else by this task's context."""
        event_id = spend_logs.read_event_id(data.get("litellm_params")) or spend_logs.read_event_id(data)
        call = _current.get()
        if event_id is None or (call is not None and call.event_id == event_id):
            return call
        return self._recorder.open_calls.get(event_id) if self._recorder is not None else None


def _auth(auth: Any) -> Auth:
    def get(name: str) -> str | None:
        value = auth.get(name) if isinstance(auth, Mapping) else getattr(auth, name, None)
        return value if isinstance(value, str) and value else None

    return Auth(
        key_hash=get("api_key") or get("token"),
        key_alias=get("key_alias"),
        user_id=get("user_id"),
        end_user=get("end_user_id"),
        team_id=get("team_id"),
    )


def _text(value: object, limit: int = 256) -> str | None:
    return value[:limit] if isinstance(value, str) and value else None


def _success_ending(kwargs: Mapping[str, Any], result: Any, call: OpenCall) -> Ending:
    """Read the end of a call that LiteLLM logs as a success: really one, a cache hit, or a disconnect."""
    slp = kwargs.get("standard_logging_object")
    degraded = not isinstance(slp, Mapping)
    payload: Mapping[str, Any] = slp if isinstance(slp, Mapping) else {}
    meta = payload.get("metadata")
    meta = meta if isinstance(meta, Mapping) else {}
    error = payload.get("error_information")
    error_class = error.get("error_class") if isinstance(error, Mapping) else None
    params = kwargs.get("litellm_params")
    own = params.get("litellm_metadata") or params.get("metadata") if isinstance(params, Mapping) else None
    disconnected = error_class == "ClientDisconnected" or bool(
        isinstance(own, Mapping) and own.get("client_disconnected")
    )
    usage_object = meta.get("usage_object") or getattr(result, "usage", None)
    cache_hit = kwargs.get("cache_hit") is True or payload.get("cache_hit") is True
    retries, fallbacks = (own or {}).get("attempted_retries"), (own or {}).get("attempted_fallbacks")
    known = [n for n in (retries, fallbacks) if isinstance(n, int) and not isinstance(n, bool) and n >= 0]
    return Ending(
        outcome="aborted" if disconnected else "success",
        ended_us=_epoch_us(payload.get("endTime")) or _epoch_us(kwargs.get("end_time")),
        first_token_us=_epoch_us(kwargs.get("completion_start_time"))
        or _epoch_us(payload.get("completionStartTime")),
        handoff_us=_epoch_us(kwargs.get("first_api_call_start_time"))
        or _epoch_us(kwargs.get("api_call_start_time")),
        usage=normalise(usage_object, estimated=disconnected),
        model=_text(payload.get("model")) or _text(kwargs.get("model")),
        deployment_id=_text(payload.get("model_id"), 128),
        provider=_text(payload.get("custom_llm_provider"), 64),
        attempts=max(1 + sum(known), 1 + call.failed_attempts),
        error_class="ClientDisconnected" if disconnected else None,
        status_code=499 if disconnected else None,
        response_cache_hit=cache_hit,
        degraded=degraded,
    )


def _failure_ending(request_data: Mapping[str, Any], error: Exception, call: OpenCall) -> Ending:
    """Read the end of a call that failed upstream, or that the gateway refused before any provider saw it."""
    logging_obj = request_data.get("litellm_logging_obj")
    details = getattr(logging_obj, "model_call_details", None)
    details = details if isinstance(details, Mapping) else {}
    handoff = _epoch_us(details.get("first_api_call_start_time")) or _epoch_us(
        request_data.get("first_api_call_start_time")
    )
    status = getattr(error, "status_code", None) or getattr(error, "code", None)
    try:
        status_code = int(status) if status is not None else None
    except (TypeError, ValueError):
        status_code = None
    name = type(error).__name__
    reached = handoff is not None or call.failed_attempts > 0
    return Ending(
        outcome="failure" if reached else "rejected",
        ended_us=now_us(),
        handoff_us=handoff,
        model=_text(details.get("model")),
        provider=_text(details.get("custom_llm_provider"), 64),
        attempts=max(1, call.failed_attempts) if reached else 0,
        error_class=name if name in ERROR_CLASSES else "other",
        status_code=status_code,
    )
