"""Commands for the server of a slot, and what it means when that server refuses or does not answer.

A call that was refused before it did anything is `Unavailable`. A call that got no reply, or failed half-way, is
`UnknownOutcome` if it writes. Two refusals are answered here, because nothing can have happened: the server does not know
the script yet (it is sent in full), or says that another one serves the slot (that one is asked). Nothing else is repeated.

A script that is refused for lack of memory, by a replica, or for want of one, is refused at its first write: it has done
nothing either, for every script that must be all or nothing begins with a write that such a server denies.
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
"""How often a call follows MOVED: more means that the cluster does not know itself where the slot is."""

NOTHING_HAPPENED = frozenset(
    {
        "ASK",  # the slot is being moved, and ours with it: away until it has arrived
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
LOOK_AGAIN = frozenset({"ASK", "TRYAGAIN", "CLUSTERDOWN", "MOVED", "MASTERDOWN", "READONLY", "NOAUTH"})
"""The server is not, or no longer, the one to ask."""


@dataclass(slots=True)
class Request:
    """One command for the server of a slot."""

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
    """Several commands for the server of a slot, which others' may come between."""

    slot: int
    count: int
    packed: Callable[[], bytes]
    """Made when they are sent: those of another may be under way then."""
    take: Callable[[list[Reply]], None]
    """Called with the replies when they are there: those to another may not be yet."""
    redirects: int = 0

    def answer(self, replies: list[Reply]) -> Reply:
        """The first refusal, if there is one: then nothing was taken."""
        for said in replies:
            if isinstance(said, hiredis.ReplyError):
                return said
        self.take(replies)
        return None


class Commands:
    """Sends requests to the servers that hold their slots."""

    def __init__(self, servers: Servers) -> None:
        self.servers = servers

    async def one(self, request: Request | Pipeline, *, writes: bool) -> Reply:
        answer = await self._ask(request, writes=writes)
        if isinstance(answer, HerenowError):
            raise answer
        return answer

    async def all(self, requests: Sequence[Request | Pipeline]) -> list[Reply]:
        """Reads. Every answer, or the first failure."""
        answers = await self.each(requests)
        for answer in answers:
            if isinstance(answer, HerenowError):
                raise answer
        return answers

    async def each(self, requests: Sequence[Request | Pipeline]) -> list[Reply]:
        """Reads: an answer or a failure each, in order. Those for one server travel together."""
        if not requests:
            return []
        if self.servers.single_server or len(requests) == 1:
            return await self._send(await self._place(requests[0].slot), requests, writes=False)
        # One after the other: who has to look shares what was found, or that nothing was, with those behind.
        by_slot = {slot: await self._place(slot) for slot in dict.fromkeys(r.slot for r in requests)}
        together: dict[int, list[int]] = {}
        for index, request in enumerate(requests):
            together.setdefault(id(by_slot[request.slot]), []).append(index)
        answers: list[Reply] = [None] * len(requests)
        parts = [(by_slot[requests[some[0]].slot], some) for some in together.values()]
        done = await asyncio.gather(
            *(self._send(place, [requests[i] for i in some], writes=False) for place, some in parts)
        )
        for (_, some), replies in zip(parts, done, strict=True):
            for index, reply in zip(some, replies, strict=True):
                answers[index] = reply
        return answers

    async def _ask(self, request: Request | Pipeline, *, writes: bool) -> Reply:
        [answer] = await self._send(await self._place(request.slot), [request], writes=writes)
        return answer

    async def _place(self, slot: int) -> Server | Unavailable:
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

    async def _refused(self, server: Server, request: Request | Pipeline, said: str, *, writes: bool) -> Reply:
        code, _, rest = said.partition(" ")
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
        if code in LOOK_AGAIN:
            self.servers.suspect(server)
        if code in NOTHING_HAPPENED or not writes:
            return Unavailable(f"{server.address} refuses: {said}")
        return UnknownOutcome(f"{server.address} failed: {said}")
