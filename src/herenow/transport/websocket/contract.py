"""The contract between a WebSocket and the rest of herenow: a `Socket`, its `Handler`, and the values that lead to both.

Values and protocols only; `CloseOnOpen` is the one handler with behaviour. The open sockets are in `registry`, the opening
handshake is checked in `handshake`, and `framing` says what frames mean from the 101 to the end. The two implementations
(`picows`, fast; `websockets_socket`, the slower second) share all of them, so that they cannot differ.

Presence, tokens and JSON are not known here. The contract towards handlers is the reason to change it.

    uvicorn ── ProtocolSniffer ─────────► UpgradeCheck ──► acceptor(Upgrade) ── Refuse ──► a plain HTTP answer
                 └──► HttpProtocol ──►                       │
                                                           Accept ──► 101 ──► Socket ◄──► Handler
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class SocketLimits:
    """Bounds of one connection; bytes and seconds."""

    max_message: int = 65536  # whole message, however many frames it came in
    close_timeout: float = 5.0  # from our CLOSE to the end, whatever the peer does
    linger: float = 1.0  # how long a peer that broke the protocol may go on sending before it is cut off
    high_water: int = 65536  # above so much unsent data: `on_pause`, and the peer is not read either
    read_buffer: int = 2048  # what a socket starts with; a larger message grows it


@dataclass(frozen=True, slots=True)
class Upgrade:
    """A valid opening handshake, before it is answered. What may hold a token is kept out of `repr`."""

    path: str  # as sent: percent-encoded, without the query
    query: str = field(repr=False)  # as sent
    headers: Mapping[str, str] = field(repr=False)  # lower-case names; of one that was repeated the first
    host: str
    origin: str | None
    subprotocols: tuple[str, ...] = field(repr=False)  # in the client's order
    peer: tuple[str, int] | None
    secure: bool

    def header(self, name: str) -> str | None:
        """The first header of that lower-case name."""
        return self.headers.get(name)


@dataclass(frozen=True, slots=True)
class Refuse:
    """A plain HTTP answer instead of the 101."""

    status: int
    body: str = ""
    headers: tuple[tuple[str, str], ...] = ()


class Socket(Protocol):
    """The sending side of one connection. Every method is a no-op once the connection is closing."""

    def send_text(self, payload: bytes) -> None:
        """One whole TEXT frame. The payload is not checked; it may be given to many sockets."""

    def ping(self) -> None:
        """One PING without payload; its answer is an `on_sign_of_life`."""

    def close(self, code: int, reason: str = "") -> None:
        """Start the closing handshake; it ends within `SocketLimits.close_timeout`, if need be by force.

        No callback but `on_closed` follows. A reason is cut to 123 bytes.
        """

    def abort(self) -> None:
        """End now, unsent data is dropped."""

    def buffered(self) -> int:
        """Bytes that wait because the peer does not read."""


class Handler(Protocol):
    """The receiving side of one connection.

    Callbacks must not block. An exception out of one is logged and closes the connection with 1011.
    """

    def on_open(self, socket: Socket) -> None:
        """The 101 is out; called first."""

    def on_text(self, payload: bytes) -> None:
        """One whole message: valid UTF-8, at most `SocketLimits.max_message` bytes."""

    def on_binary(self) -> None:
        """A whole binary message came, and was dropped."""

    def on_sign_of_life(self) -> None:
        """A ping or a pong came; text and binary messages are signs of life without this call."""

    def on_pause(self) -> None:
        """The peer reads too slowly: stop sending. May be called from inside `send_text`."""

    def on_resume(self) -> None:
        """The peer has caught up."""

    def on_leaving(self) -> None:
        """The peer's CLOSE or FIN was read, and nothing of it follows but `on_closed`: in a process that loses thousands
        at once that may be seconds later. Called at most once, not after an RST, and not where we closed first."""

    def on_closed(self, code: int | None, reason: str) -> None:
        """The connection is gone, whatever the cause; exactly once, last, and never from inside `close` or `abort`.

        `code` is that of the first CLOSE frame, ours or the peer's (1005 if it carried none), and None if the
        connection ended without one: FIN, RST, `abort`.
        """


@dataclass(frozen=True, slots=True)
class Accept:
    """Let the connection in; `subprotocol` must be one of those offered."""

    handler: Handler
    subprotocol: str | None = None


Acceptor = Callable[[Upgrade], Accept | Refuse]


class CloseOnOpen:
    """A handler that closes the connection as soon as it is open, with a code: a browser cannot read an HTTP refusal."""

    __slots__ = ("_code", "_reason")

    def __init__(self, code: int, reason: str = "") -> None:
        self._code = code
        self._reason = reason

    def on_open(self, socket: Socket) -> None:
        socket.close(self._code, self._reason)

    def on_text(self, payload: bytes) -> None: ...
    def on_binary(self) -> None: ...
    def on_sign_of_life(self) -> None: ...
    def on_pause(self) -> None: ...
    def on_resume(self) -> None: ...
    def on_leaving(self) -> None: ...
    def on_closed(self, code: int | None, reason: str) -> None: ...
