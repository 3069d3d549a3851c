"""The contract between a WebSocket and the other packages: `Socket`, `Handler`, and the values of the opening handshake.

Values and protocols only, except the handler `CloseOnOpen`. `registry` holds the open sockets, `handshake` checks the
opening handshake, `framing` handles frames. The implementations `picows` (fast) and `websockets_socket` share all of them.

    uvicorn ── ProtocolSniffer ─────────► UpgradeCheck ──► acceptor(Upgrade) ── Refuse ──► a plain HTTP answer
                 └──► HttpProtocol ──►                       │
                                                           Accept ──► 101 ──► Socket ◄──► Handler
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntFlag
from typing import Protocol


@dataclass(frozen=True, slots=True)
class SocketLimits:
    """Bounds of one connection; bytes and seconds."""

    max_message: int = 65536  # of a whole message, all fragments together
    close_timeout: float = 5.0  # from our CLOSE to the end of the connection, whatever the peer does
    linger: float = 1.0  # how long a peer that broke the protocol may go on sending before the connection is aborted
    high_water: int = 65536  # with more unsent data: `on_pause` is called, and reading from the peer stops
    read_buffer: int = 2048  # initial size; a larger message grows it


@dataclass(frozen=True, slots=True)
class Upgrade:
    """A valid opening handshake, before it is answered. `repr` omits fields that may contain a token."""

    path: str  # as sent: percent-encoded, without the query
    query: str = field(repr=False)  # as sent
    headers: Mapping[str, str] = field(repr=False)  # lower-case names; the first value of a repeated header
    host: str
    origin: str | None
    subprotocols: tuple[str, ...] = field(repr=False)  # in the client's order
    peer: tuple[str, int] | None
    secure: bool

    def header(self, name: str) -> str | None:
        """Return the value of the first header with this lower-case name; None if there is none."""
        return self.headers.get(name)


@dataclass(frozen=True, slots=True)
class Refuse:
    """A plain HTTP answer instead of the 101."""

    status: int
    body: str = ""
    headers: tuple[tuple[str, str], ...] = ()


class Pause(IntFlag):
    """Reasons not to read from a connection."""

    WRITES = 1  # the peer does not read what it was sent
    BUDGET = 2  # the peer sent more than its budget
    COMMANDS = 4  # too many commands wait for their answers
    ITERATION = 8  # enough frames were read in this iteration of the event loop


class Socket(Protocol):
    """One connection, as its handler sees it. Every method does nothing once the connection is closing."""

    def send_text(self, payload: bytes) -> None:
        """Send one whole TEXT frame. The payload is not checked; many sockets may share it."""

    def ping(self) -> None:
        """Send a PING without payload; the PONG causes `on_sign_of_life`."""

    def close(self, code: int, reason: str = "") -> None:
        """Start the closing handshake with this code and reason (cut to 123 bytes). After `SocketLimits.close_timeout`
        the connection is aborted. The handler gets no other callback but `on_closed`."""

    def abort(self) -> None:
        """End the connection now and drop unsent data."""

    def buffered(self) -> int:
        """Return the number of unsent bytes that wait because the peer does not read."""

    def pause_reading(self, why: Pause) -> None:
        """Read nothing from the peer until `resume_reading` was called for every reason. Frames that were read already
        wait: the handler gets no message meanwhile."""

    def resume_reading(self, why: Pause) -> None:
        """End the pause for this reason. If there is no other one, the handler gets further messages from the next
        iteration of the event loop on, never from inside this call."""


class Handler(Protocol):
    """The receiving side of one connection. Callbacks must not block; an exception is logged and closes with 1011."""

    def on_open(self, socket: Socket) -> None:
        """Called first, when the 101 response was sent and `socket` can be used."""

    def on_text(self, payload: bytes) -> None:
        """Called for each whole text message: valid UTF-8, at most `SocketLimits.max_message` bytes."""

    def on_binary(self) -> None:
        """Called for each whole binary message; its content was dropped."""

    def on_sign_of_life(self) -> None:
        """Called for each ping or pong of the peer. Text and binary messages are signs of life without this call."""

    def on_pause(self) -> None:
        """Called when the peer reads too slowly: stop sending. May be called from inside `send_text`."""

    def on_resume(self) -> None:
        """Called when the peer has read enough: send again."""

    def on_other_frame(self, size: int) -> None:
        """Called for each frame that is not a whole text message (a ping, a pong, a fragment, a binary message), before
        its own callback, if it has one. `size`: bytes of its payload."""

    def on_leaving(self) -> None:
        """Called when the peer's CLOSE or FIN was read; only `on_closed` follows, maybe seconds later if thousands
        close at once. Called at most once; not after an RST and not if we closed first."""

    def on_closed(self, code: int | None, reason: str) -> None:
        """Called when the connection is gone: exactly once, last, and never from inside `close` or `abort`.

        `code`: of the first CLOSE frame, ours or the peer's (1005 if it had none); None if the connection ended without
        a CLOSE (FIN, RST, `abort`)."""


@dataclass(frozen=True, slots=True)
class Accept:
    """Accept the connection; `subprotocol` must be one that the client offered."""

    handler: Handler
    subprotocol: str | None = None


Acceptor = Callable[[Upgrade], Accept | Refuse]


class CloseOnOpen:
    """A handler that closes the connection with a code as soon as it is open: browsers cannot read an HTTP refusal."""

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
    def on_other_frame(self, size: int) -> None: ...
    def on_leaving(self) -> None: ...
    def on_closed(self, code: int | None, reason: str) -> None: ...
