"""One port for HTTP and WebSocket: the socket we listen on, and uvicorn behind it.

The port is taken before anything else is started, so that "somebody else listens there" is the first thing said.
"""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Iterator
from types import TracebackType
from typing import Self

import uvicorn
from starlette.types import ASGIApp

from herenow.errors import ConfigurationError
from herenow.gateway.handshake import Http
from herenow.gateway.picows_seam import picows_protocol
from herenow.gateway.sockets import Sockets
from herenow.gateway.websocket import Acceptor, Limits
from herenow.gateway.websockets_socket import websockets_protocol
from herenow.settings import Settings

BACKLOG = 4096
"""Connections that may wait to be accepted: a storm of reconnects comes in bursts."""

_PROTOCOLS = {"picows": picows_protocol, "websockets": websockets_protocol}


class _Server(uvicorn.Server):
    """Signals are the composition root's business."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Listener:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._server: _Server | None = None
        self._socket = _listen(settings.host, settings.port)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    @property
    def url(self) -> str:
        host, port = self._socket.getsockname()[:2]
        scheme = "https" if self._settings.tls_cert else "http"
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    async def serve(self, app: ASGIApp, acceptor: Acceptor, sockets: Sockets) -> None:
        """Until `stop`."""
        settings = self._settings
        limits = Limits(max_message=settings.max_frame)
        config = uvicorn.Config(
            app,
            http=Http,
            ws=_PROTOCOLS[settings.websocket](acceptor, limits, sockets),  # type: ignore[arg-type]
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
        self._server = _Server(config)
        await self._server.serve(sockets=[self._socket])

    def stop(self) -> None:
        if self._server is not None:
            self._server.should_exit = True


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigurationError(_why(host, port, error)) from None
    listener.setblocking(False)  # noqa: FBT003 - its signature
    return listener


def _why(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is taken: stop what listens there, or choose another with --port."
    if error.errno == errno.EACCES:
        return f"port {port} on {host} needs more rights than this process has: choose one above 1023 with --port."
    return f"host {host!r} and port {port} cannot be listened on ({error.strerror}): choose others with --host, --port."
