"""Chooses the protocol by the first bytes: a plain WebSocket handshake bypasses uvicorn's HTTP, all other requests use it.

Nearly all connections begin with an opening handshake in one segment. For these, uvicorn's parser, scope and other objects
would be a third of the cost when thousands reconnect. All other bytes (an incomplete, unusual or wrong head) go to HTTP
unchanged. So the handshakes that take this path are a subset of those that uvicorn would accept and hand over. On both paths
`UpgradeCheck` decides whether the handshake is valid.
"""

import asyncio
import re
from collections.abc import Callable
from typing import Any, cast

from uvicorn import Config
from uvicorn.server import ServerState

from herenow.transport.http.peer_limits import PeerLimits
from herenow.transport.http.uvicorn_patches import HttpProtocol

LONGEST = 8192  # most bytes of a head on this path, less than the limit of HTTP

_HEAD = re.compile(
    rb"GET /[!-\"$-~]* HTTP/1\.1\r\n"
    rb"(?:[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[\t -~\x80-\xff]*\r\n)+"
    rb"\r\n"
)
"""A head in the strict grammar of RFC 9112, without the variants that a server may tolerate."""


def plain_handshake(data: bytes) -> int:
    """Return where the HTTP head in `data` ends, if it is a WebSocket handshake in the usual spelling; 0 if uvicorn's
    HTTP protocol must parse it."""
    found = _HEAD.match(data, 0, LONGEST)
    if found is None:
        return 0
    head = found[0].lower()
    if (
        b"\r\nupgrade: websocket\r\n" in head
        and (b"\r\nconnection: upgrade\r\n" in head or b"\r\nconnection: keep-alive, upgrade\r\n" in head)
        and head.count(b"\r\nupgrade:") == head.count(b"\r\nconnection:") == 1
        and b"\r\ncontent-length:" not in head
        and b"\r\ntransfer-encoding:" not in head
    ):
        return found.end()
    return 0


class ProtocolSniffer(asyncio.Protocol):
    """The first protocol of a connection: reads the first bytes, then replaces itself. For `uvicorn.Config(http=…)`."""

    __slots__ = ("_app_state", "_config", "_made_at", "_server_state", "_tcp")

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._config = config
        self._server_state = server_state
        self._app_state = app_state
        self._made_at = asyncio.get_running_loop().time()
        """Loop time of `accept`; with TLS, `connection_made` is called only after the TLS handshake."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._tcp = cast(asyncio.Transport, transport)
        self._server_state.connections.add(self)  # type: ignore[arg-type]  # uvicorn only calls its `shutdown`

    def data_received(self, data: bytes) -> None:
        if self._tcp.is_closing():
            return
        self._unregister()
        end = plain_handshake(data)
        if end and self._config.ws_protocol_class is not None:
            self._hand_over(self._config.ws_protocol_class, data[:end], data[end:])
        else:
            self._hand_over(HttpProtocol, data, b"")

    def _hand_over(self, make: Callable[..., asyncio.Protocol], first: bytes, remaining: bytes) -> None:
        protocol = make(config=self._config, server_state=self._server_state, app_state=self._app_state)
        protocol.connection_made(self._tcp)
        self._tcp.set_protocol(protocol)
        if isinstance(protocol, HttpProtocol) and self._config.is_ssl:  # the time for a head includes the TLS handshake
            protocol.await_head_since(self._made_at)
        protocol.data_received(first)
        if remaining:  # frames that the client sent without waiting for the 101
            protocol.data_received(remaining)

    def connection_lost(self, exc: Exception | None) -> None:
        self._unregister()

    def shutdown(self) -> None:
        """Close the connection; called by uvicorn when the server stops."""
        self._tcp.close()

    def check(self, now: float, limits: PeerLimits) -> str | None:
        """Close the connection if its peer has sent nothing for too long at `now` (loop time). Returns None: it is not
        counted as late."""
        patience = limits.head_within if self._config.is_ssl else self._config.timeout_keep_alive
        if now - self._made_at > patience:
            self._tcp.close()
        return None

    def _unregister(self) -> None:
        self._server_state.connections.discard(self)
