"""Settings of the running proxy that would lose or hide telemetry, said once when a worker starts."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from gateway_plugin.settings import PluginSettings


def warnings(settings: PluginSettings, argv: list[str] | None = None) -> list[str]:
    """Return what an operator should know about this proxy's settings, one sentence each."""
    proxy = sys.modules.get("litellm.proxy.proxy_server")
    general = getattr(proxy, "general_settings", None)
    general = general if isinstance(general, dict) else {}
    found = [
        _dropped_metadata(general.get("spend_logs_metadata_fields")),
        _no_rows(general, settings),
        _no_log(sys.modules.get("litellm")),
        _one_of_many(settings, sys.argv if argv is None else argv),
    ]
    return [text for text in found if text]


def _dropped_metadata(fields: object) -> str | None:
    """Say when the row filter of 1.106 and later would drop our object."""
    if fields is None:
        return None
    if isinstance(fields, Mapping):
        include, exclude = fields.get("include"), fields.get("exclude")
    else:
        include, exclude = getattr(fields, "include", None), getattr(fields, "exclude", None)
    name = "spend_logs_metadata"
    if (isinstance(include, (list, tuple, set)) and include and name not in include) or (
        isinstance(exclude, (list, tuple, set)) and name in exclude
    ):
        return (
            "general_settings.spend_logs_metadata_fields drops spend_logs_metadata: SpendLogs rows will "
            f"carry nothing of agentwatt; add {name} to include, or take it out of exclude"
        )
    return None


def _no_rows(general: Mapping[str, Any], settings: PluginSettings) -> str | None:
    if general.get("disable_spend_logs") is not True:
        return None
    if settings.redis_url is None and settings.spool_dir is None:
        return (
            "general_settings.disable_spend_logs is on and there is neither Redis nor a spool: "
            "no call is recorded anywhere"
        )
    return "general_settings.disable_spend_logs is on: calls are recorded in the event stream only"


def _no_log(litellm: Any) -> str | None:
    if litellm is None or getattr(litellm, "global_disable_no_log_param", None) is True:
        return None
    return (
        "clients may send no-log, which takes their SpendLogs row away; "
        "set litellm_settings.global_disable_no_log_param: true to forbid it"
    )


def declared_workers(argv: list[str]) -> int:
    """Return how many workers the proxy was asked for; 1 when nothing says otherwise."""
    values = [os.environ.get("NUM_WORKERS"), os.environ.get("WEB_CONCURRENCY")]
    for position, argument in enumerate(argv):
        name, _, value = argument.partition("=")
        if name in ("--num_workers", "--workers", "-w"):
            values.append(value or (argv[position + 1] if position + 1 < len(argv) else None))
    numbers = [int(v) for v in values if v is not None and v.isascii() and v.isdigit() and len(v) < 6]
    return max([1, *numbers])


def _one_of_many(settings: PluginSettings, argv: list[str]) -> str | None:
    if not settings.metrics or declared_workers(argv) == 1 or os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
        return None
    return (
        "several workers without PROMETHEUS_MULTIPROC_DIR: each scrape of /metrics sees one of them, "
        "so counters jump"
    )
