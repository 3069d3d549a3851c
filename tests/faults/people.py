"""Devices with real sockets that behave like users and report to the checker what they did and saw.

A device reconnects after its node closed it, to the same or another node, like a good client. A viewer watches all
users and always reconnects.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from random import Random
from typing import Any

import httpx2
import websockets
from tests.faults.fleet import ANSWER, Fleet, Member
from tests.faults.proxy import Tunnel
from tests.processes import token

from herenow.core.model import Mode
from herenow_testing.checker.checker import Checker
from herenow_testing.world.scene import Shown, Witness

OPENING = 4.0
"""Seconds a client waits for its socket to open."""

BEAT = 1.5
SIGNED_OUT = 4409


class Way:
    """One socket, through the front proxy of a node."""

    def __init__(self, node: Member) -> None:
        self.node = node
        self.silent = False
        self.socket: websockets.ClientConnection | None = None
        self.tunnel: Tunnel | None = None


class Client:
    def __init__(self, fleet: Fleet, user: str, device: str, witness: Witness) -> None:
        self.fleet = fleet
        self.user = user
        self.device = device
        self.witness = witness
        self.link: Way | None = None
        self.closed_with = 0
        self._tasks: set[asyncio.Task[None]] = set()
        fleet.clients.append(self)

    # Connect and disconnect

    async def open(self, node: Member) -> bool:
        assert self.link is None
        way = self.link = Way(node)
        self.witness.opened(self)
        address = f"ws://{node.door}/ws/presence?device_id={self.device}&platform=web"
        headers = {"authorization": f"Bearer {token(self.user)}"}
        try:
            socket = await websockets.connect(
                address,
                additional_headers=headers,
                ping_interval=None,
                open_timeout=OPENING,
                close_timeout=1,
                proxy=None,
            )
        except (OSError, TimeoutError, websockets.WebSocketException):
            self._lost(way, "vanished")  # the node may have received it
            return False
        if self.link is not way:
            await socket.close()
            return False
        way.socket = socket
        assert node.front is not None
        way.tunnel = node.front.tunnels.get(socket.local_address[1])
        self._spawn(self._read(way, socket))
        self._spawn(self._beat(way, socket))
        return True

    async def close(self) -> None:
        """Close the socket cleanly."""
        way = self.link
        if way is not None:
            self._lost(way, "closed")
            if way.socket is not None:
                await way.socket.close()

    def vanish(self) -> None:
        """Make the socket half-open: no FIN is sent and no ping answered."""
        way = self.link
        if way is None or way.tunnel is None:
            return
        way.silent = way.tunnel.silent = True
        self._lost(way, "vanished")

    async def bye(self) -> None:
        way = self.link
        if way is None or way.socket is None:
            return
        self.witness.signs_out(self.user, self.device)
        await self.say("presence.bye")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ANSWER):
                await way.socket.wait_closed()
        if self.link is way:
            self.vanish()

    def _lost(self, way: Way, how: str) -> None:
        if self.link is way:
            self.witness.ended(self, how)
            self.link = None

    # Frames

    async def say(self, kind: str, **fields: object) -> None:
        if self.link is not None and self.link.socket is not None:
            self.witness.lived(self)
            with contextlib.suppress(OSError, websockets.WebSocketException, TimeoutError):
                async with asyncio.timeout(ANSWER):
                    await self.link.socket.send(json.dumps({"type": kind, **fields}))

    async def _beat(self, way: Way, socket: websockets.ClientConnection) -> None:
        while self.link is way:
            await asyncio.sleep(BEAT)
            if self.link is way:
                await self.say("presence.heartbeat")

    async def _read(self, way: Way, socket: websockets.ClientConnection) -> None:
        try:
            async for message in socket:
                if self.link is way:
                    self._receive(json.loads(message))
        except websockets.ConnectionClosed:
            pass
        code = socket.close_code or 1006
        if self.link is way:
            self.closed_with = code
            self._lost(way, f"by node: {code}")

    def _receive(self, frame: dict[str, Any]) -> None:
        match frame["type"]:
            case "presence.self":
                self.witness.greeted(self)
            case "presence.typing":
                self.witness.typing(self, frame["user_id"])
            case "presence.status":
                self._show(frame)
            case "presence.statuses":
                for status in frame["statuses"]:
                    self._show(status, answer="id" in frame)

    def _show(self, status: dict[str, Any], *, answer: bool = False) -> None:
        self.witness.shown(self, Shown.of(status, self.fleet.now, answer=answer))

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fleet.died.append(f"{self.user} {self.device}: {error!r}")

    async def stop(self) -> None:
        way, self.link = self.link, None
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if way is not None and way.socket is not None:
            way.socket.transport.abort()


class People:
    """All actors, each with its own random generator."""

    def __init__(self, fleet: Fleet, checker: Checker, seed: int, users: list[str], viewers: list[str]) -> None:
        self.fleet = fleet
        self.checker = checker
        self.seed = seed
        self.users = users
        self.viewers = viewers
        self.over = False
        """True: users do nothing more; viewers still reconnect."""
        self.trace: list[str] = []
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        for viewer in self.viewers:
            self._act(self._viewer(viewer))
        for user in self.users:
            for number in range(1 + self._dice(user).randrange(2)):
                self._act(self._device(user, f"d{number}"))
            if self._dice(f"rest {user}").random() < 0.4:
                self._act(self._rest_device(user, "rest"))
            self._act(self._chooser(user))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        ended = await asyncio.gather(*self._tasks, return_exceptions=True)
        for end in ended:
            if isinstance(end, Exception):
                raise end

    def note(self, what: str) -> None:
        self.trace.append(f"{self.fleet.now} {what}")

    def _act(self, work: Any) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(work))

    def _dice(self, what: str) -> Random:
        return Random(f"{self.seed} {what}")

    def some_node(self, dice: Random) -> Member | None:
        nodes = self.fleet.up()
        return dice.choice(nodes) if nodes else None

    async def _viewer(self, name: str) -> None:
        dice = self._dice(f"viewer {name}")
        client = Client(self.fleet, name, "d1", self.checker)
        while True:
            node = self.some_node(dice)
            if client.link is None and node is not None and await client.open(node):
                await client.say("presence.subscribe", target_user_ids=self.users, id="watch")
            await asyncio.sleep(0.3)

    async def _device(self, user: str, device: str) -> None:
        dice = self._dice(f"device {user} {device}")
        client = Client(self.fleet, user, device, self.checker)
        await asyncio.sleep(dice.uniform(0, 2))
        patience = dice.choice([1.0, 3.0, 8.0])
        while not self.over:
            if client.link is None:
                node = self.some_node(dice)
                if node is not None and dice.random() < (0.2 if client.closed_with == SIGNED_OUT else 0.7):
                    self.note(f"{user} {device} opens on {node.name}")
                    await client.open(node)
            else:
                await self._move(client, dice)
            await asyncio.sleep(dice.expovariate(1 / patience))

    async def _move(self, client: Client, dice: Random) -> None:
        action = dice.choices(("act", "type", "close", "vanish", "bye", "reload", "move"), (8, 3, 2, 2, 1, 2, 2))[0]
        self.note(f"{client.user} {client.device} {action}")
        if action == "act":
            await client.say("presence.active")
        elif action == "type":
            await client.say("presence.typing", to=dice.choice(self.viewers))
        elif action == "close":
            await client.close()
        elif action == "vanish":
            client.vanish()
        elif action == "bye":
            await client.bye()
        else:
            way = client.link
            await client.close()
            await asyncio.sleep(dice.choice([0.0, 0.1, 1.0]))
            node = way.node if way is not None and action == "reload" else self.some_node(dice)
            if node is not None and node.alive and client.link is None:
                await client.open(node)

    async def _rest_device(self, user: str, device: str) -> None:
        dice = self._dice(f"rest {user} {device}")
        while not self.over:
            await asyncio.sleep(dice.uniform(1, 10))
            for _ in range(dice.randint(1, 6)):
                node = self.some_node(dice)
                if node is None or self.over:
                    break
                asked_at = self.checker.scene.now
                try:
                    await node.ask("POST", "/presence/heartbeat", user, device_id=device, platform="mobile")
                    self.checker.beat(user, device, node.name, asked_at)
                    self.note(f"{user} {device} beat through {node.name} at {asked_at}")
                except httpx2.HTTPError as error:
                    self.checker.may_have_beaten(user, device, node.name)
                    self.note(f"{user} {device} beat through {node.name} at {asked_at} failed: {error!r}")
                await asyncio.sleep(dice.uniform(0.7, 2))

    async def _chooser(self, user: str) -> None:
        dice = self._dice(f"chooser {user}")
        number = 0
        while not self.over:
            await asyncio.sleep(dice.uniform(1, 6))
            node = self.some_node(dice)
            if node is None or self.over:
                continue
            if dice.random() < 0.5:
                mode = dice.choice([Mode.AUTO, Mode.AUTO, Mode.BUSY, Mode.AWAY, Mode.INVISIBLE])
                self.checker.asks_mode(user, mode)
                if await self._try(node, "PUT", "/presence/mode", user, mode=mode.word):
                    self.checker.has_mode(user, mode)
            else:
                number += 1
                self.checker.asks_text(user, number)
                if await self._try(node, "PUT", "/presence/status", user, text=str(number)):
                    self.checker.has_text(user, number)

    async def _try(self, node: Member, method: str, path: str, user: str, **body: object) -> bool:
        try:
            await node.ask(method, path, user, **body)
        except httpx2.HTTPError as error:
            self.note(f"{user} {body} through {node.name} failed: {error!r}")
            return False
        self.note(f"{user} {body} through {node.name}")
        return True
