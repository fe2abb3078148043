"""The stand-in engine as a child process."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from deploy.local.process import ManagedProcess, StackError

START_TIMEOUT_S = 60.0


class EngineProcess:
    """Runs ``python -m deploy.local.engine`` on a free port of the loopback interface."""

    def __init__(self, work: Path, *, speed_up: float, arguments: Sequence[str] = ()) -> None:
        """Describe the engine; nothing is started yet.

        Args:
            work: folder of the log.
            speed_up: divides every wait of the engine.
            arguments: more arguments of its command line.
        """
        self._log = work / "engine.log"
        self._process = ManagedProcess(
            "the stand-in engine",
            [
                sys.executable, "-m", "deploy.local.engine", "--host", "127.0.0.1", "--port", "0",
                "--speed-up", str(speed_up), *arguments,
            ],
            log=self._log,
            cwd=Path(__file__).resolve().parents[2],
        )  # fmt: skip
        self._port: int | None = None

    @property
    def url(self) -> str:
        """Root of the engine's server."""
        if self._port is None:
            raise StackError("the stand-in engine has not been started")
        return f"http://127.0.0.1:{self._port}"

    @property
    def metrics_url(self) -> str:
        """Where its metrics are scraped."""
        return f"{self.url}/metrics"

    @property
    def proxy_environment(self) -> dict[str, str]:
        """Variables that config.yaml refers to."""
        return {
            "ENGINE_OPENAI_BASE": f"{self.url}/v1",
            "ENGINE_ANTHROPIC_BASE": self.url,
            "ENGINE_API_KEY": "none",
        }

    def __enter__(self) -> Self:
        """Start it and wait until it has said its port.

        Raises:
            StackError: it ended or did not start in time.
        """
        self._log.unlink(missing_ok=True)  # the log of an earlier run would tell an old port
        self._process.__enter__()
        try:
            self._process.wait_until(
                self._ready, timeout_s=START_TIMEOUT_S, advice="see the log; is another program on all ports?"
            )
        except BaseException:
            self._process.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop it."""
        self._process.__exit__(kind, error, trace)

    def _ready(self) -> bool:
        for line in self._log.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith('{"port"'):
                self._port = int(json.loads(line)["port"])
                return True
        return False
