"""The listening socket for HTTP and WebSocket, and uvicorn behind it.

The port is bound before anything else starts, so that a port in use is the first error. A worker joins the address that its
supervisor holds, and listens only when it can serve: the system does not move a connection to another worker later.
"""

from __future__ import annotations

import asyncio
import socket
from types import TracebackType
from typing import Self

import uvicorn
from starlette.types import ASGIApp

from herenow.node.metrics import Metrics
from herenow.settings import Settings
from herenow.transport.address import BACKLOG, joined, listening, url_of
from herenow.transport.http.first_bytes import ProtocolSniffer
from herenow.transport.http.peer_events import PeerEvents
from herenow.transport.http.peer_limits import peer_limits
from herenow.transport.http.uvicorn_server import UvicornServer
from herenow.transport.websocket import Acceptor, SocketLimits, Sockets, protocol_factory

SOON = 0.005  # seconds between two checks whether the server has started


class Listener:
    def __init__(self, settings: Settings, shared: tuple[str, int] | None = None) -> None:
        """Bind the address of the settings, or `shared`: the address that the supervisor holds for all workers; None if
        there is one process."""
        self._settings = settings
        self._server: UvicornServer | None = None
        self._socket: socket.socket
        self._socket = listening(settings.host, settings.port) if shared is None else joined(*shared)
        _enable_keepalive(self._socket, settings.dead_after)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    @property
    def url(self) -> str:
        return url_of(self._socket, secure=self._settings.tls_cert is not None)

    async def serve(self, app: ASGIApp, acceptor: Acceptor, sockets: Sockets, metrics: Metrics) -> None:
        settings = self._settings
        limits = SocketLimits(max_message=settings.max_frame)
        config = uvicorn.Config(
            app,
            http=ProtocolSniffer,
            ws=protocol_factory(settings.websocket, acceptor, limits, sockets),  # type: ignore[arg-type]
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            backlog=BACKLOG,
            timeout_graceful_shutdown=3,
            proxy_headers=bool(settings.trusted_proxies),
            forwarded_allow_ips=list(settings.trusted_proxies),
            ssl_certfile=settings.tls_cert,
            ssl_keyfile=settings.tls_key,
        )
        self._server = UvicornServer(
            config, peer_limits(settings), PeerEvents(metrics, asyncio.get_running_loop().time)
        )
        await self._server.serve(sockets=[self._socket])

    async def started(self, serving: asyncio.Task[None]) -> None:
        """Wait until the server accepts connections, or until `serving`, the task of `serve`, has ended."""
        while not (serving.done() or (self._server is not None and self._server.started)):  # noqa: ASYNC110
            await asyncio.sleep(SOON)  # uvicorn has no event for this

    def stop_accepting(self) -> None:
        """Stop accepting new connections, which then go to the other workers; open ones stay."""
        for server in () if self._server is None else self._server.servers:
            server.close()

    def stop(self) -> None:
        if self._server is not None:
            self._server.should_exit = True


def _enable_keepalive(listener: socket.socket, silence: float) -> None:
    """Make the operating system end connections with no sign of life of the peer for `silence` seconds; sockets that
    `listener` accepts inherit this.

    Needed for connections that no timer of ours checks, such as a second socket of a device with a live session."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    seconds = max(1, round(silence))
    for name, value in (
        ("TCP_KEEPIDLE", max(1, seconds // 2)),
        ("TCP_KEEPINTVL", max(1, seconds // 6)),
        ("TCP_KEEPCNT", 3),
        ("TCP_USER_TIMEOUT", seconds * 1000),
    ):
        if hasattr(socket, name):  # Linux has all of them
            listener.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
