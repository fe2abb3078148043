"""One address for every kind of Redis: single server, TLS, ACL user, unix socket, Sentinel and Cluster.

``redis://[user:password@]host:port/db`` and ``rediss://`` (TLS) · ``unix://path`` ·
``redis+sentinel://[user:password@]h1:26379,h2:26379/service[/db]`` ·
``redis+cluster://[user:password@]h1:6379,h2:6379``; ``rediss+sentinel`` and ``rediss+cluster`` for TLS.
``?sentinel_username=…&sentinel_password=…`` are for the sentinels, ``?ssl_ca_certs=…&ssl_cert_reqs=none`` for
TLS. All keys of the plugin share one hash tag, so a Cluster serves them from one slot.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

_DEFAULT_PORT: Final = {"sentinel": 26379, "cluster": 6379}
_TLS_OPTIONS: Final = frozenset({"ssl_ca_certs", "ssl_cert_reqs", "ssl_certfile", "ssl_keyfile"})
_SENTINEL_OPTIONS: Final = frozenset({"sentinel_username", "sentinel_password"})


class AddressError(ValueError):
    """The Redis address cannot be used; the message never holds the password."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a Redis is.

    ``kind`` is ``single``, ``sentinel`` or ``cluster``. A single server has its ``url``; the others have
    ``nodes`` (host, port), ``options`` of each connection, and a sentinel its ``service`` and the
    ``sentinel_options`` of connections to the sentinels themselves.
    """

    kind: str
    url: str = ""
    nodes: tuple[tuple[str, int], ...] = ()
    service: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    sentinel_options: dict[str, Any] = field(default_factory=dict)


def parse(url: str) -> Address:
    """Read one of the forms above.

    Raises:
        AddressError: the address has a form that is not understood.
    """
    scheme, _, rest = url.partition("://")
    base, _, kind = scheme.partition("+")
    if not rest or base not in ("redis", "rediss", "unix") or kind not in ("", "sentinel", "cluster"):
        raise AddressError(f"a Redis address starts with redis:// or rediss://, not {scheme[:20]}")
    if not kind:
        return Address("single", url)
    if base == "unix":
        raise AddressError("a unix socket has neither sentinels nor a cluster")
    return _many(base == "rediss", kind, rest)


def _many(tls: bool, kind: str, rest: str) -> Address:
    parts = urlsplit("//" + rest)
    user_info, _, hosts = parts.netloc.rpartition("@")
    username, _, password = user_info.partition(":")
    options: dict[str, Any] = {}
    if username:
        options["username"] = unquote(username)
    if password:
        options["password"] = unquote(password)
    query = dict(parse_qsl(parts.query))
    if unknown := query.keys() - _TLS_OPTIONS - _SENTINEL_OPTIONS:
        raise AddressError(f"unknown options in the Redis address: {', '.join(sorted(unknown))}")
    if tls:
        options["ssl"] = True
        options |= {k: v for k, v in query.items() if k in _TLS_OPTIONS}
    nodes = tuple(_node(h, _DEFAULT_PORT[kind]) for h in hosts.split(","))
    if kind == "cluster":
        return Address(kind, nodes=nodes, options=options)
    path = [p for p in parts.path.split("/") if p]
    if not path or len(path) > 2:
        raise AddressError("a Sentinel address names its service: redis+sentinel://host:26379/service[/db]")
    if len(path) == 2:
        if not path[1].isdigit():
            raise AddressError("the database of a Sentinel address is a number")
        options["db"] = int(path[1])
    asked = {"ssl": tls} | {
        k.removeprefix("sentinel_"): v for k, v in query.items() if k in _SENTINEL_OPTIONS
    }
    return Address(kind, nodes=nodes, service=path[0], options=options, sentinel_options=asked)


def _node(text: str, default_port: int) -> tuple[str, int]:
    if text.startswith("["):  # IPv6
        host, _, tail = text[1:].partition("]")
        port = tail.removeprefix(":")
    else:
        host, _, port = text.partition(":")
    if not host or (port and not port.isdigit()):
        raise AddressError("a Redis node is written host or host:port")
    return host, int(port) if port else default_port
