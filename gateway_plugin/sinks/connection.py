"""The plugin's connection to Redis, of any kind that an address can name (see ``gateway_plugin.address``)."""

from __future__ import annotations

from typing import Any

import redis.asyncio as aioredis
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.sentinel import Sentinel

from gateway_plugin.address import AddressError, parse


def connect(url: str, *, timeout_s: float) -> Any:
    """Return an asyncio client for *url*. Opens no connection yet.

    Args:
        url: an address.
        timeout_s: socket timeouts; the caller keeps a deadline of its own round every operation, since some
            clients drop these options.

    Raises:
        AddressError: the address has a form that is not understood.
    """
    address = parse(url)
    options: dict[str, Any] = {"socket_timeout": timeout_s, "socket_connect_timeout": timeout_s}
    if address.kind == "single":
        try:
            return aioredis.from_url(address.url, health_check_interval=30, **options)
        except ValueError as error:
            raise AddressError(f"the Redis address is not usable: {error}") from None
    options |= address.options
    if address.kind == "cluster":
        return RedisCluster(startup_nodes=[ClusterNode(h, p) for h, p in address.nodes], **options)
    asked = {"socket_timeout": timeout_s} | address.sentinel_options
    sentinel: Any = Sentinel(list(address.nodes), sentinel_kwargs=asked, **options)  # type: ignore[no-untyped-call]
    return sentinel.master_for(address.service)
