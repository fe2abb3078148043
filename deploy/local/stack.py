"""PostgreSQL, Redis and the LiteLLM proxy together, started in order and stopped in reverse."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from deploy.local.prisma import PrismaToolchain, ProxyInstallation, Report
from deploy.local.proxy import ProxyService
from deploy.local.services import PostgresService, RedisService


class LocalStack:
    """The whole equipment of one run: `.postgres`, `.redis`, `.proxy`.

    ```python
    with LocalStack(Path("out/demo"), Path("config.yaml"), env={"ENGINE_URL": url}) as stack:
        key = stack.proxy.create_key(key_alias="ana")
    ```
    """

    def __init__(
        self,
        work: Path,
        config: Path,
        *,
        env: Mapping[str, str] | None = None,
        python: Path | None = None,
        cwd: Path | None = None,
        report: Report = lambda _: None,
    ) -> None:
        """Describe the run; nothing is started yet.

        Args:
            work: folder of the logs.
            config: LiteLLM's config.yaml; it reads variables as `os.environ/NAME`.
            env: variables for the proxy, for example the engine's URL and the plugin's settings.
            python: executable of the environment that has LiteLLM; default: this program's.
            cwd: working directory of the proxy, from which it can import; default: `work`.
            report: told what is being started.
        """
        self.work = work.resolve()
        self.postgres = PostgresService(self.work)
        self.redis = RedisService(self.work)
        self._config = config
        self._env = dict(env or {})
        self._python = python or Path(sys.executable)
        self._cwd = cwd
        self._report = report
        self._proxy: ProxyService | None = None
        self._open = ExitStack()

    @property
    def proxy(self) -> ProxyService:
        """The running proxy."""
        assert self._proxy is not None, "use LocalStack in a with statement"
        return self._proxy

    def __enter__(self) -> Self:
        """Start everything; what was started is stopped again when a later part fails.

        Raises:
            StackError: names what failed, the log and a way out.
        """
        with ExitStack() as starting:
            installation = ProxyInstallation.of(self._python)
            PrismaToolchain(installation).prepare(self._report)
            self._report("starting PostgreSQL and Redis")
            starting.enter_context(self.postgres)
            starting.enter_context(self.redis)
            self._report(f"starting LiteLLM {installation.litellm_version}")
            self._proxy = ProxyService(
                self._config,
                self.work,
                database_url=self.postgres.url,
                redis_url=self.redis.url,
                env=self._env,
                python=self._python,
                cwd=self._cwd,
            )
            starting.enter_context(self._proxy)
            self._open = starting.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the proxy first, so that its last rows are written, then the services."""
        self._open.close()
