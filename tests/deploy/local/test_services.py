"""The embedded servers: they start, answer, are private, and end with the program."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from deploy.local import binaries, database, services
from deploy.local.process import StackError
from deploy.local.services import PostgresService, RedisService, free_port

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def _no_external_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DATABASE_URL", "REDIS_URL", "AGENTWATT_DATABASE_AS_IS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresService]:
    with pytest.MonkeyPatch.context() as environment:
        environment.delenv("DATABASE_URL", raising=False)
        with PostgresService(tmp_path_factory.mktemp("postgres")) as service:
            yield service


@pytest.fixture(scope="module")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisService]:
    with pytest.MonkeyPatch.context() as environment:
        environment.delenv("REDIS_URL", raising=False)
        with RedisService(tmp_path_factory.mktemp("redis")) as service:
            yield service


def wait_for_end(pid: int, seconds: float) -> bool:
    """True when a process that need not be our child ends in time."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], seconds)[0])
    finally:
        os.close(handle)


def is_guard_of(process: Path, folder: Path) -> bool:
    """True for the shell that watches over the server with this folder."""
    try:
        return os.fsencode(folder) in (process / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


def test_postgres_offers_an_empty_utf8_database_that_runs_in_utc(postgres: PostgresService) -> None:
    assert database.fetch_value(postgres.url, "SELECT current_database()") == "litellm"
    assert database.fetch_value(postgres.url, "SHOW server_encoding") == "UTF8"
    assert database.fetch_value(postgres.url, "SHOW timezone") == "UTC"
    tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"
    assert database.fetch_value(postgres.url, tables) == 0


def test_postgres_listens_only_on_a_socket_in_a_private_directory(postgres: PostgresService) -> None:
    assert database.fetch_value(postgres.url, "SHOW listen_addresses") == ""
    folder = Path(database.fetch_value(postgres.url, "SHOW unix_socket_directories"))
    assert folder.stat().st_mode & 0o077 == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to give up its rights")
def test_postgres_does_not_keep_root_rights(postgres: PostgresService) -> None:
    assert postgres.pid is not None
    assert Path(f"/proc/{postgres.pid}").stat().st_uid != 0


async def test_database_helpers_work_while_an_event_loop_is_running(postgres: PostgresService) -> None:
    assert database.fetch_value(postgres.url, "SELECT $1::int + 1", 41) == 42


def test_a_further_database_can_be_a_copy_of_another(postgres: PostgresService) -> None:
    first = postgres.create_database("template_of_copy")
    database.execute(first, "CREATE TABLE mark (n int)", "INSERT INTO mark VALUES (7)")
    copy = postgres.create_database("copy", template="template_of_copy")
    try:
        assert database.fetch_value(copy, "SELECT n FROM mark") == 7
    finally:
        postgres.drop_database("copy")
        postgres.drop_database("template_of_copy")
    with pytest.raises(StackError, match="does not answer"):
        database.execute(copy, "SELECT 1")


def test_a_given_server_gets_a_fresh_database_that_is_dropped_afterwards(
    postgres: PostgresService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", postgres.url)
    with PostgresService(tmp_path) as service:
        assert not service.embedded
        assert service.pid is None
        name = database.database_name(service.url)
        assert name.startswith("litellm_")
        database.execute(service.url, "CREATE TABLE mine (n int)")
    exists = "SELECT count(*) FROM pg_database WHERE datname = $1"
    assert database.fetch_value(postgres.url, exists, name) == 0


def test_a_given_database_is_used_as_it_is_on_request(
    postgres: PostgresService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", postgres.url)
    monkeypatch.setenv("AGENTWATT_DATABASE_AS_IS", "1")
    with PostgresService(tmp_path) as service:
        assert service.url == postgres.url
    assert database.fetch_value(postgres.url, "SELECT 1") == 1


def test_a_role_that_may_not_create_databases_is_told_what_to_do(
    postgres: PostgresService, tmp_path: Path
) -> None:
    database.execute(postgres.url, "CREATE ROLE visitor LOGIN")
    try:
        url = postgres.url.replace("postgres@", "visitor@")
        with pytest.raises(StackError, match="CREATEDB"), PostgresService(tmp_path, external_url=url):
            pass
    finally:
        database.execute(postgres.url, "DROP ROLE visitor")


def test_an_unreachable_database_is_named_without_its_password(tmp_path: Path) -> None:
    url = f"postgresql://someone:s3cret@127.0.0.1:{free_port()}/nowhere"
    with (
        pytest.raises(StackError, match="does not answer") as failure,
        PostgresService(tmp_path, external_url=url),
    ):
        pass
    assert "s3cret" not in str(failure.value)
    assert "someone:***@127.0.0.1" in str(failure.value)


def test_a_failed_start_names_the_log_and_a_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(services.POSTGRES_SETTINGS, "shared_buffers", "nonsense")
    with pytest.raises(StackError, match="ended while starting") as failure, PostgresService(tmp_path):
        pass
    assert str(tmp_path / "postgres.log") in str(failure.value)
    assert "nonsense" in str(failure.value)
    assert "DATABASE_URL" in str(failure.value)


def test_redis_answers_only_with_its_password(redis_server: RedisService) -> None:
    with redis.Redis.from_url(redis_server.url) as client:
        assert client.set("agentwatt:test", "1")
        assert client.get("agentwatt:test") == b"1"
        port = client.connection_pool.connection_kwargs["port"]
    with (
        redis.Redis(port=port, retry=Retry(NoBackoff(), 0)) as stranger,
        pytest.raises(redis.AuthenticationError),
    ):
        stranger.ping()


def test_redis_takes_another_port_when_the_first_one_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as occupant:
        occupant.bind(("127.0.0.1", 0))
        occupant.listen()
        taken = occupant.getsockname()[1]
        free = free_port()
        ports = iter([taken, free])
        monkeypatch.setattr(services, "free_port", lambda: next(ports))
        with RedisService(tmp_path) as service:
            assert service.url.endswith(f":{free}/0")


def test_a_given_redis_is_used_and_left_running(
    redis_server: RedisService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDIS_URL", redis_server.url)
    with RedisService(tmp_path) as service:
        assert service.url == redis_server.url
        assert service.pid is None
    with redis.Redis.from_url(redis_server.url) as client:
        assert client.ping()


def test_an_unreachable_redis_is_reported(tmp_path: Path) -> None:
    url = f"redis://127.0.0.1:{free_port()}/0"
    with (
        pytest.raises(StackError, match="does not answer at REDIS_URL"),
        RedisService(tmp_path, external_url=url),
    ):
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user runs the server as itself")
def test_root_can_run_postgres_from_an_environment_that_others_cannot_enter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binaries, "_reachable_by_others", lambda path: False)
    with PostgresService(tmp_path) as service:
        data = Path(database.fetch_value(service.url, "SHOW data_directory"))
        assert Path(f"/proc/{service.pid}/exe").resolve().is_relative_to(data.parent)


def test_a_clean_stop_leaves_neither_processes_nor_data(tmp_path: Path) -> None:
    with PostgresService(tmp_path) as postgres, RedisService(tmp_path) as redis_service:
        base = Path(database.fetch_value(postgres.url, "SHOW data_directory")).parent
        assert base.exists()
        pids = [postgres.pid, redis_service.pid]
    assert not base.exists()
    for pid in pids:
        assert pid is not None
        assert wait_for_end(pid, 0.0)
    with pytest.raises(StackError, match="has not been started"):
        _ = postgres.url


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="waits on a process that is not its child")
def test_servers_end_when_the_program_that_started_them_is_killed(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path\n"
        "from deploy.local.services import PostgresService, RedisService\n"
        "with PostgresService(Path(sys.argv[1])) as p, RedisService(Path(sys.argv[1])) as r:\n"
        "    print(p.pid, r.pid, p.url, flush=True); sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        postgres_pid, redis_pid, url = process.stdout.readline().split()
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert wait_for_end(int(postgres_pid), 20.0)
    assert wait_for_end(int(redis_pid), 20.0)
    base = Path(url.partition("?host=")[2]).parent
    assert base.name.startswith("agentwatt-pg-")
    guards = [int(entry.name) for entry in Path("/proc").glob("[0-9]*") if is_guard_of(entry, base)]
    assert all(wait_for_end(pid, 20.0) for pid in guards)
    assert not base.exists()
