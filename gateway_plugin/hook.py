"""The LiteLLM callback: feeds the recorder with what the proxy hands over, and never harms a request.

This is the only module of the plugin that imports litellm. Every hook body runs inside a guard: an error is
counted, logged at most once a minute, and the request goes on unchanged.
"""

from __future__ import annotations

import asyncio
import functools
import importlib.metadata
import logging
import sys
import time
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

from litellm.integrations.custom_logger import CustomLogger

from gateway_plugin import counting, payloads
from gateway_plugin import settings as plugin_settings
from gateway_plugin.address import AddressError
from gateway_plugin.call import OpenCall
from gateway_plugin.guard import Guard
from gateway_plugin.hashing import Hasher
from gateway_plugin.outputs import Outputs
from gateway_plugin.recorder import Recorder
from gateway_plugin.secret import memory_seed, shared_secret
from gateway_plugin.settings import PluginSettings, SettingsError
from gateway_plugin.sinks import spend_logs
from gateway_plugin.text import storable

log = logging.getLogger("agentwatt")

_current: ContextVar[OpenCall | None] = ContextVar("agentwatt_call", default=None)


def _proxy_module() -> Any:
    """The running proxy's module, or None outside a proxy (never imports it: that costs seconds)."""
    return sys.modules.get("litellm.proxy.proxy_server")


