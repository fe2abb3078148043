"""Our object in a SpendLogs row: copy-on-write into ``spend_logs_metadata`` of the right bucket.

LiteLLM keeps a fixed set of metadata keys in a row; free-form data survives only in
``spend_logs_metadata``. Dicts found there may be shared with a cached key object, so they are copied, never
changed in place; what a client sent under our name is overwritten.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, Final

from gateway_plugin.event import SPEND_LOGS_NAMESPACE, row_object

#: Buckets in the order of precedence that the row builder uses.
BUCKETS: Final = ("litellm_metadata", "metadata")


def bucket_name(data: MutableMapping[str, Any]) -> str:
    """Return the name of the proxy's own metadata dict in request *data*.

    On routes whose ``metadata`` belongs to the provider the proxy keeps its own in ``litellm_metadata``.
    """
    return "litellm_metadata" if "litellm_metadata" in data else "metadata"


def bucket_of(data: MutableMapping[str, Any]) -> dict[str, Any] | None:
    """Return the proxy's own metadata dict, or None when there is none.

    A bucket that is null or no dict is left alone: replacing the provider's ``metadata`` would change what
    goes upstream.
    """
    bucket = data.get(bucket_name(data))
    return bucket if isinstance(bucket, dict) else None


def write(bucket: MutableMapping[str, Any], record: dict[str, Any]) -> None:
    """Put *record*'s row object into the bucket's ``spend_logs_metadata``, on copies."""
    existing = bucket.get("spend_logs_metadata")
    merged = dict(existing) if isinstance(existing, dict) else {}
    merged[SPEND_LOGS_NAMESPACE] = row_object(record)
    bucket["spend_logs_metadata"] = merged


def read_event_id(params: object) -> str | None:
    """Return the event id that we wrote earlier into one of the buckets of *params*, if it is there."""
    if not isinstance(params, dict):
        return None
    for name in BUCKETS:
        bucket = params.get(name)
        if isinstance(bucket, dict):
            ours = bucket.get("spend_logs_metadata")
            ours = ours.get(SPEND_LOGS_NAMESPACE) if isinstance(ours, dict) else None
            if isinstance(ours, dict) and isinstance(ours.get("event_id"), str):
                return str(ours["event_id"])
    return None
