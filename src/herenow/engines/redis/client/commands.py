"""Sends commands to the server of a slot and classifies failures.

A call that was refused before it changed anything fails with `Unavailable`. A call that writes and got no reply, or failed
half-way, fails with `UnknownOutcome`. Only two refusals are followed by another attempt, because the call cannot have run:
the server does not know the script (it is sent in full), or another server has the slot (the call goes there).

A script refused for lack of memory, of replicas, or by a replica has changed nothing: it is refused at its first write, and
every script that must be atomic begins with a write that such a server denies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import hiredis

from herenow.engines.redis.client.redis_connection import Address, Argument, Command, Lost, Reply, packed
from herenow.engines.redis.client.redis_server import Server
from herenow.engines.redis.client.script import Script
from herenow.engines.redis.client.servers import Servers
from herenow.errors import HerenowError, Unavailable, UnknownOutcome

REDIRECTS = 3
"""Number of MOVED replies that a call follows. After more, the nodes of the cluster disagree about the slot."""

NOTHING_HAPPENED = frozenset(
    {
        "ASK",  # the slot is being migrated: unavailable until that has ended
        "TRYAGAIN",
        "CLUSTERDOWN",
        "CROSSSLOT",
        "MOVED",
        "LOADING",
        "MASTERDOWN",
        "READONLY",
        "OOM",
        "MISCONF",
        "NOREPLICAS",
        "BUSY",
        "NOAUTH",
        "NOPERM",
        "WRONGPASS",
        "DENIED",
        "NOSCRIPT",
    }
)
WRONG_SERVER = frozenset({"ASK", "TRYAGAIN", "CLUSTERDOWN", "MOVED", "MASTERDOWN", "READONLY", "NOAUTH"})
"""Refusals after which the server of the slot must be found again."""


@dataclass(slots=True)
class Request:
    slot: int
    command: Command
    script: Script | None = None
    redirects: int = 0

    count = 1

    @classmethod
    def of_script(cls, slot: int, script: Script, keys: list[Argument], arguments: list[Argument]) -> Request:
        return cls(slot, script.called(keys, arguments), script)

    def packed(self) -> bytes:
        return packed(self.command)

    def answer(self, replies: list[Reply]) -> Reply:
        return replies[0]


@dataclass(slots=True)
class Pipeline:
    """Several commands for the server of a slot. Not atomic: commands of other clients may run in between."""

    slot: int
    count: int
    packed: Callable[[], bytes]
    """Builds the commands just before they are sent; the server may be at work on other requests by then."""
    take: Callable[[list[Reply]], None]
    """Gets the replies as soon as all of them have arrived, perhaps before those to other requests."""
    redirects: int = 0

    def answer(self, replies: list[Reply]) -> Reply:
        """Pass the server's replies to the callback `take` and return None. If one of them is an error, only return
        that error."""
        for reply in replies:
            if isinstance(reply, hiredis.ReplyError):
                return reply
        self.take(replies)
        return None


class Commands:
    def __init__(self, servers: Servers) -> None:
        self.servers = servers

    async def one(self, request: Request | Pipeline, *, writes: bool) -> Reply:
        answer = await self._ask(request, writes=writes)
        if isinstance(answer, HerenowError):
            raise answer
        return answer

    async def all(self, requests: Sequence[Request | Pipeline]) -> list[Reply]:
        """Send requests that only read. Return their replies in order, or raise the first failure."""
        answers = await self.each(requests)
        for answer in answers:
            if isinstance(answer, HerenowError):
                raise answer
        return answers

    async def each(self, requests: Sequence[Request | Pipeline]) -> list[Reply]:
        """Send requests that only read, those for one server together. Return a reply or an exception for each request,
        in order."""
        if not requests:
            return []
        if self.servers.single_server or len(requests) == 1:
            return await self._send(await self._server_of(requests[0].slot), requests, writes=False)
        # One slot after the other: if the first one must reload the map, the others use the result or its failure.
        by_slot = {slot: await self._server_of(slot) for slot in dict.fromkeys(r.slot for r in requests)}
        by_server: dict[int, list[int]] = {}
        for index, request in enumerate(requests):
            by_server.setdefault(id(by_slot[request.slot]), []).append(index)
        answers: list[Reply] = [None] * len(requests)
        parts = [(by_slot[requests[some[0]].slot], some) for some in by_server.values()]
        done = await asyncio.gather(
            *(self._send(server, [requests[i] for i in some], writes=False) for server, some in parts)
        )
        for (_, some), replies in zip(parts, done, strict=True):
            for index, reply in zip(some, replies, strict=True):
                answers[index] = reply
        return answers

    async def _ask(self, request: Request | Pipeline, *, writes: bool) -> Reply:
        [answer] = await self._send(await self._server_of(request.slot), [request], writes=writes)
        return answer

    async def _server_of(self, slot: int) -> Server | Unavailable:
        try:
            return await self.servers.of(slot)
        except Unavailable as error:
            return error

    async def _send(
        self, server: Server | Unavailable, requests: Sequence[Request | Pipeline], *, writes: bool
    ) -> list[Reply]:
        if isinstance(server, Unavailable):
            return [server] * len(requests)
        answers: list[Reply] = []
        waiting = iter(requests)

        def take(replies: list[Reply]) -> None:
            at = 0
            while at < len(replies):
                request = next(waiting)
                answers.append(request.answer(replies[at : at + request.count]))
                at += request.count

        try:
            parts = ((request.packed(), request.count) for request in requests)
            await server.ask_in_parts(parts, sum([request.count for request in requests]), take)
        except Unavailable as error:
            self.servers.suspect(server)
            return [error] * len(requests)
        except Lost as error:
            self.servers.suspect(server)
            failure = UnknownOutcome(str(error)) if writes else Unavailable(str(error))
            return [failure] * len(requests)
        for index, answer in enumerate(answers):
            if isinstance(answer, hiredis.ReplyError):
                answers[index] = await self._refused(server, requests[index], str(answer), writes=writes)
        return answers

    async def _refused(self, server: Server, request: Request | Pipeline, error: str, *, writes: bool) -> Reply:
        code, _, rest = error.partition(" ")
        if code == "NOSCRIPT" and isinstance(request, Request) and request.script is not None:
            full = request.script.in_full(request.command)
            [answer] = await self._send(server, [Request(request.slot, full, None, request.redirects)], writes=writes)
            return answer
        if code == "MOVED" and request.redirects < REDIRECTS:
            slot, _, place = rest.partition(" ")
            host, _, port = place.rpartition(":")
            self.servers.moved(int(slot), Address(host or server.address.host, int(port)))
            request.redirects += 1
            return await self._ask(request, writes=writes)
        if code in WRONG_SERVER:
            self.servers.suspect(server)
        if code in NOTHING_HAPPENED or not writes:
            return Unavailable(f"{server.address} refuses: {error}")
        return UnknownOutcome(f"{server.address} failed: {error}")
