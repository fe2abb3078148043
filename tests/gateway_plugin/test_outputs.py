from __future__ import annotations

import asyncio
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import prometheus_client
import pytest

from gateway_plugin import proxy_gauges
from gateway_plugin.guard import Guard
from gateway_plugin.outputs import Outputs
from gateway_plugin.settings import PluginSettings
from gateway_plugin.sinks import metric_table as table

ROOT = Path(__file__).resolve().parents[2]


def value(name: str, **labels: str) -> float:
    return prometheus_client.REGISTRY.get_sample_value(name, labels) or 0.0


async def until(condition: Callable[[], object]) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + 10
    while not condition():
        assert loop.time() < deadline, "the condition never came true"
        await asyncio.sleep(0.005)


async def test_without_any_way_out_it_says_so_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    outputs = Outputs(PluginSettings(metrics=False), Guard())
    assert "SpendLogs rows only" in caplog.text
    outputs.emit({"schema": 1})
    outputs.ensure_task()
    await outputs.close()


async def test_a_blocked_event_loop_shows_in_the_metrics(tmp_path: Path) -> None:
    import time

    outputs = Outputs(PluginSettings(spool_dir=tmp_path, sample_interval_s=0.1), Guard())
    before = value("agentwatt_event_loop_late_seconds_sum")
    outputs.ensure_task()
    await asyncio.sleep(0)
    time.sleep(0.4)  # noqa: ASYNC251 - blocking the loop is what is measured
    await until(lambda: value("agentwatt_event_loop_late_seconds_sum") >= before + 0.2)
    await outputs.close()


async def test_an_error_in_a_sample_is_counted_and_the_next_sample_still_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard = Guard()
    outputs = Outputs(PluginSettings(spool_dir=tmp_path, sample_interval_s=0.1), guard)
    runs: list[int] = []

    def sample() -> dict[Any, float]:
        runs.append(1)
        raise RuntimeError("another shape")

    monkeypatch.setattr(proxy_gauges, "sample", sample)
    outputs.ensure_task()
    await until(lambda: len(runs) >= 2)
    assert guard.counts["metrics"] >= 1
    await outputs.close()


async def test_the_database_is_asked_only_when_that_is_switched_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []

    async def connections(timeout_s: float) -> dict[Any, float]:
        asked.append(timeout_s)
        return {table.DB_CONNECTIONS: 7.0, table.DB_CONNECTIONS_CAP: 100.0}

    monkeypatch.setattr(proxy_gauges, "db_connections", connections)
    off = Outputs(PluginSettings(spool_dir=tmp_path, sample_interval_s=0.1), Guard())
    off.tick()
    assert asked == []
    on = Outputs(PluginSettings(spool_dir=tmp_path, sample_interval_s=0.1, db_connections=True), Guard())
    on.ensure_task()
    await until(lambda: value("agentwatt_db_connections") == 7.0)
    await on.close()


async def test_losses_and_what_waits_reach_the_metrics(tmp_path: Path) -> None:
    outputs = Outputs(PluginSettings(spool_dir=tmp_path), Guard())
    stream = outputs.stream
    assert stream is not None
    before = value("agentwatt_events_lost_total", reason="queue_full")
    stream.counts["dropped_queue_full"] += 3
    outputs.emit({"schema": 1})
    outputs.tick()
    assert value("agentwatt_events_lost_total", reason="queue_full") == before + 3
    assert value("agentwatt_event_queue_records") == 1
    await stream.flush()
    outputs.tick()
    assert value("agentwatt_spool_records") == 1
    assert value("agentwatt_event_queue_records") == 0
    await outputs.close()


async def test_a_proxys_dangerous_settings_are_said_when_the_worker_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    general = {"spend_logs_metadata_fields": {"include": ["status"]}}
    monkeypatch.setitem(
        sys.modules, "litellm.proxy.proxy_server", types.SimpleNamespace(general_settings=general)
    )
    outputs = Outputs(PluginSettings(spool_dir=tmp_path), Guard())
    outputs.ensure_task()
    await until(lambda: "drops spend_logs_metadata" in caplog.text)
    await outputs.close()


def test_records_reach_the_disk_when_the_process_ends_without_a_loop(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom pathlib import Path\n"
        "from gateway_plugin.guard import Guard\nfrom gateway_plugin.outputs import Outputs\n"
        "from gateway_plugin.settings import PluginSettings\n"
        "out = Outputs(PluginSettings(spool_dir=Path(sys.argv[1]), metrics=False), Guard())\n"
        "out.emit({'schema': 1, 'event_id': 'e'})\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, check=True)
    (path,) = tmp_path.glob("*.jsonl")
    assert path.read_bytes() == b'{"schema":1,"event_id":"e"}\n'
