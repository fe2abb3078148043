"""The real LiteLLM proxy as a child process, with a real database behind it."""

from __future__ import annotations

import http.client
import json
import os
import secrets
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote, urlsplit

from deploy.local import database, spend
from deploy.local.migrations import apply_migrations
from deploy.local.prisma import PrismaToolchain, ProxyInstallation
from deploy.local.process import ManagedProcess, StackError
from deploy.local.services import free_port

START_TIMEOUT_S = 300.0  # a first start without compiled bytecode on a small machine
STOP_GRACE_S = 45.0  # open requests, then the queued spend rows

# Before this version CPython collects cycles in the middle of setting a context variable, and crashes (memory
# is read after it was freed) when a finaliser sets one too: python/cpython issue 148891. LiteLLM's stream
# wrapper has such a finaliser, so a busy proxy dies with a segmentation fault once in some ten thousand
# requests. A proxy for a demo or a test lives for minutes and does without the collector.
CYCLES_COLLECTED_SAFELY = (3, 12)

# Not handed on: the first makes every start compile everything again; the others are set by us or would
# point the proxy at somebody else's database or settings.
NOT_INHERITED = frozenset(
    {
        "PYTHONDONTWRITEBYTECODE",
        "DATABASE_URL",
        "DIRECT_URL",
        "DATABASE_HOST",
        "CONFIG_FILE_PATH",
        "PORT",
        "HOST",
    }
)


