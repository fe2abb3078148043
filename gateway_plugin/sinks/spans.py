"""Attributes on the proxy's own request span, when the operator has tracing on; nothing otherwise.

The span is whatever LiteLLM hands over as the parent span: it is asked whether it records and given
attributes, so OpenTelemetry is not imported. Its exporter, sampling and end stay LiteLLM's business.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway_plugin.sinks.semconv import OPERATIONS, Version, attributes

#: What the span event about token counting carries, when the exact meter ran.
_COUNTED: Final = (
    "count_ms",
    "count_calls",
    "count_wait_ms",
    "count_tokens",
    "count_auth_ms",
    "count_router_ms",
    "count_post_ms",
    "count_tokenizer",
)


class Spans:
    """Writes what a record holds onto a span."""

    def __init__(self, version: Version) -> None:
        self._attributes = attributes(version)

    def write(self, span: Any, record: Mapping[str, Any]) -> bool:
        """Set the attributes of *record* on *span*; return whether it was recording."""
        recording = getattr(span, "is_recording", None)
        if not callable(recording) or recording() is not True:
            return False
        values = {
            name: value
            for name, key in self._attributes
            if (value := record.get(key)) is not None and isinstance(value, (str, int, float, bool))
        }
        if (operation := OPERATIONS.get(str(record.get("route")))) is not None:
            values["gen_ai.operation.name"] = operation
        span.set_attributes(values)
        if record.get("count_calls"):
            counted = {f"agentwatt.{name}": record[name] for name in _COUNTED if record.get(name) is not None}
            span.add_event("agentwatt.token_counting", counted)
        return True


def parent_span(auth: object, bucket: Mapping[str, Any] | None) -> Any:
    """Return the request's span from authentication or the metadata bucket; None when tracing is off."""
    span = getattr(auth, "parent_otel_span", None)
    if span is None and bucket is not None:
        span = bucket.get("litellm_parent_otel_span")
    return span
