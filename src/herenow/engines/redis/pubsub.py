"""Direct messages between nodes over Redis pub/sub: best effort, received only by nodes that are subscribed at the time.

A connection without messages for `PING_AFTER` seconds is pinged, and replaced if it does not reply.
"""

from __future__ import annotations

import asyncio
from collections import deque

from herenow.engines.redis.client import RedisConnection, Reply, Servers
from herenow.errors import Unavailable
from herenow.kit.notifier import Notifier

LIMIT = 10_000  # messages kept for a node that does not read; beyond that the oldest are dropped
PING_AFTER = 5.0  # seconds without a message after which the connection is pinged


class PubSub:
    def __init__(self, servers: Servers, slot: int, channel: str) -> None:
        self._servers = servers
        self._slot = slot
        self._channel = channel
        self._connection: RedisConnection | None = None
        self._messages: deque[bytes] = deque(maxlen=LIMIT)
        self._filled = Notifier()
        self._received_at = 0.0
        self._pinged = False

    async def open(self) -> None:
        """Subscribe to the messages between nodes, unless already subscribed at the current server. Every message that
        is sent after it returns is received."""
        server = await self._servers.of(self._slot)
        if self._connection is not None and self._connection.is_open and self._connection.address == server.address:
            return
        self.close()
        try:
            self._connection = await server.subscribed(self._channel, self._on_message)
        except Unavailable:
            self._servers.suspect(server)
            raise
        self._received_at, self._pinged = asyncio.get_running_loop().time(), False

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def receive(self, wait: float) -> list[bytes]:
        loop = asyncio.get_running_loop()
        if not self._messages:
            await self._check_connection(loop.time())
            if wait > 0 and not self._messages:
                await self._filled.wait(loop.time() + wait)
        messages = list(self._messages)
        self._messages.clear()
        return messages

    async def _check_connection(self, now: float) -> None:
        if self._connection is not None and self._connection.is_open and now - self._received_at > PING_AFTER:
            if self._pinged:
                self.close()
            else:
                self._pinged, self._received_at = True, now
                self._connection.send(("PING",))
        await self.open()

    def _on_message(self, reply: Reply) -> None:
        if reply is None:
            self._filled.notify()
            return
        self._received_at, self._pinged = asyncio.get_running_loop().time(), False
        match reply:
            case [b"message", _, bytes(message)]:
                self._messages.append(message)
                self._filled.notify()
