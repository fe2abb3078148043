"""One recorded run: stand-in engine, real proxy with database and Redis, replayed agent work, lake, figures.

The demo shows it to a person and the integration tests check it; both use this one piece. While the context
is open every service runs and can be asked; on exit everything that was started has ended.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from deploy.local import agents_truth
from deploy.local.engine_process import EngineProcess
from deploy.local.process import ManagedProcess, StackError
from deploy.local.scenario import compose
from deploy.local.stack import LocalStack
from deploy.local.truth import TruthCall, read

REPOSITORY = Path(__file__).resolve().parents[2]
CONFIG = REPOSITORY / "config.yaml"
PIPELINE_CONFIG = Path(__file__).with_name("agentwatt.yaml")

#: Rows that LiteLLM writes itself while keys are made are none; every replayed call gives exactly one.
_SETTLE_QUIET_S = 6.0


@dataclass(slots=True)
class Options:
    """What a run does. ``speed_up`` divides recorded pauses and the engine's waits alike."""

    work: Path
    size: str = "full"
    seed: int = 1
    speed_up: float = 10.0
    config: Path = CONFIG
    python: Path = field(default_factory=lambda: Path(sys.executable))
    engine_arguments: tuple[str, ...] = ()
    plugin_env: Mapping[str, str] = field(default_factory=dict)
    key_properties: Mapping[str, object] = field(default_factory=dict)
    report: Callable[[str], None] = lambda _: None


