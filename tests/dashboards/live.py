"""A Prometheus that scrapes a real proxy and the stand-in engine while calls pass through them."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml

from dashboards.src import check, queries
from deploy.local.engine_process import EngineProcess
from deploy.local.process import ManagedProcess
from deploy.local.services import free_port
from deploy.local.stack import LocalStack

REPOSITORY = Path(__file__).resolve().parents[2]
#: Stands for ``$__rate_interval`` of a scrape every second.
WINDOW = "15s"
#: How long calls pass before anything is asked.
TRAFFIC_S = 20


@dataclass(frozen=True)
class Live:
    """A Prometheus that has scraped working services."""

    url: str
    answers: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    #: seconds of the epoch between which calls passed
    span: list[float] = field(default_factory=list)

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the result of an instant query."""
        body = urllib.parse.urlencode({"query": expression}).encode()
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/query", body, timeout=20) as answer:
                found = json.loads(answer.read())
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read().decode()) from None
        result: list[dict[str, Any]] = found["data"]["result"]
        return result

    def get(self, path: str) -> Any:
        """Return the data of another endpoint."""
        with urllib.request.urlopen(f"{self.url}{path}", timeout=20) as answer:
            return json.loads(answer.read())["data"]


@contextmanager
def scraped(work: Path) -> Iterator[Live]:
    """Start everything, let calls pass, ask every expression once, and keep the services running."""
    proxy_config = yaml.safe_load((REPOSITORY / "config.yaml").read_text(encoding="utf-8"))
    proxy_config["litellm_settings"] |= {
        "callbacks": ["prometheus", "gateway_plugin.callback.telemetry"],
        "require_auth_for_metrics_endpoint": False,
    }
    config = work / "config.yaml"
    config.write_text(yaml.safe_dump(proxy_config), encoding="utf-8")
    with ExitStack() as stack:
        engine = stack.enter_context(EngineProcess(work, speed_up=20))
        services = stack.enter_context(
            LocalStack(
                work,
                config,
                env={
                    **engine.proxy_environment,
                    "AGENTWATT_PLUGIN__SAMPLE_INTERVAL_S": "0.5",
                    "AGENTWATT_PLUGIN__DB_CONNECTIONS": "true",
                    "AGENTWATT_PLUGIN__COUNT_EXACT": "true",
                },
                cwd=REPOSITORY,
            )
        )
        key = services.proxy.create_key(key_alias="ana")

        def call(session: int, number: int) -> None:
            history = [{"role": "user", "content": f"session {session}: " + "read the file again. " * 300}]
            for turn in range(number):
                history += [
                    {"role": "assistant", "content": f"answer {turn}"},
                    {"role": "user", "content": f"question {turn}"},
                ]
            body = {"model": "coder-large", "max_tokens": 40, "stream": number % 2 == 1, "messages": history}
            status, answer = services.proxy.request("POST", "/v1/chat/completions", body, key=key)
            assert status == 200, answer

        call(0, 0)  # every series exists before the first scrape, so that its growth is seen
        server = stack.enter_context(_prometheus(work, services.proxy.port, engine.metrics_url))
        until(lambda: len(server.query("up == 1")) == 2)
        with ThreadPoolExecutor(4) as pool:
            deadline = time.monotonic() + TRAFFIC_S
            server.span.append(time.time())
            round_ = 0
            while time.monotonic() < deadline:
                round_ += 1
                for done in [pool.submit(call, n, round_) for n in range(4)]:
                    done.result()
            rules = ("job:agentwatt_open_calls:avg5m", "board:dcgm_power:watts")
            until(lambda: all(server.query(rule) for rule in rules))
        # At once, while the last calls lie within the window, whatever the order of the tests.
        for expression in check.live_expressions(window=WINDOW):
            server.answers[expression.expression] = server.query(expression.expression)
        server.span.append(time.time())
        yield server


def _prometheus(work: Path, proxy_port: int, engine_metrics: str) -> _Server:
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(p) for folder in (queries.RULES, queries.ALERTS) for p in folder.glob("*.yaml")],
        "scrape_configs": [
            {
                "job_name": "gateway",
                "metrics_path": "/metrics/",
                "static_configs": [{"targets": [f"127.0.0.1:{proxy_port}"]}],
            },
            {
                "job_name": "engine",
                "static_configs": [{"targets": [urllib.parse.urlsplit(engine_metrics).netloc]}],
            },
        ],
    }
    rules = []
    for path in config["rule_files"]:
        document = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        for group in document["groups"]:
            group["interval"] = "1s"
        quick = work / f"{Path(path).parent.name}.yaml"
        quick.write_text(yaml.safe_dump(document), encoding="utf-8")
        rules.append(str(quick))
    config["rule_files"] = rules
    (work / "prometheus.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    return _Server(work)


class _Server:
    def __init__(self, work: Path) -> None:
        self._live = Live(f"http://127.0.0.1:{free_port()}")
        self._process = ManagedProcess(
            "Prometheus",
            [
                "prometheus",
                f"--config.file={work / 'prometheus.yaml'}",
                f"--storage.tsdb.path={work / 'tsdb'}",
                f"--web.listen-address={self._live.url.removeprefix('http://')}",
                "--log.level=warn",
            ],
            log=work / "prometheus.log",
            cwd=work,
        )

    def __enter__(self) -> Live:
        self._process.start()
        self._process.wait_until(self._ready, timeout_s=30, advice="see its log")
        return self._live

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.stop()

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._live.url}/-/ready", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


def until(condition: Callable[[], Any], timeout_s: float = 30.0) -> None:
    """Wait until *condition()* is true."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.2)
