from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import prometheus_client
import pytest

from gateway_plugin.event import BREAK_REASONS, INITIATORS
from gateway_plugin.sinks import metric_table as table
from gateway_plugin.sinks import metrics
from gateway_plugin.sinks.metrics import Metrics

ROOT = Path(__file__).resolve().parents[3]


class Page:
    """A sink on a registry of its own, and what it would serve."""

    def __init__(self) -> None:
        self.registry = prometheus_client.CollectorRegistry()
        made = metrics.make(self.registry)
        assert made is not None
        self.sink: Metrics = made

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)


def record(**values: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "initiator": "user",
        "route": "chat",
        "outcome": "success",
        "plugin_ms": 0.4,
        "overhead_ms": 12.0,
        "input_tokens": 10_000,
        "cached_tokens": 6000,
        "output_tokens": 50,
        "prompt_bytes": 40_000,
        "shared_bytes": 30_000,
        "call_index": 2,
        "break_reason": "none",
    }
    return base | values


def test_a_call_is_counted_by_initiator_route_and_outcome() -> None:
    page = Page()
    page.sink.observe(record())
    page.sink.observe(record(outcome="failure"))
    assert page.value("agentwatt_calls_total", initiator="user", route="chat", outcome="success") == 1
    assert page.value("agentwatt_calls_total", initiator="user", route="chat", outcome="failure") == 1


def test_lengths_prefixes_and_coverage_are_counted_in_tokens() -> None:
    page = Page()
    page.sink.observe(record())
    page.sink.observe(record(cached_tokens=None))
    where = {"position": "2", "break_reason": "none"}
    assert page.value("agentwatt_prompt_tokens_sum", initiator="user") == 20_000
    assert page.value("agentwatt_new_tokens_sum", initiator="user") == 5000
    assert page.value("agentwatt_prefix_potential_tokens_total", cached="reported", **where) == 7500
    assert page.value("agentwatt_prefix_potential_tokens_total", cached="unknown", **where) == 7500
    assert page.value("agentwatt_prefix_realised_tokens_total", **where) == 6000
    assert page.value("agentwatt_input_tokens_total", cached="reported", **where) == 10_000
    assert page.value("agentwatt_input_tokens_total", cached="unknown", **where) == 10_000


@pytest.mark.parametrize(
    "values", [{"response_cache_hit": True}, {"outcome": "aborted"}, {"outcome": "failure"}]
)
def test_calls_that_did_no_whole_engine_work_stay_out_of_the_token_figures(values: dict[str, Any]) -> None:
    page = Page()
    page.sink.observe(record(**values))
    assert page.value("agentwatt_prompt_tokens_count", initiator="user") is None


def test_unknown_figures_are_left_out_and_not_entered_as_zero() -> None:
    page = Page()
    page.sink.observe({"initiator": "unknown", "route": "other", "outcome": "success"})
    assert page.value("agentwatt_prompt_tokens_count", initiator="unknown") is None
    assert page.value("agentwatt_plugin_seconds_count") == 0
    assert page.value("agentwatt_calls_total", initiator="unknown", route="other", outcome="success") == 1


@pytest.mark.parametrize(
    ("index", "position"), [(1, "1"), (2, "2"), (3, "3+"), (99, "3+"), (None, "unknown"), (0, "unknown")]
)
def test_positions_are_one_two_and_later(index: int | None, position: str) -> None:
    page = Page()
    page.sink.observe(record(call_index=index))
    assert (
        page.value("agentwatt_prefix_realised_tokens_total", position=position, break_reason="none") == 6000
    )


def test_values_outside_the_closed_lists_become_other() -> None:
    page = Page()
    page.sink.observe(record(initiator="ada@example.org", route="../etc", break_reason="x" * 9999))
    assert page.value("agentwatt_calls_total", initiator="other", route="other", outcome="success") == 1
    exposition = prometheus_client.generate_latest(page.registry).decode()
    assert "ada" not in exposition
    assert "xxx" not in exposition


def test_a_revised_ending_does_not_count_the_plugins_cost_twice() -> None:
    page = Page()
    page.sink.observe(record(outcome="aborted"))
    page.sink.observe(record(), revised=True)
    assert page.value("agentwatt_plugin_seconds_count") == 1


