from __future__ import annotations

import asyncio
import copy
import time
import types
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway_plugin.event import SPEND_LOGS_NAMESPACE
from tests.gateway_plugin.builders import TOOLS, answer, chat, result, user

KEY = types.SimpleNamespace(
    api_key="k" * 64, key_alias="alias", user_id="ada", end_user_id=None, team_id=None
)
HEADERS = {"user-agent": "opencode/1.3.4", "x-session-id": "ses_0123456789"}


class Probe:
    """A logger whose records are kept instead of sent."""

    def __init__(self, logger: Any) -> None:
        self.logger = logger
        self.records: list[dict[str, Any]] = []
        logger._recorder._emit = self.records.append

    def request(
        self, body: dict[str, Any] | None = None, *, bucket: str = "metadata", headers: Any = HEADERS
    ) -> dict[str, Any]:
        data = dict(chat(user("hi")) if body is None else body)
        data[bucket] = {"requester_metadata": {}, **(data.get(bucket) or {})}
        data["proxy_server_request"] = {"headers": headers}
        data["litellm_call_id"] = "call-1"
        return data

    async def begin(self, data: Any, call_type: Any = "acompletion") -> Any:
        """Run the pre-call hook in a task of its own, as the proxy does for each request."""
        return await asyncio.create_task(
            self.logger.async_pre_call_hook(user_api_key_dict=KEY, cache=None, data=data, call_type=call_type)
        )

    async def succeed(self, data: dict[str, Any], bucket: str = "metadata", **kwargs: Any) -> dict[str, Any]:
        event = success_kwargs(data, bucket, **kwargs)
        back, _ = await self.logger.async_logging_hook(kwargs=event, result=None, call_type="acompletion")
        assert back is event
        await self.logger.async_log_success_event(event, None, None, None)
        return event

    async def fail(self, data: dict[str, Any], error: Exception) -> None:
        await self.logger.async_post_call_failure_hook(
            request_data=data, original_exception=error, user_api_key_dict=KEY, traceback_str=None
        )


def success_kwargs(data: dict[str, Any], bucket: str = "metadata", **extra: Any) -> dict[str, Any]:
    now = time.time()
    slp = {
        "metadata": {
            "usage_object": {
                "prompt_tokens": 9,
                "completion_tokens": 2,
                "prompt_tokens_details": {"cached_tokens": 4},
            }
        },
        "model": "m",
        "model_id": "deployment",
        "custom_llm_provider": "hosted_vllm",
        "endTime": now,
    }
    return {
        "standard_logging_object": slp,
        "litellm_params": {bucket: copy.deepcopy(data.get(bucket))},
        "completion_start_time": datetime.fromtimestamp(now),
        **extra,
    }


