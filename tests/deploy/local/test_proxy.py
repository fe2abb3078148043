"""The proxy's child process, tried on a small program that behaves like the proxy's command line."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.local import database, spend
from deploy.local.process import StackError
from deploy.local.proxy import ProxyService, redis_variables
from deploy.local.services import PostgresService

STAND_IN = """
import http.server, json, os, signal, sys, threading

class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self):
        length = int(self.headers.get("content-length") or 0)
        body = self.rfile.read(length).decode()
        if self.path == "/health/readiness":
            status, content = 200, json.dumps({"status": "healthy", "db": "Not connected"})
        elif self.path == "/environment":
            status, content = 200, json.dumps({"env": dict(os.environ), "argv": sys.argv, "cwd": os.getcwd()})
        elif self.path == "/key/generate":
            wanted = json.loads(body)
            status = 200 if wanted.get("models") else 400
            content = json.dumps({"key": "sk-of-" + wanted["key_alias"], "by": self.headers["authorization"]})
        else:
            status, content = 404, "no such page"
        self.send_response(status)
        self.end_headers()
        self.wfile.write(content.encode())
    do_GET = do_POST = answer
    def log_message(self, *arguments):
        pass

server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler)
def stop(*arguments):
    print("flushed", flush=True)
    threading.Thread(target=server.shutdown).start()
signal.signal(signal.SIGTERM, stop)
server.serve_forever()
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text("model_list: []\n")
    return path


