from __future__ import annotations

import datetime
import types
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_plugin import payloads
from gateway_plugin.call import OpenCall, now_us
from gateway_plugin.identity import Auth

SAMPLES = Path(__file__).resolve().parents[2].parent / "shared/reference/samples"
CALL = OpenCall({"event_id": "e"}, 0.0, 0)


def test_the_time_of_receipt_is_read_from_either_place() -> None:
    now = now_us()
    when = datetime.datetime.fromtimestamp(now / 1e6)
    data = {"metadata": {"litellm_received_at": when}, "proxy_server_request": {"arrival_time": 1.0}}
    assert payloads.arrival_of(None, data, "acompletion").received_us == now
    data = {"metadata": {}, "proxy_server_request": {"arrival_time": now / 1e6}}
    assert abs(payloads.arrival_of(None, data, "acompletion").received_us - now) <= 1


def test_a_receipt_in_the_future_is_not_believed() -> None:
    data = {"metadata": {"litellm_received_at": now_us() / 1e6 + 100}}
    assert payloads.arrival_of(None, data, "x").received_us <= now_us()


@pytest.mark.parametrize(
    ("call_type", "route"),
    [
        ("acompletion", "chat"),
        ("anthropic_messages", "messages"),
        ("aresponses", "responses"),
        ("aembedding", "embeddings"),
        ("pass_through_endpoint", "pass_through"),
        ("arerank", "other"),
        (None, "other"),
    ],
)
def test_call_types_map_to_a_closed_list_of_routes(call_type: Any, route: str) -> None:
    assert payloads.arrival_of(None, {}, call_type).route == route


def test_enum_call_types_are_read_by_value() -> None:
    import enum

    class Kind(enum.Enum):
        CHAT = "acompletion"

    assert payloads.arrival_of(None, {}, Kind.CHAT).route == "chat"


def test_the_clients_metadata_is_found_on_each_kind_of_route() -> None:
    sent = {"session_id": "ses_0123456789"}
    chat = {"metadata": {"requester_metadata": sent}}
    messages = {"metadata": sent, "litellm_metadata": {}}
    passed = {"metadata": {"session_id": "ses_0123456789", "user_id": 7}}
    for data in (chat, messages, passed):
        assert payloads.arrival_of(None, data, "x").client_metadata == sent


def test_a_session_id_that_the_proxy_made_up_is_no_session() -> None:
    data = {
        "litellm_session_id": "generated-0001",
        "metadata": {"litellm_session_id_generated": True, "session_id": "generated-0001"},
    }
    arrival = payloads.arrival_of(None, data, "acompletion")
    assert arrival.proxy_session is None
    assert arrival.client_metadata == {}


def test_authentication_is_read_from_objects_and_dicts() -> None:
    class Key:
        api_key = "hash"
        user_id = "ada"
        team_id = 7

    assert payloads.auth_of(Key()) == Auth(key_hash="hash", user_id="ada")
    assert payloads.auth_of({"token": "t", "end_user_id": "e"}) == Auth(key_hash="t", end_user="e")
    assert payloads.auth_of(None) == Auth()


@pytest.mark.skipif(not SAMPLES.exists(), reason="the recorded payloads are not on this machine")
@pytest.mark.parametrize(
    ("name", "stream"),
    [("slp_chat_stream", True), ("slp_v1_messages", False), ("slp_v1_messages_stream", True)],
)
def test_recorded_logging_payloads_give_usage_and_times(name: str, stream: bool) -> None:
    slp = orjson.loads((SAMPLES / f"{name}.json").read_bytes())
    ending = payloads.success_ending({"standard_logging_object": slp}, None, CALL)
    assert ending.outcome == "success"
    assert ending.usage.source == "provider"
    assert ending.usage.input == slp["prompt_tokens"]
    assert ending.usage.output == slp["completion_tokens"]
    assert ending.usage.cached is not None
    assert ending.ended_us == int(slp["endTime"] * 1e6)
    assert ending.deployment_id == slp["model_id"]
    assert ending.provider == "hosted_vllm"
    assert not ending.degraded


def success(slp: dict[str, Any] | None = None, **kwargs: Any) -> Any:
    return payloads.success_ending({"standard_logging_object": slp, **kwargs}, None, CALL)


