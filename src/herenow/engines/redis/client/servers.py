"""Which server holds this slot now? One answer for each arrangement: one server, Sentinel, Cluster.

    Single     the server of the URL
    Sentinel   the master that most sentinels name, and that says so itself; all of them are listened to, and the first
               that tells of another master makes us drop the old one at once: a demoted master takes writes for ten
               seconds more, and loses them
    Cluster    whoever serves the slot by the map of any node; MOVED corrects it, a failure has it read again

All of them only find and drop; what a reply means, and whether something may be repeated, is the business of
`redis_calls`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol

import hiredis
import structlog

from herenow.engines.redis.client.connection import (
    Address,
    Command,
    Link,
    Login,
    Lost,
    Refused,
    Reply,
    connect,
    refusal,
)
from herenow.engines.redis.client.url import Kind, Target
from herenow.errors import ConfigurationError, Unavailable
from herenow.kit.single_flight import SingleFlight

SLOTS = 16_384

LISTEN_AGAIN = 1.0
"""Seconds until a sentinel that went away is tried again."""

LISTEN_QUIET = 5.0
"""Seconds without a word after which a sentinel is asked for a sign of life; after as many more it is taken for gone. A
machine that vanished closes no connection."""

BREATH = 0.05
"""Seconds between two looks for a server that was not found: whoever asks meanwhile is told what the last one found."""

log = structlog.get_logger(__name__)


class Server:
    """One Redis process, and the connection to it that all calls share."""

    def __init__(self, address: Address, login: Login, *, must_be_master: bool = False) -> None:
        self.address = address
        self._login = login
        self._must_be_master = must_be_master
        self._link: Link | None = None
        self._connect = SingleFlight(self._connected, f"connecting to {address}", BREATH)
        self._closed = False

    @property
    def is_open(self) -> bool:
        return self._link is not None and self._link.is_open

    async def ask(self, commands: Sequence[Command]) -> list[Reply]:
        return await (await self._open_link()).ask(commands)

    async def ask_in_parts(
        self, parts: Iterable[tuple[bytes, int]], total: int, take: Callable[[list[Reply]], None]
    ) -> None:
        await (await self._open_link()).ask_in_parts(parts, total, take)

    async def _open_link(self) -> Link:
        link = self._link
        return link if link is not None and link.is_open else await self._connect()

    async def apart(self) -> Link:
        """A connection of one's own: for calls that block."""
        return await self._let_in()

    async def listening(self, channel: str, listener: Callable[[Reply], None]) -> Link:
        """A connection that hears everything that is published there from now on."""
        link = await self._let_in()
        with _closed_unless_done(link):
            await _subscribe(link, channel, listener)
        return link

    async def _connected(self) -> Link:
        if self._closed:
            raise Unavailable(f"{self.address} is no longer the one to ask")
        self._link = await self._let_in()
        return self._link

    async def _let_in(self) -> Link:
        link = await connect(self.address, self._login)
        if self._must_be_master:
            with _closed_unless_done(link):
                await self._check(link)
        return link

    async def _check(self, link: Link) -> None:
        try:
            [role] = await link.ask([("ROLE",)])
        except Lost as error:
            raise Unavailable(str(error)) from None
        if not isinstance(role, list) or role[0] != b"master":
            raise Unavailable(f"{self.address} is not a master")

    def drop(self) -> None:
        """The next call connects anew: what this name leads to may have changed."""
        if self._link is not None:
            self._link.close("dropped")
            self._link = None

    def close(self) -> None:
        self._closed = True
        self._connect.end()
        self.drop()


async def _subscribe(link: Link, channel: str, listener: Callable[[Reply], None]) -> None:
    try:
        [reply] = await link.ask([("SUBSCRIBE", channel)])
    except Lost as error:
        raise Unavailable(str(error)) from None
    if isinstance(reply, hiredis.ReplyError):
        raise refusal(link.address, reply)
    link.listen(listener)


@contextmanager
def _closed_unless_done(link: Link) -> Iterator[None]:
    try:
        yield
    except BaseException:
        link.close()
        raise