def test_counters_are_advanced_by_what_is_new() -> None:
    page = Page()
    page.sink.advance(table.EVENTS_LOST, {"queue_full": 3})
    page.sink.advance(table.EVENTS_LOST, Counter({"queue_full": 5, "shutdown": 0}))
    page.sink.advance(table.EVENTS_LOST, {"queue_full": 5})
    assert page.value("agentwatt_events_lost_total", reason="queue_full") == 5
    assert page.value("agentwatt_events_lost_total", reason="shutdown") is None


def test_counting_time_is_kept_by_phase() -> None:
    page = Page()
    page.sink.count_phases({"router_checks": {"calls": 1, "ms": 30.0}, "auth": {"calls": 0, "ms": 0.0}})
    assert page.value("agentwatt_token_count_seconds_sum", phase="router_checks") == pytest.approx(0.03)
    assert page.value("agentwatt_token_count_seconds_count", phase="auth") is None


def test_a_second_sink_on_one_registry_uses_the_same_collectors() -> None:
    page = Page()
    again = metrics.make(page.registry)
    assert again is not None
    page.sink.observe(record())
    again.observe(record())
    assert page.value("agentwatt_calls_total", initiator="user", route="chat", outcome="success") == 2


def test_without_the_client_library_there_are_no_metrics_and_no_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    assert metrics.make() is None


# -- the table


def test_every_name_has_our_prefix_a_unit_and_a_help_text() -> None:
    names = [m.name for m in table.METRICS]
    assert len(names) == len(set(names)) > 25
    for metric in table.METRICS:
        assert metric.name.startswith("agentwatt_")
        assert len(metric.help) > 5
        assert not metric.name.endswith(("_total", "_count", "_sum", "_bucket", "_created"))


def test_every_label_is_a_closed_short_list_and_no_label_names_a_person_or_session() -> None:
    for metric in table.METRICS:
        for label in metric.labels:
            assert label in table.LABELS
            assert not {"session", "turn", "user", "key", "team", "model"} & set(label.split("_"))
    assert all(len(values) <= 20 and table.OTHER not in values for values in table.LABELS.values())


def test_no_metric_can_have_more_than_a_few_hundred_series() -> None:
    for metric in table.METRICS:
        series = 1
        for label in metric.labels:
            series *= len(table.LABELS[label]) + 1
        assert series * (len(metric.buckets) + 3 if metric.buckets else 1) <= 400, metric.name


def test_the_lists_of_the_event_contract_are_the_label_lists() -> None:
    assert table.LABELS["initiator"] == INITIATORS
    assert table.LABELS["break_reason"] == BREAK_REASONS


def test_token_buckets_hold_the_sizes_that_capacity_is_planned_for() -> None:
    assert {8192.0, 16384.0, 32768.0, 65536.0, 131072.0, 262144.0} <= set(table.TOKEN_BUCKETS)
    for metric in table.METRICS:
        assert list(metric.buckets) == sorted(set(metric.buckets))
        assert (metric.kind == "histogram") == bool(metric.buckets)


def test_gauges_say_how_workers_combine() -> None:
    assert {m.mode for m in table.METRICS if m.kind == "gauge"} <= {"livesum", "livemin", "livemax"}


WORKER = """
import sys
from gateway_plugin.sinks import metric_table as table, metrics
sink = metrics.make()
for _ in range(int(sys.argv[1])):
    sink.observe({"initiator": "user", "route": "chat", "outcome": "success", "input_tokens": 10})
sink.set({table.OPEN_CALLS: float(sys.argv[1]), table.TELEMETRY_UP: float(sys.argv[2])})
import prometheus_client
from prometheus_client import multiprocess
if sys.argv[3] == "serve":
    registry = prometheus_client.CollectorRegistry()
    multiprocess.MultiProcessCollector(registry)
    sys.stdout.write(prometheus_client.generate_latest(registry).decode())
    sys.stdout.flush()
else:
    print("ready", flush=True)
    sys.stdin.read()
"""


def test_several_workers_add_up_on_one_page(tmp_path: Path) -> None:
    environment = os.environ | {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    command = [sys.executable, "-c", WORKER]
    first = subprocess.Popen(
        [*command, "3", "0", "wait"], cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert first.stdout is not None
        assert first.stdout.readline() == b"ready\n"
        second = subprocess.run(
            [*command, "4", "1", "serve"],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
    finally:
        first.communicate(timeout=30)
    page = second.stdout
    assert 'agentwatt_calls_total{initiator="user",outcome="success",route="chat"} 7.0' in page
    assert "agentwatt_open_calls 7.0" in page
    assert "agentwatt_telemetry_up 0.0" in page
    assert 'agentwatt_prompt_tokens_count{initiator="user"} 7.0' in page
