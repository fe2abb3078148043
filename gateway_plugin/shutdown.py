"""Finding the end of the server, so that the last records get out before the process is gone.

uvicorn, which serves LiteLLM by itself and inside gunicorn's workers, raises the signal that ended it once
more after it has shut down. With the default handler that ends the process at once: no task is cancelled and
no exit function runs. Its shutdown is therefore the last moment at which anything can be written. Servers
that are not uvicorn cancel their tasks, which flushes too.
"""

from __future__ import annotations

import inspect
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any


def run_at_shutdown(close: Callable[[], Awaitable[None]]) -> bool:
    """Have *close* awaited when the server of this process has shut down.

    Args:
        close: must bound its own time and raise nothing.

    Returns:
        Whether such a server was found.
    """
    server: Any = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    if not type(server).__module__.startswith("uvicorn"):
        return False
    shutdown = getattr(server, "shutdown", None)
    if not inspect.iscoroutinefunction(shutdown):
        return False

    async def shut_down_and_close(*args: Any, **kwargs: Any) -> None:
        try:
            await shutdown(*args, **kwargs)
        finally:
            await close()

    server.shutdown = shut_down_and_close
    return True


async def logged() -> None:
    """Wait until LiteLLM has logged every request that it answered; the caller bounds the time.

    Each call's final record comes from there, and LiteLLM's own flush is an exit function, which never runs.
    """
    module = sys.modules.get("litellm.litellm_core_utils.logging_worker")
    worker = getattr(module, "GLOBAL_LOGGING_WORKER", None)
    if worker is not None:
        await worker.flush()
