"""Adds up, in a file, what full garbage collections cost the process that has this folder on its path.

A full collection of a proxy walks a million objects and comes once in some hundred requests, so the one block
in which it falls shows ten times the cost of any other; whoever compares blocks must know which one it was.
The file that ``FULL_COLLECTIONS_FILE`` names holds two doubles: how many there were, and CPU seconds of the
threads that ran them. Younger generations are not counted: they come several times in every request.
"""

import gc
import os
import struct
import time

_PLACE = os.environ.get("FULL_COLLECTIONS_FILE")


def _watch(path: str) -> None:
    target = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    count, spent, began = 0, 0.0, 0.0

    def seen(phase: str, info: dict[str, int]) -> None:
        nonlocal count, spent, began
        if info["generation"] < 2:
            return
        if phase == "start":
            began = time.thread_time()
        else:
            count, spent = count + 1, spent + time.thread_time() - began
            os.pwrite(target, struct.pack("dd", count, spent), 0)

    os.pwrite(target, struct.pack("dd", 0, 0.0), 0)
    gc.callbacks.append(seen)


if _PLACE:
    # Programs that the process starts in turn are not the process.
    del os.environ["FULL_COLLECTIONS_FILE"]
    _watch(_PLACE)
