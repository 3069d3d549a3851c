"""Which server holds a slot now: one answer for each topology (`Single`, `Sentinel`, `Cluster`).

They only find and drop servers; what a reply means, and whether something may be repeated, is decided in `commands`.
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
    """Where slots live."""

    single_server: bool
    """One server has all slots, so that one command may name keys of several."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def of(self, slot: int) -> Server:
        """Raises `Unavailable` when nobody knows."""

    def masters(self) -> Iterable[Server]:
        """All masters known now."""

    def suspect(self, server: Server) -> None:
        """It did not answer, or is not what it was: look again before the next call."""

    def moved(self, slot: int, address: Address) -> None:
        """A server said that this slot is served there."""


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
        return  # a server that says so is refused at the start
