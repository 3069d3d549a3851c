"""How does an answer without an end leave? Through a `Pipe`: the connection itself, once its head is out.

ASGI gives an answer away piece by piece, each through every layer of the application and a task that waits for it; and
it has no word for a peer that does not read. Our HTTP therefore lends an endpoint the transport, in the request's scope.
What is written is the endpoint's business; how HTTP frames it, and how it ends in bounded time, is known here.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, MutableMapping
from typing import Any, Protocol

from herenow.transport.websocket import SocketLimits

PIPE = "herenow.pipe"
"""Among the `extensions` of a request's scope: what gives a `Lender` when it is called, as a weak reference does."""


class PipeWriter(Protocol):
    """Who writes, and wants to know what becomes of it."""

    def on_pause(self) -> None:
        """The peer reads too slowly. May be called from inside `Pipe.write`."""

    def on_resume(self) -> None:
        """The peer has caught up."""

    def on_gone(self) -> None:
        """The connection is closed, whatever the cause."""


Lender = Callable[[PipeWriter], asyncio.Transport]
"""Lends the transport, and tells the writer what becomes of it."""


class Pipe:
    """Chunks of one answer. Every method is a no-op once the connection is closing."""

    __slots__ = ("_limits", "_tcp")

    def __init__(self, tcp: asyncio.Transport, limits: SocketLimits, *, silence: float) -> None:
        """`silence`: seconds that a peer may leave what it was sent unacknowledged, as one that has vanished does."""
        self._tcp = tcp
        self._limits = limits
        # uvloop's own low mark is 16 bytes (sic): a slow peer would have to take everything first.
        tcp.set_write_buffer_limits(high=limits.high_water)
        connection = tcp.get_extra_info("socket")
        if connection is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
            with contextlib.suppress(OSError):  # not TCP, but a Unix socket
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(silence * 1000))

    def write(self, data: bytes) -> None:
        if not self._tcp.is_closing():
            self._tcp.write(b"%x\r\n%b\r\n" % (len(data), data))

    def finish(self, data: bytes) -> None:
        """The last words. Who does not take them in time is cut off."""
        if self._tcp.is_closing():
            return
        self._tcp.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(data), data))
        self._tcp.close()
        if self._tcp.get_write_buffer_size():
            asyncio.get_running_loop().call_later(self._limits.close_timeout, self._tcp.abort)

    def abort(self) -> None:
        self._tcp.abort()

    def buffered(self) -> int:
        return self._tcp.get_write_buffer_size()


def lender_of(scope: MutableMapping[str, Any]) -> Lender | None:
    """None: the server that runs us is not our own, or the connection is gone."""
    extensions: dict[str, Callable[[], Lender | None]] = scope.get("extensions") or {}
    return extensions[PIPE]() if PIPE in extensions else None
