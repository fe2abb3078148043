"""The Redis server of the stream: connecting to it, and reading its stream counters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import redis
from redis.cluster import ClusterNode, RedisCluster
from redis.exceptions import (
    AuthenticationError,
    NoPermissionError,
    RedisClusterException,
    RedisError,
    ResponseError,
)
from redis.sentinel import Sentinel, SentinelConnectionPool

from gateway_plugin.address import parse
from pipeline.errors import ConfigError, UnreachableError
from pipeline.settings import RedisSettings


@contextmanager
def client(settings: RedisSettings) -> Iterator[redis.Redis]:
    """Connect to the stream's server, with a deadline on every operation.

    Raises:
        ConfigError: there is no URL, or it is none.
        UnreachableError: no answer, wrong credentials, or the connection broke.
    """
    if settings.url is None:
        raise ConfigError(
            "There is no Redis URL.",
            why="Looked for redis.url, AGENTWATT_REDIS__URL and REDIS_URL.",
            next_step="export REDIS_URL=redis://host:6379/0 (rediss:// for TLS)",
        )
    try:
        connection = _connect(settings.url.get_secret_value(), settings.timeout_s)
    except ValueError as error:
        raise ConfigError(
            "The Redis URL is not valid.",
            why=str(error),
            next_step="It takes what the plugin takes: redis://, rediss://, unix://, redis+sentinel:// and "
            "redis+cluster://.",
        ) from None
    except (RedisError, RedisClusterException) as error:  # a cluster asks for its nodes at once
        raise UnreachableError(
            "No Redis node of the URL answered.",
            why=str(error) or type(error).__name__,
            next_step="agentwatt doctor checks the connection; run the same command again once it answers.",
        ) from None
    try:
        connection.ping()
        yield connection
    except (AuthenticationError, NoPermissionError) as error:
        raise UnreachableError(
            f"Redis at {place(connection)} refused us.",
            why=str(error),
            next_step="Check user and password in the URL; the user needs XREADGROUP, XACK and XAUTOCLAIM.",
        ) from None
    except ResponseError as error:
        raise UnreachableError(
            f"Redis at {place(connection)} refused a command.",
            why=str(error),
            next_step="agentwatt doctor shows the server's version and the state of the stream.",
        ) from None
    except RedisError as error:
        raise UnreachableError(
            f"Redis at {place(connection)} did not answer.",
            why=str(error) or type(error).__name__,
            next_step="agentwatt doctor checks the connection; run the same command again once it answers.",
        ) from None
    finally:
        connection.close()


def _connect(url: str, timeout_s: float) -> redis.Redis:
    """Return a client of the kind that the address names; the calls that we use are the same on each.

    Raises:
        ValueError: the address is not understood.
        RedisError: no node of a cluster answered.
    """
    address = parse(url)
    options: dict[str, Any] = {
        "socket_timeout": timeout_s,
        "socket_connect_timeout": timeout_s,
        "client_name": "agentwatt-collect",
        "protocol": 2,  # one shape of answers over all client versions
    }
    if address.kind == "single":
        return redis.Redis.from_url(address.url, **options)
    options |= address.options
    if address.kind == "cluster":
        nodes: Any = [ClusterNode(h, p) for h, p in address.nodes]  # type: ignore[no-untyped-call]
        return cast("redis.Redis", RedisCluster(startup_nodes=nodes, **options))
    asked = {"socket_timeout": timeout_s} | address.sentinel_options
    sentinel: Any = Sentinel(list(address.nodes), sentinel_kwargs=asked, **options)  # type: ignore[no-untyped-call]
    return cast("redis.Redis", sentinel.master_for(address.service))


def place(connection: redis.Redis) -> str:
    """Host and port (or socket) of *connection*, without credentials."""
    nodes = getattr(connection, "nodes_manager", None)
    if nodes is not None:
        return ", ".join(sorted(nodes.nodes_cache)) or "the cluster"
    pool = connection.connection_pool
    if isinstance(pool, SentinelConnectionPool):
        return f"sentinel service {pool.service_name}"
    options = pool.connection_kwargs
    return str(options.get("path") or f"{options.get('host', 'localhost')}:{options.get('port', 6379)}")


def trimmed_unread(stream: dict[str, Any], group: dict[str, Any], counted: int = 0) -> int | None:
    """Entries that left the stream's head before the group read them; None when the server cannot tell.

    ``entries-added − length`` entries were ever removed, all from the head (we never delete inside), and
    the group stands at logical position ``entries-read``; what was removed beyond it was never read.
    *counted* is the logical position up to which earlier calls have counted already.
    """
    added, read = stream.get("entries-added"), group.get("entries-read")
    length = int(stream["length"])
    if added is not None and read is not None:
        return max(0, int(added) - length - max(int(read), counted))
    # Without the counters (servers before version 7, or an unknown position): nothing is lost while the
    # last delivered entry, or one before it, is still in the stream.
    first = stream.get("first-entry")
    delivered = order(text(group.get("last-delivered-id") or "0-0"))
    if first is None:
        return None if order(text(stream["last-generated-id"])) > delivered else 0
    return 0 if order(text(first[0])) <= delivered else None


def order(entry_id: str) -> tuple[int, int]:
    """Sort key of a stream id: milliseconds, then sequence."""
    ms, _, sequence = entry_id.partition("-")
    return int(ms), int(sequence or 0)


def text(value: Any) -> str:
    """Text of an answer that the client leaves as bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)
