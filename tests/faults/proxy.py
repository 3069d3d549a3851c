"""A TCP proxy that can do to a connection what networks do: cut it, cut one direction, delay, reset, swallow everything.

Faults hold for what goes through from now on, on old connections and new ones. `taken` counts how often one took effect.
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
        """Nothing more passes, and nobody is told."""

    def reset(self) -> None:
        """Both sides get an RST."""
        for writer in (self.near, self.far):
            sock = writer.get_extra_info("socket")
            if sock is not None and sock.fileno() >= 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()


class Proxy:
    def __init__(self, host: str, port: int) -> None:
        """In front of this address; moved by assigning to `target`."""
        self.target = host, port
        self.port = 0
        self.delay = 0.0
        """Seconds that every piece waits, in both directions."""
        self.deaf = False
        """What clients say is swallowed; what the server says passes."""
        self.mute = False
        """The other way round."""
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
        """As a firewall that answers: connections are reset, new ones too."""
        self.closed = True
        self.reset()

    def blackhole(self) -> None:
        """As a firewall that does not: nothing arrives, nothing ends."""
        self.deaf = self.mute = True

    def heal(self) -> None:
        self.delay, self.deaf, self.mute, self.closed = 0.0, False, False, False

    def reset(self) -> None:
        for tunnel in list(self.tunnels.values()):
            self.taken["reset"] += 1
            tunnel.reset()

    # Work

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
                ):  # an end does not pass either
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