class RecordedRun:
    """A run in progress, entered with ``with``; see the module docstring."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.work = options.work.resolve()
        self.lake = self.work / "lake"
        self.truth_path = self.work / "truth.jsonl"
        self.settings_path = self.work / "agentwatt.yaml"
        self.timings_s: dict[str, float] = {}
        self.peak_rss_mb = 0.0
        #: The engine's sums when the first and the last metrics of the replay were scraped.
        self.engine_sums: list[dict[str, Any]] = []
        self._open = ExitStack()
        self._stack: LocalStack | None = None
        self._engine: EngineProcess | None = None
        self._sampling = threading.Event()

    @property
    def stack(self) -> LocalStack:
        """The running database, Redis and proxy."""
        assert self._stack is not None, "use RecordedRun in a with statement"
        return self._stack

    @property
    def engine(self) -> EngineProcess:
        """The running stand-in engine."""
        assert self._engine is not None, "use RecordedRun in a with statement"
        return self._engine

    def __enter__(self) -> Self:
        """Start the engine, the services and the proxy.

        Raises:
            StackError: names what failed, the log and a way out.
        """
        options = self.options
        self.work.mkdir(parents=True, exist_ok=True)
        with ExitStack() as starting, self._timed("start"):
            options.report("starting the stand-in engine")
            self._engine = starting.enter_context(
                EngineProcess(self.work, speed_up=options.speed_up, arguments=options.engine_arguments)
            )
            self._stack = starting.enter_context(
                LocalStack(
                    self.work,
                    options.config,
                    env={**self._engine.proxy_environment, **options.plugin_env},
                    python=options.python,
                    cwd=REPOSITORY,
                    report=options.report,
                )
            )
            starting.callback(self._sampling.set)
            sampler = threading.Thread(target=self._sample_memory, name="memory", daemon=True)
            sampler.start()
            self._open = starting.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop everything that was started, the proxy first."""
        self._open.close()

    # -- steps

    def replay(self) -> list[TruthCall]:
        """Play the scenario through the proxy; return its ground truth.

        Raises:
            StackError: a call did not end as the scenario expects; lists them.
        """
        options = self.options
        scenario = compose(options.size, options.seed)
        proxy = self.stack.proxy
        options.report(f"creating {len(scenario.users)} virtual keys")
        keys = {
            user: proxy.create_key(
                user_id=user,
                key_alias=f"svc-{user}" if user in scenario.service_users else user,
                **options.key_properties,
            )
            for user in scenario.users
        }
        keys_path = self.work / "keys.json"
        keys_path.write_text(json.dumps(keys), encoding="utf-8")
        keys_path.chmod(0o600)
        self._write_settings([f"svc-{user}" for user in scenario.service_users])
        scrape = self._agentwatt_process(
            "scrape", self.engine.metrics_url, "--target-name", "engine", "--interval", "1",
            "--match", "vllm:|DCGM_",
        )  # fmt: skip
        with scrape, self._timed("replay"):
            self.engine_sums = [self.engine_summary()]
            options.report("replaying recorded agent work through the proxy")
            self._run(
                [
                    sys.executable, "-m", "deploy.local.replay", "--base-url", proxy.base_url,
                    "--keys", str(keys_path), "--size", options.size, "--seed", str(options.seed),
                    "--speed-up", str(options.speed_up), "--out", str(self.truth_path),
                ],
                "the replay",
            )  # fmt: skip
            self.engine_sums.append(self.engine_summary())
            if not scrape.running:
                raise StackError(f"the metrics scraper ended during the replay:\n{scrape.tail()}")
        if not list(self.lake.glob("raw/metrics/*/*.parquet")):
            raise StackError(f"no metrics reached the lake; the scraper said:\n{scrape.tail()}")
        truth = read(self.truth_path)
        with self._timed("settle"):
            options.report("waiting until the proxy has written its SpendLogs rows")
            proxy.wait_for_spend_rows(len(truth), timeout_s=60)
            proxy.wait_until_spend_settles(quiet_s=_SETTLE_QUIET_S)
        return truth

    def pipeline(self) -> None:
        """Collect the events, read the rows, build facts and figures."""
        with self._timed("pipeline"):
            self.agentwatt("collect", "--once")
            self.agentwatt("run")

    def report(self, out: Path, notes: list[str]) -> None:
        """Write the report files into *out*."""
        with self._timed("report"):
            arguments = [part for note in notes for part in ("--note", note)]
            self.agentwatt("report", "--out", str(out), *arguments)

    def agentwatt(self, *arguments: str) -> str:
        """Run one agentwatt command against this run's lake, database and Redis; return its stdout."""
        return self._run(
            [sys.executable, "-m", "pipeline.cli", *arguments, *self._where],
            f"agentwatt {arguments[0]}",
            self.pipeline_env,
        )

    @property
    def _where(self) -> tuple[str, ...]:
        return ("--config", str(self.settings_path), "--lake", str(self.lake))

    @property
    def pipeline_env(self) -> dict[str, str]:
        """Environment of the pipeline's commands."""
        return {
            **os.environ,
            "DATABASE_URL": self.stack.postgres.url,
            "REDIS_URL": self.stack.redis.url,
        }

    def engine_summary(self) -> dict[str, Any]:
        """The engine's own sums since its start: tokens, energy, seconds."""
        sums: dict[str, Any] = json.loads(self._engine_answer("/ground-truth/summary"))
        return sums

    def engine_truth(self) -> list[dict[str, Any]]:
        """What the engine served, one record per request that reached it."""
        lines = self._engine_answer("/ground-truth").splitlines()
        return [json.loads(line) for line in lines if line.strip()]

    def engine_energy(self) -> list[tuple[int, float]]:
        """The engine's own energy: (UTC epoch microseconds, joules since its start) at every change."""
        return [
            (int(us), float(joules)) for us, joules in json.loads(self._engine_answer("/ground-truth/energy"))
        ]

    def _engine_answer(self, path: str) -> bytes:
        with urllib.request.urlopen(self.engine.url + path, timeout=10) as answer:  # noqa: S310
            content: bytes = answer.read()
        return content

    def agents_truth(self, out: Path, calls: Sequence[TruthCall]) -> dict[str, Any]:
        """Lay the agents per megawatt of the report in *out* beside the truth; write it to a file there."""
        report = json.loads((out / "report.json").read_text(encoding="utf-8"))
        found = agents_truth.compare(report, calls, self.engine_truth(), self.engine_energy())
        (out / "ground_truth.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
        return found

    # -- helpers

    def _write_settings(self, service_keys: list[str]) -> None:
        settings = yaml.safe_load(PIPELINE_CONFIG.read_text(encoding="utf-8"))
        settings["service_keys"] = service_keys
        self.settings_path.write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")

    def _agentwatt_process(self, *arguments: str) -> ManagedProcess:
        return ManagedProcess(
            f"agentwatt {arguments[0]}",
            [sys.executable, "-m", "pipeline.cli", *arguments, *self._where],
            log=self.work / f"{arguments[0]}.log",
            env=self.pipeline_env,
            cwd=REPOSITORY,
            stop_grace_s=30.0,
        )

    def _run(self, command: list[str], what: str, env: Mapping[str, str] | None = None) -> str:
        done = subprocess.run(
            command, cwd=REPOSITORY, env=env, stdout=subprocess.PIPE, text=True, check=False
        )
        if done.returncode:
            raise StackError(
                f"{what} ended with exit code {done.returncode}; its messages are above, "
                f"the logs of the services are in {self.work}"
            )
        return done.stdout

    def _timed(self, name: str) -> _Timer:
        return _Timer(self.timings_s, name)

    def _sample_memory(self) -> None:
        """Keep the largest resident memory of this program's whole process tree, MB."""
        while not self._sampling.wait(1.0):
            self.peak_rss_mb = max(self.peak_rss_mb, _tree_rss_mb(os.getpid()))


class _Timer:
    """Adds the seconds of a block to a dict under a name."""

    def __init__(self, into: dict[str, float], name: str) -> None:
        self._into, self._name = into, name

    def __enter__(self) -> None:
        self._start = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self._into[self._name] = self._into.get(self._name, 0.0) + time.monotonic() - self._start


def _tree_rss_mb(root: int) -> float:
    """Resident memory of a process and its descendants in MB, from /proc; 0 where there is none."""
    parents: dict[int, int] = {}
    rss: dict[int, int] = {}
    page = os.sysconf("SC_PAGE_SIZE")
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            text = (entry / "stat").read_text()
            pages = int((entry / "statm").read_text().split()[1])
        except (OSError, IndexError, ValueError):
            continue  # the process ended meanwhile
        pid = int(entry.name)
        parents[pid] = int(text.rpartition(")")[2].split()[1])
        rss[pid] = pages * page
    total = 0
    for pid, size in rss.items():
        ancestor: int | None = pid
        while ancestor is not None and ancestor != root:
            ancestor = parents.get(ancestor)
        if ancestor == root:
            total += size
    return total / 1e6
