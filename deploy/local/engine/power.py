"""Board power that follows the load, the energy that is exactly its integral, and both as DCGM exposes them.

Watts of a board are a step function of what the engine does:

    W = idle + (max − idle) × u,   u = min(1, 0.55·[prefill > 0] + [decode > 0]·(0.30 + 0.35·decode/slots))

with *prefill* and *decode* the requests in each phase and *slots* the most that run at once. Prefill is bound
by arithmetic and draws most; decode is bound by memory and draws less (both as data-centre boards do). Values
are invented and labelled synthetic wherever they appear.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from deploy.local.engine.truth import now_us

_LABELS: Final = ("gpu", "UUID", "device", "modelName", "Hostname")


class PowerModel:
    """Power and energy of *boards* equal boards. Monotonic clock, seconds."""

    def __init__(
        self,
        *,
        boards: int,
        slots: int,
        idle_w: float = 95.0,
        max_w: float = 700.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start idle.

        Raises:
            ValueError: a count is not positive, or the idle power is above the largest.
        """
        if boards < 1 or slots < 1 or not 0 <= idle_w <= max_w:
            raise ValueError("power model: boards and slots must be positive and 0 <= idle <= max watts")
        self.boards = boards
        self._slots, self._idle, self._max = slots, idle_w, max_w
        self._clock = clock
        self._prefill = self._decode = 0
        self._since = clock()
        self._joules = 0.0
        self._history: list[tuple[int, float]] = [(now_us(), 0.0)]

    @property
    def board_watts(self) -> float:
        """Watts of one board now."""
        use = 0.55 * (self._prefill > 0)
        if self._decode:
            use += 0.30 + 0.35 * min(1.0, self._decode / self._slots)
        return self._idle + (self._max - self._idle) * min(1.0, use)

    def board_joules(self) -> float:
        """Joules of one board since the start."""
        return self._joules + self.board_watts * (self._clock() - self._since)

    def change(self, prefill: int, decode: int) -> None:
        """Enter the requests that are in each phase from now on."""
        now = self._clock()
        self._joules += self.board_watts * (now - self._since)
        self._since = now
        self._prefill, self._decode = prefill, decode
        self._history.append((now_us(), self._joules * self.boards))

    def history(self) -> list[tuple[int, float]]:
        """Return (UTC epoch microseconds, joules of all boards since the start) of every change, and of now.

        Between two of them the energy grows evenly.
        """
        return [*self._history, (now_us(), self.board_joules() * self.boards)]

    def exposition(self) -> str:
        """Return both families as dcgm-exporter writes them.

        The energy is a counter of whole millijoules without the suffix ``_total``, which a Prometheus client
        would add; therefore this text is written by hand.
        """
        watts, millijoules = f"{self.board_watts:.3f}", str(int(self.board_joules() * 1e3))
        lines = []
        for name, kind, text, value in (
            ("DCGM_FI_DEV_POWER_USAGE", "gauge", "Power draw (in W).", watts),
            (
                "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
                "counter",
                "Total energy consumption since the start (in mJ).",
                millijoules,
            ),
        ):
            lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
            for board in range(self.boards):
                labels = ",".join(f'{k}="{v}"' for k, v in zip(_LABELS, _board(board), strict=True))
                lines.append(f"{name}{{{labels}}} {value}")
        return "\n".join(lines) + "\n"


def _board(number: int) -> tuple[str, ...]:
    uuid = f"GPU-5741ad10-0000-4000-8000-{number:012d}"
    return (str(number), uuid, f"nvidia{number}", "stand-in (synthetic)", "stand-in")
