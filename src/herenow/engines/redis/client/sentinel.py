"""The master that most sentinels name, if it confirms its role.

The client subscribes to all sentinels. The first one that reports another master makes it drop the old one at once: a
demoted master accepts writes for ten more seconds, and loses them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import hiredis
import structlog

from herenow.engines.redis.client.redis_connection import (
    Address,
    Command,
    Login,
    Lost,
    RedisConnection,
    Refused,
    Reply,
    connect,
    refusal,
)
from herenow.engines.redis.client.redis_server import ATTEMPT_INTERVAL, Server, closed_on_error, subscribe
from herenow.engines.redis.client.redis_url import RedisTarget
from herenow.errors import Unavailable
from herenow.kit.single_flight import SingleFlight

RECONNECT_AFTER = 1.0  # seconds until a lost connection to a sentinel is replaced

PING_AFTER = 5.0
"""Seconds without a message after which a sentinel is pinged, and after as many more counts as gone. A machine that
vanishes closes no connection."""

log = structlog.get_logger(__name__)


class Sentinel:
    single_server = True

    def __init__(self, target: RedisTarget) -> None:
        self._target = target
        self._server: Server | None = None
        self._find = SingleFlight(self._find_master, f"asking the sentinels of {target.shown}", ATTEMPT_INTERVAL)
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

    def masters(self) -> Iterable[Server]:
        return () if self._server is None else (self._server,)

    def suspect(self, server: Server) -> None:
        server.drop()

    def moved(self, slot: int, address: Address) -> None:
        return

    async def _find_master(self) -> Server:
        command = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._target.master)
        answers = await asyncio.gather(
            *(self._ask(address, command) for address in self._target.addresses), return_exceptions=True
        )
        answered = [answer for answer in answers if not isinstance(answer, BaseException)]
        votes = Counter(answer for answer in answered if answer is not None)
        if votes:
            return self._use(votes.most_common(1)[0][0])
        if answered:
            raise Refused(f"no sentinel knows a master named {self._target.master!r}")
        refused = next((answer for answer in answers if isinstance(answer, Refused)), None)
        raise refused or Unavailable(f"no sentinel of {self._target.shown} answers ({answers[0]})")

    async def _ask(self, address: Address, command: Command) -> Address | None:
        connection = await self._connect(address)
        try:
            [reply] = await connection.ask([command])
        finally:
            connection.close()
        if isinstance(reply, hiredis.ReplyError):
            raise refusal(address, reply)
        return Address(reply[0].decode(), int(reply[1])) if isinstance(reply, list) else None

    async def _connect(self, address: Address) -> RedisConnection:
        """Open a connection to a sentinel. The first try has no password, because a sentinel that needs none refuses
        it; the second one has the password of the URL."""
        login = Login()
        connection = await connect(address, login)
        with closed_on_error(connection):
            [reply] = await connection.ask([("PING",)])
        if isinstance(reply, hiredis.ReplyError) and str(reply).startswith("NOAUTH"):
            connection.close()
            connection = await connect(address, replace(self._target.login, database=0))
        return connection

    def _use(self, address: Address) -> Server:
        if self._server is None or self._server.address != address:
            if self._server is not None:
                log.warning("redis.master", was=str(self._server.address), now=str(address))
                self._server.close()
            self._server = Server(address, self._target.login, must_be_master=True)
        return self._server

    async def _listen(self, address: Address) -> None:
        """Stay subscribed to one sentinel for ever, and use the new master if it reports one. A connection that ends is
        replaced. Any sentinel may be the first to report."""
        while True:
            try:
                connection = await self._connect(address)
                try:
                    await self._until_unresponsive(connection)
                finally:
                    connection.close()
            except (Unavailable, Lost):
                pass
            await asyncio.sleep(RECONNECT_AFTER)

    async def _until_unresponsive(self, connection: RedisConnection) -> None:
        received = asyncio.Event()

        def on_message(message: Reply) -> None:
            received.set()
            self._on_message(message)

        await subscribe(connection, "+switch-master", on_message)
        pinged = False
        while connection.is_open:
            try:
                async with asyncio.timeout(PING_AFTER):
                    await received.wait()
                received.clear()
                pinged = False
            except TimeoutError:
                if pinged:
                    return
                connection.send(("PING",))
                pinged = True

    def _on_message(self, message: Reply) -> None:
        match message:
            case [b"message", _, bytes(body)]:
                name, _, _, host, port = body.decode().split(" ")
                if name == self._target.master:
                    self._use(Address(host, int(port)))
