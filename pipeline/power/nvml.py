"""Read NVIDIA boards of this machine through NVML, for a node without an exporter (extra ``gpu``).

Whole boards are read, never instances of a sliced one, so nothing is counted twice. A board whose driver
keeps no energy counter gives its power alone; one that gives neither is named: a missing sensor is not zero.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib import import_module
from typing import Any, Final, Protocol

from pipeline.errors import ConfigError, UnreachableError
from pipeline.extract.metrics_text import Sample, label_text
from pipeline.extract.scrape import write_samples
from pipeline.lake import Lake

ENERGY: Final = "agentwatt_gpu_energy_joules_total"
POWER: Final = "agentwatt_gpu_power_watts"


class Nvml(Protocol):
    """What is used of the module ``pynvml``."""

    NVMLError: type[Exception]

    def nvmlInit(self) -> None:
        """Load the driver's library."""

    def nvmlShutdown(self) -> None:
        """Let it go."""

    def nvmlDeviceGetCount(self) -> int:
        """How many boards."""

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:
        """One board."""

    def nvmlDeviceGetUUID(self, handle: Any) -> str | bytes:
        """Its id."""

    def nvmlDeviceGetName(self, handle: Any) -> str | bytes:
        """Its model."""

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: Any) -> int:
        """Millijoules since the driver was loaded."""

    def nvmlDeviceGetPowerUsage(self, handle: Any) -> int:
        """Milliwatts."""


class Boards:
    """The boards of this machine. A context manager; entering loads the driver's library."""

    def __init__(self, library: Nvml | None = None) -> None:
        self._library = library
        self.silent: list[str] = []

    def __enter__(self) -> Boards:
        self._library = self._library or _library()
        try:
            self._library.nvmlInit()
        except self._library.NVMLError as error:
            raise UnreachableError(
                "No NVIDIA driver answers on this machine.",
                why=str(error),
                next_step="Run this where nvidia-smi works, with the driver's library in reach.",
            ) from None
        return self

    def __exit__(self, *_: object) -> None:
        assert self._library is not None
        self._library.nvmlShutdown()

    def read(self, at: datetime) -> list[Sample]:
        """Return energy (J) and power (W) of every board at *at* (naive UTC).

        Raises:
            UnreachableError: the driver lists no board.
        """
        library = self._library
        assert library is not None
        count = library.nvmlDeviceGetCount()
        if not count:
            raise UnreachableError("The NVIDIA driver lists no board.")
        samples: list[Sample] = []
        self.silent = []
        for index in range(count):
            handle = library.nvmlDeviceGetHandleByIndex(index)
            labels = label_text(
                {
                    "uuid": _text(library.nvmlDeviceGetUUID(handle)),
                    "gpu": str(index),
                    "modelName": _text(library.nvmlDeviceGetName(handle)),
                }
            )
            energy = self._value(library.nvmlDeviceGetTotalEnergyConsumption, handle)
            power = self._value(library.nvmlDeviceGetPowerUsage, handle)
            if energy is not None:
                samples.append(Sample(at, ENERGY, labels, energy / 1e3, "counter"))
            if power is not None:
                samples.append(Sample(at, POWER, labels, power / 1e3, "gauge"))
            if energy is None and power is None:
                self.silent.append(_text(library.nvmlDeviceGetUUID(handle)))
        return samples

    def _value(self, call: Callable[[Any], int], handle: Any) -> float | None:
        assert self._library is not None
        try:
            return float(call(handle))
        except self._library.NVMLError:
            return None  # not supported by this board or driver


def record(
    lake: Lake,
    boards: Boards,
    *,
    interval_s: float,
    for_s: float | None,
    stop: threading.Event,
    flush_s: float = 60.0,
    target: str | None = None,
    clock: Callable[[], float] = time.monotonic,
    now: Callable[[], datetime] = lambda: datetime.now(UTC).replace(tzinfo=None),
) -> int:
    """Read *boards* every *interval_s* until the time is over or *stop* is set; return samples written."""
    name = target or socket.gethostname()
    began = clock()
    waiting: list[tuple[str, Sample]] = []
    written, flushed, turn = 0, began, 0
    while True:
        waiting += [(name, s) for s in boards.read(now())]
        turn += 1
        due = began + turn * interval_s
        over = for_s is not None and due > began + for_s
        if over or clock() - flushed >= flush_s:
            written += _flush(lake, waiting)
            flushed = clock()
        if over or stop.wait(max(0.0, due - clock())):
            return written + _flush(lake, waiting)


def _flush(lake: Lake, waiting: list[tuple[str, Sample]]) -> int:
    count = len(waiting)
    if waiting:
        write_samples(lake, _sorted(waiting))
        waiting.clear()
    return count


def _sorted(samples: Sequence[tuple[str, Sample]]) -> list[tuple[str, Sample]]:
    return sorted(samples, key=lambda pair: (pair[1].name, pair[1].labels, pair[1].ts))


def _library() -> Nvml:
    try:
        return import_module("pynvml")
    except ImportError:
        raise ConfigError(
            "Boards cannot be read: the NVML bindings are not installed.",
            next_step="Install the extra: pip install 'agentwatt[gpu]'.",
        ) from None


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
