"""One Redis process: the connection that all calls share, and connections for calls that block or subscribe."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import hiredis

from herenow.engines.redis.client.redis_connection import (
    Address,
    Command,
    Login,
    Lost,
    RedisConnection,
    Reply,
    connect,
    refusal,
)
from herenow.errors import Unavailable
from herenow.kit.single_flight import SingleFlight

ATTEMPT_INTERVAL = 0.05
"""Minimum seconds between two attempts to find or reach a server: callers in between get the result of the last one."""


class Server:
    def __init__(self, address: Address, login: Login, *, must_be_master: bool = False) -> None:
        self.address = address
        self._login = login
        self._must_be_master = must_be_master
        self._connection: RedisConnection | None = None
        self._connect = SingleFlight(self._connected, f"connecting to {address}", ATTEMPT_INTERVAL)
        self._closed = False

    @property
    def is_open(self) -> bool:
        return self._connection is not None and self._connection.is_open

    async def ask(self, commands: Sequence[Command]) -> list[Reply]:
        return await (await self._open_connection()).ask(commands)

    async def ask_in_parts(
        self, parts: Iterable[tuple[bytes, int]], total: int, take: Callable[[list[Reply]], None]
    ) -> None:
        await (await self._open_connection()).ask_in_parts(parts, total, take)

    async def _open_connection(self) -> RedisConnection:
        connection = self._connection
        return connection if connection is not None and connection.is_open else await self._connect()

    async def dedicated(self) -> RedisConnection:
        """Open a new connection to this Redis server, for calls that block."""
        return await self._new_connection()

    async def subscribed(self, channel: str, listener: Callable[[Reply], None]) -> RedisConnection:
        """Open a new connection that passes everything published on the Redis pub/sub `channel` from now on to
        `listener`."""
        connection = await self._new_connection()
        with closed_on_error(connection):
            await subscribe(connection, channel, listener)
        return connection

    async def _connected(self) -> RedisConnection:
        if self._closed:
            raise Unavailable(f"{self.address} is no longer in use")
        self._connection = await self._new_connection()
        return self._connection

    async def _new_connection(self) -> RedisConnection:
        connection = await connect(self.address, self._login)
        if self._must_be_master:
            with closed_on_error(connection):
                await self._check(connection)
        return connection

    async def _check(self, connection: RedisConnection) -> None:
        try:
            [role] = await connection.ask([("ROLE",)])
        except Lost as error:
            raise Unavailable(str(error)) from None
        if not isinstance(role, list) or role[0] != b"master":
            raise Unavailable(f"{self.address} is not a master")

    def drop(self) -> None:
        """Close the connection that all calls share. The next call connects again: the host name may then lead to
        another server."""
        if self._connection is not None:
            self._connection.close("dropped")
            self._connection = None

    def close(self) -> None:
        self._closed = True
        self._connect.end()
        self.drop()


async def subscribe(connection: RedisConnection, channel: str, listener: Callable[[Reply], None]) -> None:
    try:
        [reply] = await connection.ask([("SUBSCRIBE", channel)])
    except Lost as error:
        raise Unavailable(str(error)) from None
    if isinstance(reply, hiredis.ReplyError):
        raise refusal(connection.address, reply)
    connection.listen(listener)


@contextmanager
def closed_on_error(connection: RedisConnection) -> Iterator[None]:
    try:
        yield
    except BaseException:
        connection.close()
        raise
