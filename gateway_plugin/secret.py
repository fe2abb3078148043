"""The secret that keys every stored digest: one for all workers of an installation.

From the setting, else from Redis (made there when absent), else derived from the proxy's own salt or master
key. Read once, at import in a worker that does not serve yet, within a deadline of its own.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import secrets
import threading
from collections.abc import Callable
from typing import Any

from redis.exceptions import RedisError

from gateway_plugin.event import SECRET_KEY
from gateway_plugin.settings import PluginSettings

log = logging.getLogger("agentwatt")


def shared_secret(config: PluginSettings, connect: Callable[[], Any] | None) -> bytes:
    """Return the secret.

    Args:
        config: the settings; a ``secret`` in them wins.
        connect: makes an asyncio Redis client, or None without Redis.
    """
    if config.secret is not None and config.secret.get_secret_value():
        return config.secret.get_secret_value().encode()
    if connect is not None and (stored := _from_redis(connect, config.redis_timeout_s)):
        return stored
    salt = os.environ.get("LITELLM_SALT_KEY") or os.environ.get("LITELLM_MASTER_KEY")
    if salt:
        return hashlib.blake2b(salt.encode(), person=b"agentwatt-salt").digest()
    log.warning("agentwatt: no secret, no Redis and no master key: digests of this worker match no other's")
    return secrets.token_bytes(32)


def memory_seed(secret: bytes) -> int:
    """Return the seed of the in-memory hash of prompts: 64 bits, equal in all workers of one secret."""
    return int.from_bytes(hashlib.blake2b(secret, digest_size=8, person=b"agentwatt-seed").digest(), "big")


def _from_redis(connect: Callable[[], Any], timeout_s: float) -> bytes | None:
    """Ask Redis from a thread with a loop of its own: the caller may sit inside a running loop.

    The deadline holds round everything, a client library that blocks while it connects included.
    """
    found: list[bytes] = []

    async def ask() -> None:
        async with asyncio.timeout(timeout_s):
            client = connect()
            try:
                await client.set(SECRET_KEY, secrets.token_hex(32), nx=True)
                stored = await client.get(SECRET_KEY)
            finally:
                await client.aclose()
        if stored:
            found.append(stored if isinstance(stored, bytes) else str(stored).encode())

    def run() -> None:
        try:
            asyncio.run(ask())
        except (RedisError, OSError, TimeoutError, ValueError) as error:
            log.warning("agentwatt: no shared secret from Redis (%s)", type(error).__name__)

    thread = threading.Thread(target=run, name="agentwatt-secret", daemon=True)
    thread.start()
    thread.join(timeout_s + 0.5)
    return found[0] if found else None
