from __future__ import annotations

import asyncio
from typing import Any

import fakeredis
import pytest

from gateway_plugin.event import SECRET_KEY
from gateway_plugin.secret import memory_seed, shared_secret
from gateway_plugin.settings import PluginSettings


def settings(**values: Any) -> PluginSettings:
    return PluginSettings(redis_timeout_s=0.3, **values)


def test_the_setting_wins() -> None:
    assert shared_secret(settings(secret="mine"), None) == b"mine"


def test_all_workers_get_the_one_secret_that_redis_keeps() -> None:
    server = fakeredis.FakeServer()

    def connect() -> Any:
        return fakeredis.FakeAsyncRedis(server=server)

    one = shared_secret(settings(), connect)
    assert one == shared_secret(settings(), connect)
    assert len(one) == 64
    assert fakeredis.FakeRedis(server=server).get(SECRET_KEY) == one


async def test_it_can_be_read_inside_a_running_loop() -> None:
    server = fakeredis.FakeServer()
    assert len(shared_secret(settings(), lambda: fakeredis.FakeAsyncRedis(server=server))) == 64


class Hanging:
    async def set(self, *_: object, **__: object) -> None:
        await asyncio.Event().wait()

    async def aclose(self) -> None:
        return None


@pytest.mark.parametrize("failure", ["hangs", "refuses"])
def test_without_redis_the_proxys_key_gives_the_secret(monkeypatch: pytest.MonkeyPatch, failure: str) -> None:
    monkeypatch.setenv("LITELLM_MASTER_KEY", "sk-master")

    def refuse() -> Any:
        raise ConnectionRefusedError

    derived = shared_secret(settings(), Hanging if failure == "hangs" else refuse)
    assert derived == shared_secret(settings(), None)
    assert b"sk-master" not in derived


def test_the_salt_key_is_preferred_to_the_master_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITELLM_MASTER_KEY", "sk-master")
    master = shared_secret(settings(), None)
    monkeypatch.setenv("LITELLM_SALT_KEY", "salt")
    assert shared_secret(settings(), None) != master


def test_with_nothing_shared_the_secret_is_random_and_said_so(caplog: pytest.LogCaptureFixture) -> None:
    assert shared_secret(settings(), None) != shared_secret(settings(), None)
    assert "match no other" in caplog.text


def test_the_seed_depends_on_the_secret_and_fits_64_bits() -> None:
    assert memory_seed(b"a") == memory_seed(b"a") != memory_seed(b"b")
    assert 0 <= memory_seed(b"a") < 1 << 64
