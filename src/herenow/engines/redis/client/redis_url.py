"""Parses Redis URLs. An invalid URL is refused with one sentence before a connection is made.

redis://[user:password@]host[:port][/database]             one server
rediss://…                                                 the same over TLS; ?ca=/path/ca.pem for a private CA
redis+sentinel://[user:password@]h1:p,h2:p/name[?db=n]     the master that these sentinels know by that name
redis+cluster://[user:password@]h1:p,h2:p                  a Cluster, found through these nodes

User and password are percent-encoded. Sentinels that require a password get the same one.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from enum import Enum
from urllib.parse import parse_qsl, unquote

from herenow.engines.redis.client.redis_connection import Address, Login
from herenow.errors import ConfigurationError

PORT = 6379
SENTINEL_PORT = 26379


class Topology(Enum):
    SINGLE = "redis"
    SINGLE_TLS = "rediss"
    SENTINEL = "redis+sentinel"
    CLUSTER = "redis+cluster"


SCHEMES = tuple(topology.value for topology in Topology)


@dataclass(frozen=True, slots=True)
class RedisTarget:
    topology: Topology
    addresses: tuple[Address, ...]
    login: Login
    master: str = ""
    """The master's name in Sentinel."""
    shown: str = ""
    """The URL without its password, for error messages."""


def parse_url(url: str) -> RedisTarget:
    scheme, separator, rest = url.partition("://")
    shown = without_password(url)
    if scheme not in SCHEMES or not separator:
        raise _wrong(shown, f"it must begin with {', '.join(f'{name}://' for name in SCHEMES)}")
    topology = Topology(scheme)
    rest, _, query = rest.partition("?")
    credentials, at, places = rest.rpartition("@")
    places, _, path = places.partition("/")
    options = _options(query, _ALLOWED[topology], shown)
    port = SENTINEL_PORT if topology is Topology.SENTINEL else PORT
    addresses = tuple(_address(place, port, shown) for place in places.split(","))
    if len(addresses) > 1 and topology in (Topology.SINGLE, Topology.SINGLE_TLS):
        raise _wrong(
            shown, "for several servers use redis+sentinel:// with the name of the master, or redis+cluster://"
        )
    if topology is Topology.SENTINEL and not path:
        raise _wrong(shown, "the name of the master is missing: redis+sentinel://h1:26379,h2:26379/name")
    if topology is Topology.CLUSTER and path not in ("", "0"):
        raise _wrong(shown, "a Cluster has one database only, so do not name one")
    database = options.get("db", "0") if topology is Topology.SENTINEL else path or "0"
    user, password = _credentials(credentials, shown) if at else (None, None)
    login = Login(
        user,
        password,
        _database(database, shown),
        _tls(options.get("ca"), shown) if topology is Topology.SINGLE_TLS else None,
    )
    return RedisTarget(topology, addresses, login, unquote(path) if topology is Topology.SENTINEL else "", shown)


def without_password(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    _, at, place = rest.rpartition("@")
    return f"{scheme}{separator}…@{place}" if at else url


_ALLOWED = {
    Topology.SINGLE: frozenset[str](),
    Topology.SINGLE_TLS: frozenset({"ca"}),
    Topology.SENTINEL: frozenset({"db"}),
    Topology.CLUSTER: frozenset[str](),
}


def _options(query: str, allowed: frozenset[str], shown: str) -> dict[str, str]:
    options = dict(parse_qsl(query, keep_blank_values=True))
    for name in options:
        if name not in allowed:
            there_are = f"only {', '.join(sorted(allowed))} is allowed" if allowed else "it has none"
            raise _wrong(shown, f"{name!r} is not an option of this URL: {there_are}")
    return options


def _address(place: str, default: int, shown: str) -> Address:
    host, colon, port = place.rpartition(":")
    if place.endswith("]") or not colon:
        host, port = place, str(default)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise _wrong(shown, f"{place!r} is not host:port")
    return Address(host, int(port))


def _database(text: str, shown: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise _wrong(shown, f"{text!r} is not a database number")
    return int(text)


def _credentials(text: str, shown: str) -> tuple[str | None, str]:
    user, colon, password = text.partition(":")
    if not colon:
        raise _wrong(shown, "the part before the @ must be user:password or :password")
    return unquote(user) or None, unquote(password)


def _tls(ca: str | None, shown: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise _wrong(shown, f"the certificates in {ca!r} cannot be read ({error})") from None


def _wrong(shown: str, why: str) -> ConfigurationError:
    return ConfigurationError(f"engine {shown!r} is not a valid Redis URL: {why}.")
