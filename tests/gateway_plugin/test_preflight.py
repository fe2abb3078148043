from __future__ import annotations

import sys
import types
from typing import Any

import pytest

from gateway_plugin import preflight
from gateway_plugin.settings import PluginSettings


def said(
    monkeypatch: pytest.MonkeyPatch,
    general: Any,
    *,
    no_log: bool = True,
    argv: list[str] | None = None,
    **settings: Any,
) -> str:
    monkeypatch.setitem(
        sys.modules, "litellm.proxy.proxy_server", types.SimpleNamespace(general_settings=general)
    )
    monkeypatch.setitem(sys.modules, "litellm", types.SimpleNamespace(global_disable_no_log_param=no_log))
    return " | ".join(preflight.warnings(PluginSettings(**settings), argv or []))


@pytest.mark.parametrize(
    "general",
    [
        {},
        None,
        {"spend_logs_metadata_fields": None},
        {"spend_logs_metadata_fields": {"include": ["spend_logs_metadata"]}},
        {"spend_logs_metadata_fields": {"exclude": ["x"]}},
    ],
)
def test_a_proxy_that_keeps_everything_is_not_warned_about(
    monkeypatch: pytest.MonkeyPatch, general: Any
) -> None:
    assert said(monkeypatch, general) == ""


@pytest.mark.parametrize(
    "fields",
    [
        {"include": ["status"]},
        {"exclude": ["spend_logs_metadata"]},
        types.SimpleNamespace(include=["a"], exclude=None),
    ],
)
def test_a_filter_that_drops_our_object_is_said(monkeypatch: pytest.MonkeyPatch, fields: Any) -> None:
    assert "drops spend_logs_metadata" in said(monkeypatch, {"spend_logs_metadata_fields": fields})


def test_rows_that_are_switched_off_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    off = {"disable_spend_logs": True}
    assert "no call is recorded anywhere" in said(monkeypatch, off)
    assert "event stream only" in said(monkeypatch, off, redis_url="redis://x")


def test_no_log_from_clients_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no-log" in said(monkeypatch, {}, no_log=False)


def test_several_workers_without_shared_metrics_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    argv = ["litellm", "--num_workers", "4"]
    assert "counters jump" in said(monkeypatch, {}, argv=argv)
    assert said(monkeypatch, {}, argv=argv, metrics=False) == ""
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", "/tmp/x")
    assert said(monkeypatch, {}, argv=argv) == ""


@pytest.mark.parametrize(
    ("argv", "environment", "workers"),
    [
        ([], {}, 1),
        (["--num_workers=3"], {}, 3),
        (["-w", "2"], {}, 2),
        (["--num_workers"], {}, 1),
        (["--num_workers", "x"], {}, 1),
        ([], {"NUM_WORKERS": "5"}, 5),
        ([], {"WEB_CONCURRENCY": "٣"}, 1),
    ],
)
def test_the_number_of_workers_is_read_as_the_proxy_reads_it(
    monkeypatch: pytest.MonkeyPatch, argv: list[str], environment: dict[str, str], workers: int
) -> None:
    for name in ("NUM_WORKERS", "WEB_CONCURRENCY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert preflight.declared_workers(argv) == workers
