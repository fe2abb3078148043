"""Waiting for LiteLLM's spend rows, which it writes in batches some time after the answer.

The interval is `general_settings.proxy_batch_write_at` in seconds. A program whose event loop must keep
running awaits these; `ProxyService` has the blocking forms.
"""

from __future__ import annotations

import asyncio
import time

from deploy.local import database
from deploy.local.process import StackError

POLL_S = 0.25

_COUNT = 'SELECT count(*) FROM "LiteLLM_SpendLogs"'


async def count_rows(url: str) -> int:
    """Rows in `LiteLLM_SpendLogs` of the database at `url`."""
    connection = await database.connect(url)
    try:
        return int(await connection.fetchval(_COUNT))
    finally:
        await connection.close()


async def wait_for_rows(url: str, minimum: int, *, timeout_s: float) -> int:
    """Wait until there are at least `minimum` rows; returns how many there are.

    Raises:
        StackError: not reached in time; says how many there are.
    """
    connection = await database.connect(url)
    try:
        deadline = time.monotonic() + timeout_s
        while True:
            count = int(await connection.fetchval(_COUNT))
            if count >= minimum:
                return count
            if time.monotonic() > deadline:
                raise StackError(f"{count} of {minimum} spend rows after {timeout_s:g} s")
            await asyncio.sleep(POLL_S)
    finally:
        await connection.close()


async def wait_until_settled(url: str, *, quiet_s: float, timeout_s: float) -> int:
    """Wait until no row has been added for `quiet_s` seconds; returns how many there are.

    Take more than twice the proxy's batch interval for `quiet_s`.

    Raises:
        StackError: rows still arrive when the time is up.
    """
    connection = await database.connect(url)
    try:
        begun = changed = time.monotonic()
        last = -1
        while True:
            count = int(await connection.fetchval(_COUNT))
            now = time.monotonic()
            if count != last:
                last, changed = count, now
            elif now - changed >= quiet_s:
                return count
            if now - begun > timeout_s:
                raise StackError(f"spend rows still arrive after {timeout_s:g} s ({count} so far)")
            await asyncio.sleep(POLL_S)
    finally:
        await connection.close()
