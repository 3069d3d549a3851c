"""`Servers` finds the server that has a slot now, with one class per topology (`Single`, `Sentinel`, `Cluster`).

They only find and drop servers; `commands` interprets replies and decides whether a call is sent again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from herenow.engines.redis.client.cluster_map import Cluster
from herenow.engines.redis.client.redis_connection import Address
from herenow.engines.redis.client.redis_server import Server
from herenow.engines.redis.client.redis_url import RedisTarget, Topology
from herenow.engines.redis.client.sentinel import Sentinel


class Servers(Protocol):
    single_server: bool
    """True if one server has all slots, so that a command may name keys of several slots."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def of(self, slot: int) -> Server:
        """Return the Redis server that has this cluster slot. Raises `Unavailable` if none is known."""

    def masters(self) -> Iterable[Server]: ...

    def suspect(self, server: Server) -> None:
        """Report that a server did not answer or is no longer the master, so that the next call finds the right server
        again."""

    def moved(self, slot: int, address: Address) -> None:
        """Report that a server redirected a command: the server at `address` has this cluster slot now."""


def servers_of(target: RedisTarget) -> Servers:
    match target.topology:
        case Topology.SINGLE | Topology.SINGLE_TLS:
            return Single(target)
        case Topology.SENTINEL:
            return Sentinel(target)
        case Topology.CLUSTER:
            return Cluster(target)


class Single:
    single_server = True

    def __init__(self, target: RedisTarget) -> None:
        self._server = Server(target.addresses[0], target.login)

    async def open(self) -> None:
        return

    async def close(self) -> None:
        self._server.close()

    async def of(self, slot: int) -> Server:
        return self._server

    def masters(self) -> Iterable[Server]:
        return (self._server,)

    def suspect(self, server: Server) -> None:
        server.drop()

    def moved(self, slot: int, address: Address) -> None:
        return  # only nodes of a Cluster redirect, and those are refused at startup
