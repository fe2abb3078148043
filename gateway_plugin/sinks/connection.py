"""The plugin's connection to Redis, of any kind that an address can name (see ``gateway_plugin.address``)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

import redis.asyncio as aioredis
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.sentinel import Sentinel
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError

from gateway_plugin.address import AddressError, parse

#: What a broken network or server can raise; anything else is a bug and is counted as such.
UNREACHABLE: Final = (RedisError, OSError, asyncio.TimeoutError)


def connect(url: str, *, timeout_s: float) -> Any:
    """Return an asyncio client for *url*. Opens no connection yet.

    Args:
        url: an address.
        timeout_s: how long a connection may take to be made. For reading and writing the caller keeps a
            deadline of its own round every operation: some clients drop the option, and the others arm a
            timer for each answer and start a task for each write.

    Raises:
        AddressError: the address has a form that is not understood.
    """
    address = parse(url)
    options: dict[str, Any] = {"socket_timeout": None, "socket_connect_timeout": timeout_s}
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


def packed(commands: Sequence[Sequence[bytes | str | int]]) -> bytes:
    """Return *commands* as Redis reads them (RESP arrays of bulk strings); the client's own way is slower."""
    parts: list[bytes] = []
    for command in commands:
        parts.append(b"*%d\r\n" % len(command))
        for value in command:
            raw = value if isinstance(value, bytes) else str(value).encode()
            parts.append(b"$%d\r\n%b\r\n" % (len(raw), raw))
    return b"".join(parts)


class Trips:
    """Round trips of several commands each over one connection that is kept. One trip at a time.

    A pipeline of the client takes a connection out of its pool and puts it back for every trip, which costs
    as much as the trip. Clients of a Cluster have several connections, so they do it their own way.
    """

    def __init__(self, connect_new: Callable[[], Any]) -> None:
        self._connect_new = connect_new
        self._client: Any = None
        self._connection: Any = None

    async def send(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Send *commands* together and return their answers, in order.

        Raises:
            RedisError: a command was refused, or the server is away.
            OSError: the server cannot be reached.
            asyncio.TimeoutError: the server took too long.
        """
        if self._client is None:
            self._client = self._connect_new()
        if not isinstance(self._client, aioredis.Redis):
            pipe = self._client.pipeline(transaction=False)
            for command in commands:
                pipe.execute_command(*command)
            return list(await pipe.execute())
        if self._connection is None:
            pool: Any = self._client.connection_pool
            self._connection = await pool.get_connection()
        elif self._connection.is_connected:
            try:
                return await self._exchange(commands)
            except RedisConnectionError:
                pass  # closed by the server while nothing was asked: connected anew below
        return await self._exchange(commands)

    async def _exchange(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        connection, answers = self._connection, []
        try:
            await connection.send_packed_command(packed(commands))
            for _ in commands:
                try:
                    answers.append(await connection.read_response())
                except ResponseError as error:
                    answers.append(error)
        except BaseException:
            # Also when the caller's time is up: answers that come later must not be read as those of others.
            await connection.disconnect(nowait=True)
            raise
        for answer in answers:
            if isinstance(answer, ResponseError):
                raise answer
        return answers

    async def close(self) -> None:
        """Close the connection; the next trip makes a new client, which resolves names and masters anew.

        Raises:
            RedisError, OSError: it could not be closed in order.
        """
        client, self._client, self._connection = self._client, None, None
        if client is not None:
            await client.aclose()
