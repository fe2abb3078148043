"""A real Prometheus scrapes the engine and a real proxy; every expression is asked, and those that must have
data have it."""

from __future__ import annotations

import json
import shutil
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from dashboards.src import check, exported, queries
from deploy.local.engine_process import EngineProcess
from deploy.local.process import ManagedProcess
from deploy.local.services import free_port
from deploy.local.stack import LocalStack

REPOSITORY = Path(__file__).resolve().parents[2]
pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(
        shutil.which("prometheus") is None,
        reason="prometheus is not installed: apt-get install --no-install-recommends prometheus",
    ),
]
WINDOW = "15s"


@dataclass(frozen=True)
class Live:
    """A Prometheus that has scraped working services."""

    url: str
    answers: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

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


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    work = tmp_path_factory.mktemp("live")
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
        _until(lambda: len(server.query("up == 1")) == 2)
        with ThreadPoolExecutor(4) as pool:
            deadline = time.monotonic() + 20
            round_ = 0
            while time.monotonic() < deadline:
                round_ += 1
                for done in [pool.submit(call, n, round_) for n in range(4)]:
                    done.result()
            rules = ("job:agentwatt_open_calls:avg5m", "board:dcgm_power:watts")
            _until(lambda: all(server.query(rule) for rule in rules))
        # At once, while the last calls lie within the window, whatever the order of the tests.
        for expression in check.live_expressions(window=WINDOW):
            server.answers[expression.expression] = server.query(expression.expression)
        yield server


@pytest.fixture
def answers(live: Live) -> dict[str, list[dict[str, Any]]]:
    """Return the answer to each expression."""
    return live.answers


def _prometheus(work: Path, proxy_port: int, engine_metrics: str) -> Any:
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

    def __exit__(self, *_: object) -> None:
        self._process.stop()

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._live.url}/-/ready", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


def _until(condition: Any, timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.2)


def test_prometheus_accepts_every_expression_and_those_that_must_have_data_have_it(
    answers: dict[str, list[dict[str, Any]]],
) -> None:
    wanted = [e for e in check.live_expressions(window=WINDOW) if e.must_have_data]
    assert len(wanted) > 80
    empty = [f"{e.where}: {e.expression}" for e in wanted if not answers[e.expression]]
    assert empty == []


def test_shares_are_shares(answers: dict[str, list[dict[str, Any]]]) -> None:
    found = 0
    for name, board in queries.dashboards().items():
        for panel in queries.panels(board):
            if panel["fieldConfig"]["defaults"]["unit"] != "percentunit":
                continue
            for target in panel["targets"]:
                if "expr" in target:
                    for series in answers[queries.filled(target["expr"], window=WINDOW)]:
                        value = float(series["value"][1])
                        assert -1e-9 <= value <= 1 + 1e-9, (name, panel["title"], value)
                        found += 1
    assert found > 10


def test_legends_name_labels_that_the_series_have(answers: dict[str, list[dict[str, Any]]]) -> None:
    for query in queries.of_panels():
        if query.kind == "promql" and "{{" in query.legend:
            for series in answers[queries.filled(query.text, window=WINDOW)]:
                for part in query.legend.split("{{")[1:]:
                    assert part.split("}}")[0] in series["metric"], query.where


def test_rules_evaluate_without_an_error_and_no_alert_fires_on_healthy_services(live: Live) -> None:
    rules = [rule for group in live.get("/api/v1/rules")["groups"] for rule in group["rules"]]
    assert len(rules) == len(queries.rules())
    assert [(r["name"], r.get("lastError")) for r in rules if r["health"] not in {"ok", "unknown"}] == []
    firing = [
        a["labels"]["alertname"] for a in live.get("/api/v1/alerts")["alerts"] if a["state"] == "firing"
    ]
    assert firing == []


def test_the_list_of_what_is_exported_is_what_is_scraped(live: Live) -> None:
    known = exported.families()
    for series in live.query('{job=~"gateway|engine"}'):
        labels = dict(series["metric"])
        name = labels.pop("__name__")
        if name not in known or not name.startswith(("agentwatt_", "vllm:", "DCGM_", "litellm_")):
            continue
        own = exported.labels_of(name)
        assert own is None or set(labels) <= own, (name, set(labels) - (own or set()))


def test_the_plugin_exports_nothing_that_is_not_in_its_table(live: Live) -> None:
    names = {s["metric"]["__name__"] for s in live.query('{__name__=~"agentwatt_.+",job="gateway"}')}
    assert names
    assert {n for n in names if not n.endswith("_created")} <= set(exported.families())
