"""The connection over which SpendLogs rows come in bulk: COPY, decoded to Arrow outside of Python.

Each statement has a read-only transaction of its own with the session's limits, so nothing is held between
pages. Calls block: they belong into a thread. Another thread may :meth:`SpendStream.cancel` them.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from pipeline.errors import ConfigError, UnreachableError
from pipeline.extract.arrow_stream import ArrowRows, ArrowStreamError
from pipeline.extract.database import split_url
from pipeline.settings import DatabaseSettings

if TYPE_CHECKING:
    from types import TracebackType

#: Connection parameters that libpq knows; any other one is a setting of the server.
_PARAMETERS: Final = frozenset(
    {"host", "hostaddr", "port", "dbname", "user", "password", "passfile", "require_auth", "channel_binding",
     "connect_timeout", "client_encoding", "options", "application_name", "fallback_application_name",
     "keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout",
     "gssencmode", "ssl", "sslmode", "sslnegotiation", "sslcompression", "sslcert", "sslkey", "sslpassword",
     "sslcertmode", "sslrootcert", "sslcrl", "sslcrldir", "sslsni", "requirepeer", "ssl_min_protocol_version",
     "ssl_max_protocol_version", "krbsrvname", "gsslib", "gssdelegation", "service", "target_session_attrs",
     "load_balance_hosts"}
)  # fmt: skip
#: A server that went away without a word is noticed within a minute or so.
_ALIVE: Final = {"keepalives_idle": "30", "keepalives_interval": "10", "keepalives_count": "3"}
_ENDED: Final = "57014"
#: Size of a batch of rows. While one is worked on, the server goes on until the socket's buffer is full: it
#: waits for large ones.
_BATCH_BYTES: Final = "1048576"
_BATCH_OPTION: Final = "adbc.postgresql.batch_size_hint_bytes"


class SpendStream:
    """A second, read-only connection to the proxy's database; close it, or use it in a ``with``."""

    def __init__(self, settings: DatabaseSettings) -> None:
        """Connect.

        Raises:
            ConfigError: no URL.
            UnreachableError: with the cause.
        """
        import adbc_driver_manager
        import adbc_driver_postgresql

        if settings.url is None:
            raise ConfigError("There is no database URL.", next_step="export DATABASE_URL=postgresql://…")
        url = parameters(split_url(settings.url.get_secret_value())[0], settings.connect_timeout_s)
        parts = urlsplit(url)
        self._place = parts.hostname or dict(parse_qsl(parts.query)).get("host", "localhost")
        # As one statement without parameters, the limits cost one round trip.
        self._begin = (
            "BEGIN READ ONLY; "
            f"SET LOCAL statement_timeout = {int(settings.statement_timeout_s * 1000)}; "
            f"SET LOCAL lock_timeout = {int(settings.lock_timeout_s * 1000)}; "
            "SET LOCAL TimeZone = 'UTC'; SET LOCAL DateStyle = 'ISO'; SET LOCAL extra_float_digits = 1"
        )
        try:
            self._database = adbc_driver_postgresql.connect(url)
        except adbc_driver_manager.Error as error:
            raise self._refused(error) from None
        try:
            self._connection = adbc_driver_manager.AdbcConnection(self._database)
        except adbc_driver_manager.Error as error:
            self._database.close()
            raise self._refused(error) from None

    def __enter__(self) -> Self:
        """Return the connection itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connection."""
        import adbc_driver_manager

        with suppress(adbc_driver_manager.Error):
            self._connection.close()
            self._database.close()

    def rows(self, statement: str) -> ArrowRows:
        """Return the rows of *statement*.

        Raises:
            UnreachableError: the server ended the statement, or the connection broke off.
        """
        import adbc_driver_manager

        try:
            self._execute(self._begin)
            try:
                with adbc_driver_manager.AdbcStatement(self._connection) as running:
                    running.set_options(**{_BATCH_OPTION: _BATCH_BYTES})
                    running.set_sql_query(statement)
                    stream, _ = running.execute_query()
                    return ArrowRows(stream.__arrow_c_stream__())
            finally:
                self._execute("ROLLBACK")  # nothing was written: the cheapest end
        except adbc_driver_manager.Error as error:
            raise self._broken(str(error), ended=getattr(error, "sqlstate", None) == _ENDED) from None
        except ArrowStreamError as error:
            raise self._broken(str(error), ended="canceling statement" in str(error)) from None

    def cancel(self) -> None:
        """End what another thread waits for, if it does."""
        import adbc_driver_manager

        with suppress(adbc_driver_manager.Error):
            self._connection.cancel()

    def _execute(self, statement: str) -> None:
        import adbc_driver_manager

        with adbc_driver_manager.AdbcStatement(self._connection) as running:
            running.set_sql_query(statement)
            running.execute_update()

    def _refused(self, error: Exception) -> UnreachableError:
        return UnreachableError(
            f"The database at {self._place} did not let us in.",
            why=str(error),
            next_step="agentwatt doctor checks the connection; run the same command again once it answers.",
        )

    def _broken(self, why: str, *, ended: bool) -> UnreachableError:
        if ended:
            return UnreachableError(
                "The database ended a statement at its time limit.",
                why=why,
                next_step="Lower database.page_rows, raise database.statement_timeout_s, or read a replica.",
            )
        return UnreachableError(
            f"The database at {self._place} broke off.",
            why=why,
            next_step="Run the same command again: it goes on where it stopped.",
        )


def parameters(url: str, connect_timeout_s: float) -> str:
    """Return *url* as libpq takes it: unknown parameters as settings of the server, text as UTF-8.

    Args:
        url: connection URL.
        connect_timeout_s: limit of connecting where the URL sets none; libpq knows whole seconds from 2 on.
    """
    parts = urlsplit(url)
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    known = {k: v for k, v in given.items() if k in _PARAMETERS}
    settings = [f"-c {k}={_escape(v)}" for k, v in given.items() if k not in _PARAMETERS]
    if settings:
        known["options"] = " ".join(filter(None, [known.get("options"), *settings]))
    defaults = {"connect_timeout": str(max(2, round(connect_timeout_s))), **_ALIVE}
    query = urlencode({**defaults, **known, "client_encoding": "utf8"}, quote_via=quote)
    return urlunsplit(parts._replace(query=query))


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace(" ", "\\ ")
