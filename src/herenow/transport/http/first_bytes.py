"""The first bytes of a connection: a plain WebSocket handshake bypasses uvicorn's HTTP, everything else goes to it.

Nearly everybody who arrives says one thing, an opening handshake, in one segment. uvicorn would make a parser, a scope and
a dozen objects more for a request that is then handed over: a third of what a handshake costs when thousands reconnect. So
a handshake of the plainest kind goes to the WebSocket at once. Everything else, and whatever is in doubt, goes to HTTP with
the bytes read so far, as if nobody had looked: a head in pieces, one spelt in an unusual way, a wrong one.

The handshakes that pass are therefore a subset of those that uvicorn's parser accepts and hands over. Whether the
handshake is valid is decided by the WebSocket's `UpgradeCheck` on either way. Another spelling that many clients use is a
reason to change this module.
"""

import asyncio
import re
from collections.abc import Callable
from typing import Any, cast

from uvicorn import Config
from uvicorn.server import ServerState

from herenow.transport.http.peer_limits import PeerLimits
from herenow.transport.http.uvicorn_patches import HttpProtocol

LONGEST = 8192
"""Bytes of a head that may pass: room for a token of any length that we take, and nothing that HTTP would cut off."""

_HEAD = re.compile(
    rb"GET /[!-\"$-~]* HTTP/1\.1\r\n"
    rb"(?:[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[\t -~\x80-\xff]*\r\n)+"
    rb"\r\n"
)
"""Well-formed by RFC 9112, without any of the liberties it leaves to a server."""


def plain_handshake(data: bytes) -> int:
    """Where the head ends if it asks for a WebSocket, in the words that all clients use; 0: HTTP should say what it is."""
    found = _HEAD.match(data, 0, LONGEST)
    if found is None:
        return 0
    said = found[0].lower()
    if (
        b"\r\nupgrade: websocket\r\n" in said
        and (b"\r\nconnection: upgrade\r\n" in said or b"\r\nconnection: keep-alive, upgrade\r\n" in said)
        and said.count(b"\r\nupgrade:") == said.count(b"\r\nconnection:") == 1
        and b"\r\ncontent-length:" not in said
        and b"\r\ntransfer-encoding:" not in said
    ):
        return found.end()
    return 0


class ProtocolSniffer(asyncio.Protocol):
    """The first protocol of a connection: reads the first bytes and replaces itself; for `uvicorn.Config(http=…)`."""

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
        """When the connection was accepted; with TLS, `connection_made` comes after its handshake."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._tcp = cast(asyncio.Transport, transport)
        self._server_state.connections.add(self)  # type: ignore[arg-type]  # it only asks for `shutdown`

    def data_received(self, data: bytes) -> None:
        if self._tcp.is_closing():
            return
        self._let_go()
        end = plain_handshake(data)
        if end and self._config.ws_protocol_class is not None:
            self._hand_over(self._config.ws_protocol_class, data[:end], data[end:])
        else:
            self._hand_over(HttpProtocol, data, b"")

    def _hand_over(self, make: Callable[..., asyncio.Protocol], first: bytes, rest: bytes) -> None:
        protocol = make(config=self._config, server_state=self._server_state, app_state=self._app_state)
        protocol.connection_made(self._tcp)
        self._tcp.set_protocol(protocol)
        if isinstance(protocol, HttpProtocol) and self._config.is_ssl:  # its first byte was that of the TLS handshake
            protocol.await_head_since(self._made_at)
        protocol.data_received(first)
        if rest:  # frames that did not wait for our answer
            protocol.data_received(rest)

    def connection_lost(self, exc: Exception | None) -> None:
        self._let_go()

    def shutdown(self) -> None:
        """uvicorn's word when the server stops."""
        self._tcp.close()

    def check(self, now: float, limits: PeerLimits) -> str | None:
        """End the connection if its peer has said nothing for too long."""
        patience = limits.head_within if self._config.is_ssl else self._config.timeout_keep_alive
        if now - self._made_at > patience:
            self._tcp.close()
        return None

    def _let_go(self) -> None:
        self._server_state.connections.discard(self)
