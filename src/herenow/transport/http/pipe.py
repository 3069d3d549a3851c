"""`Pipe`: writes chunks of an endless response directly to the transport, after its head was sent.

With ASGI each chunk would pass all layers of the application and need a waiting task, and ASGI cannot report a peer that
does not read. So `HttpProtocol` lends its transport to an endpoint through the request's scope. This module knows HTTP's
chunks and ends a response within a bounded time.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, MutableMapping
from typing import Any, Protocol

from herenow.transport.websocket import SocketLimits

PIPE = "herenow.pipe"  # key in the `extensions` of a request's scope; its value is a weak reference to a `Lender`


class PipeWriter(Protocol):
    """Callbacks for the user of a pipe."""

    def on_pause(self) -> None:
        """Called when the peer reads too slowly: stop writing. May be called from inside `Pipe.write`."""

    def on_resume(self) -> None:
        """Called when the peer has read enough: write again."""

    def on_gone(self) -> None:
        """Called when the connection is closed, whatever the cause."""


Lender = Callable[[PipeWriter], asyncio.Transport]
"""Returns the transport, and from then on calls the writer's callbacks."""


class Pipe:
    """Writes the chunks of one response. `write` and `finish` do nothing once the connection is closing."""

    __slots__ = ("_limits", "_tcp")

    def __init__(self, tcp: asyncio.Transport, limits: SocketLimits, *, silence: float) -> None:
        """Prepare the transport `tcp` for an endless response. `silence`: seconds without a TCP acknowledgement of sent
        data, after which the system drops the connection."""
        self._tcp = tcp
        self._limits = limits
        # uvloop's default low-water mark is 16 bytes: a slow peer would have to read everything before `on_resume`.
        tcp.set_write_buffer_limits(high=limits.high_water)
        connection = tcp.get_extra_info("socket")
        if connection is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
            with contextlib.suppress(OSError):  # a Unix socket
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(silence * 1000))

    def write(self, data: bytes) -> None:
        if not self._tcp.is_closing():
            self._tcp.write(b"%x\r\n%b\r\n" % (len(data), data))

    def finish(self, data: bytes) -> None:
        """Write a last chunk and close the connection; abort it if the peer does not read the chunk within
        `SocketLimits.close_timeout`."""
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
    """Return the function by which the endpoint of this request can borrow the connection's transport. None if another
    ASGI server runs the application, or if the connection is gone."""
    extensions: dict[str, Callable[[], Lender | None]] = scope.get("extensions") or {}
    return extensions[PIPE]() if PIPE in extensions else None
