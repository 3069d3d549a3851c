"""Clients that move between nodes: devices that reconnect when asked to, and REST heartbeats that find a live node."""

from __future__ import annotations

import asyncio
import json
import random
from contextlib import suppress
from typing import Any

import httpx2
import websockets
from tests.processes import PATIENCE, Server, token
from websockets.exceptions import InvalidHandshake

AGAIN = 0.1
"""Seconds before a device that found no server tries another node."""


class Device:
    """One device of one user. Statuses it received are kept over all its connections."""

    def __init__(self, nodes: list[Server], user: str, watches: tuple[str, ...] = (), *, roams: bool = True) -> None:
        """A device that does not roam stays away after its first connection has ended."""
        self.user = user
        self.shown: dict[str, list[dict[str, Any]]] = {}
        self.closes: list[tuple[int | None, str]] = []
        self.connections = 0
        self.socket: websockets.ClientConnection | None = None
        self._nodes = nodes
        self._watches = watches
        self._roams = roams
        self._roaming = asyncio.create_task(self._roam())

    async def here(self) -> Device:
        """Wait until the device is connected and has a status of every user it watches."""
        async with asyncio.timeout(PATIENCE):
            while self.socket is None or self.shown.keys() != set(self._watches):
                if self._roaming.done():
                    self._roaming.result()
                await asyncio.sleep(0.02)
        return self

    def words(self, user: str) -> set[tuple[object, ...]]:
        """Distinct statuses received about a user, without stale ones."""
        fresh = [shown for shown in self.shown.get(user, ()) if not shown.get("stale")]
        return {(shown["status"], shown["since"], tuple(shown["platforms"])) for shown in fresh}

    def was_left_in_the_dark(self) -> bool:
        """True if any received status was marked stale."""
        return any(shown.get("stale") for told in self.shown.values() for shown in told)

    @property
    def local_port(self) -> int:
        assert self.socket is not None
        port: int = self.socket.local_address[1]
        return port

    async def send(self, **frame: object) -> None:
        assert self.socket is not None
        await self.socket.send(json.dumps(frame))

    async def leave(self) -> None:
        self._roaming.cancel()
        with suppress(asyncio.CancelledError):
            await self._roaming

    async def _roam(self) -> None:
        node: Server | None = None
        while self._roams or not self.connections:
            node = random.choice([each for each in self._nodes if each is not node] or self._nodes)
            try:
                await self._visit(node)
            except (OSError, TimeoutError, InvalidHandshake, websockets.ConnectionClosed):
                await asyncio.sleep(AGAIN)

    async def _visit(self, node: Server) -> None:
        address = f"{node.url.replace('http', 'ws', 1)}/ws/presence?device_id={self.user}-d&platform=web"
        headers = {"authorization": f"Bearer {token(self.user)}"}
        async with websockets.connect(
            address, additional_headers=headers, ping_interval=None, open_timeout=5, close_timeout=1
        ) as socket:
            if self._watches:
                subscribe = {"type": "presence.subscribe", "target_user_ids": self._watches}
                await socket.send(json.dumps(subscribe))
            try:
                async for message in socket:
                    self._take(json.loads(message), socket)
            except websockets.ConnectionClosedError:
                pass  # an unclean close: 1006, or 1012, which the library also treats as unclean
            finally:
                self.socket = None
        self.closes.append((socket.close_code, socket.close_reason or ""))
        if socket.close_code == 1012:
            await asyncio.sleep(int((socket.close_reason or "").removeprefix("retry_after_ms=")) / 1000)

    def _take(self, frame: dict[str, Any], socket: websockets.ClientConnection) -> None:
        if frame["type"] == "presence.welcome":
            self.socket = socket
            self.connections += 1
        elif frame["type"] == "presence.status":
            self.shown.setdefault(frame["user_id"], []).append(frame)
        elif frame["type"] == "presence.statuses":
            for status in frame["statuses"]:
                self.shown.setdefault(status["user_id"], []).append(status)


class Beating:
    """A user without a connection, whose device sends REST heartbeats to any node that answers."""

    def __init__(self, nodes: list[Server], user: str, every: float) -> None:
        self.user = user
        self.beats = 0
        self.refused = 0
        self._nodes = nodes
        self._every = every
        self._beating = asyncio.create_task(self._beat())

    async def leave(self) -> None:
        self._beating.cancel()
        with suppress(asyncio.CancelledError):
            await self._beating

    async def here(self) -> Beating:
        async with asyncio.timeout(PATIENCE):
            while not self.beats:
                assert not self._beating.done(), self._beating.exception()
                await asyncio.sleep(0.02)
        return self

    async def _beat(self) -> None:
        headers = {"authorization": f"Bearer {token(self.user)}"}
        while True:
            async with httpx2.AsyncClient(timeout=3.0) as http:
                node = random.choice(self._nodes)
                try:
                    answer = await http.post(
                        f"{node.url}/api/v1/presence/heartbeat",
                        headers=headers,
                        json={"device_id": f"{self.user}-phone", "platform": "mobile"},
                    )
                except httpx2.HTTPError:
                    answer = None
            if answer is None or answer.status_code >= 300:
                self.refused += 1
                await asyncio.sleep(AGAIN)
            else:
                self.beats += 1
                await asyncio.sleep(self._every)