class ProxyService:
    """A LiteLLM proxy on a loopback port; `.base_url` and `.master_key` are what clients need.

    The database gets LiteLLM's migrations first. On exit the proxy is asked to end, so that it writes the
    rows it still holds.
    """

    def __init__(
        self,
        config: Path,
        work: Path,
        *,
        database_url: str | None = None,
        redis_url: str | None = None,
        env: Mapping[str, str] | None = None,
        python: Path | None = None,
        port: int | None = None,
        cwd: Path | None = None,
        name: str = "proxy",
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        """Describe the proxy; nothing is started yet.

        Args:
            config: LiteLLM's config.yaml.
            work: folder of the log `<name>.log`.
            database_url: PostgreSQL for keys and spend rows; None runs the proxy without a database.
            redis_url: Redis for the proxy's caches and for the plugin.
            env: more variables for the proxy; they win over ours.
            python: executable of the environment that has LiteLLM; default: this program's.
            port: TCP port; default: a free one.
            cwd: working directory; default `work`. It is also searched for modules, like PYTHONPATH.
            name: name in messages and of the log.
            start_timeout_s: how long the proxy may take until it is ready.
        """
        self.config = config.resolve()
        self.work = work.resolve()
        self.database_url = database_url
        self.redis_url = redis_url
        self.python = python or Path(sys.executable)
        self.master_key = f"sk-{secrets.token_hex(24)}"
        self.started_after_s: float | None = None
        self._env = dict(env or {})
        self._fixed_port = port
        self._port: int | None = None
        self._cwd = (cwd or work).resolve()
        self._name = name
        self._start_timeout_s = start_timeout_s
        self._process: ManagedProcess | None = None

    @property
    def port(self) -> int:
        """TCP port on 127.0.0.1."""
        if self._port is None:
            raise StackError("the proxy has not been started")
        return self._port

    @property
    def base_url(self) -> str:
        """URL without a path and without a trailing slash."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def headers(self) -> dict[str, str]:
        """Authorisation with the master key."""
        return {"Authorization": f"Bearer {self.master_key}"}

    @property
    def log(self) -> Path:
        """Everything that the proxy and its query engine print."""
        return self.work / f"{self._name}.log"

    @property
    def pid(self) -> int:
        """Process id of the running proxy."""
        if self._process is None:
            raise StackError("the proxy has not been started")
        return self._process.pid

    @property
    def running(self) -> bool:
        """True while the process lives."""
        return self._process is not None and self._process.running

    def __enter__(self) -> Self:
        """Prepare the database, start and wait until the proxy is ready.

        Raises:
            StackError: names what failed, the log and its last lines.
        """
        if not self.config.exists():
            raise StackError(f"the proxy's configuration {self.config} does not exist.")
        self.work.mkdir(parents=True, exist_ok=True)
        environment = self._environment()
        self._port = self._fixed_port or free_port()
        self._process = ManagedProcess(
            f"LiteLLM ({self._name})",
            [
                *(str(self.python), "-m", "litellm.proxy.proxy_cli"),
                *("--config", str(self.config)),
                *("--host", "127.0.0.1", "--port", str(self._port)),
            ],
            log=self.log,
            env=environment,
            cwd=self._cwd,
            stop_grace_s=STOP_GRACE_S,
        )
        try:
            self._process.start()
            self.started_after_s = self._process.wait_until(
                self._ready,
                timeout_s=self._start_timeout_s,
                advice="`python -m deploy.local.prepare` makes starts faster; LITELLM_LOG=DEBUG says more.",
            )
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop gracefully."""
        self.stop()

    def stop(self) -> None:
        """Ask the proxy to end and wait: it finishes requests and writes its queued rows first."""
        if self._process is not None:
            self._process.stop()
            self._process = None

    def kill(self) -> None:
        """End the proxy at once, as a crash would; queued rows are lost."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self.stop()

    def request(
        self, method: str, path: str, body: object = None, *, key: str | None = None, timeout_s: float = 60.0
    ) -> tuple[int, Any]:
        """Send one request with the master key (or `key`); returns status and parsed answer.

        The answer is text where it is not JSON.
        """
        headers = {"Authorization": f"Bearer {key or self.master_key}", "Content-Type": "application/json"}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            text = response.read().decode("utf-8", errors="replace")
        finally:
            connection.close()
        try:
            return response.status, json.loads(text)
        except ValueError:
            return response.status, text

    def create_key(self, **properties: object) -> str:
        """Generate a virtual key (`models`, `key_alias`, `user_id`, `metadata` …) and return it.

        Raises:
            StackError: the proxy refused; carries its answer.
        """
        status, answer = self.request("POST", "/key/generate", properties)
        if status != 200:
            raise StackError(f"the proxy refused to create a key ({status}): {answer}")
        return str(answer["key"])

    def spend_rows(self) -> int:
        """Rows in `LiteLLM_SpendLogs` now."""
        return database.blocking(lambda: spend.count_rows(self._database()))

    def wait_for_spend_rows(self, minimum: int, *, timeout_s: float = 60.0) -> int:
        """Block until at least `minimum` spend rows are written; see `spend.wait_for_rows`."""
        return database.blocking(lambda: spend.wait_for_rows(self._database(), minimum, timeout_s=timeout_s))

    def wait_until_spend_settles(self, *, quiet_s: float, timeout_s: float = 120.0) -> int:
        """Block until no row was added for `quiet_s`; see `spend.wait_until_settled`."""
        return database.blocking(
            lambda: spend.wait_until_settled(self._database(), quiet_s=quiet_s, timeout_s=timeout_s)
        )

    def _database(self) -> str:
        if self.database_url is None:
            raise StackError("the proxy runs without a database, so it has no spend rows")
        return self.database_url

    def _environment(self) -> dict[str, str]:
        """Variables of the proxy; prepares client and database on the way."""
        environment = {key: value for key, value in os.environ.items() if key not in NOT_INHERITED}
        environment |= {
            "LITELLM_MASTER_KEY": self.master_key,
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # prices of the release, not fetched
            "LITELLM_MODE": "PRODUCTION",  # no search for a .env file
            "LITELLM_DONT_SHOW_FEEDBACK_BOX": "true",
            "PYTHONUNBUFFERED": "1",
            "TZ": "UTC",
        }
        if self.database_url is not None:
            installation = ProxyInstallation.of(self.python)
            environment |= PrismaToolchain(installation).prepare().environment()
            apply_migrations(self.database_url, installation.migrations)
            environment |= {"DATABASE_URL": self.database_url, "DISABLE_SCHEMA_UPDATE": "true"}
        if self.redis_url is not None:
            environment |= redis_variables(self.redis_url)
        if sys.version_info < CYCLES_COLLECTED_SAFELY:
            environment.setdefault("PYTHON_GC_THRESHOLD", "0,0,0")
        environment |= self._env
        self.master_key = environment["LITELLM_MASTER_KEY"]
        return environment

    def _ready(self) -> bool:
        try:
            status, answer = self.request("GET", "/health/readiness", timeout_s=5.0)
        except (OSError, http.client.HTTPException):
            return False
        if status != 200 or not isinstance(answer, dict):
            return False
        return self.database_url is None or answer.get("db") == "connected"


def redis_variables(url: str) -> dict[str, str]:
    """The variables by which LiteLLM finds Redis, from a URL: the parts, and the URL itself."""
    parts = urlsplit(url)
    variables = {
        "REDIS_URL": url,
        "REDIS_HOST": parts.hostname or "localhost",
        "REDIS_PORT": str(parts.port or 6379),
    }
    if parts.username:
        variables["REDIS_USERNAME"] = unquote(parts.username)
    if parts.password:
        variables["REDIS_PASSWORD"] = unquote(parts.password)
    return variables
