"""Small administrative work on a PostgreSQL server, callable with or without a running event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

from deploy.local.process import StackError

T = TypeVar("T")

CONNECT_TIMEOUT_S = 10.0


def blocking(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine to its end in a thread of its own, so that a running event loop does not matter."""
    outcome: list[T] = []
    failure: list[BaseException] = []

    def target() -> None:
        try:
            outcome.append(asyncio.run(work()))
        except BaseException as error:  # noqa: BLE001 - handed to the caller's thread
            failure.append(error)

    thread = threading.Thread(target=target, name="database-work")
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return outcome[0]


def database_name(url: str) -> str:
    """Name of the database in a connection URL; empty when the URL has none."""
    return urlsplit(url).path.removeprefix("/")


def with_database(url: str, name: str) -> str:
    """The same connection URL for another database."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


def shown_url(url: str) -> str:
    """The URL without its password, for messages."""
    parts = urlsplit(url)
    if parts.password:
        parts = parts._replace(netloc=parts.netloc.replace(f":{parts.password}@", ":***@"))
    return urlunsplit(parts)


async def connect(url: str) -> Any:
    """Open an asyncpg connection.

    Raises:
        StackError: the server cannot be reached or refuses; names the URL without its password.
    """
    import asyncpg

    try:
        return await asyncpg.connect(url, timeout=CONNECT_TIMEOUT_S)
    except (OSError, TimeoutError, asyncpg.PostgresError, ValueError) as error:
        raise StackError(f"PostgreSQL does not answer at {shown_url(url)}: {error or 'timeout'}") from error


def execute(url: str, *statements: str) -> None:
    """Run SQL statements one after the other, each in its own implicit transaction."""

    async def work() -> None:
        connection = await connect(url)
        try:
            for statement in statements:
                await connection.execute(statement)
        finally:
            await connection.close()

    blocking(work)


def fetch_value(url: str, query: str, *arguments: object) -> Any:
    """First column of the first row of a query."""

    async def work() -> Any:
        connection = await connect(url)
        try:
            return await connection.fetchval(query, *arguments)
        finally:
            await connection.close()

    return blocking(work)


def create_database(url: str, name: str, *, template: str | None = None) -> str:
    """Create a database on the server of `url`, optionally as a copy of another; returns its URL.

    Raises:
        StackError: the role may not create databases, or the name is taken.
    """
    import asyncpg

    copy = f' TEMPLATE "{template}"' if template else ""
    try:
        execute(url, f'CREATE DATABASE "{name}"{copy}')
    except asyncpg.PostgresError as error:
        raise StackError(
            f"cannot create database {name!r} at {shown_url(url)}: {error}.\n"
            "Grant the role CREATEDB, or name an empty database and set AGENTWATT_DATABASE_AS_IS=1."
        ) from error
    return with_database(url, name)


def drop_database(url: str, name: str) -> None:
    """Drop a database of the server of `url`, ending connections that are still open."""
    execute(url, f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
