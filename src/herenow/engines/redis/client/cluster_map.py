"""The servers of a Redis Cluster, by slot. Any node has the slot map. MOVED corrects it; a failure causes a reload."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import hiredis

from herenow.engines.redis.client.redis_connection import Address, Lost, refusal
from herenow.engines.redis.client.redis_server import ATTEMPT_INTERVAL, Server
from herenow.engines.redis.client.redis_url import RedisTarget
from herenow.errors import ConfigurationError, Unavailable
from herenow.kit.single_flight import SingleFlight


class Cluster:
    single_server = False

    def __init__(self, target: RedisTarget) -> None:
        self._target = target
        self._servers: dict[Address, Server] = {}
        self._of_slot: dict[int, Address] = {}
        self._read = SingleFlight(self._read_map, f"reading the map of {target.shown}", ATTEMPT_INTERVAL)
        self._read_at = float("-inf")
        self._stale = True

    async def open(self) -> None:
        await self._read()

    async def close(self) -> None:
        self._read.end()
        for server in self._servers.values():
            server.close()

    async def of(self, slot: int) -> Server:
        if self._stale and asyncio.get_running_loop().time() - self._read_at > ATTEMPT_INTERVAL:
            await self._read()
        address = self._of_slot.get(slot)
        if address is None:
            self._stale = True
            raise Unavailable(f"the cluster has no master for slot {slot}")
        return self._server(address)

    def masters(self) -> Iterable[Server]:
        return [self._server(address) for address in dict.fromkeys(self._of_slot.values())]

    def missing(self, slots: Iterable[int]) -> list[int]:
        return [slot for slot in slots if slot not in self._of_slot]

    def suspect(self, server: Server) -> None:
        self._stale = True

    def moved(self, slot: int, address: Address) -> None:
        self._of_slot[slot] = address
        self._stale = True

    def _server(self, address: Address) -> Server:
        server = self._servers.get(address)
        if server is None:
            server = self._servers[address] = Server(address, self._target.login)
        return server

    async def _read_map(self) -> None:
        """Ask all known nodes of the cluster which server has which slot, and use the first answer: some nodes may be
        dead."""
        asked = [
            asyncio.get_running_loop().create_task(self._ask_for_map(address), name=f"map of {address}")
            for address in dict.fromkeys((*self._of_slot.values(), *self._target.addresses))
        ]
        failure: Exception = Unavailable(f"no node of {self._target.shown} answers")
        try:
            for answer in asyncio.as_completed(asked):
                try:
                    found = await answer
                except (Unavailable, Lost, ConfigurationError) as error:
                    failure = error
                else:
                    self._use_map(found)
                    return
        finally:
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
        raise failure if isinstance(failure, Unavailable | ConfigurationError) else Unavailable(str(failure))

    async def _ask_for_map(self, address: Address) -> dict[int, Address]:
        [reply] = await self._server(address).ask([("CLUSTER", "SLOTS")])
        if isinstance(reply, hiredis.ReplyError):
            raise refusal(address, reply)
        assert isinstance(reply, list)
        found: dict[int, Address] = {}
        for first, last, (host, port, *_), *_ in reply:
            name = host.decode() if host else ""
            place = Address(name if name not in ("", "?") else address.host, port)
            found |= dict.fromkeys(range(first, last + 1), place)
        return found

    def _use_map(self, found: dict[int, Address]) -> None:
        self._of_slot = found
        self._stale = False
        self._read_at = asyncio.get_running_loop().time()
        for address in self._servers.keys() - {*found.values(), *self._target.addresses}:
            self._servers.pop(address).close()