def script(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def python(tmp_path: Path) -> Path:
    (tmp_path / "stand_in.py").write_text(STAND_IN)
    return script(
        tmp_path / "python", f'#!/bin/sh\nexec {sys.executable} -W error {tmp_path / "stand_in.py"} "$@"\n'
    )


@pytest.fixture
def proxy(
    config: Path, python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ProxyService]:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("DATABASE_URL", "postgresql://somebody-elses/database")
    service = ProxyService(
        config,
        tmp_path / "work",
        python=python,
        redis_url="redis://:pa%2Fss@127.0.0.1:7777/0",
        env={"ENGINE_URL": "http://engine"},
    )
    with service:
        yield service


def environment(proxy: ProxyService) -> dict[str, Any]:
    status, answer = proxy.request("GET", "/environment")
    assert status == 200
    assert isinstance(answer, dict)
    return answer


def test_the_proxy_is_started_with_its_config_on_a_loopback_port(proxy: ProxyService) -> None:
    answer = environment(proxy)
    arguments = answer["argv"]
    assert answer["cwd"] == str(proxy.work)
    assert arguments[1:] == [
        *("-m", "litellm.proxy.proxy_cli", "--config", str(proxy.config)),
        *("--host", "127.0.0.1", "--port", str(proxy.port)),
    ]
    assert proxy.base_url == f"http://127.0.0.1:{proxy.port}"
    assert proxy.started_after_s is not None


def test_the_proxy_gets_its_own_variables_and_not_those_of_somebody_else(proxy: ProxyService) -> None:
    variables = environment(proxy)["env"]
    assert variables["ENGINE_URL"] == "http://engine"
    assert variables["LITELLM_MASTER_KEY"] == proxy.master_key
    assert len(proxy.master_key) > 40
    assert variables["LITELLM_LOCAL_MODEL_COST_MAP"] == "True"
    assert variables["REDIS_PASSWORD"] == "pa/ss"
    assert "PYTHONDONTWRITEBYTECODE" not in variables
    assert "DATABASE_URL" not in variables


@pytest.mark.parametrize(
    ("version", "given", "thresholds"),
    [
        ((3, 11, 7), {}, "0,0,0"),
        ((3, 11, 7), {"PYTHON_GC_THRESHOLD": "700,10,10"}, "700,10,10"),
        ((3, 12, 0), {}, None),
    ],
)
def test_a_proxy_runs_without_the_collector_where_it_would_crash(
    version: tuple[int, ...],
    given: dict[str, str],
    thresholds: str | None,
    config: Path,
    python: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PYTHON_GC_THRESHOLD", raising=False)
    monkeypatch.setattr(sys, "version_info", version)
    with ProxyService(config, tmp_path, python=python, env=given) as proxy:
        assert environment(proxy)["env"].get("PYTHON_GC_THRESHOLD") == thresholds


def test_a_master_key_of_the_caller_is_the_one_that_is_used(
    config: Path, python: Path, tmp_path: Path
) -> None:
    env = {"LITELLM_MASTER_KEY": "sk-chosen-by-the-caller"}
    with ProxyService(config, tmp_path, python=python, env=env) as proxy:
        assert proxy.master_key == "sk-chosen-by-the-caller"
        assert proxy.headers == {"Authorization": "Bearer sk-chosen-by-the-caller"}


def test_keys_are_created_with_the_master_key(proxy: ProxyService) -> None:
    assert proxy.create_key(key_alias="ana", models=["coder"]) == "sk-of-ana"
    with pytest.raises(StackError, match=r"refused to create a key \(400\)"):
        proxy.create_key(key_alias="ana")


def test_an_answer_that_is_no_json_comes_back_as_text(proxy: ProxyService) -> None:
    assert proxy.request("GET", "/absent") == (404, "no such page")


def test_a_stop_lets_the_proxy_flush(proxy: ProxyService) -> None:
    assert proxy.running
    proxy.stop()
    assert not proxy.running
    assert "flushed" in proxy.log.read_text()


def test_a_kill_does_not(proxy: ProxyService) -> None:
    proxy.kill()
    assert not proxy.running
    assert "flushed" not in proxy.log.read_text()


def test_an_early_death_shows_the_log(config: Path, tmp_path: Path) -> None:
    python = script(tmp_path / "python", "#!/bin/sh\necho 'no such model'\nexit 3\n")
    with (
        pytest.raises(StackError, match=r"exit code 3(.|\n)*no such model") as failure,
        ProxyService(config, tmp_path, python=python),
    ):
        pass
    assert str(tmp_path / "proxy.log") in str(failure.value)


def test_a_missing_config_is_reported_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="does not exist"), ProxyService(tmp_path / "absent.yaml", tmp_path):
        pass


def test_without_a_database_there_are_no_spend_rows(proxy: ProxyService) -> None:
    with pytest.raises(StackError, match="without a database"):
        proxy.spend_rows()


def test_redis_variables_name_the_parts_that_the_url_has() -> None:
    assert redis_variables("redis://cache") == {
        "REDIS_URL": "redis://cache",
        "REDIS_HOST": "cache",
        "REDIS_PORT": "6379",
    }
    assert redis_variables("redis://me:secret@cache:1/2")["REDIS_USERNAME"] == "me"


@pytest.fixture(scope="module")
def spend_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as variables:
        variables.delenv("DATABASE_URL", raising=False)
        with PostgresService(tmp_path_factory.mktemp("postgres")) as service:
            database.execute(service.url, 'CREATE TABLE "LiteLLM_SpendLogs" (n int)')
            yield service.url


async def test_waiting_for_rows_ends_when_they_have_arrived(spend_url: str) -> None:
    database.execute(spend_url, 'TRUNCATE "LiteLLM_SpendLogs"')
    waiting = asyncio.ensure_future(spend.wait_for_rows(spend_url, 2, timeout_s=30))
    database.execute(spend_url, 'INSERT INTO "LiteLLM_SpendLogs" VALUES (1), (2), (3)')
    assert await waiting == 3
    assert await spend.count_rows(spend_url) == 3


async def test_rows_that_do_not_arrive_in_time_are_counted_in_the_message(spend_url: str) -> None:
    database.execute(spend_url, 'TRUNCATE "LiteLLM_SpendLogs"', 'INSERT INTO "LiteLLM_SpendLogs" VALUES (1)')
    with pytest.raises(StackError, match="1 of 2 spend rows"):
        await spend.wait_for_rows(spend_url, 2, timeout_s=0)


async def test_rows_have_settled_when_none_was_added_for_a_while(spend_url: str) -> None:
    database.execute(spend_url, 'TRUNCATE "LiteLLM_SpendLogs"', 'INSERT INTO "LiteLLM_SpendLogs" VALUES (1)')
    assert await spend.wait_until_settled(spend_url, quiet_s=0.3, timeout_s=30) == 1
    with pytest.raises(StackError, match="still arrive"):
        await spend.wait_until_settled(spend_url, quiet_s=30, timeout_s=0)
