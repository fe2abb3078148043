"""The proxy's PostgreSQL database: connecting to it and reading from it without disturbing it."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from pipeline.errors import ConfigError, UnreachableError
from pipeline.settings import DatabaseSettings, Settings

if TYPE_CHECKING:
    import asyncpg

#: Parameters that Prisma understands and PostgreSQL does not.
_PRISMA_ONLY: Final = frozenset(
    {"schema", "connection_limit", "pool_timeout", "connect_timeout", "socket_timeout", "pgbouncer",
     "statement_cache_size", "sslaccept", "sslidentity"}
)  # fmt: skip


@asynccontextmanager
async def connection(settings: Settings) -> AsyncIterator[asyncpg.Connection]:
    """Connect to the proxy's database, read only, in UTC; every wait has a limit.

    Raises:
        ConfigError: no URL, or it is none.
        UnreachableError: with the cause.
    """
    import asyncpg

    if settings.database.url is None:
        raise ConfigError(
            "There is no database URL.",
            why="Looked for database.url, AGENTWATT_DATABASE__URL and DATABASE_URL.",
            next_step="export DATABASE_URL=postgresql://user:password@host:5432/litellm, best a replica",
        )
    url, _ = split_url(settings.database.url.get_secret_value())
    place = urlsplit(url).hostname or dict(parse_qsl(urlsplit(url).query)).get("host", "localhost")
    try:
        database = await asyncpg.connect(
            url,
            timeout=settings.database.connect_timeout_s,
            command_timeout=settings.database.statement_timeout_s + 10,
            statement_cache_size=0,  # works behind a transaction pooler
        )
    except (ValueError, asyncpg.ClientConfigurationError) as error:
        raise ConfigError("The database URL is not valid.", why=str(error)) from None
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise UnreachableError(
            f"The database at {place} did not let us in.",
            why=str(error) or type(error).__name__,
            next_step="agentwatt doctor checks the connection; run the same command again once it answers.",
        ) from None
    try:
        yield database
    except asyncpg.QueryCanceledError as error:
        raise UnreachableError(
            "The database ended a statement at its time limit.",
            why=str(error),
            next_step="Lower database.page_rows, raise database.statement_timeout_s, or read a replica.",
        ) from None
    except (ConnectionError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise UnreachableError(
            f"The database at {place} broke off.",
            why=str(error) or type(error).__name__,
            next_step="Run the same command again: it goes on where it stopped.",
        ) from None
    finally:
        if sys.exc_info()[0]:
            database.terminate()
        else:
            await database.close(timeout=5)


def split_url(url: str) -> tuple[str, str | None]:
    """Return *url* without the parameters that only Prisma knows, and its ``schema`` if it had one."""
    parts = urlsplit(url)
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    kept = urlencode([(k, v) for k, v in pairs if k not in _PRISMA_ONLY])
    return urlunsplit(parts._replace(query=kept)), dict(pairs).get("schema")


def schema_of(settings: DatabaseSettings) -> str:
    """Return the schema of the proxy's tables: the setting, else the one that Prisma is told in the URL."""
    if settings.url and settings.db_schema == "public":
        return split_url(settings.url.get_secret_value())[1] or settings.db_schema
    return settings.db_schema


@asynccontextmanager
async def transaction(database: asyncpg.Connection, settings: Settings) -> AsyncIterator[None]:
    """A read-only transaction with this session's limits, in UTC and ISO dates."""
    limits = settings.database
    async with database.transaction(readonly=True):
        await database.execute(
            f"SET LOCAL statement_timeout = {int(limits.statement_timeout_s * 1000)}; "
            f"SET LOCAL lock_timeout = {int(limits.lock_timeout_s * 1000)}; "
            "SET LOCAL TimeZone = 'UTC'; SET LOCAL DateStyle = 'ISO'; SET LOCAL extra_float_digits = 1"
        )
        yield