USAGE = {
    "usage_object": {
        "prompt_tokens": 9,
        "completion_tokens": 1,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
}


def test_a_streamed_message_without_its_last_event_is_aborted() -> None:
    call = OpenCall({"event_id": "e", "route": "messages"}, 0.0, 0)

    def outcome(complete: object, route: str = "messages") -> str:
        call.record["route"] = route
        return payloads.success_ending({"prompt_cache_response_complete": complete}, None, call).outcome

    assert outcome(False) == "aborted"
    assert [outcome(True), outcome(None)] == ["success", "success"]
    # LiteLLM says it of every pass-through to another provider.
    assert outcome(False, "pass_through") == "success"


def test_a_disconnect_that_is_logged_as_success_is_aborted_with_estimated_usage() -> None:
    by_class = success({"error_information": {"error_class": "ClientDisconnected"}, "metadata": USAGE})
    by_mark = success({"metadata": USAGE}, litellm_params={"metadata": {"client_disconnected": True}})
    for ending in (by_class, by_mark):
        assert (ending.outcome, ending.status_code, ending.error_class) == (
            "aborted",
            499,
            "ClientDisconnected",
        )
        assert (ending.usage.source, ending.usage.input, ending.usage.cached) == ("estimated", 9, None)


def test_an_answer_from_the_response_cache_is_marked() -> None:
    assert success({"cache_hit": True}).response_cache_hit is True
    assert success({"cache_hit": "True"}, cache_hit=True).response_cache_hit is True
    assert success({"cache_hit": None}).response_cache_hit is False


def test_attempts_count_retries_and_fallbacks() -> None:
    params = {"metadata": {"attempted_retries": 2, "attempted_fallbacks": 1}}
    assert success({}, litellm_params=params).attempts == 4
    failed = OpenCall({"event_id": "e"}, 0.0, 0, failures=Counter(acompletion=2))
    assert payloads.success_ending({}, None, failed).attempts == 3
    assert success({}, litellm_params={"metadata": {"attempted_retries": "x"}}).attempts == 1


def test_without_a_logging_payload_the_record_is_degraded_not_lost() -> None:
    result = types.SimpleNamespace(usage={"prompt_tokens": 5, "completion_tokens": 2})
    ending = payloads.success_ending({"model": "m", "custom_llm_provider": None}, result, CALL)
    assert ending.degraded
    assert (ending.usage.input, ending.model) == (5, "m")
    assert payloads.success_ending({}, {"usage": {"prompt_tokens": 6}}, CALL).usage.input == 6


class RateLimitError(Exception):
    status_code = 429


class LoggingObject:
    def __init__(self, **details: Any) -> None:
        self.model_call_details = {"additional_args": {"api_base": "http://x"}} | details


def test_a_refusal_before_any_provider_is_rejected_without_attempts() -> None:
    ending = payloads.failure_ending({}, RateLimitError(), OpenCall({"event_id": "e"}, 0.0, 0))
    assert (ending.outcome, ending.attempts, ending.status_code, ending.error_class) == (
        "rejected",
        0,
        429,
        "RateLimitError",
    )


def test_a_refusal_that_litellm_stamps_like_a_provider_call_is_still_a_refusal() -> None:
    stamped = LoggingObject(first_api_call_start_time=datetime.datetime.now(), additional_args={})
    ending = payloads.failure_ending({"litellm_logging_obj": stamped}, ValueError("x"), CALL)
    assert (ending.outcome, ending.attempts, ending.handoff_us) == ("rejected", 0, None)


def test_a_failure_whose_logging_object_is_gone_is_told_by_what_was_lifted_from_it() -> None:
    lifted = {"first_api_call_start_time": datetime.datetime.now()}
    assert payloads.failure_ending(lifted, ValueError("x"), CALL).outcome == "rejected"
    sent = lifted | {"standard_logging_object": {"model_id": "d1", "model": "m", "custom_llm_provider": "p"}}
    ending = payloads.failure_ending(sent, ValueError("x"), CALL)
    assert (ending.outcome, ending.deployment_id, ending.model, ending.provider) == (
        "failure",
        "d1",
        "m",
        "p",
    )
    broken = lifted | {"combined_usage_object": {"prompt_tokens": 7, "completion_tokens": 2}}
    ending = payloads.failure_ending(broken, ValueError("x"), CALL)
    assert (ending.outcome, ending.usage.input, ending.usage.source) == ("failure", 7, "estimated")


def test_a_failure_upstream_is_a_failure_with_its_attempts() -> None:
    logging_obj = LoggingObject(
        first_api_call_start_time=datetime.datetime.now(), model="m", custom_llm_provider="p"
    )
    call = OpenCall({"event_id": "e"}, 0.0, 0, failures=Counter(acompletion=3))
    ending = payloads.failure_ending({"litellm_logging_obj": logging_obj}, RateLimitError(), call)
    assert (ending.outcome, ending.attempts, ending.model, ending.provider) == ("failure", 3, "m", "p")
    assert ending.usage.source == "none"


def test_a_stream_that_broke_off_has_estimated_tokens_and_no_cached_ones() -> None:
    now = datetime.datetime.now()
    logging_obj = LoggingObject(
        first_api_call_start_time=now, completion_start_time=now, standard_logging_object={"metadata": USAGE}
    )
    call = OpenCall({"event_id": "e"}, 0.0, 0, tries=Counter(acompletion=1))
    ending = payloads.failure_ending({"litellm_logging_obj": logging_obj}, ValueError("x"), call)
    assert (ending.usage.source, ending.usage.input, ending.usage.cached) == ("estimated", 9, None)
    assert ending.error_class == "other"


def test_a_bridged_route_reports_one_try_twice_and_has_one() -> None:
    record = {"event_id": "e", "call_type": "anthropic_messages"}
    call = OpenCall(record, 0.0, 0, tries=Counter(anthropic_messages=2, acompletion=2))
    assert call.attempts == 2


@pytest.mark.parametrize(
    ("status", "expected"),
    [(500, 500), ("503", 503), ("rate_limited", None), (True, None), (7, None), (None, None), ([1], None)],
)
def test_status_codes_of_any_type(status: Any, expected: int | None) -> None:
    error = ValueError()
    error.code = status  # type: ignore[attr-defined]
    assert payloads.failure_ending({}, error, CALL).status_code == expected


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(alphabet=st.characters(), max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
_names = st.sampled_from(
    [
        "metadata",
        "litellm_metadata",
        "proxy_server_request",
        "litellm_session_id",
        "standard_logging_object",
        "litellm_params",
        "cache_hit",
        "end_time",
        "completion_start_time",
        "error_information",
        "usage_object",
        "attempted_retries",
        "model_info",
        "queue_time_seconds",
        "litellm_received_at",
        "headers",
        "model",
    ]
)
_dicts = st.dictionaries(
    _names,
    _json | st.dictionaries(_names, _json | st.dictionaries(_names, _json, max_size=2), max_size=3),
    max_size=6,
)


@given(_dicts)
def test_any_dict_is_read_without_raising(data: dict[str, Any]) -> None:
    payloads.arrival_of(data, data, "acompletion")
    payloads.late_arrival(data)
    payloads.success_ending(data, data, CALL)
    payloads.failure_ending(data, ValueError(), CALL)
