"""Boards of the machine itself: units, boards without a sensor, a missing library or driver."""

from __future__ import annotations

import json
import sys
import threading
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pipeline.errors import ConfigError, UnreachableError
from pipeline.lake import Lake
from pipeline.power import nvml
from tests.pipeline.power.cases import figure, row, turns
from tests.pipeline.sql.synthetic import MONDAY


class Library:
    """Two boards at 300 W; the second has no energy counter."""

    class NVMLError(Exception):
        pass

    def __init__(self, count: int = 2, *, silent: bool = False, loads: bool = True) -> None:
        self.count, self.silent, self.loads = count, silent, loads
        self.seconds = 0.0
        self.closed = False

    def nvmlInit(self) -> None:
        if not self.loads:
            raise self.NVMLError("Driver Not Loaded")

    def nvmlShutdown(self) -> None:
        self.closed = True

    def nvmlDeviceGetCount(self) -> int:
        return self.count

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetUUID(self, handle: int) -> bytes:
        return f"GPU-{handle}".encode()

    def nvmlDeviceGetName(self, handle: int) -> str:
        return "NVIDIA H200"

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: int) -> int:
        if handle == 1:
            raise self.NVMLError("Not Supported")
        return round(self.seconds * 300_000)

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:
        if handle == 1 and self.silent:
            raise self.NVMLError("Not Supported")
        return 300_000


def test_millijoules_and_milliwatts_become_joules_and_watts() -> None:
    library = Library()
    library.seconds = 10
    with nvml.Boards(library) as boards:
        samples = boards.read(MONDAY)
    assert [(s.name, json.loads(s.labels)["uuid"], s.value) for s in samples] == [
        (nvml.ENERGY, "GPU-0", 3000.0),
        (nvml.POWER, "GPU-0", 300.0),
        (nvml.POWER, "GPU-1", 300.0),
    ]
    assert library.closed
    assert boards.silent == []


def test_a_board_without_any_sensor_is_named() -> None:
    with nvml.Boards(Library(silent=True)) as boards:
        boards.read(MONDAY)
    assert boards.silent == ["GPU-1"]


def test_no_driver_and_no_board_are_told_apart() -> None:
    with pytest.raises(UnreachableError, match="No NVIDIA driver"), nvml.Boards(Library(loads=False)):
        pass
    with nvml.Boards(Library(count=0)) as boards, pytest.raises(UnreachableError, match="lists no board"):
        boards.read(MONDAY)


def test_a_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(ConfigError) as caught, nvml.Boards():
        pass
    assert "agentwatt[gpu]" in caught.value.next_step


def test_readings_on_a_clock_give_the_ratio_without_any_setting(tmp_path: Path) -> None:
    library = Library()
    passed = -60.0

    class Clock(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            nonlocal passed
            passed += timeout or 0
            library.seconds = passed + 60
            return False

    def now() -> datetime:
        return MONDAY + timedelta(seconds=passed)

    with nvml.Boards(library) as boards:
        written = nvml.record(Lake(tmp_path), boards, interval_s=60, for_s=3720, stop=Clock(),
                              flush_s=600, target="node-1", clock=lambda: passed, now=now)  # fmt: skip
    assert written == 3 * 63
    files = list((tmp_path / "raw/metrics").rglob("*.parquet"))
    assert len(files) > 1
    with duckdb.connect() as con:
        stored: Any = con.execute(f"SELECT COUNT(*) FROM '{tmp_path}/raw/metrics/*/*.parquet'").fetchone()
    assert stored[0] == written
    found = figure(tmp_path, turns("s1", 0) + turns("s2", 0), [])
    assert row(found)["value"] == pytest.approx(600 / 3600 / 600e-6)
    assert [d["read_from"] for d in found["boundaries"][0]["devices"]] == ["counter", "gauge"]


def test_stopping_writes_what_was_read(tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    with nvml.Boards(Library()) as boards:
        assert nvml.record(Lake(tmp_path), boards, interval_s=1, for_s=None, stop=stop) == 3
