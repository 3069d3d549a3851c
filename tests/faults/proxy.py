"""A TCP proxy that simulates network faults: cut, one-way cut, delay, reset, black hole.

A fault applies to everything that passes from now on, on old and new connections. `taken` counts how often a fault took
effect.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import Counter

CHUNK = 1 << 16


class Tunnel:
    """One connection through the proxy."""

    def __init__(self, near: asyncio.StreamWriter, far: asyncio.StreamWriter) -> None:
        self.near = near
        self.far = far
        self.silent = False
        """True: nothing passes any more, and no side gets a FIN or RST."""

    def reset(self) -> None:
        """Send an RST to both sides."""
        for writer in (self.near, self.far):
            sock = writer.get_extra_info("socket")
            if sock is not None and sock.fileno() >= 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()


class Proxy:
    def __init__(self, host: str, port: int) -> None:
        """A proxy in front of this address; assign `target` to move it."""
        self.target = host, port
        self.port = 0
        self.delay = 0.0
        """Seconds of delay of every piece, in both directions."""
        self.deaf = False
        """Data from clients is dropped; data from the server passes."""
        self.mute = False
        """Data from the server is dropped; data from clients passes."""
        self.closed = False
        """New connections are reset at once."""
        self.taken: Counter[str] = Counter()
        self.tunnels: dict[int, Tunnel] = {}
        """By the client's port."""
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> Proxy:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        self.reset()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Faults

    def cut(self) -> None:
        """Like a rejecting firewall: connections are reset, new ones too."""
        self.closed = True
        self.reset()

    def blackhole(self) -> None:
        """Like a dropping firewall: nothing arrives, nothing ends."""
        self.deaf = self.mute = True

    def heal(self) -> None:
        self.delay, self.deaf, self.mute, self.closed = 0.0, False, False, False

    def reset(self) -> None:
        for tunnel in list(self.tunnels.values()):
            self.taken["reset"] += 1
            tunnel.reset()

    # Forwarding

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._forward(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.closed:
            self.taken["refused"] += 1
            return
        port = writer.get_extra_info("peername")[1]
        far_reader, far_writer = await asyncio.open_connection(*self.target)
        tunnel = self.tunnels[port] = Tunnel(writer, far_writer)
        try:
            ways = [
                asyncio.create_task(self._pass(tunnel, reader, far_writer, up=True)),
                asyncio.create_task(self._pass(tunnel, far_reader, writer, up=False)),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                while (tunnel.silent and not ways[1].done()) or (
                    self.deaf and self.mute
                ):  # a FIN is not forwarded either
                    await asyncio.sleep(0.05)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        finally:
            self.tunnels.pop(port, None)
            far_writer.transport.abort()

    async def _pass(
        self, tunnel: Tunnel, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, up: bool
    ) -> None:
        while data := await reader.read(CHUNK):
            if self.delay:
                self.taken["delayed"] += 1
                await asyncio.sleep(self.delay)
            if tunnel.silent or (self.deaf if up else self.mute):
                self.taken["swallowed"] += 1
                continue
            writer.write(data)
            await writer.drain()
