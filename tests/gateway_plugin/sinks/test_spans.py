from __future__ import annotations

import types
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from gateway_plugin.event import FIELD_NAMES
from gateway_plugin.sinks import semconv
from gateway_plugin.sinks.spans import Spans, parent_span

RECORD: dict[str, Any] = {
    "event_id": "e1",
    "session_id": "s1",
    "agent_id": "main",
    "route": "messages",
    "model_group": "claude",
    "provider": "anthropic",
    "input_tokens": 10,
    "cached_tokens": 0,
    "turn_index": 2,
    "initiator": "user",
    "prefix_steps": [[1, 2]],
    "idle_ms": None,
}


def exported(version: semconv.Version, record: dict[str, Any] = RECORD) -> dict[str, Any]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with provider.get_tracer("proxy").start_as_current_span("request") as span:
        assert Spans(version).write(span, record)
    (finished,) = exporter.get_finished_spans()
    return dict(finished.attributes or {})


def test_a_recording_span_gets_the_names_of_the_conventions_and_ours() -> None:
    found = exported("latest")
    assert found["gen_ai.conversation.id"] == "s1"
    assert found["gen_ai.operation.name"] == "chat"
    assert found["gen_ai.provider.name"] == "anthropic"
    assert found["gen_ai.usage.cache_read.input_tokens"] == 0
    assert found["agentwatt.turn.index"] == 2
    assert "gen_ai.system" not in found


def test_the_names_before_the_renaming_can_be_kept() -> None:
    found = exported("legacy")
    assert found["gen_ai.system"] == "anthropic"
    assert "gen_ai.provider.name" not in found


@pytest.mark.parametrize(
    ("opted", "name"), [("", "gen_ai.system"), ("http,gen_ai_latest_experimental", "gen_ai.provider.name")]
)
def test_the_switch_of_the_conventions_is_followed(
    monkeypatch: pytest.MonkeyPatch, opted: str, name: str
) -> None:
    monkeypatch.setenv("OTEL_SEMCONV_STABILITY_OPT_IN", opted)
    assert name in exported("auto")


def test_unknown_and_structured_values_are_left_out() -> None:
    found = exported("latest")
    assert "agentwatt.idle_ms" not in found
    assert not any("steps" in name for name in found)


def test_an_ended_span_and_a_non_span_are_left_alone() -> None:
    provider = TracerProvider()
    span = provider.get_tracer("proxy").start_span("request")
    span.end()
    assert not Spans("latest").write(span, RECORD)
    for other in (None, object(), types.SimpleNamespace(is_recording=True)):
        assert not Spans("latest").write(other, RECORD)


def test_every_attribute_is_read_from_a_field_of_the_event_and_named_once() -> None:
    for version in ("legacy", "latest"):
        pairs = semconv.attributes(version)  # type: ignore[arg-type]
        assert len({name for name, _ in pairs}) == len(pairs)
        assert {key for _, key in pairs} <= FIELD_NAMES
        assert all(name.startswith(("gen_ai.", "agentwatt.")) for name, _ in pairs)


def test_the_span_is_found_with_authentication_or_in_the_bucket() -> None:
    span = object()
    assert parent_span(types.SimpleNamespace(parent_otel_span=span), None) is span
    assert (
        parent_span(types.SimpleNamespace(parent_otel_span=None), {"litellm_parent_otel_span": span}) is span
    )
    assert parent_span(None, None) is None


def test_measured_token_counting_is_an_event_of_the_span() -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with provider.get_tracer("proxy").start_as_current_span("request") as span:
        Spans("latest").write(span, {**RECORD, "count_calls": 2, "count_ms": 3.5, "count_tokenizer": None})
        Spans("latest").write(span, RECORD)
    (finished,) = exporter.get_finished_spans()
    (event,) = finished.events
    assert event.name == "agentwatt.token_counting"
    assert dict(event.attributes or {}) == {"agentwatt.count_ms": 3.5, "agentwatt.count_calls": 2}