def _config_path() -> str | None:
    path = getattr(_proxy_module(), "user_config_file_path", None)
    return path if isinstance(path, str) and path else plugin_settings.config_path_from_environment()


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
        self._guard = Guard()
        self._recorder: Recorder | None = None
        self._outputs: Outputs | None = None
        self._meter: counting.Meter | None = None
        self.guarded_errors = self._guard.counts
        with self._guard("start"):
            try:
                config = plugin_settings.load(_config_path())
                if config.enabled:
                    self._start(config)
            except (SettingsError, AddressError) as error:
                log.error("%s; telemetry is off, the proxy serves as usual", error)

    def _start(self, config: PluginSettings) -> None:
        self._settings = config
        self._outputs = Outputs(config, self._guard)
        secret = shared_secret(config, self._outputs.link)
        self._recorder = Recorder(
            config,
            Hasher(secret),
            emit=self._outputs.emit,
            versions=(_version("litellm"), _version("agentwatt")),
            seed=memory_seed(secret),
        )
        self._outputs.attach(self._recorder)
        if config.count_exact or config.count_incremental:
            self._meter = counting.install(exact=config.count_exact, incremental=config.count_incremental)

    async def close(self) -> None:
        """Flush and stop the background tasks; the proxy itself calls nothing at its end."""
        if self._meter is not None:
            self._meter.uninstall()
        if self._outputs is not None:
            await self._outputs.close()

    # -- request path

    async def async_pre_call_hook(
        self, user_api_key_dict: Any, cache: Any, data: dict[str, Any], call_type: str
    ) -> dict[str, Any]:
        """Identify the call, digest its prompt and tag its row; return *data* itself, never a copy."""
        started = time.perf_counter()
        with self._guard("pre_call"):
            if self._recorder is not None and self._outputs is not None:
                self._outputs.ensure_task()
                call = self._recorder.begin(payloads.arrival_of(user_api_key_dict, data, call_type))
                if self._meter is not None:
                    call.counting = self._meter.begin()
                _current.set(call)
                if (task := asyncio.current_task()) is not None:
                    task.add_done_callback(functools.partial(self._request_left, call))
                bucket = spend_logs.bucket_of(data)
                if bucket is not None:
                    spend_logs.write(bucket, call.record)
                    if self._settings.hand_over_session:
                        _hand_over(call.record, data, bucket)
                else:
                    self._recorder.counts["no_bucket"] += 1
                self._outputs.begun(call, user_api_key_dict, bucket)
                call.plugin_s = time.perf_counter() - started
        return data

    async def async_pre_call_deployment_hook(self, kwargs: dict[str, Any], call_type: Any) -> None:
        """Count one try against a deployment; returning nothing leaves the request as it is."""
        with self._guard("attempt"):
            if (call := self._find(kwargs)) is not None:
                call.attempt_begun(call_type)

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
                call.attempt_failed(call_type)

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
            if call is not None:
                if call.final is not None and call.final["outcome"] == "success":
                    return
                if _is_foreign(call, kwargs):
                    return  # counted by the logging hook
            self._succeed(kwargs, response_obj)

    def _succeed(self, kwargs: dict[str, Any], result: Any) -> None:
        recorder = self._recorder
        if recorder is None:
            return
        call = self._find(kwargs)
        if call is None:
            recorder.counts["late_begin"] += 1
            call = recorder.begin(payloads.late_arrival(kwargs))
            _current.set(call)
        elif _is_foreign(call, kwargs):
            recorder.counts["foreign_event"] += 1
            return
        late = payloads.late_arrival(kwargs) if call.unplaced is not None else None
        record = recorder.finish(call, payloads.success_ending(kwargs, result, call), late)
        params = kwargs.get("litellm_params")
        if record is None or not isinstance(params, dict):
            return
        for name in spend_logs.BUCKETS:
            bucket = params.get(name)
            if isinstance(bucket, dict) and ("spend_logs_metadata" in bucket or name == "metadata"):
                # The copy keeps a dict that other threads iterate free of growth under their feet.
                copy = dict(bucket)
                spend_logs.write(copy, record)
                params[name] = copy

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
            recorder = self._recorder
            if recorder is None:
                return
            call = self._find(request_data)
            if call is None:
                call_type = request_data.get("call_type")
                call = recorder.begin(payloads.arrival_of(user_api_key_dict, request_data, call_type))
            record = recorder.finish(call, payloads.failure_ending(request_data, original_exception, call))
            record = record or call.final or call.record
            metadata = request_data.get("metadata")
            copy = dict(metadata) if isinstance(metadata, dict) else {}
            spend_logs.write(copy, record)
            request_data["metadata"] = copy
            own = request_data.get("litellm_metadata")
            if isinstance(own, dict):
                copy = dict(own)
                spend_logs.write(copy, record)
                request_data["litellm_metadata"] = copy

    def _request_left(self, call: OpenCall, _: object) -> None:
        with self._guard("left"):
            if self._recorder is not None:
                self._recorder.left(call)

    def _find(self, data: Mapping[str, Any]) -> OpenCall | None:
        """Find our call: this task's when the call id is its own, else by the event id in the request."""
        call = _current.get()
        own = call.record["litellm_call_id"] if call is not None else None
        if own is not None and own == data.get("litellm_call_id"):
            return call
        event_id = spend_logs.read_event_id(data.get("litellm_params")) or spend_logs.read_event_id(data)
        if event_id is None or (call is not None and call.event_id == event_id):
            return call
        return self._recorder.find(event_id) if self._recorder is not None else None


def _is_foreign(call: OpenCall, data: Mapping[str, Any]) -> bool:
    """Return whether an event belongs to a call that the proxy made itself inside the request of *call*.

    A guardrail or router that asks a model runs in the request's context and may copy its metadata; its call
    id is its own, while retries, fallbacks and bridges keep the id of the request.
    """
    own, other = call.record.get("litellm_call_id"), storable(data.get("litellm_call_id"))
    return own is not None and other is not None and own != other


def _hand_over(record: Mapping[str, Any], data: dict[str, Any], bucket: dict[str, Any]) -> None:
    """Let the proxy use a session that only we know (opt-in): it is a keyed hash, never a client's text."""
    session, evidence = record["session_id"], record["session_evidence"]
    ours = evidence == "E4" or (evidence == "E2" and session == record["session_key"])
    if session and ours and not data.get("litellm_session_id"):
        data["litellm_session_id"] = session
        bucket.setdefault("session_id", session)
