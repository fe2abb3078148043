"""The Redis server of the stream: connecting to it, and reading its stream counters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import redis
from redis.exceptions import AuthenticationError, NoPermissionError, RedisError, ResponseError

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
        connection = redis.Redis.from_url(
            settings.url.get_secret_value(),
            socket_timeout=settings.timeout_s,
            socket_connect_timeout=settings.timeout_s,
            client_name="agentwatt-collect",
            protocol=2,  # one shape of answers over all client versions
        )
    except ValueError as error:
        raise ConfigError("The Redis URL is not valid.", why=str(error)) from None
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


def place(connection: redis.Redis) -> str:
    """Host and port (or socket) of *connection*, without credentials."""
    options = connection.connection_pool.connection_kwargs
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