def ours(bucket: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = bucket["spend_logs_metadata"][SPEND_LOGS_NAMESPACE]
    return found


@pytest.fixture
async def probe(logger_class: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[Probe]:
    monkeypatch.setenv("AGENTWATT_PLUGIN__SECRET", "for tests")
    monkeypatch.setenv("AGENTWATT_PLUGIN__SPOOL_DIR", str(tmp_path))
    made = Probe(logger_class())
    yield made
    await made.logger.close()


def test_hooks_that_litellm_looks_up_on_the_leaf_class_are_defined_there(logger_class: Any) -> None:
    assert "async_pre_call_hook" in vars(logger_class)
    assert logger_class.__subclasses__() == []


def test_hooks_that_slow_or_break_requests_are_left_alone(logger_class: Any) -> None:
    avoided = {
        "async_moderation_hook",
        "async_post_call_streaming_hook",
        "async_post_call_streaming_iterator_hook",
        "async_post_call_success_hook",
        "async_post_call_success_deployment_hook",
        "async_filter_deployments",
        "log_success_event",
        "log_failure_event",
    }
    assert not avoided & set(vars(logger_class))


async def test_the_pre_call_hook_returns_the_data_itself_changed_in_the_bucket_only(probe: Probe) -> None:
    data = probe.request(chat(user("hi"), tools=TOOLS))
    before = copy.deepcopy(data)
    assert await probe.begin(data) is data
    row = ours(data["metadata"])
    del data["metadata"]["spend_logs_metadata"]
    assert data == before
    assert row["outcome"] == "open"
    assert row["session_id"] == "ses_0123456789"


@pytest.mark.parametrize("bucket", ["metadata", "litellm_metadata"])
async def test_a_success_completes_the_row_whether_the_bucket_was_copied_or_not(
    probe: Probe, bucket: str
) -> None:
    data = probe.request(bucket=bucket)
    await probe.begin(data)
    event = await probe.succeed(data, bucket)
    row = ours(event["litellm_params"][bucket])
    assert (row["outcome"], row["cached_tokens"]) == ("success", 4)
    assert [r["stage"] for r in probe.records] == ["open", "final"]
    assert probe.records[1]["input_tokens"] == 9


async def test_a_call_is_found_by_context_when_the_success_lost_our_mark(probe: Probe) -> None:
    data = probe.request()

    async def request() -> None:
        await probe.logger.async_pre_call_hook(
            user_api_key_dict=KEY, cache=None, data=data, call_type="acompletion"
        )
        await probe.succeed({"metadata": {"older": "copy"}})

    await asyncio.create_task(request())
    assert [r["stage"] for r in probe.records] == ["open", "final"]
    assert len({r["event_id"] for r in probe.records}) == 1


async def test_a_model_call_that_the_proxy_makes_inside_a_request_does_not_end_the_request(
    probe: Probe,
) -> None:
    data = probe.request()

    async def request() -> None:
        await probe.logger.async_pre_call_hook(
            user_api_key_dict=KEY, cache=None, data=data, call_type="acompletion"
        )
        for metadata in ({}, copy.deepcopy(data["metadata"])):
            await probe.succeed({"metadata": metadata}, litellm_call_id="a-guardrails-own")
        await probe.succeed(data, litellm_call_id="call-1")

    await asyncio.create_task(request())
    assert [r["stage"] for r in probe.records] == ["open", "final"]
    assert probe.logger._recorder.counts["foreign_event"] == 2


async def test_a_late_call_without_any_metadata_counts_once(probe: Probe) -> None:
    event = success_kwargs({"metadata": {}}) | {"litellm_params": None, "messages": [user("hi")]}
    await probe.logger.async_logging_hook(kwargs=event, result=None, call_type="x")
    await probe.logger.async_log_success_event(event, None, None, None)
    assert [r["stage"] for r in probe.records] == ["open", "final"]


async def test_success_events_that_fire_twice_count_once(probe: Probe) -> None:
    data = probe.request()
    await probe.begin(data)
    await probe.succeed(data)
    await probe.succeed(data)
    assert [r["stage"] for r in probe.records] == ["open", "final"]


async def test_a_success_that_no_pre_call_hook_saw_is_built_from_scratch(probe: Probe) -> None:
    event = success_kwargs({"metadata": {"requester_metadata": {"session_id": "ses_fromscratch"}}})
    event |= {"messages": [user("hi")], "model": "m", "call_type": "anthropic_messages"}
    event["standard_logging_object"]["metadata"] |= {"user_api_key_hash": "k"}
    await probe.logger.async_logging_hook(kwargs=event, result=None, call_type="x")
    await probe.logger.async_log_success_event(event, None, None, None)
    assert [r["stage"] for r in probe.records] == ["open", "final"]
    assert probe.records[1]["session_id"] == "ses_fromscratch"
    assert probe.records[1]["route"] == "messages"
    assert probe.records[1]["user_source"] == "key"


async def test_a_pass_through_call_finds_its_session_when_its_headers_are_known(probe: Probe) -> None:
    body = {"model": "claude", "messages": [user("hi")], "litellm_logging_obj": object()}
    finals = []
    for messages in ([user("hi")], [user("hi"), answer("a"), user("b")]):
        data = body | {"messages": messages}
        await probe.begin(data, "pass_through_endpoint")
        event = success_kwargs({"metadata": {}}) | {"call_type": "pass_through_endpoint"}
        event["litellm_params"]["proxy_server_request"] = {"headers": HEADERS}
        assert probe.records[-1]["state"] == "off"
        await asyncio.create_task(_finish_as_context_of(probe, event, probe.records[-1]["event_id"]))
        finals.append(probe.records[-1])
    assert [r["session_id"] for r in finals] == ["ses_0123456789"] * 2
    assert [(r["turn_index"], r["break_reason"]) for r in finals] == [(1, "first"), (2, "none")]
    assert len(probe.records) == 4


async def _finish_as_context_of(probe: Probe, event: dict[str, Any], event_id: str) -> None:
    from gateway_plugin import hook

    hook._current.set(probe.logger._recorder.find(event_id))
    await probe.logger.async_logging_hook(kwargs=event, result=None, call_type="x")


async def test_a_failure_tags_the_metadata_that_its_row_is_built_from(probe: Probe) -> None:
    data = probe.request(bucket="litellm_metadata") | {"metadata": {"user_id": "theirs"}}
    theirs = data["metadata"]
    await probe.begin(data)
    assert data["metadata"] is theirs, "nothing of ours goes upstream"
    await probe.fail(data, ValueError("x"))
    assert ours(data["metadata"])["outcome"] == "rejected"
    assert ours(data["litellm_metadata"])["outcome"] == "rejected"
    assert theirs == {"user_id": "theirs"}


async def test_a_failure_without_metadata_gets_some(probe: Probe) -> None:
    data = probe.request(bucket="litellm_metadata")
    await probe.begin(data)
    await probe.fail(data, ValueError("x"))
    assert ours(data["metadata"])["outcome"] == "rejected"


async def test_a_refusal_at_authentication_is_one_rejected_call(probe: Probe) -> None:
    await probe.fail({"call_type": "acompletion", "model": "m", "messages": [user("hi")]}, ValueError("auth"))
    assert [(r["stage"], r["outcome"]) for r in probe.records] == [("open", "open"), ("final", "rejected")]


async def test_a_guardrail_that_raises_after_a_good_completion_leaves_the_success(probe: Probe) -> None:
    data = probe.request()
    await probe.begin(data)
    await probe.succeed(data)
    await probe.fail(data, ValueError("guardrail"))
    assert [r["outcome"] for r in probe.records] == ["open", "success"]
    assert ours(data["metadata"])["outcome"] == "success"


async def test_failed_tries_count_as_attempts_of_the_one_call(probe: Probe) -> None:
    data = probe.request()
    await probe.begin(data)
    for _ in range(2):
        await probe.logger.async_post_call_failure_deployment_hook(
            request_data=data, exception=ValueError(), call_type="acompletion", fallback_depth=0
        )
    await probe.succeed(data)
    assert probe.records[-1]["attempts"] == 3
    assert len(probe.records) == 2


async def test_a_request_whose_task_ends_without_any_event_is_closed_as_aborted(probe: Probe) -> None:
    await probe.begin(probe.request())
    (call,) = probe.logger._recorder.open_calls.values()
    await asyncio.sleep(0)
    assert call.left_mono is not None
    probe.logger._recorder.close_stale()
    assert len(probe.records) == 1, "the grace is not over"
    call.left_mono -= 100
    probe.logger._recorder.close_stale()
    assert probe.records[-1]["outcome"] == "aborted"


async def test_a_shared_dict_of_the_key_is_never_changed(probe: Probe) -> None:
    cached_on_the_key = {"cost_centre": "x"}
    for _ in range(2):
        data = probe.request()
        data["metadata"]["spend_logs_metadata"] = cached_on_the_key
        await probe.begin(data)
    assert cached_on_the_key == {"cost_centre": "x"}


async def test_a_thread_may_iterate_the_logged_metadata_while_we_write(probe: Probe) -> None:
    data = probe.request()
    data["metadata"] |= {f"key{n}": n for n in range(5000)}
    await probe.begin(data)
    event = success_kwargs(data)
    seen = iter(event["litellm_params"]["metadata"].items())
    next(seen)
    await probe.logger.async_logging_hook(kwargs=event, result=None, call_type="x")
    assert sum(1 for _ in seen) >= 5000


@pytest.mark.parametrize("odd", [None, "text", [1], 7, True])
@pytest.mark.parametrize("bucket", ["metadata", "litellm_metadata"])
async def test_metadata_of_any_type_is_survived_and_left_as_it_was(
    probe: Probe, bucket: str, odd: Any
) -> None:
    data = {**chat(user("hi")), bucket: odd, "proxy_server_request": {"headers": HEADERS}}
    assert await probe.begin(data) is data
    assert data[bucket] == odd
    assert probe.logger.guarded_errors == {}
    await probe.logger.async_logging_hook(
        kwargs={"litellm_params": {bucket: odd}}, result=None, call_type="x"
    )
    await probe.fail(data, ValueError())
    assert probe.logger.guarded_errors == {}


async def test_nothing_but_json_values_is_put_into_the_request(probe: Probe) -> None:
    data = probe.request()
    data["metadata"]["litellm_parent_otel_span"] = object()
    await probe.begin(data)
    orjson.dumps(data["metadata"]["spend_logs_metadata"])
    orjson.dumps(probe.records)


async def test_an_error_of_ours_leaves_the_request_as_it_was(
    probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode(*_: object) -> None:
        raise RuntimeError("canary")

    monkeypatch.setattr(probe.logger._recorder, "begin", explode)
    data = probe.request()
    before = copy.deepcopy(data)
    assert await probe.begin(data) is data
    assert data == before
    assert probe.logger.guarded_errors == {"pre_call": 1}


async def test_a_wrong_setting_turns_telemetry_off_and_nothing_else(
    logger_class: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("AGENTWATT_PLUGIN__STREAM_MAX_LEN", "many")
    logger = logger_class()
    assert "stream_max_len" in caplog.text
    data = {"metadata": {}}
    assert (
        await logger.async_pre_call_hook(user_api_key_dict=KEY, cache=None, data=data, call_type="x") is data
    )
    await logger.async_logging_hook(kwargs={}, result=None, call_type="x")
    await logger.async_log_success_event({}, None, None, None)
    await logger.async_post_call_failure_hook(
        request_data=data, original_exception=ValueError(), user_api_key_dict=KEY
    )
    assert data == {"metadata": {}}


@pytest.mark.parametrize("url", ["http://x", "redis+cluster://h:port"])
def test_a_wrong_redis_address_is_told_at_start(
    logger_class: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, url: str
) -> None:
    monkeypatch.setenv("AGENTWATT_PLUGIN__REDIS_URL", url)
    assert logger_class()._recorder is None
    assert "telemetry is off" in caplog.text


async def test_switched_off_it_does_nothing(logger_class: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTWATT_PLUGIN__ENABLED", "false")
    data = {"metadata": {}}
    await logger_class().async_pre_call_hook(user_api_key_dict=KEY, cache=None, data=data, call_type="x")
    assert data == {"metadata": {}}


async def test_an_inferred_session_is_handed_to_the_proxy_only_when_asked(probe: Probe) -> None:
    data = probe.request(headers={})
    await probe.begin(data)
    assert "litellm_session_id" not in data
    probe.logger._settings.hand_over_session = True
    data = probe.request(headers={})
    await probe.begin(data)
    assert data["litellm_session_id"] == data["metadata"]["session_id"] == probe.records[-1]["session_id"]
    explicit = probe.request()
    await probe.begin(explicit)
    assert "litellm_session_id" not in explicit


async def test_an_agentic_loop_through_the_hooks_is_one_turn(probe: Probe) -> None:
    history = [user("fix it")]
    for n in range(3):
        data = probe.request(chat(*history, tools=TOOLS))
        await probe.begin(data)
        await probe.succeed(data)
        history += [answer("", f"c{n}"), result(f"c{n}")]
    finals = [r for r in probe.records if r["stage"] == "final"]
    assert [(r["turn_index"], r["call_index"], r["initiator"]) for r in finals] == [
        (1, 1, "user"),
        (1, 2, "agent"),
        (1, 3, "agent"),
    ]
    assert [r["break_reason"] for r in finals] == ["first", "none", "none"]


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(alphabet=st.characters(), max_size=12),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["role", "content", "text", "type", "a\x00b", "headers"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)
_keys = st.sampled_from(
    [
        "messages",
        "input",
        "system",
        "tools",
        "metadata",
        "litellm_metadata",
        "model",
        "stream",
        "proxy_server_request",
        "litellm_call_id",
        "litellm_session_id",
        "user",
        "previous_response_id",
    ]
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.dictionaries(_keys, _json, max_size=8), _json)
async def test_hostile_requests_pass_unchanged_and_no_hook_raises(
    probe: Probe, body: dict[str, Any], kwargs: Any
) -> None:
    before = copy.deepcopy(body)
    assert await probe.begin(body) is body
    changed = {k for k in body if repr(body[k]) != repr(before.get(k))}
    assert changed <= {"metadata", "litellm_metadata"}
    for name in changed:
        assert {k: repr(v) for k, v in body[name].items() if k != "spend_logs_metadata"} == {
            k: repr(v) for k, v in before[name].items() if k != "spend_logs_metadata"
        }
    event = {"litellm_params": kwargs, "standard_logging_object": kwargs, **body}
    await probe.logger.async_logging_hook(kwargs=event, result=kwargs, call_type="x")
    await probe.logger.async_log_success_event(event, kwargs, None, None)
    await probe.fail(body, ValueError())
    assert probe.logger.guarded_errors == {}


async def test_very_large_and_very_deep_requests_pass(probe: Probe) -> None:
    deep: Any = "x"
    for _ in range(3000):
        deep = [deep]
    body = chat(
        user("w" * 10_000_000),
        {"role": "user", "content": deep},
        user("half \ud83d and \x00"),
        tools=[{"name": f"t{n}"} for n in range(5000)],
    )
    data = probe.request(body)
    started = time.process_time()
    assert await probe.begin(data) is data
    assert time.process_time() - started < 1.0
    assert probe.logger.guarded_errors == {}
    assert len(orjson.dumps(ours(data["metadata"]))) <= 1024


async def test_a_traced_request_carries_our_attributes_from_its_begin_to_its_end(probe: Probe) -> None:
    from opentelemetry.sdk.trace import TracerProvider

    span = TracerProvider().get_tracer("proxy").start_span("request")
    data = probe.request()
    data["metadata"]["litellm_parent_otel_span"] = span
    await probe.begin(data)
    assert span.attributes["gen_ai.conversation.id"] == "ses_0123456789"
    event = success_kwargs(probe.request())
    event["litellm_params"]["metadata"]["spend_logs_metadata"] = data["metadata"]["spend_logs_metadata"]
    await probe.logger.async_logging_hook(kwargs=event, result=None, call_type="x")
    assert span.attributes["gen_ai.usage.input_tokens"] == 9
    assert span.attributes["agentwatt.call.outcome"] == "success"


async def test_samples_and_final_records_reach_the_metrics(probe: Probe) -> None:
    import prometheus_client

    def calls() -> float:
        labels = {"initiator": "user", "route": "chat", "outcome": "success"}
        return prometheus_client.REGISTRY.get_sample_value("agentwatt_calls_total", labels) or 0.0

    before = calls()
    data = probe.request()
    await probe.begin(data)
    await probe.succeed(data)
    probe.logger._outputs.tick()
    assert calls() == before + 1
    assert prometheus_client.REGISTRY.get_sample_value("agentwatt_open_calls") == 0
    assert prometheus_client.REGISTRY.get_sample_value("agentwatt_telemetry_up") == 1
    assert probe.logger.guarded_errors == {}


async def test_calls_that_end_together_reach_the_metrics_without_waiting_for_the_next_sample(
    probe: Probe,
) -> None:
    import prometheus_client

    def calls() -> float:
        labels = {"initiator": "user", "route": "chat", "outcome": "success"}
        return prometheus_client.REGISTRY.get_sample_value("agentwatt_calls_total", labels) or 0.0

    before = calls()
    for _ in range(70):
        data = probe.request()
        await probe.begin(data)
        await probe.succeed(data)
    assert before + 64 <= calls() < before + 70
    await probe.logger._outputs.close()
    assert calls() == before + 70


async def test_a_try_against_a_deployment_is_counted_and_changes_nothing(probe: Probe) -> None:
    logger: Any = probe.logger
    data: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "x"}], "metadata": {}}
    await logger.async_pre_call_hook(user_api_key_dict=None, cache=None, data=data, call_type="acompletion")
    kwargs = {"model": "hosted_vllm/m", "metadata": data["metadata"]}
    before = repr(kwargs)
    assert await logger.async_pre_call_deployment_hook(kwargs, "acompletion") is None
    assert await logger.async_pre_call_deployment_hook({"metadata": None}, object()) is None
    assert repr(kwargs) == before
    assert logger._find(kwargs).attempts == 1