class Servers(Protocol):
    """Where slots live."""

    one_for_all: bool
    """One server has all slots, so that one command may name keys of several."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def of(self, slot: int) -> Server:
        """Raises `Unavailable` when nobody knows."""

    def everyone(self) -> Iterable[Server]:
        """All masters known now."""

    def doubt(self, server: Server) -> None:
        """It did not answer, or is not what it was: look again before the next call."""

    def moved(self, slot: int, address: Address) -> None:
        """A server said that this slot is served there."""


def servers_of(target: Target) -> Servers:
    match target.kind:
        case Kind.SINGLE | Kind.SINGLE_TLS:
            return Single(target)
        case Kind.SENTINEL:
            return Sentinel(target)
        case Kind.CLUSTER:
            return Cluster(target)


class Single:
    one_for_all = True

    def __init__(self, target: Target) -> None:
        self._server = Server(target.addresses[0], target.login)

    async def open(self) -> None:
        return

    async def close(self) -> None:
        self._server.close()

    async def of(self, slot: int) -> Server:
        return self._server

    def everyone(self) -> Iterable[Server]:
        return (self._server,)

    def doubt(self, server: Server) -> None:
        server.drop()

    def moved(self, slot: int, address: Address) -> None:
        return  # a server that says so is refused at the start


class Sentinel:
    one_for_all = True

    def __init__(self, target: Target) -> None:
        self._target = target
        self._server: Server | None = None
        self._find = SingleFlight(self._found, f"asking the sentinels of {target.said}", BREATH)
        self._listening: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        await self._find()
        loop = asyncio.get_running_loop()
        if not self._listening:
            self._listening = [
                loop.create_task(self._listen(address), name=f"sentinel {address}")
                for address in self._target.addresses
            ]

    async def close(self) -> None:
        self._find.end()
        for task in self._listening:
            task.cancel()
        await asyncio.gather(*self._listening, return_exceptions=True)
        if self._server is not None:
            self._server.close()

    async def of(self, slot: int) -> Server:
        if self._server is not None and self._server.is_open:
            return self._server
        return await self._find()

    def everyone(self) -> Iterable[Server]:
        return () if self._server is None else (self._server,)

    def doubt(self, server: Server) -> None:
        server.drop()

    def moved(self, slot: int, address: Address) -> None:
        return

    async def _found(self) -> Server:
        question = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._target.master)
        answers = await asyncio.gather(
            *(self._ask(address, question) for address in self._target.addresses), return_exceptions=True
        )
        heard = [answer for answer in answers if not isinstance(answer, BaseException)]
        votes = Counter(answer for answer in heard if answer is not None)
        if votes:
            return self._use(votes.most_common(1)[0][0])
        if heard:
            raise Refused(f"no sentinel knows a master named {self._target.master!r}")
        refused = next((answer for answer in answers if isinstance(answer, Refused)), None)
        raise refused or Unavailable(f"no sentinel of {self._target.said} answers ({answers[0]})")

    async def _ask(self, address: Address, question: Command) -> Address | None:
        link = await self._connect(address)
        try:
            [reply] = await link.ask([question])
        finally:
            link.close()
        if isinstance(reply, hiredis.ReplyError):
            raise refusal(address, reply)
        return Address(reply[0].decode(), int(reply[1])) if isinstance(reply, list) else None

    async def _connect(self, address: Address) -> Link:
        """Without a password first: a sentinel that has none refuses one."""
        login = Login()
        link = await connect(address, login)
        with _closed_unless_done(link):
            [reply] = await link.ask([("PING",)])
        if isinstance(reply, hiredis.ReplyError) and str(reply).startswith("NOAUTH"):
            link.close()
            link = await connect(address, replace(self._target.login, database=0))
        return link

    def _use(self, address: Address) -> Server:
        if self._server is None or self._server.address != address:
            if self._server is not None:
                log.warning("redis.master", was=str(self._server.address), now=str(address))
                self._server.close()
            self._server = Server(address, self._target.login, must_be_master=True)
        return self._server

    async def _listen(self, address: Address) -> None:
        """For ever: one of many that may tell us first."""
        while True:
            try:
                link = await self._connect(address)
                try:
                    await self._until_silent(link)
                finally:
                    link.close()
            except (Unavailable, Lost):
                pass
            await asyncio.sleep(LISTEN_AGAIN)

    async def _until_silent(self, link: Link) -> None:
        said = asyncio.Event()

        def heard(message: Reply) -> None:
            said.set()
            self._hear(message)

        await _subscribe(link, "+switch-master", heard)
        asked = False
        while link.is_open:
            try:
                async with asyncio.timeout(LISTEN_QUIET):
                    await said.wait()
                said.clear()
                asked = False
            except TimeoutError:
                if asked:
                    return
                link.say(("PING",))
                asked = True

    def _hear(self, message: Reply) -> None:
        match message:
            case [b"message", _, bytes(said)]:
                name, _, _, host, port = said.decode().split(" ")
                if name == self._target.master:
                    self._use(Address(host, int(port)))


class Cluster:
    one_for_all = False

    def __init__(self, target: Target) -> None:
        self._target = target
        self._servers: dict[Address, Server] = {}
        self._of_slot: dict[int, Address] = {}
        self._read = SingleFlight(self._map, f"reading the map of {target.said}", BREATH)
        self._read_at = float("-inf")
        self._stale = True

    async def open(self) -> None:
        await self._read()

    async def close(self) -> None:
        self._read.end()
        for server in self._servers.values():
            server.close()

    async def of(self, slot: int) -> Server:
        if self._stale and asyncio.get_running_loop().time() - self._read_at > BREATH:
            await self._read()
        address = self._of_slot.get(slot)
        if address is None:
            self._stale = True
            raise Unavailable(f"the cluster has no master for slot {slot}")
        return self._server(address)

    def everyone(self) -> Iterable[Server]:
        return [self._server(address) for address in dict.fromkeys(self._of_slot.values())]

    def missing(self, slots: Iterable[int]) -> list[int]:
        return [slot for slot in slots if slot not in self._of_slot]

    def doubt(self, server: Server) -> None:
        self._stale = True

    def moved(self, slot: int, address: Address) -> None:
        self._of_slot[slot] = address
        self._stale = True

    def _server(self, address: Address) -> Server:
        server = self._servers.get(address)
        if server is None:
            server = self._servers[address] = Server(address, self._target.login)
        return server

    async def _map(self) -> None:
        """All that we know are asked at once, the first answer counts: some may be dead."""
        asked = [
            asyncio.get_running_loop().create_task(self._slots(address), name=f"map of {address}")
            for address in dict.fromkeys((*self._of_slot.values(), *self._target.addresses))
        ]
        failure: Exception = Unavailable(f"no node of {self._target.said} answers")
        try:
            for answer in asyncio.as_completed(asked):
                try:
                    found = await answer
                except (Unavailable, Lost, ConfigurationError) as error:
                    failure = error
                else:
                    self._take(found)
                    return
        finally:
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
        raise failure if isinstance(failure, Unavailable | ConfigurationError) else Unavailable(str(failure))

    async def _slots(self, address: Address) -> dict[int, Address]:
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

    def _take(self, found: dict[int, Address]) -> None:
        self._of_slot = found
        self._stale = False
        self._read_at = asyncio.get_running_loop().time()
        for address in self._servers.keys() - {*found.values(), *self._target.addresses}:
            self._servers.pop(address).close()
